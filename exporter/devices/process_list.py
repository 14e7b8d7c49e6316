"""
One entry for each process of a device, from lists that name some processes twice.

What comes in: (kind, PID, bytes) as listed. What goes out: one `GpuProcess` for each raw PID.

The rule: each entry of a process shows its whole memory, so the maximum counts, never the sum. A process is listed
twice if it uses CUDA and OpenGL, or is an MPS client. "Not available" stays None unless another entry has a number.
"""

from collections.abc import Iterable
from functools import cache

from exporter.model import DeviceKey, GpuProcess, ProcessKind


def merged(device: DeviceKey, listed: Iterable[tuple[ProcessKind, int, int | None]]) -> tuple[GpuProcess, ...]:
    """Make one entry for each raw PID, with the largest known memory and all kinds."""
    memory: dict[int, int | None] = {}
    kinds: dict[int, set[ProcessKind]] = {}
    for kind, pid, used in listed:
        kinds.setdefault(pid, set()).add(kind)
        known = memory.get(pid)
        memory[pid] = known if used is None else max(used, known or 0)
    return tuple(GpuProcess(device, pid, _one(frozenset(kinds[pid])), memory[pid]) for pid in sorted(memory))


@cache
def _one(kinds: frozenset[ProcessKind]) -> frozenset[ProcessKind]:
    """Return the set that all processes of the same kinds share: each would have 216 bytes."""
    return kinds
