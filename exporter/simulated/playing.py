"""
The pods and processes of the scene at a given time.

What comes in: the seconds since the start of the simulation. What goes out: the pods of that moment, each in its
generation, and the processes with their memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import floor

from exporter.model import ContainerId, HostProcess, Owner, PodUid, ProcessKey
from exporter.simulated.curves import curve, made_hex, made_uuid, noise
from exporter.simulated.scene import HOUR, ContainerRow, PodRow, Process, scene

WOBBLE = 0.08
"""Largest share by which the measured load is below its curve, random each second. Power does not follow it."""
PAGE = 2 * 2**20
"""Bytes: the driver allocates memory in pages of 2 MiB."""
PAGES_PER_GIB = 512
PAGES_PER_MIB = 0.5
TICKS = 100
"""Clock ticks per second, the unit of a process's start time."""


@dataclass(frozen=True, slots=True)
class PlayedPod:
    """
    A pod at one time.

    Attributes:
        began: seconds from the start to its creation; negative if it was created before the start.
        time: seconds on the curves of its processes.
        running: its containers have started, and have not ended yet.

    """

    row: PodRow
    generation: int
    began: float
    time: float
    running: bool = True
    terminating: bool = False

    @property
    def uid(self) -> PodUid:
        """The UID of this generation."""
        return PodUid(made_uuid("pod", self.row.namespace, self.row.name, self.generation))

    @property
    def config_hash(self) -> PodUid | None:
        """The id in the cgroup of a static pod: 32 hex characters; None for other pods."""
        return PodUid(made_hex("config", self.row.name)[:32]) if self.row.static else None

    @property
    def name(self) -> str:
        """The name, with the characters of this generation in place of the `*`."""
        return self.row.name.replace("*", made_hex("suffix", self.row.name, self.generation)[:5])

    def container_id(self, container: ContainerRow) -> ContainerId | None:
        """Return the id of a container; None unless the pod runs."""
        return ContainerId(made_hex(self.uid, container.name)) if self.running else None

    def owner(self, container: ContainerRow) -> Owner:
        """Return the owner in the cgroup path of the container's processes."""
        return Owner(((self.config_hash or self.uid, self.container_id(container)),))


@dataclass(frozen=True, slots=True)
class PlayedProcess:
    """A process at one time. `pid` is the kernel's number; `host` is None if the process has ended."""

    row: Process
    pid: int
    time: float
    host: HostProcess | None

    @property
    def listed_as(self) -> int:
        """The number that the driver prints."""
        return self.row.thread or self.pid

    @property
    def load(self) -> float:
        """Measured share of the device's compute, 0 to 1."""
        steady = curve(self.row.load).at(self.time)
        return steady * (1 - WOBBLE * noise("load", self.row.pid, floor(self.time)))

    @property
    def memory(self) -> int:
        """Used device memory in bytes."""
        pages = round(curve(self.row.memory).at(self.time) * PAGES_PER_GIB)
        if pages > 0 and self.row.breath:
            hold = 3 + self.row.pid % 5  # seconds per step, different so that processes do not change at once
            step = noise("breath", self.row.pid, floor(self.time / hold))
            pages += floor(step * (self.row.breath * PAGES_PER_MIB + 1))
        return pages * PAGE


def pods(time: float) -> Iterator[PlayedPod]:
    """Yield the pods that the API server knows at `time`; of one name, the older generation comes first."""
    for row in scene().pods:
        if (life := row.life) is None:
            yield PlayedPod(row, 0, -row.age_hours * HOUR, time)
            continue
        newest = floor((time - life.first) / life.period) + 1
        for generation in (newest - 1, newest):
            began = life.first + (generation - 1) * life.period
            age = time - began
            if age < life.gone:
                yield PlayedPod(row, generation, began, age, age >= life.running, age >= life.deleted)


@lru_cache(maxsize=1)  # the driver and the kernel are read for the same moment
def processes(time: float) -> tuple[PlayedProcess, ...]:
    """Return the processes at `time`, including dead ones that the driver still lists."""
    return tuple(_processes(time))


def _processes(time: float) -> Iterator[PlayedProcess]:
    for pod in pods(time):
        for container in pod.row.containers if pod.running else ():
            for row in container.processes:
                # Each generation has the next pid; the scene leaves enough space between its pids.
                pid = row.pid + pod.generation
                alive = row.zombie_after is None or pod.time < row.zombie_after
                key = ProcessKey(pid, round((scene().uptime_hours * HOUR + pod.began) * TICKS) + pid % 1000)
                yield PlayedProcess(row, pid, pod.time, HostProcess(key, alive, pod.owner(container)))
    for row in scene().host:
        yield PlayedProcess(row, row.pid, time, HostProcess(ProcessKey(row.pid, row.pid), alive=True, owner=Owner()))
    for row in scene().ghosts:
        yield PlayedProcess(row, row.pid, time, None)
