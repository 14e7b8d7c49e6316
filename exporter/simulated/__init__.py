"""
A simulated GPU node, for a first look and for people without a GPU. It runs only if a user asks for it.

What comes in: a clock and the time at which the simulation begins. What goes out: all three sources of a round, with
the answers of the node in `scene.yaml`.

The rule: same time, same answers. There is no state, no randomness, and no other clock.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from exporter.devices import DevicesSample, Identify
from exporter.model import DeviceKey, Gpu, GpuUuid, HostSample, Inventory, Memory, Owner
from exporter.simulated import names
from exporter.simulated.gpus import sample_of, xid_errors
from exporter.simulated.playing import pods, processes
from exporter.simulated.scene import device_key, scene


class SimulatedNode:
    """The three sources. `clock` gives Unix time; `started_at` is the Unix time at which the simulation begins."""

    def __init__(self, clock: Callable[[], float], started_at: float) -> None:
        self.devices = SimulatedDevices(clock, started_at)
        self.host = SimulatedHost(clock, started_at)
        self.inventory = SimulatedInventory(clock, started_at)


class _Source:
    def __init__(self, clock: Callable[[], float], started_at: float) -> None:
        self._clock, self._started_at = clock, started_at

    def _time(self) -> float:
        """Return the seconds since the simulation began."""
        return self._clock() - self._started_at


class SimulatedDevices(_Source):
    """The driver of the simulated node."""

    name = "simulated"

    async def sample(self, only: Collection[GpuUuid] | None = None, _identify: Identify | None = None) -> DevicesSample:
        """Read all GPUs, or those in `only`."""
        now = self._clock()
        time = now - self._started_at
        present = {device_key(index).uuid: index for index in range(len(scene().gpus))}
        samples = tuple(sample_of(index, now, time) for uuid, index in present.items() if only is None or uuid in only)
        return DevicesSample(present, samples, xid_errors=xid_errors(self._started_at, time))

    async def memory(self, only: Collection[GpuUuid]) -> Mapping[DeviceKey, Memory]:
        """Read the memory of the devices of the GPUs in `only`."""
        answer = await self.sample(only)
        leaves = (leaf for sample in answer.samples for leaf in sample.gpu.leaves())
        return {key: memory for key, memory, _ in leaves if memory is not None}

    async def close(self) -> None:
        """Do nothing: there is no driver to close."""


class SimulatedHost(_Source):
    """The kernel of the simulated node."""

    def sample(self, pids: Collection[int], *, want_living: bool = False) -> HostSample:
        """Return the process of each raw pid."""
        time = self._time()
        listed = {process.listed_as: process.host for process in processes(time) if process.host is not None}
        known = {host.key.pid: host for host in listed.values()} | listed
        # A running container has a living process, also if the ones that opened the device have ended.
        running = {pod.owner(container) for pod in pods(time) if pod.running for container in pod.row.containers}
        return HostSample(
            {pid: known[pid] for pid in pids if pid in known},
            living=frozenset({Owner(), *running}) if want_living else None,
            pid_domain_proven=True,
        )


class SimulatedInventory(_Source):
    """The kubelet and the API server of the simulated node."""

    async def run(self) -> None:
        """Return at once: the scene has all names."""

    def inventory(self, _gpus: Sequence[Gpu] = ()) -> Inventory:
        """Return the present pods and their allocations."""
        return names.inventory(self._started_at, self._time())
