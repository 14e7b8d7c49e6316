"""
Memory: which process is charged with what, and until when.

What comes in: a lab. What goes out: rows, each with what we expected.

The law: each question starts and ends its own tenants.
"""

from __future__ import annotations

import os
import signal
import statistics
from contextlib import AsyncExitStack
from typing import Any

from exporter.model import DeviceKey
from gpu.lab import GIB, MIB, Lab, leader
from gpu.protocol import Do
from gpu.table import Row, held, mib, within

PAGES = 4.0
"""MiB: memory is handed out in pages of 2 MiB, and a context may take one more."""
KILLS = 5
RELEASED = 10.0
"""Seconds after which memory that is not released stays."""


async def memory(lab: Lab) -> list[Row]:
    """What a process is charged with: its context, what it allocates, and what it gives back."""
    async with lab.tenant(context=False) as one:
        before = await lab.held_by(one.pid)
        await one.told(Do.CONTEXT)
        context = await lab.held_by(one.pid) or 0
        used = (await lab.memory()).used
        await one.told(Do.ALLOCATE, size=GIB)
        grown = await lab.held_by(one.pid) or 0
        device = (await lab.memory()).used - used
        told = await lab.daemon_says(lambda seen: _account(seen, lab.key, used + GIB - PAGES * MIB)) or {}
        await one.told(Do.FREE)
        freed = await lab.held_by(one.pid) or 0
    parts = [told.get(f"memory_{part}_bytes") for part in ("attributed", "ghost", "host", "unattributed")]
    explained = None if None in parts else sum(part or 0 for part in parts)
    return [
        Row("listed before it has a context", "nothing, or some MiB", mib(before)),
        Row("its context", "100 to 700 MiB, by GPU and driver", mib(context)),
        within("growth in the process list after 1 GiB", 1024, (grown - context) / MIB, PAGES, " MiB"),
        within("growth of the device's used memory meanwhile", 1024, device / MIB, PAGES, " MiB"),
        within("left of it after it was given back", 0, (freed - context) / MIB, PAGES, " MiB"),
        held(
            "the daemon's account of the device",
            "its four parts are what is used, and it closes",
            f"{mib(explained)} of {mib(told.get('memory_used_bytes'))}",
            good=told.get("accounts_close", False) and explained == told["memory_used_bytes"],
        ),
    ]


def _account(snapshot: dict[str, Any], key: DeviceKey, used: float) -> dict[str, Any] | None:
    here = [one for one in snapshot["devices"] if (one["uuid"], one["gpu_instance"]) == (key.uuid, key.gpu_instance)]
    return next((one for one in here if (one["memory_used_bytes"] or 0) >= used), None)


async def neighbours(lab: Lab) -> list[Row]:
    """Several processes at once, one of which allocates in a thread."""
    async with AsyncExitStack() as stack:
        tenants = [await stack.enter_async_context(lab.tenant()) for _ in range(4)]
        contexts = [await lab.held_by(one.pid) or 0 for one in tenants]
        for number, one in enumerate(tenants, start=1):
            await one.told(Do.ALLOCATE, size=number * 128 * MIB)
        grown = [((await lab.held_by(one.pid) or 0) - own) / MIB for one, own in zip(tenants, contexts, strict=True)]
        await tenants[0].told(Do.THREAD, size=128 * MIB)
        entries = await lab.entries(tenants[0].pid)
    numbers = sorted({one.pid for one in entries})
    return [
        *(
            within(f"process {number} of four, {128 * number} MiB", 128 * number, found, PAGES, " MiB")
            for number, found in enumerate(grown, start=1)
        ),
        held(
            "numbers under which a process with two threads is listed",
            "its own (some drivers print a thread's)",
            "its own" if numbers == [tenants[0].pid] else f"{len(numbers)}, of threads among them",
            good=bool(numbers) and all(leader(pid) in (tenants[0].pid, None) for pid in numbers),
        ),
    ]


async def forks(lab: Lab) -> list[Row]:
    """A parent that dies while its forked child holds the descriptors: who is charged?"""
    async with lab.tenant() as one:
        await one.told(Do.ALLOCATE, size=256 * MIB)
        used = (await lab.memory()).used
        child = (await one.told(Do.FORK)).pid
        try:
            one.kill()
            gone = await lab.until(lambda seen: seen.used <= used - 256 * MIB, within=2.0)
            dead = [entry for entry in await lab.listed() if entry.pid == one.pid]
        finally:
            os.kill(child, signal.SIGKILL)
    what = "memory of a dead parent whose forked child lives"
    if gone is not None:
        return [Row(what, "stays, under the dead number", f"released after {1000 * gone:.0f} ms")]
    return [Row(what, "stays, under the dead number", f"stays, {'under the dead number' if dead else 'in no list'}")]


async def killed(lab: Lab) -> list[Row]:
    """How long memory stays after SIGKILL."""
    times: list[float] = []
    for _ in range(KILLS):
        async with lab.tenant() as one:
            await one.told(Do.ALLOCATE, size=GIB)
            used = (await lab.memory()).used
            one.kill()
            took = await lab.until(lambda seen, used=used: seen.used <= used - GIB, within=RELEASED)  # type: ignore[misc]
            times.append(RELEASED if took is None else took)
    found = f"median {1000 * statistics.median(times):.0f} ms, longest {1000 * max(times):.0f} ms"
    return [held("from SIGKILL to 1 GiB released", f"below {RELEASED:g} s", found, good=max(times) < RELEASED)]
