"""
Arrays of the driver's library: process lists and utilization samples.

What comes in: a function of the library, and the C structure of its entries. What goes out: the entries.

The rule: **one call is enough, and no count is believed without bound.** Each call walks all clients under the lock
that the applications need (4.5 ms, measured once). So the buffer has room to spare. A list with more entries than a
node can have is refused this time: no memory is allocated for it, and the next call starts afresh.
"""

import ctypes
import struct
from collections.abc import Callable, Iterable
from typing import Any

import pynvml

from exporter.devices.errors import InsufficientSizeError
from exporter.devices.nvml.errors import meaning, refusal

Entry = tuple[int, ...]

ATTEMPTS = 4
"""Calls for one array; if it has grown in each of them, that is a fault."""
ROOM = 32
"""Entries of room at the first call for an array; later calls bring twice the size of the largest answer."""
MOST = 2**18
"""Entries that are believed: 3,600 processes with a full buffer of 72 samples each; 8 MiB of room."""


class Arrays:
    """Reads arrays. `beat` is called with the name of each call before it is made."""

    def __init__(self, beat: Callable[[str], None]) -> None:
        self._beat = beat
        self._room: dict[str, int] = {}

    def read(
        self, library: object, function: str, entry: struct.Struct, call: Callable[[Any, Any, Any], int]
    ) -> Iterable[Entry]:
        """
        Read the entries of `function`; `call` gets its symbol, the array, and the pointer to the count.

        Raises the error of the return code, and InsufficientSizeError for a list that grows in each call or is too
        long.
        """
        symbol = getattr(library, function, None)
        if symbol is None:
            raise meaning(function, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        room = self._room.get(function, ROOM)
        for _ in range(ATTEMPTS):
            array, count = ctypes.create_string_buffer(room * entry.size), ctypes.c_uint(room)
            self._beat(function)
            code = call(symbol, array, ctypes.byref(count))
            if code not in {pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_INSUFFICIENT_SIZE}:
                raise meaning(function, code)
            if code == pynvml.NVML_SUCCESS and count.value <= room:
                self._room[function] = min(max(self._room.get(function, ROOM), 2 * count.value), MOST)
                return entry.iter_unpack(memoryview(array)[: count.value * entry.size])
            if count.value > MOST:
                raise refusal(function, code, f"{count.value} entries, which no node has", InsufficientSizeError)
            room = min(2 * max(room, count.value), MOST)
        raise refusal(function, code, f"more entries than room in each of {ATTEMPTS} calls", InsufficientSizeError)


def believed(function: str, count: int, most: int) -> int:
    """Return the driver's count. Raises CallError for more than `most`, because each would be asked for."""
    if count > most:
        raise refusal(function, pynvml.NVML_SUCCESS, f"it counts {count}, which no node has")
    return count
