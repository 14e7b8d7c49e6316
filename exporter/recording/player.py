"""
A recording, played as a node: for bug reports, and to test all that follows the sources.

What comes in: recorded rounds. What goes out: all three sources of a round, with the recorded answers. `Stage` holds
the answers of one moment; `RecordedNode` plays a file at the recorded speed.

The rule: no answer is invented; a fact that is not in the recording stays unknown. Times in the answers are moved to
the present. Each round has a fault that names the recorded node; the round stays complete.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from exporter.devices import DeviceError, DevicesSample, Identify
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
"""Answers of the kernel that are kept over early rounds; a full round drops them all."""


class StageHost:
    """The host source at one recorded moment."""

    def __init__(self) -> None:
        self._reads: list[HostRead] = []

    def set(self, recorded: RecordedRound) -> None:
        """Answer as in this round. For questions that an early round did not ask, keep the answers before it."""
        asked = {read.question for read in recorded.hosts}
        older = (read for read in self._reads if recorded.only is not None and read.question not in asked)
        self._reads = [*recorded.hosts, *older]
        if recorded.only is not None:
            del self._reads[MOST:]

    def sample(self, pids: Collection[int], *, want_living: bool = False) -> HostSample:
        """Return the process of each raw pid: the recorded answer, or one combined from several answers."""
        asked = frozenset(pids)
        for index, read in enumerate(self._reads):
            if read.question == (asked, want_living):
                self._reads.append(self._reads.pop(index))  # a repeated question may have several recorded answers
                return read.sample
        return _together(self._reads, asked, want_living=want_living)


class StageInventory:
    """The kubelet and the API server at one recorded moment."""

    def __init__(self) -> None:
        self._recorded = self._answer = Inventory()
        self._later = 0.0

    def set(self, recorded: Inventory, later: float) -> None:
        """Answer as in this round; the pods' creation times are moved by `later` seconds."""
        if recorded is not self._recorded or later != self._later:
            pods = {uid: replace(pod, created_at=pod.created_at + later) for uid, pod in recorded.pods.items()}
            self._recorded, self._later = recorded, later
            self._answer = replace(recorded, pods=pods) if later else recorded

    async def run(self) -> None:
        """Return at once: all answers are in the recording."""

    def inventory(self, _gpus: Sequence[Gpu] = ()) -> Inventory:
        """Return the recorded names and allocations."""
        return self._answer


class Stage:
    """The three sources at one recorded moment: this object is the driver; `host` and `inventory` are the others."""

    name = "recorded"

    def __init__(self) -> None:
        self.host = StageHost()
        self.inventory = StageInventory()
        self._recorded = RecordedRound(0, 0.0, 0.0, 0.0)
        self._samples: dict[GpuUuid, GpuSample] = {}
        self._faults: tuple[Fault, ...] = ()

    def set(self, recorded: RecordedRound, later: float = 0.0) -> None:
        """Answer as in this round. For GPUs that it did not read, keep the answers before it."""
        only = recorded.only
        new = {sample.gpu.uuid: sample for sample in recorded.samples}
        if only is None:
            self._samples, self._faults = new, recorded.faults
        else:
            kept = {uuid: sample for uuid, sample in self._samples.items() if uuid not in only or uuid in new}
            self._samples = {**kept, **new}
            self._faults = (*(fault for fault in self._faults if fault.subject not in only), *recorded.faults)
        self._recorded = recorded
        self.host.set(recorded)
        self.inventory.set(recorded.inventory, later)

    async def sample(self, only: Collection[GpuUuid] | None = None, _identify: Identify | None = None) -> DevicesSample:
        """Answer for all GPUs, or for those in `only`. The recorded question gets exactly the recorded answer."""
        recorded = self._recorded
        samples, faults = recorded.samples, recorded.faults
        if recorded.only != (None if only is None else frozenset(only)):
            samples = tuple(sample for uuid, sample in self._samples.items() if only is None or uuid in only)
            faults = tuple(fault for fault in self._faults if only is None or fault.subject in only)
        return DevicesSample(recorded.present, samples, faults, recorded.xid_errors)

    async def memory(self, only: Collection[GpuUuid]) -> Mapping[DeviceKey, Memory]:
        """Return the recorded memory of the devices of these GPUs."""
        leaves = (leaf for uuid, sample in self._samples.items() if uuid in only for leaf in sample.gpu.leaves())
        return {key: memory for key, memory, _ in leaves if memory is not None}

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


