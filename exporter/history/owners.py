"""
Which workload each pod had, where names of pods are used again.

What comes in: for parts of a window, how many samples a pod name had of each workload. What goes out: the workload of
each pod in each part, and whether it changes in one.

The rule: in a part, the workload with most samples counts. A workload that is empty in a part is that of the part
before, or else of the part after: Kubernetes could not be asked then.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

TOGETHER = 1.2
"""A pod name with so many samples more than its node has scrapes has two pods at once: to cut the time is no use."""

NodeT = TypeVar("NodeT", bound=Hashable)
PodT = TypeVar("PodT", bound=Hashable)


class Workload(NamedTuple):
    """The top controller of a pod; without a name it is not known, or there is none."""

    kind: str
    name: str


@dataclass
class Owners(Generic[NodeT, PodT]):
    """
    What is known of a part.

    Attributes:
        samples: of each pod name, by workload.
        scrapes: of each node.
        nodes: where a pod is.
    """

    samples: dict[PodT, dict[Workload, float]] = field(default_factory=lambda: defaultdict(dict))
    scrapes: dict[NodeT, float] = field(default_factory=dict)
    nodes: dict[PodT, NodeT] = field(default_factory=dict)

    def note(self, node: NodeT, pod: PodT, workload: Workload, samples: float) -> None:
        """Add samples of a pod with a workload."""
        found = self.samples[pod]
        found[workload] = found.get(workload, 0.0) + samples
        self.nodes[pod] = node

    def scraped(self, node: NodeT, scrapes: float) -> None:
        """Add scrapes of a node."""
        self.scrapes[node] = self.scrapes.get(node, 0.0) + scrapes

    def of(self, pod: PodT) -> Workload | None:
        """Return the workload of a pod, one with a name before one without; None for a pod without samples."""
        found = self.samples.get(pod)
        return max(found, key=lambda one: (one.name != "", found[one], one)) if found else None

    def changed(self) -> set[PodT]:
        """Return the pods that have several workloads one after the other."""
        return {
            pod
            for pod, found in self.samples.items()
            if sum(one.name != "" for one in found) > 1
            and sum(found.values()) <= TOGETHER * self.scrapes.get(self.nodes[pod], 0.0)
        }


def filled(parts: Sequence[Owners[NodeT, PodT]]) -> list[dict[PodT, Workload]]:
    """Return the workload of each pod in each part; that of a pod which never had a sample is missing."""
    after: list[dict[PodT, Workload]] = [{} for _ in parts]
    for pod in {pod for part in parts for pod in part.samples}:
        known = [part.of(pod) for part in parts]
        for order in (range(len(parts)), reversed(range(len(parts)))):
            last = Workload("", "")
            for index in order:
                one = known[index]
                last = known[index] = one if one is not None and one.name else last
        for index, one in enumerate(known):
            after[index][pod] = one if one is not None else Workload("", "")
    return after
