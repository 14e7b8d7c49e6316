"""
A recorded node, played: for bug reports, and for what comes after the sources.

What comes in: recorded rounds. What goes out: all three sources of a round, which answer as they did then. `Stage`
holds the answers of one moment; `RecordedNode` plays a file on it in the rhythm in which it was recorded.

The law: nothing is made up. What is not in the recording has no answer. The answers are those of then, their times are
those of now, and each round carries a fault (the round stays complete) that says whose node this is.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from exporter.devices import DeviceError, DevicesSample
from exporter.model import (
    DeviceKey,
    Fault,
    Gpu,
    GpuSample,
    GpuUuid,
    HostProcess,
    HostSample,
    Inventory,
    Memory,
    Owner,
    XidCounts,
)
from exporter.recording import HostRead, Reading, RecordedRound, RecordingError

MOST = 256
"""Answers of the kernel that are kept over early rounds; a full round forgets them all."""


class Stage:
    """The three sources, at one recorded moment. `set` is the next scene."""

    name = "recorded"

    def __init__(self) -> None:
        self._recorded: RecordedRound | None = None
        self._samples: dict[GpuUuid, GpuSample] = {}
        self._faults: tuple[Fault, ...] = ()
        self._hosts: list[HostRead] = []

    def set(self, recorded: RecordedRound) -> None:
        """Answer as in this round; of GPUs that were not asked in it, as in the round before."""
        only = recorded.only
        new = {one.gpu.uuid: one for one in recorded.samples}
        if only is None:
            self._samples, self._faults, self._hosts = new, recorded.faults, list(recorded.hosts)
        else:
            kept = {uuid: one for uuid, one in self._samples.items() if uuid not in only or uuid in new}
            self._samples = {**kept, **new}
            self._faults = (*(one for one in self._faults if one.subject not in only), *recorded.faults)
            asked = {(one.asked, one.want_living) for one in recorded.hosts}
            older = (one for one in self._hosts if (one.asked, one.want_living) not in asked)
            self._hosts = [*recorded.hosts, *older][:MOST]
        self._recorded = recorded

    async def sample(self, only: Collection[GpuUuid] | None = None) -> DevicesSample:
        """Answer for all GPUs, or for those in `only`; to the question of then with the very answer of then."""
        recorded = self._recorded
        if recorded is None:
            return DevicesSample()
        if recorded.only == (None if only is None else frozenset(only)):
            return DevicesSample(recorded.present, recorded.samples, recorded.faults, recorded.xid_errors)
        samples = (one for uuid, one in self._samples.items() if only is None or uuid in only)
        faults = (one for one in self._faults if only is None or one.subject in only)
        return DevicesSample(recorded.present, tuple(samples), tuple(faults), recorded.xid_errors)

    async def memory(self, only: Collection[GpuUuid]) -> Mapping[DeviceKey, Memory]:
        """Tell the memory of the leaf devices of these GPUs."""
        leaves = (leaf for uuid, one in self._samples.items() if uuid in only for leaf in one.gpu.leaves())
        return {key: memory for key, memory, _ in leaves if memory is not None}

    async def close(self) -> None:
        """Do nothing: nothing is held."""

    def host_sample(self, pids: Collection[int], *, want_living: bool = False) -> HostSample:
        """Say of each raw pid who it was: as it was asked then, or put together from all that was asked then."""
        asked = frozenset(pids)
        for index, one in enumerate(self._hosts):
            if (one.asked, one.want_living) == (asked, want_living):
                self._hosts.append(self._hosts.pop(index))  # asked twice, it may have had two answers
                return one.sample
        return _together(self._hosts, asked, want_living=want_living)

    def inventory(self, _gpus: Sequence[Gpu] = ()) -> Inventory:
        """Return what was known of names and allocations."""
        return self._recorded.inventory if self._recorded else Inventory()


class StageHost:
    """The kernel, on a stage."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def sample(self, pids: Collection[int], *, want_living: bool = False) -> HostSample:
        """Say of each raw pid who it was."""
        return self._stage.host_sample(pids, want_living=want_living)


class StageInventory:
    """The kubelet and the API server, on a stage; `later` is added to the times at which pods were created."""

    def __init__(self, stage: Stage) -> None:
        self.later = 0.0
        self._stage = stage
        self._made: tuple[Inventory, float, Inventory] | None = None

    async def run(self) -> None:
        """Return: everything is in the recording."""

    def inventory(self, _gpus: Sequence[Gpu] = ()) -> Inventory:
        """Return what was known of names and allocations."""
        found = self._stage.inventory()
        if not self.later:
            return found
        if self._made is None or self._made[0] is not found or self._made[1] != self.later:
            pods = {uid: replace(pod, created_at=pod.created_at + self.later) for uid, pod in found.pods.items()}
            self._made = found, self.later, replace(found, pods=pods)
        return self._made[2]


