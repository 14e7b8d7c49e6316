"""
A vendor's library, loaded: the one place with ctypes types.

What comes in: the name of a C function and its arguments. What goes out: numbers, texts and bytes, or what its code
means (`errors`). Each call is announced to the driver thread first, so that a hanging one has a name.

The law: loaded with local symbols. Iluvatar's library exports NVML's own names, and must not answer NVIDIA's callers.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NewType, TypeVar

from exporter.devices.vendor_libs.errors import (
    CallError,
    InsufficientSizeError,
    LayoutError,
    LibraryGoneError,
    Meanings,
    OtherVersionError,
    UnsupportedError,
    check,
)
from exporter.devices.vendor_libs.layouts import UNKNOWN_32, Entry, blank, which

T = TypeVar("T")

Handle = NewType("Handle", object)
"""A device, as long as the library stays initialised."""

ROOM = 128
ATTEMPTS = 4
"""Entries of room at the first call for a list, and calls before its growth is called a fault."""
LARGEST = 128
"""Bytes of the largest entry that is known: the room is in entries of whatever size the library has."""
TEXT = 96


def known(question: Callable[[], T], otherwise: T) -> T:
    """Ask for what may be missing; what was refused, for whatever reason, is `otherwise`."""
    try:
        return question()
    except CallError:
        return otherwise


class Native:
    """A library by one of `names`. All methods run on its thread; `beat` is told each call before it is made."""

    def __init__(self, names: Sequence[str], meanings: Meanings, beat: Callable[[str], None]) -> None:
        self._names = names
        self._meanings = meanings
        self._beat = beat
        self._library: ctypes.CDLL | None = None

    @property
    def name(self) -> str:
        """The first name that the library is known by."""
        return self._names[0]

    def load(self) -> None:
        """Load the library unless that is done; it stays loaded. Raises LibraryGoneError."""
        why = "no name is known"
        for name in self._names if self._library is None else ():
            self._beat(f"dlopen {name}")
            try:
                self._library = ctypes.CDLL(name)
            except OSError as error:
                why = str(error)
            else:
                break
        if self._library is None:
            raise LibraryGoneError(self.name, f"cannot be loaded: {why}")

    def has(self, function: str) -> bool:
        """Say whether the library exports `function`."""
        return hasattr(self._library, function)

    def code(self, function: str, *arguments: Any) -> int:
        """Call, and give the code. Raises OtherVersionError when there is no such function."""
        symbol = getattr(self._library, function, None)
        if symbol is None:
            raise OtherVersionError(function, f"{self.name} does not have it")
        self._beat(function)
        return int(symbol(*arguments))

    def call(self, function: str, *arguments: Any) -> None:
        """Call, and raise what the code means."""
        check(function, self.code(function, *arguments), self._meanings)

    # --- answers of one kind each; `arguments` come before the answer, `after` behind it ---

    def handle(self, function: str, *arguments: Any) -> Handle:
        """Get an opaque pointer."""
        answer = ctypes.c_void_p()
        self.call(function, *arguments, ctypes.byref(answer))
        return Handle(answer)

    def uint(self, function: str, *arguments: Any) -> int:
        """Get an unsigned number of 32 bits."""
        answer = ctypes.c_uint()
        self.call(function, *arguments, ctypes.byref(answer))
        return answer.value

    def sint(self, function: str, *arguments: Any) -> int:
        """Get a signed number of 32 bits."""
        answer = ctypes.c_int()
        self.call(function, *arguments, ctypes.byref(answer))
        return answer.value

    def ulonglong(self, function: str, *arguments: Any) -> int:
        """Get an unsigned number of 64 bits."""
        answer = ctypes.c_ulonglong()
        self.call(function, *arguments, ctypes.byref(answer))
        return answer.value

    def text(self, function: str, *arguments: Any, size: int = TEXT) -> str:
        """Get a text through (buffer, its size)."""
        answer = ctypes.create_string_buffer(size)
        self.call(function, *arguments, answer, ctypes.c_uint(size))
        return answer.value.decode("utf-8", "replace")

    def chars(self, function: str, *arguments: Any) -> str:
        """Get a text that the library itself keeps; empty where it has none."""
        symbol = getattr(self._library, function, None)
        if symbol is None:
            raise OtherVersionError(function, f"{self.name} does not have it")
        symbol.restype = ctypes.c_char_p
        self._beat(function)
        return (symbol(*arguments) or b"").decode("utf-8", "replace")

    def structure(
        self, function: str, size: int, *arguments: Any, after: tuple[Any, ...] = (), head: int | None = None
    ) -> bytes:
        """Get a structure out of a blank one (`layouts.blank`); there is room for more than the call should write."""
        answer = ctypes.create_string_buffer(blank(size + LARGEST, head), size + LARGEST)
        self.call(function, *arguments, answer, *after)
        return answer.raw

    def list(self, function: str, known: Sequence[Entry], handle: Any) -> tuple[bytes, int, Entry | None]:
        """
        Get a process list through (handle, count, entries): its bytes, the count, and the layout that they prove.

        None for the layout of an empty list. Raises LayoutError for a count that cannot be.
        """
        room = ROOM
        for _ in range(ATTEMPTS):
            answer = ctypes.create_string_buffer(blank(room * LARGEST), room * LARGEST)
            count = ctypes.c_uint(room)
            try:
                self.call(function, handle, ctypes.byref(count), answer)
            except InsufficientSizeError:
                room = 2 * max(room, count.value)
                if room > 2**20:
                    raise LayoutError(function, f"{count.value} entries") from None
                continue
            if count.value == UNKNOWN_32:
                raise UnsupportedError(function, "it does not know how many there are")
            if count.value > room:
                raise LayoutError(function, f"{count.value} entries in room for {room}")
            return answer.raw, count.value, which(function, answer.raw, count.value, known) if count.value else None
        raise InsufficientSizeError(function, f"the list grew in each of {ATTEMPTS} calls")
