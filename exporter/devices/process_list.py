"""
One entry for each process of a device, out of lists that name some of them twice.

What comes in: (kind, pid, bytes) as listed. What goes out: one `GpuProcess` for each raw pid.

The rule: a process that is listed twice (CUDA and OpenGL, or an MPS client) appears each time with its whole memory, so
the maximum counts, never the sum. "Not available" stays None unless another entry knows better.
"""

from collections.abc import Iterable

from exporter.model import DeviceKey, GpuProcess, ProcessKind


def merged(device: DeviceKey, listed: Iterable[tuple[ProcessKind, int, int | None]]) -> tuple[GpuProcess, ...]:
    """Make one entry for each raw pid: memory is the maximum that is known, kinds are all."""
    memory: dict[int, int | None] = {}
    kinds: dict[int, set[ProcessKind]] = {}
    for kind, pid, used in listed:
        kinds.setdefault(pid, set()).add(kind)
        known = memory.get(pid)
        memory[pid] = known if used is None else max(used, known or 0)
    return tuple(GpuProcess(device, pid, frozenset(kinds[pid]), memory[pid]) for pid in sorted(memory))
