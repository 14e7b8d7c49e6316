"""
The latest snapshot, and the counters of the rounds.

What comes in: a snapshot and a tally per round, from the sampler alone. What goes out: the newest of both, to any
number of readers. The tally counts the rounds, and is never withdrawn.

The rule: readers take the newest snapshot and may skip rounds, so nothing queues up.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace

from exporter.model import Snapshot
from exporter.rounds.readiness import waits_for

DURATION_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
"""Upper bounds in seconds: a round takes about 5 ms on an idle node and 100 ms with a thousand processes."""


@dataclass(frozen=True, slots=True)
class Tally:
    """
    Counters over all rounds since the start.

    Attributes:
        rounds: rounds begun; failed ones (an exception, so a bug of gpusteward) are in `failures`, too.
        incomplete: reason to number of rounds that had such a fault.
        clamped: rounds in which the process lists exceeded a device's used memory by less than the tolerance.
        dropped_utilization: samples of the driver that claimed more than 100 % for one process.
        capped_utilization: containers whose samples added up to more than 100 % and were cut.
        duration_counts: rounds by duration, one per bucket of `DURATION_BUCKETS` and one above; not cumulated.

    """

    rounds: int = 0
    failures: int = 0
    incomplete: Mapping[str, int] = field(default_factory=dict)
    clamped: int = 0
    dropped_utilization: int = 0
    capped_utilization: int = 0
    duration_sum: float = 0.0
    duration_counts: tuple[int, ...] = (0,) * (len(DURATION_BUCKETS) + 1)

    def after(self, snapshot: Snapshot) -> "Tally":
        """Count a round that produced a snapshot."""
        incomplete = dict(self.incomplete)
        for reason in {fault.reason for fault in snapshot.faults if fault.incomplete}:
            incomplete[reason] = incomplete.get(reason, 0) + 1
        counts = list(self.duration_counts)
        counts[sum(snapshot.duration > bound for bound in DURATION_BUCKETS)] += 1
        return replace(
            self,
            rounds=self.rounds + 1,
            incomplete=incomplete,
            clamped=self.clamped
            + any(device.account.clamped for device in snapshot.devices if device.key.uuid in snapshot.gpus_read),
            dropped_utilization=self.dropped_utilization + snapshot.utilization_dropped,
            capped_utilization=self.capped_utilization + snapshot.utilization_capped,
            duration_sum=self.duration_sum + snapshot.duration,
            duration_counts=tuple(counts),
        )

    def after_failure(self) -> "Tally":
        """Count a round that ended in an exception."""
        return replace(self, rounds=self.rounds + 1, failures=self.failures + 1)


@dataclass(frozen=True, slots=True)
class Reload:
    """
    The result of the last read of the config file.

    Attributes:
        successful: the last text is in force; False if it was refused, and the text before it is in force.
        at: Unix time at which the text in force was read.

    """

    successful: bool
    at: float


class Latest:
    """The newest snapshot (None before the first), the tally, and a sign of life of the sampler (`beat`)."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None
        self.tally = Tally()
        self.reload: Reload | None = None
        """None without a config file."""
        self.beat: float | None = None
        """`time.monotonic()` of the sampler's last step, also if its round failed."""
        self.ready = False
        """True from the first published round in which the daemon waits for nothing (`readiness`)."""
        self._changed = asyncio.Event()

    def publish(self, snapshot: Snapshot, tally: Tally) -> None:
        """Make `snapshot` the latest, and wake the tasks that wait for it."""
        self.snapshot, self.tally = snapshot, tally
        self.ready = self.ready or not waits_for(snapshot)
        self._changed.set()
        self._changed.clear()

    async def rounds(self) -> AsyncIterator[Snapshot]:
        """Yield the present snapshot and each newer one; rounds that pass between two steps are skipped."""
        seen = 0
        while True:
            snapshot = await self.newer_than(seen)
            seen = snapshot.round
            yield snapshot

    async def newer_than(self, seen: int) -> Snapshot:
        """Wait for a snapshot whose round is later than `seen`; rounds in between are skipped."""
        while self.snapshot is None or self.snapshot.round <= seen:
            await self._changed.wait()
        return self.snapshot
