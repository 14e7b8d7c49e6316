"""
From the driver's list to a container's name: does the daemon find whose memory it is?

What comes in: a lab, whose daemon knows one container by name. What goes out: a row.

The law: a cgroup that is called like that container's is all that makes a tenant one of its processes. Making it needs
root; it is removed when the tenant is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from exporter.model import DeviceKey
from gpu.lab import CONTAINER, FOLDER, MIB, POD, Lab
from gpu.protocol import Do
from gpu.table import Row, held, mib, not_here

WHAT = "memory of a container, by the daemon"
HIERARCHIES = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
"""Where the unified hierarchy is mounted: beside those of version 1, or alone."""


async def naming(lab: Lab) -> list[Row]:
    """Put a tenant into the container's cgroup, and ask the daemon what the container holds."""
    try:
        with container() as enter:
            async with lab.tenant() as one:
                enter(one.pid)
                await one.told(Do.ALLOCATE, size=512 * MIB)
                listed = await lab.held_by(one.pid)
                found = await lab.daemon_says(lambda snapshot: _holds(snapshot, lab.key, listed))
    except OSError as problem:
        return [not_here(WHAT, f"no cgroup can be made: {problem}")]
    return [held(WHAT, mib(listed), "something else" if found is None else mib(found), good=found is not None)]


def _holds(snapshot: dict[str, Any], key: DeviceKey, size: int | None) -> int | None:
    wanted = (key.uuid, key.gpu_instance)
    found = [one["memory_used_bytes"] for one in snapshot["containers"] if (one["uuid"], one["gpu_instance"]) == wanted]
    return size if size and found == [size] else None


@contextmanager
def container() -> Iterator[Callable[[int], None]]:
    """Make the container's cgroup; give what moves a process into it. Raises OSError where that cannot be done."""
    root = next((one for one in HIERARCHIES if (one / "cgroup.procs").exists()), None)
    if root is None:
        raise OSError("no unified hierarchy is mounted")
    folder = root / FOLDER / f"pod{POD}" / CONTAINER  # beside kubepods, which is the kubelet's
    made: list[Path] = []
    try:
        for each in (folder.parents[1], folder.parent, folder):
            if not each.exists():
                each.mkdir()
                made.append(each)

        def enter(pid: int) -> None:
            (folder / "cgroup.procs").write_text(f"{pid}\n")

        yield enter
    finally:
        for each in reversed(made):
            each.rmdir()
