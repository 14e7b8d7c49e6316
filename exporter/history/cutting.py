"""
Cuts a window where the workload of a pod name changes.

What comes in: a window, and a function that asks for the workloads of a part of it. What goes out: parts, with the
workloads of each.

The rule: a part is cut in two, down to a quarter of an hour, so that few more questions are asked.
"""

from collections.abc import Awaitable, Callable

from exporter.history.owners import NodeT, Owners, PodT
from exporter.history.windows import Window

SHORTEST = 900.0
"""Seconds of the shortest part."""

Ask = Callable[[Window], Awaitable[Owners[NodeT, PodT]]]


async def cut(window: Window, ask: Ask[NodeT, PodT]) -> list[tuple[Window, Owners[NodeT, PodT]]]:
    """Ask about a window, and about halves of it where the workload of a pod changes."""
    found = await ask(window)
    halves = window.halves(SHORTEST) if found.changed() else None
    if halves is None:
        return [(window, found)]
    return [part for half in halves for part in await cut(half, ask)]
