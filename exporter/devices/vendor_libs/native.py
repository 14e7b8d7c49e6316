"""
A vendor's library, loaded: the one place with ctypes types.

What comes in: the name of a C function and its arguments. What goes out: numbers, texts and bytes, or the error of its
code (`exporter.devices.errors`). Each call is announced to the thread first, so that a hanging one has a name.

The rule: libraries are loaded with local symbols. Iluvatar's library exports NVML's own names, and must not answer
NVIDIA's callers.
"""

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NewType, ParamSpec, TypeVar

from exporter.devices import errors
from exporter.devices.session import Beat
from exporter.devices.vendor_libs.layouts import UNKNOWN_32, Entry, blank, which, written

P = ParamSpec("P")
T = TypeVar("T")

Handle = NewType("Handle", ctypes.c_void_p)
"""An opaque object of the library, as long as it stays initialised."""
Meanings = Mapping[int, type[errors.LibraryError]]
"""The errors of a library's codes. 0 is success in all of them; a code that is missing is an errors.CallError."""

ROOM = 128
ATTEMPTS = 4
"""Entries of room at the first call for a list; calls before its growth counts as a fault."""
LARGEST = 128
"""Bytes of the largest known entry. With it the room is enough for the library's entries, whatever their size."""
MOST = 2**20
"""Entries that are believed, at most."""
TEXT = 96


def known(question: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """Ask for a figure that may be missing; any refusal gives None."""
    try:
        return question(*args, **kwargs)
    except errors.CallError:
        return None


class Native:
    """A library by one of `names`. All methods run on its thread; `beat` announces each call before it is made."""

    def __init__(self, names: Sequence[str], meanings: Meanings, beat: Beat) -> None:
        self._names = names
        self._meanings = meanings
        self._beat = beat
        self._library: ctypes.CDLL | None = None

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
            raise errors.LibraryGoneError(self._names[0], f"cannot be loaded: {why}")

    def has(self, function: str) -> bool:
        """Say whether the library exports `function`."""
        return hasattr(self._library, function)

    def code(self, function: str, *arguments: Any) -> int:
        """Call, and return the code. Raises OtherVersionError when there is no such function."""
        return int(self._symbol(function)(*arguments))

    def call(self, function: str, *arguments: Any) -> None:
        """Call, and raise the error of the code."""
        if code := self.code(function, *arguments):
            raise self._meanings.get(code, errors.CallError)(function, f"code {code}")

    def _symbol(self, function: str) -> Any:
        symbol = getattr(self._library, function, None)
        if symbol is None:
            raise errors.OtherVersionError(function, f"{self._names[0]} does not have it")
        self._beat(function)
        return symbol

    # --- one kind of answer each; `arguments` precede the answer, `after` follow it ---

    def handle(self, function: str, *arguments: Any) -> Handle:
        """Get an opaque pointer."""
        answer = ctypes.c_void_p()
        self.call(function, *arguments, ctypes.byref(answer))
        return Handle(answer)

    def uint(self, function: str, *arguments: Any) -> int:
        """Get an unsigned number of 32 bits."""
        return self._number(ctypes.c_uint(), function, *arguments)

    def sint(self, function: str, *arguments: Any, after: tuple[Any, ...] = ()) -> int:
        """Get a signed number of 32 bits."""
        return self._number(ctypes.c_int(), function, *arguments, after=after)

    def ulonglong(self, function: str, *arguments: Any) -> int:
        """Get an unsigned number of 64 bits."""
        return self._number(ctypes.c_ulonglong(), function, *arguments)

    def _number(self, answer: Any, function: str, *arguments: Any, after: tuple[Any, ...] = ()) -> int:
        self.call(function, *arguments, ctypes.byref(answer), *after)
        return int(answer.value)

    def text(self, function: str, *arguments: Any, size: int = TEXT) -> str:
        """Get a text through (buffer, its size)."""
        answer = ctypes.create_string_buffer(size)
        self.call(function, *arguments, answer, ctypes.c_uint(size))
        return answer.value.decode("utf-8", "replace")

    def chars(self, function: str, *arguments: Any) -> str:
        """Get a text that the library itself keeps; empty where it has none."""
        symbol = self._symbol(function)
        symbol.restype = ctypes.c_char_p
        return (symbol(*arguments) or b"").decode("utf-8", "replace")

    def structure(
        self, function: str, size: int, *arguments: Any, after: tuple[Any, ...] = (), head: int | None = None
    ) -> bytes:
        """Get a structure through a blank buffer (`layouts.blank`), with room for more than the call should write."""
        answer = ctypes.create_string_buffer(blank(size + LARGEST, head), size + LARGEST)
        self.call(function, *arguments, answer, *after)
        return answer.raw

    def fields(
        self,
        function: str,
        layout: struct.Struct,
        *arguments: Any,
        size: int = 0,
        ends: int = 0,
        after: tuple[Any, ...] = (),
        head: int | None = None,
    ) -> tuple[Any, ...]:
        """
        Get the fields at the start of a structure that proves its layout.

        `size`: of the whole structure, if `layout` is only a part of it. `ends`: the bytes that are always written, if
        that is less than the whole layout. Raises LayoutError.
        """
        size = size or layout.size
        answer = self.structure(function, size, *arguments, after=after, head=head)
        if not (ends or layout.size) <= written(answer) <= size:
            raise errors.LayoutError(function, f"{written(answer)} bytes were written, not {size}")
        return layout.unpack_from(answer)

    def growing(self, function: str, ask: Callable[[int, ctypes.c_uint], bytes]) -> tuple[bytes, int, int]:
        """
        Get a list, with more room when it does not fit: its bytes, its count, and the room in entries.

        `ask` gets the room, and the counter that holds it, and makes the call.
        """
        room = ROOM
        for _ in range(ATTEMPTS):
            count = ctypes.c_uint(room)
            try:
                return ask(room, count), count.value, room
            except errors.InsufficientSizeError:
                room = 2 * max(room, count.value)
                if room > MOST:
                    raise errors.LayoutError(function, f"{count.value} entries") from None
        raise errors.InsufficientSizeError(function, f"the list grew in each of {ATTEMPTS} calls")

    def list(self, function: str, layouts: Sequence[Entry], handle: Handle) -> tuple[bytes, int, Entry | None]:
        """
        Get a process list through (handle, count, entries): its bytes, the count, and the layout that they prove.

        The layout of an empty list is None. Raises LayoutError for an impossible count.
        """

        def ask(room: int, count: ctypes.c_uint) -> bytes:
            answer = ctypes.create_string_buffer(blank(room * LARGEST), room * LARGEST)
            self.call(function, handle, ctypes.byref(count), answer)
            return answer.raw

        after, count, room = self.growing(function, ask)
        if count == UNKNOWN_32:
            raise errors.UnsupportedError(function, "it does not know how many there are")
        if count > room:
            raise errors.LayoutError(function, f"{count} entries in room for {room}")
        return after, count, which(function, after, count, layouts) if count else None
