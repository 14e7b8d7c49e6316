"""
C structures that are believed only while they prove their layout.

What comes in: the bytes that a library wrote, and the layout in the vendor's header. What goes out: numbers, or
`LayoutError`.

The rule: five vendors keep the shape of NVML's calls, but change the order of fields, their sizes, or both, from
release to release. A buffer is filled with a pattern before the call. So the end of the written bytes shows the size of
an entry. An answer is refused, and never guessed, if it fits no known layout or exceeds the device's memory.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from exporter.devices.errors import LayoutError
from exporter.model import Health, Memory

PATTERN = 0xA5
"""No field that is read ends in this byte: the top byte of a size in bytes is 0, that of an unknown value is 0xFF."""
UNKNOWN_32 = 2**32 - 1
UNKNOWN_64 = 2**64 - 1
UNKNOWN = frozenset({UNKNOWN_32, UNKNOWN_64, -1})
"""The values that libraries write for "no value"."""
EXCESS = 1.05
"""A process holds at most the device's memory. If a value is more than 5 % above it, it is another field."""
LARGEST_PID = 2**22
"""PID_MAX_LIMIT of the kernel, 64 bits."""
FULL = 100
KIB, MIB = 2**10, 2**20

MOST_WATTS, MOST_DEGREES, LEAST_DEGREES = 10_000, 1_000, -100
"""Values that no device has; some libraries write such numbers for "no value"."""

_U32, _U64 = struct.Struct("=I"), struct.Struct("=Q")


@dataclass(frozen=True, slots=True)
class Entry:
    """
    One entry of a process list: its size in bytes, and the offsets of its fields.

    Attributes:
        host_pid: offset of the PID in the initial PID namespace, which is 0 where the library does not know it.
        ends: the bytes of an entry that are always written; the rest may be reserved. 0: all of it.

    """

    size: int
    pid: int
    used: int
    host_pid: int | None = None
    ends: int = 0


@dataclass(frozen=True, slots=True)
class Listed:
    """
    One process as listed. `memory` is None where the library reports no value.

    `host`: the PID is that of the initial PID namespace, according to the library.
    """

    pid: int
    memory: int | None
    host: bool = False


@dataclass(frozen=True, slots=True)
class MemoryLayout:
    """A structure of device memory: its size and its fields' offsets in bytes; `version` is written before the call."""

    size: int
    total: int
    free: int
    used: int
    reserved: int | None = None
    version: int | None = None
    ends: int = 0


def blank(size: int, head: int | None = None) -> bytes:
    """Make the content of a buffer before the call; `head`: its first four bytes, which the library reads."""
    first = b"" if head is None else _U32.pack(head)
    return first + bytes([PATTERN]) * (size - len(first))


def written(after: bytes) -> int:
    """Count the written bytes of a blank buffer: up to the last one that changed."""
    return len(after.rstrip(bytes([PATTERN])))


def which(call: str, after: bytes, count: int, known: Iterable[Entry]) -> Entry:
    """Find the layout of `count` entries. Raises LayoutError if no known layout fits."""
    end = written(after)
    for entry in known:
        if (count - 1) * entry.size + (entry.ends or entry.size) <= end <= count * entry.size:
            return entry
    raise LayoutError(call, f"{count} entries end at byte {end}, which no layout that is known explains")


def entries(call: str, after: bytes, count: int, entry: Entry, total: int | None) -> tuple[Listed, ...]:
    """
    Read `count` entries; `total` is the device's memory in bytes, or None.

    Entries without a PID are empty. Raises LayoutError for an impossible value.
    """
    processes = []
    for start in range(0, count * entry.size, entry.size):
        pid = _U32.unpack_from(after, start + entry.pid)[0]
        host = 0 if entry.host_pid is None else _U32.unpack_from(after, start + entry.host_pid)[0]
        if pid or host:
            processes.append(
                listed(call, host or pid, _U64.unpack_from(after, start + entry.used)[0], total, host=host > 0)
            )
    return tuple(processes)


def listed(call: str, pid: int, memory: int | None, total: int | None, *, host: bool = False) -> Listed:
    """Check one entry: its PID must be possible, and its memory must fit into the device."""
    if not 0 < pid <= LARGEST_PID:
        raise LayoutError(call, f"{pid} is not the number of a process")
    if memory is None or memory in UNKNOWN:
        return Listed(pid, None, host)
    if memory < 0 or (total is not None and memory > EXCESS * total):
        raise LayoutError(call, f"process {pid} would hold {memory} bytes of a device of {total}")
    return Listed(pid, memory, host)


def memory(call: str, after: bytes, layout: MemoryLayout) -> Memory | None:
    """
    Read device memory; None where the library has no value.

    Raises LayoutError unless its size is right, and total = free + used (+ reserved) within 5 %.
    """
    end = written(after)
    if not (layout.ends or layout.size) <= end <= layout.size:
        raise LayoutError(call, f"{end} bytes were written, not {layout.size}")
    total, free, used = (_U64.unpack_from(after, at)[0] for at in (layout.total, layout.free, layout.used))
    reserved = 0 if layout.reserved is None else _U64.unpack_from(after, layout.reserved)[0]
    if total in UNKNOWN or free in UNKNOWN or total == 0:
        return None
    if reserved in UNKNOWN:
        reserved = 0
    parts = free + (0 if used in UNKNOWN else used)
    least = 0 if used in UNKNOWN else total * (2 - EXCESS)
    if max(free, reserved) > total or parts > EXCESS * total or parts + reserved < least:
        raise LayoutError(call, f"free {free}, used {used} and reserved {reserved} do not make {total} bytes")
    return Memory(total, free, min(reserved, total - free))


def agree(reading: Memory, other: Memory) -> bool:
    """Say whether two readings are of the same memory: equal in size, and equal in free memory within 5 %."""
    return reading.total == other.total and abs(reading.free - other.free) <= (EXCESS - 1) * reading.total


def mebibytes(value: int) -> int:
    """Convert MiB to bytes; -1 if there is no value."""
    return -1 if value in UNKNOWN else value * MIB


def balanced(call: str, total: int, used: int, reserved: int = 0) -> Memory | None:
    """Make `Memory` from the library's used memory; None where it has no value. All in bytes."""
    if total <= 0 or used < 0:
        return None
    if used > EXCESS * total:
        raise LayoutError(call, f"{used} bytes used of {total}")
    used = min(used, total)
    reserved = min(max(reserved, 0), total - used)
    return Memory(total, total - used - reserved, reserved)


def ratio(percent: int) -> float | None:
    """Convert a percentage to a ratio; any other number (-1, 0xEF while profiling, 0xFFFFFFFF) is unknown."""
    return percent / FULL if 0 <= percent <= FULL else None


def health(watts: float | None, degrees: float | None) -> Health:
    """Make the figures; an impossible value is unknown."""
    return Health(
        power_watts=watts if watts is not None and 0 <= watts < MOST_WATTS else None,
        temperature_celsius=float(degrees) if degrees is not None and LEAST_DEGREES < degrees < MOST_DEGREES else None,
    )


def text(raw: bytes) -> str:
    """Read a text that ends with a zero byte, or with its field."""
    return raw.split(b"\0")[0].decode("utf-8", "replace")


def pci_address(domain: int, bus: int, device: int, function: int) -> str:
    """Write a PCI address as the kernel does, `0000:3b:00.0`."""
    return f"{domain & 0xFFFFFFFF:04x}:{bus & 0xFF:02x}:{device & 0x1F:02x}.{function & 7:x}"
