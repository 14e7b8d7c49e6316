"""
Sums of parts that may be unknown.

What comes in: numbers, None where one is unknown. What goes out: their sum.

The rule: unknown is not zero. With one unknown part the sum is unknown.
"""

from collections.abc import Iterable
from typing import TypeVar

N = TypeVar("N", int, float)


def known_sum(parts: Iterable[N | None], nothing: N | None = None) -> N | None:
    """Add up; None where a part is unknown, and `nothing` where there is none."""
    total: N | None = None
    for part in parts:
        if part is None:
            return None
        total = part if total is None else total + part
    return nothing if total is None else total
