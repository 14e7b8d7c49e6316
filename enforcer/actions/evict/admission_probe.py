"""
The canary: whether the admission policy that keeps our evictions within bounds is in force.

What comes in: a namespace in which we may evict, the policy's name. What goes out: in force, absent, or unknown.

The law: only the policy's own no counts. The request could do nothing even if nobody stood in its way: it names no pod
that there is, and is a dry run. Admission comes before the pod is looked for, so a server without the policy says 404.
"""

from dataclasses import dataclass
from enum import StrEnum
from uuid import uuid4

from enforcer.actions.evict.api import API_VERSION
from enforcer.actions.kube_writer import Writer
from exporter.kube.client import segment
from exporter.kube.errors import KubeError

POLICY = "gpusteward-evictions"
"""Name of the ValidatingAdmissionPolicy that demands a UID of our evictions."""
DENIED = frozenset({403, 422})
"""Statuses of a policy's no: 422 (Invalid) unless its validation names the reason Forbidden."""
NOT_FOUND = 404


class Guard(StrEnum):
    """Whether the admission policy stands."""

    IN_FORCE = "in_force"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Sighting:
    """What the canary saw, and the server's words."""

    guard: Guard
    detail: str


async def canary(writer: Writer, namespace: str, *, policy: str = POLICY) -> Sighting:
    """Ask for an eviction without UID, which the policy forbids, of a pod that does not exist, without effect."""
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
