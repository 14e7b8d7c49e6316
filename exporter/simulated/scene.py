"""
Who is there at a time: the table, played.

What comes in: the seconds since the start of the simulation. What goes out: the pods of that moment, each in its
generation, and the processes with what they hold.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import floor

from exporter.model import ContainerId, HostProcess, Owner, PodUid, ProcessKey
from exporter.simulated.curves import made_hex, made_uuid, noise
from exporter.simulated.rows import ContainerRow, PodRow, ProcessRow
from exporter.simulated.table import GHOSTS, HOST, PODS, UPTIME

WOBBLE = 0.08
"""Share by which the measured load falls short of its curve, anew each second. Power does not follow it."""
PAGE = 2 * 2**20
"""Bytes: the driver hands out memory in pages of 2 MiB."""
PAGES_PER_GIB = 512
PAGES_PER_MIB = 0.5
TICKS = 100
"""Per second, in which the kernel tells the start of a process."""


@dataclass(frozen=True, slots=True)
class Playing:
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
class Actor:
    """A process at one time. `listed_as` is the number that the driver prints; `host` is None when it is gone."""

    row: ProcessRow
    pid: int
    listed_as: int
    memory: int
    load: float
    host: HostProcess | None


def pods(time: float) -> Iterator[Playing]:
    """Name the pods that the API server knows at `time`, of one name the older generation first."""
    for row in PODS:
        if (life := row.life) is None:
            yield Playing(row, 0, -row.age, time)
            continue
        newest = floor((time - life.first) / life.period) + 1
        for generation in (newest - 1, newest):
            began = life.first + (generation - 1) * life.period
            age = time - began
            if age < life.gone:
                yield Playing(row, generation, began, age, age >= life.running, age >= life.deleted)


@lru_cache(maxsize=1)  # the driver and the kernel are asked of one moment
def actors(time: float) -> tuple[Actor, ...]:
    """Name the processes at `time`, those included that are dead and still on the driver's lists."""
    return tuple(_actors(time))


def _actors(time: float) -> Iterator[Actor]:
    for pod in pods(time):
        for container in pod.row.containers if pod.running else ():
            for row in container.processes:
                # Numbers of generations follow one another; the table keeps them apart from the others.
                pid = row.pid + pod.generation
                alive = row.zombie_after is None or pod.time < row.zombie_after
                key = ProcessKey(pid, round((UPTIME + pod.began) * TICKS) + pid % 1000)
                host = HostProcess(key, alive, pod.owner(container))
                yield Actor(row, pid, row.thread or pid, _memory(row, pod.time), _load(row, pod.time), host)
    for row in HOST:
        host = HostProcess(ProcessKey(row.pid, row.pid), alive=True, owner=Owner())
        yield Actor(row, row.pid, row.pid, _memory(row, time), _load(row, time), host)
    for row in GHOSTS:
        yield Actor(row, row.pid, row.pid, _memory(row, time), 0, None)


def _load(row: ProcessRow, time: float) -> float:
    return row.load.at(time) * (1 - WOBBLE * noise("load", row.pid, floor(time)))


def _memory(row: ProcessRow, time: float) -> int:
    pages = round(row.memory.at(time) * PAGES_PER_GIB)
    if pages > 0 and row.breath:
        hold = 3 + row.pid % 5  # seconds on one step, so that not all move at once
        pages += floor(noise("breath", row.pid, floor(time / hold)) * (row.breath * PAGES_PER_MIB + 1))
    return pages * PAGE
