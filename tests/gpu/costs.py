"""
What each call of the driver costs, by the number of processes on the GPU.

What comes in: a lab. What goes out: a table of median microseconds.

The law: the calls are those of a round, or of each minute (from "all fields" on). They are made by the exporter's own
library, one after the other, of the same handle. Under MIG, memory and lists are the instance's, the rest is the GPU's.
What this GPU does not have is a dash.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from exporter.devices.errors import CallError, NotFoundError, UnsupportedError
from exporter.devices.nvml.hardware import FIELDS, MEMORY_TEMPERATURE
from exporter.devices.nvml.inventory import find_devices, find_gpus
from exporter.devices.nvml.library import Handle, Library
from exporter.devices.nvml.processes import LISTS, versions
from exporter.model import DeviceKey, ProcessKind
from gpu.lab import MIB, Lab
from gpu.protocol import Do

CLIENTS = (0, 1, 4, 16)
TIMES = 21


@dataclass(frozen=True, slots=True)
class Asked:
    """Handles of the GPU and of the device, which are the same without MIG."""

    gpu: Handle
    leaf: Handle
    instance: int | None


Call = Callable[[Library, Asked], object]


def _list(kind: ProcessKind) -> Call:
    def call(library: Library, asked: Asked) -> object:
        suffix, entry = versions(library)[0]
        return library.processes(LISTS[kind] + suffix, entry, asked.leaf)

    return call


def _gpm(library: Library, asked: Asked) -> object:
    if not library.gpm_supported(asked.gpu):
        raise UnsupportedError("nvmlGpmQueryDeviceSupport", "no GPM")
    sample = library.gpm_alloc()
    try:
        library.gpm_read(asked.gpu, asked.instance, sample)
    finally:
        library.gpm_free(sample)
    return None


CALLS: dict[str, Call] = {
    "memory": lambda library, asked: library.memory(asked.leaf),
    "compute list": _list(ProcessKind.COMPUTE),
    "graphics list": _list(ProcessKind.GRAPHICS),
    "MPS list": _list(ProcessKind.MPS),
    "process samples": lambda library, asked: library.process_samples(asked.gpu, 0),
    "utilization": lambda library, asked: library.busy(asked.gpu),
    "GPM sample": _gpm,
    "power": lambda library, asked: library.power(asked.gpu),
    "clocks": lambda library, asked: library.clock(asked.gpu, "sm"),
    "ECC": lambda library, asked: library.ecc_errors(asked.gpu, "corrected"),
    "memory temperature": lambda library, asked: library.fields(asked.gpu, [MEMORY_TEMPERATURE]),
    "all fields": lambda library, asked: library.fields(asked.gpu, FIELDS),
    "spare rows": lambda library, asked: library.row_remap_banks(asked.gpu),
    "power limit": lambda library, asked: library.power_limit(asked.gpu),
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
            calls = await asyncio.to_thread(_calls, lab.key)
            table.append([str(wanted), *calls, await _round(lab)])
    return table


def _calls(key: DeviceKey) -> list[str]:
    library = Library(lambda _call: None)
    library.start()
    try:
        gpu = next(one for one in find_gpus(library, {}).gpus if one.uuid == key.uuid)
        leaves = find_devices(library, gpu, mig=key.gpu_instance is not None)
        leaf = next(one for one in leaves if one.key == key)
        asked = Asked(gpu.handle, leaf.handles[0], key.gpu_instance)
        return [_median(call, library, asked) for call in CALLS.values()]
    finally:
        library.stop()


def _median(call: Call, library: Library, asked: Asked) -> str:
    times = []
    for _ in range(TIMES):
        began = time.perf_counter()
        try:
            with contextlib.suppress(NotFoundError):  # of samples: all processes were idle
                call(library, asked)
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
