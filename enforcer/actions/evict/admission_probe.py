"""
The canary: asks whether the admission policy that bounds our evictions is in force.

What comes in: a namespace in which we may evict, and the policy's name. What goes out: in force, absent, or unknown.

The rule: only a refusal by the policy itself proves that it is in force. The request can do no harm without the policy:
its pod does not exist, and it is a dry run. Admission comes before the look-up of the pod, so a server without the
policy answers 404.
"""

from dataclasses import dataclass
from enum import StrEnum
from uuid import uuid4

from enforcer.actions.evict.api import API_VERSION
from enforcer.actions.kube_writer import Writer
from exporter.kube.client import segment
from exporter.kube.errors import KubeError

POLICY = "gpusteward-evictions"
"""Name of the ValidatingAdmissionPolicy that requires a UID in our evictions."""
DENIED = frozenset({403, 422})
"""Statuses of a refusal by a policy: 422 (Invalid), unless its validation names the reason Forbidden (403)."""
NOT_FOUND = 404


class Guard(StrEnum):
    """Whether the admission policy is in force."""

    IN_FORCE = "in_force"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Sighting:
    """What the canary found, and the server's message."""

    guard: Guard
    detail: str


async def canary(writer: Writer, namespace: str, *, policy: str = POLICY) -> Sighting:
    """Request a dry-run eviction without a UID, which the policy forbids, of a pod that does not exist."""
    name = f"gpusteward-canary-{uuid4()}"
    path = f"/api/v1/namespaces/{segment(namespace)}/pods/{name}/eviction"
    eviction = {
        "apiVersion": API_VERSION,
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": {"dryRun": ["All"]},
    }
    try:
        posted = await writer.create(path, eviction, query={"dryRun": "All"})
    except KubeError as error:
        return Sighting(_guard(error, policy), error.message)
    return Sighting(Guard.UNKNOWN, f"HTTP {posted.status} for a pod that does not exist")


def _guard(error: KubeError, policy: str) -> Guard:
    if error.status in DENIED and f"ValidatingAdmissionPolicy '{policy}' " in error.message:
        return Guard.IN_FORCE
    return Guard.ABSENT if error.status == NOT_FOUND and error.kind == "pods" else Guard.UNKNOWN
