"""
Bytes of a fuzzer as choices.

What comes in: bytes. What goes out: numbers, options and texts, drawn from the front.

The rule: any bytes are an input. After their end each number is 0, so a shorter input is a simpler one.
"""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Draw:
    """Takes choices off some bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        """Tell whether bytes are left."""
        return self._at < len(self._data)

    def take(self, count: int) -> bytes:
        """Take at most so many bytes."""
        taken = self._data[self._at : self._at + count]
        self._at += len(taken)
        return taken

    def below(self, most: int) -> int:
        """Take a number from 0 to `most - 1`: of one byte, or of two where one is not enough."""
        return int.from_bytes(self.take(1 if most <= 256 else 2), "big") % most

    def one_of(self, options: Sequence[T]) -> T:
        """Choose an option."""
        return options[self.below(len(options))]

    def line(self) -> str:
        """Take the text up to the next NUL byte: any bytes are a text, as names of the kernel are."""
        taken = self._data[self._at :].partition(b"\0")[0]
        self._at += len(taken) + 1
        return taken.decode("utf-8", "surrogateescape")

    def rest(self) -> bytes:
        """Take all that is left."""
        return self.take(len(self._data))