class RecordedNode:
    """
    A recording that plays from its first round on, and begins anew at its end. Made with `open`.

    It plays in a loop, so that a short one can be looked at in peace; processes and pods are the same in each pass.
    """

    name = "recorded"

    def __init__(self, path: Path, clock: Callable[[], float], monotonic: Callable[[], float]) -> None:
        """Open the file. Raises DeviceError when it is no recording, or one without rounds."""
        self._path = path
        self._clock, self._monotonic = clock, monotonic
        self._stage = Stage()
        self.host = StageHost(self._stage)
        self.inventory = StageInventory(self._stage)
        self._reading, self._first = self._opened()
        self._current = self._first
        self._next: RecordedRound | None = self._first
        self._began: float | None = None
        header = self._reading.header
        self.node = header.node
        self._interval = header.interval
        when = datetime.fromtimestamp(header.started_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        message = f"this is not the node of now: {path} plays over and over, recorded on {header.node} from {when}"
        self._fault = Fault("devices", "recording", message, incomplete=False)

    async def sample(self, only: Collection[GpuUuid] | None = None) -> DevicesSample:
        """Answer as the GPUs did at this time of the recording. Raises DeviceError when it cannot be read on."""
        try:
            await asyncio.to_thread(self._play)
        except RecordingError as error:
            raise DeviceError(str(error)) from error
        now = self._clock()
        answer = await self._stage.sample(only)
        samples = tuple(replace(one, sampled_at=now) for one in answer.samples)
        xids = _later(answer.xid_errors, self.inventory.later)
        return replace(answer, samples=samples, faults=(self._fault, *answer.faults), xid_errors=xids)

    async def memory(self, only: Collection[GpuUuid]) -> Mapping[DeviceKey, Memory]:
        """Tell the memory at the last `sample`."""
        return await self._stage.memory(only)

    async def close(self) -> None:
        """Let go of the file."""
        self.let_go()

    def let_go(self) -> None:
        """Close the file."""
        self._reading.close()

    def _opened(self) -> tuple[Reading, RecordedRound]:
        try:
            reading = Reading(self._path)
            first = next(reading, None)
        except RecordingError as error:
            raise DeviceError(str(error)) from error
        if first is None:
            reading.close()
            raise DeviceError(f"{self._path}: a recording without a whole round, which plays nothing")
        return reading, first

    def _play(self) -> None:
        """Read on to the round that is current now."""
        now = self._monotonic()
        if self._began is None or self._ended(now):
            if self._began is not None:
                self._reading.close()
                self._reading, self._first = self._opened()
            self._began, self._next = now, self._first
            self.inventory.later = self._clock() - self._first.taken_at
        while self._next is not None and self._next.monotonic - self._first.monotonic <= now - self._began:
            self._stage.set(self._next)
            self._current = self._next
            self._next = next(self._reading, None)

    def _ended(self, now: float) -> bool:
        """Say whether the last round has had its time."""
        assert self._began is not None  # noqa: S101  (the only caller asks first)
        lasted = self._current.monotonic - self._first.monotonic + self._interval
        return self._next is None and now - self._began >= lasted


def _later(errors: XidCounts, seconds: float) -> XidCounts:
    """Let XID errors have come so much later."""
    return {
        uuid: {
            code: one if one.last_at is None else replace(one, last_at=one.last_at + seconds)
            for code, one in of.items()
        }
        for uuid, of in errors.items()
    }


def _together(hosts: Iterable[HostRead], pids: frozenset[int], *, want_living: bool) -> HostSample:
    """Answer what was never asked so, from all that was: of two answers about one process the first."""
    hosts = tuple(hosts)
    processes: dict[int, HostProcess] = {}
    unreadable: set[int] = set()
    living: set[Owner] = set()
    for one in hosts:
        new = one.asked - processes.keys() - unreadable
        unreadable |= one.sample.unreadable & new & pids
        processes |= {pid: found for pid, found in one.sample.processes.items() if pid in new & pids}
        living |= one.sample.living or set()
    asked_living = want_living and any(one.sample.living is not None for one in hosts)
    return HostSample(
        processes,
        frozenset(unreadable),
        frozenset(living) if asked_living else None,
        pid_domain_proven=bool(hosts) and all(one.sample.pid_domain_proven for one in hosts),
        faults=tuple(dict.fromkeys(fault for one in hosts for fault in one.sample.faults)),
    )
