"""
The names of what a report counts: nodes, devices, containers.

What comes in and goes out: plain names.

The rule: the model of a GPU and the workload of a pod are part of the name, as they were in a part of the window. So
time goes to the one that it was of, also if a label or an owner changes later.
"""

from typing import NamedTuple

from exporter.history.owners import Workload

ANY_MODEL = "unknown model"
SLICED = "sliced"
"""In place of a MIG instance: the whole GPU for as long as it is in MIG mode, with what no instance covers."""


class Node(NamedTuple):
    """A node of a cluster; `cluster` is empty where series have no such label."""

    cluster: str
    name: str


class Gpu(NamedTuple):
    """A GPU of a node, whatever its model is called."""

    node: Node
    uuid: str


class Place(NamedTuple):
    """A device: a GPU, or a MIG instance of it (`instance` is empty for a whole GPU; see also `SLICED`)."""

    node: Node
    uuid: str
    instance: str
    model: str = ANY_MODEL

    @property
    def gpu(self) -> Gpu:
        """The GPU that it is, or is a part of."""
        return Gpu(self.node, self.uuid)

    @property
    def whole(self) -> "Place":
        """The GPU that it is, or is a part of, as a device."""
        return self._replace(instance="")

    def part(self, instance: str) -> "Place":
        """Return an instance of the same GPU."""
        return self._replace(instance=instance)

    @property
    def nameless(self) -> "Place":
        """The device, whatever its model is called."""
        return self._replace(model="")


class Pod(NamedTuple):
    """A pod by name."""

    node: Node
    namespace: str
    name: str


class Holder(NamedTuple):
    """A container on a device; `workload` has a name and no kind where no sample tells the workload of the pod."""

    place: Place
    namespace: str
    pod: str
    container: str
    workload: Workload = Workload("", "")

    @property
    def its_pod(self) -> Pod:
        """The pod of the container."""
        return Pod(self.place.node, self.namespace, self.pod)
