"""
A limit holder on one device: its declared limit, beside what it uses.

Nothing comes in. The type of a case goes out; `enforcer.policy.cases` makes the cases of a snapshot.

The rule: **usage is an interval, and doubt is per holder.** A holder is accused with the low end of its interval, and
what it needs is computed from the high end.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from enforcer.policy.holder import CaseKey, Target
from enforcer.policy.vocabulary import Reason
from exporter.model import ContainerKind, Device, Limit, Pod

ALLOCATIONS = "allocations"
"""Source of the kubelet's faults: then allocations are remembered ones, and limits may depend on them."""
NEVER = frozenset({Reason.UNDECLARED, Reason.LIMIT_INVALID, Reason.PROCESS_SCOPE})
"""Where the holder has no limit of its own, it cannot be over one."""


# Not frozen: one is made for each holder in each round, and a frozen one takes three times as long.
@dataclass(slots=True)
class Case:
    """
    A declared limit, and what is known of its holder on one device now. Nothing changes it.

    Attributes:
        pod: of a claim that several pods share, the pod that holds most; None where Kubernetes does not know it.
        device: None while the driver does not name it.
        low, high: bytes that the holder uses at least and at most; `high` is None where it is not known.
        unknown: why nothing was read in this round; then `low` is 0.
        pending: nothing was read now, but a short time ago: an early round reads some GPUs only.
        present: the container is the present generation of its name; always true for pods and claims.
        kind: of the container that `victim` names.
        processes: bytes of each process of the holder; None where they are not all known.
        largest: of a pod's or a claim's limit, the container that holds most; None where that is not known.
        clients: the containers of its pod that are MPS clients; see `enforcer.policy.mps`.

    """

    key: CaseKey
    limit: Limit
    pod: Pod | None
    device: Device | None
    low: int = 0
    high: int | None = None
    unknown: Reason | None = None
    pending: bool = False
    present: bool = True
    kind: ContainerKind = ContainerKind.REGULAR
    processes: tuple[int, ...] | None = None
    largest: Target | None = None
    clients: Mapping[str, str] = field(default_factory=dict)

    @property
    def used(self) -> int | None:
        """The bytes that are certain; None where nothing is known."""
        return None if self.unknown is not None else self.low

    @property
    def victim(self) -> str:
        """Name the container that `kill` and `fence` would act on; empty where that is not known."""
        return self.key.container if self.key.container_id else self.largest.container if self.largest else ""

    @property
    def namespace(self) -> str:
        """Of the pod; empty where that is unknown."""
        return self.pod.namespace if self.pod else ""

    @property
    def workload(self) -> tuple[str, str, str]:
        """Namespace, kind and name of the top controller; of a bare pod, and while it is not known, the pod's own."""
        pod = self.pod
        if pod is None:
            return "", "Pod", self.key.pod_uid
        return (pod.namespace, pod.workload_kind, pod.workload) if pod.workload else (pod.namespace, "Pod", pod.name)
