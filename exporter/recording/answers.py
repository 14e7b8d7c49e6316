"""One round's answers, frozen."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.model import Fault, GpuSample, GpuUuid, HostSample, Inventory, XidCounts


@dataclass(frozen=True, slots=True)
class HostRead:
    """A question to the kernel, and its answer. `asked`: raw pids; `want_living`: all living owners, too."""

    asked: frozenset[int]
    sample: HostSample
    want_living: bool = False

    @property
    def question(self) -> tuple[frozenset[int], bool]:
        """What was asked."""
        return self.asked, self.want_living


@dataclass(frozen=True, slots=True)
class RecordedRound:
    """
    What the sources said in one round.

    Attributes:
        number: the round's, counted from the start of the recording; a round that failed has left none.
        taken_at: Unix time at its beginning; `monotonic` is the same moment on a clock that is never set.
        duration: seconds that it took.
        only: the GPUs that were asked; None for all of them.
        present: every GPU that the driver counted, also those which did not answer (uuid to index).
        samples: the GPUs that answered, in their order.
        faults: of the driver as a whole, or of GPUs that did not answer.
        hosts: what the kernel was asked, in order.
        xid_errors: what was heard of each GPU up to this round; nothing in recordings from before it was.
        by_time: the round was due by the clock; False for one that movement, or a caller, asked for.

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
