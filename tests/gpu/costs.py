"""
What each call of the driver costs, by the number of processes on the GPU.

What comes in: a lab. What goes out: a table of median microseconds.

The law: the calls are those of a round, made by the exporter's own library, one after the other. What this GPU does not
have is a dash.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import Callable
from contextlib import AsyncExitStack

from exporter.devices.nvml.errors import CallError, NotFoundError, UnsupportedError
from exporter.devices.nvml.library import Handle, Library
from exporter.devices.nvml.processes import LISTS, versions
from exporter.model import ProcessKind
from gpu.lab import MIB, Lab
from gpu.protocol import Do

CLIENTS = (0, 1, 4, 16)
TIMES = 21

Call = Callable[[Library, Handle], object]


def _list(kind: ProcessKind) -> Call:
    def call(library: Library, handle: Handle) -> object:
        suffix, entry = versions(library)[0]
        return library.processes(LISTS[kind] + suffix, entry, handle)

    return call


def _gpm(library: Library, handle: Handle) -> object:
    if not library.gpm_supported(handle):
        raise UnsupportedError("nvmlGpmQueryDeviceSupport", 0, "no GPM")
    sample = library.gpm_alloc()
    try:
        library.gpm_read(handle, None, sample)
    finally:
        library.gpm_free(sample)
    return None


CALLS: dict[str, Call] = {
    "memory": lambda library, handle: library.memory(handle),
    "compute list": _list(ProcessKind.COMPUTE),
    "graphics list": _list(ProcessKind.GRAPHICS),
    "MPS list": _list(ProcessKind.MPS),
    "process samples": lambda library, handle: library.process_samples(handle, 0),
    "utilization": lambda library, handle: library.busy(handle),
    "GPM sample": _gpm,
    "power": lambda library, handle: library.power(handle),
    "clocks": lambda library, handle: library.clock(handle, "sm"),
    "ECC": lambda library, handle: library.ecc_errors(handle, "corrected"),
}


async def costs(lab: Lab) -> list[list[str]]:
    """Measure with more and more tenants."""
    table = [["processes", *CALLS, "a whole round"]]
    async with AsyncExitStack() as stack:
        there = 0
        for wanted in CLIENTS:
            for _ in range(wanted - there):
                one = await stack.enter_async_context(lab.tenant())
                await one.told(Do.ALLOCATE, size=16 * MIB)
            there = wanted
            calls = await asyncio.to_thread(_calls, lab.place.uuid)
            table.append([str(wanted), *calls, await _round(lab)])
    return table


def _calls(uuid: str) -> list[str]:
    library = Library(lambda _call: None)
    library.start()
    try:
        handle = next(h for i in range(library.count()) if library.uuid(h := library.gpu(i)) == uuid)
        return [_median(call, library, handle) for call in CALLS.values()]
    finally:
        library.stop()


def _median(call: Call, library: Library, handle: Handle) -> str:
    times = []
    for _ in range(TIMES):
        began = time.perf_counter()
        try:
            with contextlib.suppress(NotFoundError):  # of samples: everybody was idle
                call(library, handle)
        except CallError:
            return "-"
        times.append(time.perf_counter() - began)
    return f"{1e6 * statistics.median(times):.0f}"


async def _round(lab: Lab) -> str:
    times = []
    for _ in range(TIMES):
        began = time.perf_counter()
        await lab.sample()
        times.append(time.perf_counter() - began)
    return f"{1e6 * statistics.median(times):.0f}"
