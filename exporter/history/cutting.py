"""
Cuts a window where the workload of a pod name changes.

What comes in: a window, and a function that asks for the workloads of a part of it. What goes out: parts, with the
workloads of each.

The rule: a part is cut in two, down to a quarter of an hour, and only where a workload changes: each part is asked for
itself.
"""

from collections.abc import Awaitable, Callable

from exporter.history.owners import NodeT, Owners, PodT
from exporter.history.windows import HOUR, Window

SHORTEST = 900.0
"""Seconds of the shortest part."""

Ask = Callable[[Window], Awaitable[Owners[NodeT, PodT]]]


async def cut(
    window: Window, ask: Ask[NodeT, PodT], few: float = float("inf")
) -> list[tuple[Window, Owners[NodeT, PodT]]]:
    """
    Ask about a window, and about halves of it where the workload of a pod changes.

    If that of more than `few` pods changes, no part is shorter than an hour: many short parts are many questions.
    """
    found = await ask(window)
    return await _halved(window, found, ask, SHORTEST if len(found.changed()) <= few else HOUR)


async def _halved(
    window: Window, found: Owners[NodeT, PodT], ask: Ask[NodeT, PodT], least: float
) -> list[tuple[Window, Owners[NodeT, PodT]]]:
    halves = window.halves(least) if found.changed() else None
    if halves is None:
        return [(window, found)]
    return [part for half in halves for part in await _halved(half, await ask(half), ask, least)]
