"""
Asks whether the admission policies that bound our evictions are in force.

What comes in: the daemon's own pod. What goes out: in force, absent or unknown, the policy, and the server's message.

The rule: only a refusal by a policy itself proves that it is in force. Each request breaks one policy alone, because
the server names one refusal alone. Without the policies they do no harm: each is a dry run. One asks for a pod that
does not exist, the other for the own pod with a wrong UID. Admission comes before both are looked up, so a server
without the policy answers 404, or 409.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self
from uuid import uuid4

from enforcer.actions.evict.api import ADMISSION_POLICY, API_VERSION
from enforcer.actions.kube_writer import Posted, Writer
from exporter.base.problem import Problem
from exporter.kube.client import segment
from exporter.kube.errors import KubeError

POLICY = "gpusteward-evictions"
"""Name of the ValidatingAdmissionPolicy that says what an eviction of ours looks like."""
OWN_NODE = "gpusteward-own-node"
"""Name of the ValidatingAdmissionPolicy that limits our evictions to pods of the token's node."""
DENIED = frozenset({403, 422})
"""Statuses of a refusal by a policy: 422 (Invalid), unless its validation names the reason Forbidden (403)."""
NOT_FOUND, CONFLICT = 404, 409
PODS = frozenset({"pods", "Pod"})
"""How an API server names a pod that it did not find, and one with another UID (Kubernetes 1.34)."""
NOBODY = str(uuid4())
"""A UID that no pod has, and a part of a name that none has. It stays the same, so that a reason is logged once."""
NO_NODE = "the token carries no node claim"
"""The message by which both policies refuse a token that does not name its node."""


class Guard(StrEnum):
    """Whether an admission policy is in force."""

    IN_FORCE = "in_force"
    ABSENT = "absent"
    UNKNOWN = "unknown"
    NO_NODE = "no_node"  # it is in force, and refuses every eviction of this token


@dataclass(frozen=True, slots=True)
class OwnPod:
    """The daemon's own pod; both are empty where the daemon does not know it."""

    namespace: str
    name: str

    @property
    def known(self) -> bool:
        """Whether the policies can be asked for with it."""
        return bool(self.namespace and self.name)


@dataclass(frozen=True, slots=True)
class Sighting:
    """What was found of a policy, and the server's message."""

    policy: str
    guard: Guard
    detail: str

    @property
    def problem(self) -> Problem:
        """Why no pod is evicted, and what to do about it; without a fix where the policies are to be installed."""
        if self.guard is Guard.NO_NODE:
            fix = "run the daemon as a pod, on Kubernetes 1.30 or later"
            return Problem(f"{NO_NODE}, so each eviction is refused", fix=fix)
        return Problem(f"{self.policy} is {self.guard}: {self.detail}", fix="")

    @classmethod
    def of(cls, policy: str, heard: Posted | KubeError, *, absent: int) -> Self:
        """Read an answer; `absent`: the status that it has without the policy."""
        if isinstance(heard, Posted):
            return cls(policy, Guard.UNKNOWN, f"HTTP {heard.status} for an eviction that cannot be")
        return cls(policy, _guard(heard, policy, absent), heard.message)


async def missing(writer: Writer, own: OwnPod) -> Sighting | None:
    """Find the first policy that was not seen in force; None: both were."""
    for look in (evictions, own_node):
        sighting = await look(writer, own)
        if sighting.guard is not Guard.IN_FORCE:
            return sighting
    return None


async def evictions(writer: Writer, own: OwnPod) -> Sighting:
    """Request an eviction without a UID, which the policy forbids, of a pod that does not exist."""
    heard = await _dry_run(writer, own.namespace, f"gpusteward-canary-{NOBODY}", {})
    return Sighting.of(POLICY, heard, absent=NOT_FOUND)


async def own_node(writer: Writer, own: OwnPod) -> Sighting:
    """Request an eviction of the own pod with another UID, which the policy forbids: it knows the pod by its UID."""
    heard = await _dry_run(writer, own.namespace, own.name, {"preconditions": {"uid": NOBODY}})
    return Sighting.of(OWN_NODE, heard, absent=CONFLICT)


async def _dry_run(writer: Writer, namespace: str, name: str, options: dict[str, object]) -> Posted | KubeError:
    path = f"/api/v1/namespaces/{segment(namespace)}/pods/{segment(name)}/eviction"
    eviction = {
        "apiVersion": API_VERSION,
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": {"dryRun": ["All"], **options},
    }
    try:
        return await writer.create(path, eviction, query={"dryRun": "All"})
    except KubeError as error:
        return error


def _guard(error: KubeError, policy: str, absent: int) -> Guard:
    if error.status in DENIED and ADMISSION_POLICY in error.message:
        if error.message.endswith(NO_NODE):
            return Guard.NO_NODE
        return Guard.IN_FORCE if f"{ADMISSION_POLICY}{policy}' " in error.message else Guard.UNKNOWN
    return Guard.ABSENT if error.status == absent and error.kind in PODS else Guard.UNKNOWN