class RecordedNode(Stage):
    """
    A recording that plays from its first round on, and starts again at its end.

    The loop gives a person time to read a short recording. Processes and pods are the same in each pass.
    """

    def __init__(self, path: Path, clock: Callable[[], float], monotonic: Callable[[], float]) -> None:
        """Open the file. Raises DeviceError if it is no recording, or has no rounds."""
        super().__init__()
        self._path = path
        self._clock, self._monotonic = clock, monotonic
        self._reading, self._first = self._opened()
        self._next: RecordedRound | None = self._first
        self._began: float | None = None
        self._later = 0.0
        header = self._reading.header
        self.node = header.node
        self._interval = header.interval
        when = datetime.fromtimestamp(header.started_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        message = f"this is not the node of now: {path} plays over and over, recorded on {header.node} from {when}"
        self._fault = Fault("devices", "recording", message, incomplete=False)

    async def sample(self, only: Collection[GpuUuid] | None = None, _identify: Identify | None = None) -> DevicesSample:
        """Answer as the GPUs did at this time of the recording. Raises DeviceError if the file cannot be read."""
        try:
            await asyncio.to_thread(self._play)
        except RecordingError as error:
            raise DeviceError(error.what, cause=error.cause, fix=error.fix) from error
        now = self._clock()
        answer = await super().sample(only)
        samples = tuple(replace(sample, sampled_at=now) for sample in answer.samples)
        xids = _later(answer.xid_errors, self._later)
        return replace(answer, samples=samples, faults=(self._fault, *answer.faults), xid_errors=xids)

    async def close(self) -> None:
        """Close the file."""
        self.let_go()

    def let_go(self) -> None:
        """Close the file, outside of an event loop."""
        self._reading.close()

    def _opened(self) -> tuple[Reading, RecordedRound]:
        try:
            reading = Reading(self._path)
            first = next(reading, None)
        except RecordingError as error:
            raise DeviceError(error.what, cause=error.cause, fix=error.fix) from error
        if first is None:
            reading.close()
            raise DeviceError(f"{self._path}: the recording has no complete round", fix=RecordingError.fix)
        return reading, first

    def _play(self) -> None:
        """Read on to the current round; after the end of the last round, start again."""
        now = self._monotonic()
        lasted = self._recorded.monotonic - self._first.monotonic + self._interval
        if self._began is not None and self._next is None and now - self._began >= lasted:
            self._reading.close()
            self._reading, self._first = self._opened()
            self._began = None
        if self._began is None:
            self._began, self._next = now, self._first
            self._later = self._clock() - self._first.taken_at
        while self._next is not None and self._next.monotonic - self._first.monotonic <= now - self._began:
            self.set(self._next, self._later)
            self._next = next(self._reading, None)


def _later(errors: XidCounts, seconds: float) -> XidCounts:
    """Move the times of XID errors by these seconds."""
    return {
        uuid: {
            code: xid if xid.last_at is None else replace(xid, last_at=xid.last_at + seconds)
            for code, xid in of_gpu.items()
        }
        for uuid, of_gpu in errors.items()
    }


def _together(reads: Iterable[HostRead], pids: frozenset[int], *, want_living: bool) -> HostSample:
    """Combine recorded answers for a question that was not recorded; the first answer about a process counts."""
    reads = tuple(reads)
    processes: dict[int, HostProcess] = {}
    unreadable: set[int] = set()
    living: set[Owner] = set()
    for read in reads:
        new = (read.asked & pids) - processes.keys() - unreadable
        unreadable |= read.sample.unreadable & new
        processes |= {pid: process for pid, process in read.sample.processes.items() if pid in new}
        living |= read.sample.living or set()
    asked_living = want_living and any(read.sample.living is not None for read in reads)
    return HostSample(
        processes,
        frozenset(unreadable),
        frozenset(living) if asked_living else None,
        pid_domain_proven=bool(reads) and all(read.sample.pid_domain_proven for read in reads),
        faults=tuple(dict.fromkeys(fault for read in reads for fault in read.sample.faults)),
    )
