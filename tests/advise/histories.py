"""
Days of containers, as Prometheus keeps what the daemon exports of them.

In: containers, and what they held at each time. Out: samples for `report.week.blocks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from report.week import DAY, GIB, START, STEP, Labels

DAYS = 4
UNTIL = "2023-11-19T00:00:00Z"
"""The end of the days."""


@dataclass(frozen=True)
class Box:
    """A container on a GPU; `pod_limit` is its pod's, and `declaration` the holder's."""

    workload: str
    container: str = "main"
    held: Callable[[int], float] = lambda _: 10 * GIB
    kind: str = "Deployment"
    cluster: str = ""
    pod: str = ""
    limit: float | None = None
    pod_limit: float | None = None
    declaration: dict[str, str] = field(default_factory=dict)
    claim: str = ""
    """The ResourceClaim that it shares with all boxes of the same one; its limit is 30 GiB."""
    device: float = 80 * GIB
    """Bytes of the GPU."""
    kernel: float | None = None
    """The peak that the kernel remembers."""
    over: float = 0.0
    """Seconds over the limit in each hour."""

    place: str = ""
    """The GPU, if it is not one for the workload alone."""

    @property
    def on(self) -> str:
        """The GPU of its cluster."""
        return f"{self.claim or self.place or self.workload}/{self.cluster}"

    @property
    def of_pod(self) -> Labels:
        """Labels of the pod."""
        return (("namespace", "team-a"), ("pod", self.pod or f"{self.workload}-a"))


def samples(
    boxes: Iterable[Box], renamed: Callable[[Labels], Labels] = lambda labels: labels
) -> Iterator[tuple[str, Labels, int, float]]:
    """Yield four days of them; `renamed` does to labels of workloads what a scrape does that overrides them."""
    found = list(boxes)
    places = {box.on: f"GPU-{number}" for number, box in enumerate(found)}
    claims = sorted({box.claim for box in found if box.claim})
    for at in range(START, START + DAYS * DAY + 1, STEP):
        for box in found:
            node = (("cluster", box.cluster), ("node", "n"))
            device = (*node, ("uuid", places[box.on]))
            yield "gpusteward_device_memory_total_bytes", device, at, box.device
            own = (*device, *renamed((*box.of_pod, ("container", box.container))))
            of_pod = (*device, *renamed(box.of_pod))
            holder = own if box.pod_limit is None else of_pod
            yield "gpusteward_container_memory_used_bytes", own, at, box.held(at)
            workload = (("workload_kind", box.kind), ("workload", box.workload))
            yield "gpusteward_pod_info", (*node, *renamed(box.of_pod), *workload), at, 1
            if box.kernel is not None:
                yield "gpusteward_container_memory_peak_bytes", own, at, box.kernel
            if box.limit is not None:
                yield "gpusteward_container_memory_limit_bytes", own, at, box.limit
            if box.pod_limit is not None:
                yield "gpusteward_pod_memory_limit_bytes", of_pod, at, box.pod_limit
            if box.declaration:
                yield "gpusteward_container_limit_info", (*holder, *box.declaration.items()), at, 1
            if box.over:
                yield "gpusteward_container_over_limit_seconds_total", holder, at, box.over * (at - START) / 3600
        for claim in claims:
            sharers = [box for box in found if box.claim == claim]
            of_claim = renamed((("namespace", "team-a"), ("claim", claim)))
            device = (("cluster", ""), ("node", "n"), ("uuid", places[f"{claim}/"]))
            together = sum(box.held(at) for box in sharers)
            yield "gpusteward_claim_memory_used_bytes", (*device, *of_claim), at, together
            yield "gpusteward_claim_memory_limit_bytes", (*device, *of_claim), at, 30 * GIB
