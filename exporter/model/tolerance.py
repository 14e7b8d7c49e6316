"""
The bytes by which usage may exceed a declared limit.

What comes in: the operator's tolerance, a limit, the memory of each process of its holder. What goes out: bytes.

The rule: every comparison of usage with a limit takes its bytes from here, so that policy, metrics and alerts agree.

A CUDA context is memory that the driver holds for each process, 250 to 600 MiB by GPU and driver. Frameworks do not
count it: a TensorFlow or vLLM process whose fraction equals the limit uses the limit and one context. So each process
may use `per_process` more, unless the limit includes contexts. A cap bounds the sum over many tiny processes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from exporter.model.limits import Context, Limit
from exporter.model.snapshot import Usage

_PARTS = 1_000_000
_BYTES_PARTS = 10
"""The fixed allowance is at most a tenth of the limit."""
_CAP_PARTS = 4
"""Contexts may add at most a quarter of the limit, or one context if that is more."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """
    The amount by which usage may exceed a limit.

    Attributes:
        ratio, bytes: the larger of both is allowed above each limit. `bytes` counts for at most a tenth of the limit: a
            fixed allowance must not be half of a small share.
        per_process: bytes allowed for the CUDA context of one process; 0 allows none.

    """

    ratio: float
    bytes: int
    per_process: int

    def above(self, limit: int) -> int:
        """Return the bytes above which `limit` counts as exceeded, without contexts."""
        proportional = limit * round(self.ratio * _PARTS) // _PARTS  # no float: it would overflow on a huge limit
        return limit + max(proportional, min(self.bytes, limit // _BYTES_PARTS))

    def cap(self, limit: Limit) -> int:
        """Return the most bytes allowed for contexts, for any number of processes."""
        if limit.memory is None or limit.context is Context.INCLUDED or self.per_process <= 0:
            return 0
        cap = max(self.per_process, limit.memory // _CAP_PARTS)
        return cap if limit.headroom is None else max(0, min(cap, limit.headroom))

    def contexts(self, limit: Limit, processes: Sequence[int] | None) -> int:
        """
        Return the bytes allowed for CUDA contexts.

        `processes`: bytes of each process; None if not all are known, and then the cap is allowed.
        """
        cap = self.cap(limit)
        if processes is None:
            return cap
        return min(cap, sum(min(self.per_process, used) for used in processes))

    def ceiling(self, limit: Limit, processes: Sequence[int] | None) -> int | None:
        """Return the bytes above which the holder is over its limit; None without a limit."""
        return None if limit.memory is None else self.above(limit.memory) + self.contexts(limit, processes)


def processes_of(usages: Iterable[Usage]) -> tuple[int, ...] | None:
    """List the bytes of all processes of `usages`; None if not all are known."""
    sizes: list[int] = []
    for usage in usages:
        if not usage.process_memory and usage.memory_used != 0:
            return None
        sizes += usage.process_memory
    return tuple(sizes)
