"""
What an input costs: lines of Python that ran, and bytes that were allocated.

What comes in: a target and an input. What goes out: two counts, the same on each machine however busy it is.

Work within C (a regular expression, libyaml, zlib) is not counted here. The campaign ends an input that takes more
than `guided.SECONDS`.
"""

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

Check = Callable[[bytes], object]


def lines(check: Check, data: bytes) -> int:
    """Count the lines of Python that a target runs for an input, in all modules."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        check(data)
    finally:
        sys.settrace(before)
    return count


def peak(check: Check, data: bytes) -> int:
    """Count the bytes that a target holds at most for an input."""
    tracemalloc.start()
    try:
        check(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
