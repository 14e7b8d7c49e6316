"""
By how much a use may exceed a declared limit.

What comes in: the operator's tolerance, a limit, the memory of each process of its holder. What goes out: bytes.

The rule: every comparison of a use with a limit takes its bytes from here, so that policy, metrics and alerts agree.
A CUDA context is memory that the driver holds for each process, 250 to 600 MiB by GPU and driver. Frameworks do not
count it: a TensorFlow or vLLM process whose fraction equals the limit uses the limit and one context. Unless the limit
includes contexts, each process may therefore use `per_process` more, up to a cap: many tiny processes gain no more.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from exporter.model.limits import Context, Limit
from exporter.model.snapshot import Usage

_PARTS = 1_000_000
_BYTES_PARTS = 10
"""Of the limit, the fixed allowance is a tenth at most."""
_CAP_PARTS = 4
"""Contexts may add a quarter of the limit, or one context where that is more."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """
    What a use may exceed its limit by.

    Attributes:
        ratio, bytes: the larger of both is allowed on top of each limit. `bytes` is a tenth of the limit at most: an
            allowance that does not grow with the limit must not be half of a small share.
        per_process: bytes that are allowed for the CUDA context of one process; 0 allows none.

    """

    ratio: float
    bytes: int
    per_process: int

    def above(self, limit: int) -> int:
        """Return the bytes above which `limit` counts as exceeded, without contexts."""
        proportional = limit * round(self.ratio * _PARTS) // _PARTS  # no float: it would overflow on a huge limit
        return limit + max(proportional, min(self.bytes, limit // _BYTES_PARTS))

    def cap(self, limit: Limit) -> int:
        """Return the most that may be allowed for contexts, however many processes the holder has."""
        if limit.memory is None or limit.context is Context.INCLUDED or self.per_process <= 0:
            return 0
        cap = max(self.per_process, limit.memory // _CAP_PARTS)
        return cap if limit.headroom is None else max(0, min(cap, limit.headroom))

    def contexts(self, limit: Limit, processes: Sequence[int] | None) -> int:
        """
        Return the bytes that are allowed for CUDA contexts.

        `processes`: bytes of each process. Where they are not all known (None) the cap is allowed.
        """
        cap = self.cap(limit)
        if processes is None:
            return cap
        return min(cap, sum(min(self.per_process, used) for used in processes))

    def ceiling(self, limit: Limit, processes: Sequence[int] | None) -> int | None:
        """Return the bytes above which the holder is over its limit; None without a limit."""
        return None if limit.memory is None else self.above(limit.memory) + self.contexts(limit, processes)


def processes_of(usages: Iterable[Usage]) -> tuple[int, ...] | None:
    """List the bytes of all processes behind `usages`; None where they are not all known."""
    sizes: list[int] = []
    for usage in usages:
        if not usage.process_memory and usage.memory_used != 0:
            return None
        sizes += usage.process_memory
    return tuple(sizes)
