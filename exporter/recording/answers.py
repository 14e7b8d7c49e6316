"""
The answers of the sources in one round, frozen.

What comes in: nothing. What goes out: the type that writer, reader and player share.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.model import Fault, GpuSample, GpuUuid, HostSample, Inventory, XidCounts


@dataclass(frozen=True, slots=True)
class HostRead:
    """A question to the kernel, and its answer. `asked`: raw pids; `want_living`: also all living owners."""

    asked: frozenset[int]
    sample: HostSample
    want_living: bool = False

    @property
    def question(self) -> tuple[frozenset[int], bool]:
        """The question alone, to compare with another."""
        return self.asked, self.want_living


@dataclass(frozen=True, slots=True)
class RecordedRound:
    """
    The answers of the sources in one round.

    Attributes:
        number: of the round, counted from the start of the recording; numbers of failed rounds are missing.
        taken_at: Unix time at its beginning; `monotonic` is the same moment on the monotonic clock.
        duration: seconds that it took.
        only: the GPUs that were read; None for all of them.
        present: every GPU that the driver counted, also those that did not answer (uuid to index).
        samples: the GPUs that answered, in order.
        faults: of the driver as a whole, or of GPUs that did not answer.
        hosts: questions to the kernel, in order, with their answers.
        xid_errors: XID errors of each GPU up to this round; empty in older recordings, which lack them.
        by_time: the round was due by the clock; False if a change of memory, or a caller, started it.

    """

    number: int
    taken_at: float
    monotonic: float
    duration: float
    only: frozenset[GpuUuid] | None = None
    present: Mapping[GpuUuid, int] = field(default_factory=dict)
    samples: tuple[GpuSample, ...] = ()
    faults: tuple[Fault, ...] = ()
    hosts: tuple[HostRead, ...] = ()
    inventory: Inventory = field(default_factory=Inventory)
    xid_errors: XidCounts = field(default_factory=dict)
    by_time: bool = True
