"""
A simulated GPU node, for a first look and for people without a GPU. It is never chosen by itself.

What comes in: a clock and the time at which the simulation begins. What goes out: all three sources of a round, as the
driver, the kernel and Kubernetes would answer on the node that `table.py` describes.

The law: same time, same answers. Nothing is remembered, nothing is random, no other clock is read.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from exporter.devices import DevicesSample
from exporter.model import (
    Allocation,
    Container,
    DeclaredContainer,
    DeclaredPod,
    DeviceKey,
    Gpu,
    GpuUuid,
    HostSample,
    Inventory,
    Memory,
    Owner,
    Pod,
    Sharing,
)
from exporter.simulated.gpus import samples, xid_errors
from exporter.simulated.rows import gpu, mig
from exporter.simulated.scene import Playing, actors, pods
from exporter.simulated.table import CONSENTING, GPUS


class SimulatedNode:
    """The three sources. `clock` gives Unix time; `started_at` is the Unix time at which the simulation begins."""

    def __init__(self, clock: Callable[[], float], started_at: float) -> None:
        self.devices = SimulatedDevices(clock, started_at)
        self.host = SimulatedHost(clock, started_at)
        self.inventory = SimulatedInventory(clock, started_at)


class SimulatedDevices:
    """The driver of the simulated node."""

    name = "simulated"

    def __init__(self, clock: Callable[[], float], started_at: float) -> None:
        self._clock, self._started_at = clock, started_at

    async def sample(self, only: Collection[GpuUuid] | None = None) -> DevicesSample:
        """Read all GPUs, or those in `only`."""
        now = self._clock()
        present = {gpu(index).uuid: index for index in range(len(GPUS))}
        asked = [index for uuid, index in present.items() if only is None or uuid in only]
        time = now - self._started_at
        return DevicesSample(present, samples(asked, now, time), xid_errors=xid_errors(self._started_at, time))

    async def memory(self, only: Collection[GpuUuid]) -> Mapping[DeviceKey, Memory]:
        """Read the memory of the leaf devices of the GPUs in `only`."""
        answer = await self.sample(only)
        leaves = (leaf for sample in answer.samples for leaf in sample.gpu.leaves())
        return {key: memory for key, memory, _ in leaves if memory is not None}

    async def close(self) -> None:
        """Do nothing: there is no driver to let go of."""


class SimulatedHost:
    """The kernel of the simulated node."""

    def __init__(self, clock: Callable[[], float], started_at: float) -> None:
        self._clock, self._started_at = clock, started_at

    def sample(self, pids: Collection[int], *, want_living: bool = False) -> HostSample:
        """Say of each raw pid who it is."""
        time = self._clock() - self._started_at
        listed = {actor.listed_as: actor.host for actor in actors(time) if actor.host is not None}
        known = {host.key.pid: host for host in listed.values()} | listed
        # A container that runs has a living process, whatever became of those which opened the device.
        running = {pod.owner(container) for pod in pods(time) if pod.running for container in pod.row.containers}
        return HostSample(
            {pid: known[pid] for pid in pids if pid in known},
            living=frozenset({Owner(), *running}) if want_living else None,
            pid_domain_proven=True,
        )


class SimulatedInventory:
    """The kubelet and the API server of the simulated node."""

    def __init__(self, clock: Callable[[], float], started_at: float) -> None:
        self._clock, self._started_at = clock, started_at

    async def run(self) -> None:
        """Return: everything is known from the start."""

    def inventory(self, _gpus: Sequence[Gpu] = ()) -> Inventory:
        """Return the pods of this moment, and what was handed to them."""
        playing = tuple(pods(self._clock() - self._started_at))
        names = [_pod(pod, self._started_at) for pod in playing]
        return Inventory(
            pods={pod.uid: pod for pod in names},
            containers=tuple(
                Container(pod.uid, container.name, pod.container_id(container))
                for pod in playing
                for container in pod.row.containers
            ),
            # The kubelet knows names, not UIDs: two generations of one name have one line.
            allocations=tuple(dict.fromkeys(allocation for pod in playing for allocation in _allocations(pod))),
            declared={pod.uid: _declared(pod) for pod in playing},
            namespaces={pod.row.namespace: _labels(pod.row.namespace) for pod in playing},
            sharing={leaf: (row.sharing, row.replicas) for index, row in enumerate(GPUS) for leaf in _leaves(index)},
            known=True,
            live=True,
        )


PRIORITIES = {"serving": 100_000, "training-high": 50_000, "training-low": 1_000, "system-node-critical": 2_000_001_000}
"""What the PriorityClasses of the table are worth; the last is Kubernetes' own."""


def _leaves(index: int) -> tuple[DeviceKey, ...]:
    return tuple(mig(index, instance.id) for instance in GPUS[index].instances) or (gpu(index),)


def _pod(pod: Playing, started_at: float) -> Pod:
    row = pod.row
    return Pod(
        pod.uid,
        row.namespace,
        pod.name,
        row.kind,
        row.workload,
        row.queue,
        row.priority_class,
        created_at=started_at + pod.began,
        terminating=pod.terminating,
        config_hash=pod.config_hash,
        phase="Running" if pod.running else "Pending",
        priority=PRIORITIES.get(row.priority_class, 0),
        controller_kind="ReplicaSet" if row.kind == "Deployment" else row.kind,
        annotations=dict(row.annotations),
    )


def _labels(namespace: str) -> dict[str, str]:
    """Label a namespace; those of CONSENTING let the policy act in them."""
    consent = {"gpusteward.io/mode": "enforce"} if namespace in CONSENTING else {}
    return {"kubernetes.io/metadata.name": namespace, **consent}


def _declared(pod: Playing) -> DeclaredPod:
    row = pod.row
    containers = tuple(
        DeclaredContainer(one.name, limits=_counted((_resource(device), one.replicas) for device in one.devices))
        for one in row.containers
    )
    return DeclaredPod(pod.uid, row.namespace, pod.name, annotations=dict(row.annotations), containers=containers)


def _counted(resources: Iterable[tuple[str, int]]) -> dict[str, str]:
    """Sum up resources, as quantities."""
    total: Counter[str] = Counter()
    for resource, count in resources:
        total[resource] += count
    return {resource: str(count) for resource, count in total.items()}


def _allocations(pod: Playing) -> Iterable[Allocation]:
    for container in pod.row.containers:
        for device in container.devices:
            yield Allocation(pod.row.namespace, pod.name, container.name, _resource(device), device, container.replicas)


def _resource(device: DeviceKey) -> str:
    """Return the name under which NVIDIA's device plugin hands out a leaf device."""
    row = next(row for index, row in enumerate(GPUS) if gpu(index).uuid == device.uuid)
    for instance in row.instances:
        if instance.id == device.gpu_instance:
            return f"nvidia.com/mig-{instance.profile}"
    return "nvidia.com/gpu.shared" if row.sharing in {Sharing.TIME_SLICING, Sharing.MPS} else "nvidia.com/gpu"
