"""
The scene, played: which pods and processes are there at a time.

What comes in: the seconds since the start of the simulation. What goes out: the pods of that moment, each in its
generation, and the processes with what they hold.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import floor

from exporter.model import ContainerId, HostProcess, Owner, PodUid, ProcessKey
from exporter.simulated.curves import curve, made_hex, made_uuid, noise
from exporter.simulated.scene import HOUR, ContainerRow, PodRow, Process, scene

WOBBLE = 0.08
"""Share by which the measured load falls short of its curve, anew each second. Power does not follow it."""
PAGE = 2 * 2**20
"""Bytes: the driver hands out memory in pages of 2 MiB."""
PAGES_PER_GIB = 512
PAGES_PER_MIB = 0.5
TICKS = 100
"""Per second, in which the kernel tells the start of a process."""


@dataclass(frozen=True, slots=True)
class PlayedPod:
    """
    A pod at one time.

    Attributes:
        began: seconds after the start at which it was created; negative for before.
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
        """What stands in the cgroup of a static pod: 32 hex characters."""
        return PodUid(made_hex("config", self.row.name)[:32]) if self.row.static else None

    @property
    def name(self) -> str:
        """The name, with the characters of this generation in place of the `*`."""
        return self.row.name.replace("*", made_hex("suffix", self.row.name, self.generation)[:5])

    def container_id(self, container: ContainerRow) -> ContainerId | None:
        """Return the id of a container; None before it is made."""
        return ContainerId(made_hex(self.uid, container.name)) if self.running else None

    def owner(self, container: ContainerRow) -> Owner:
        """Return what the cgroup path of the container's processes says."""
        return Owner(((self.config_hash or self.uid, self.container_id(container)),))


@dataclass(frozen=True, slots=True)
class PlayedProcess:
    """A process at one time. `pid` is the kernel's number; `host` is None when the process is gone."""

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
        """Measured share of the device's computing."""
        steady = curve(self.row.load).at(self.time)
        return steady * (1 - WOBBLE * noise("load", self.row.pid, floor(self.time)))

    @property
    def memory(self) -> int:
        """Bytes held."""
        pages = round(curve(self.row.memory).at(self.time) * PAGES_PER_GIB)
        if pages > 0 and self.row.breath:
            hold = 3 + self.row.pid % 5  # seconds on one step, so that not all move at once
            step = noise("breath", self.row.pid, floor(self.time / hold))
            pages += floor(step * (self.row.breath * PAGES_PER_MIB + 1))
        return pages * PAGE


def pods(time: float) -> Iterator[PlayedPod]:
    """Yield the pods that the API server knows at `time`, of one name the older generation first."""
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


@lru_cache(maxsize=1)  # the driver and the kernel are asked of one moment
def processes(time: float) -> tuple[PlayedProcess, ...]:
    """Return the processes at `time`, those included that are dead and still on the driver's lists."""
    return tuple(_processes(time))


def _processes(time: float) -> Iterator[PlayedProcess]:
    for pod in pods(time):
        for container in pod.row.containers if pod.running else ():
            for row in container.processes:
                # Numbers of generations follow one another; the scene keeps them apart from the others.
                pid = row.pid + pod.generation
                alive = row.zombie_after is None or pod.time < row.zombie_after
                key = ProcessKey(pid, round((scene().uptime_hours * HOUR + pod.began) * TICKS) + pid % 1000)
                yield PlayedProcess(row, pid, pod.time, HostProcess(key, alive, pod.owner(container)))
    for row in scene().host:
        yield PlayedProcess(row, row.pid, time, HostProcess(ProcessKey(row.pid, row.pid), alive=True, owner=Owner()))
    for row in scene().ghosts:
        yield PlayedProcess(row, row.pid, time, None)
