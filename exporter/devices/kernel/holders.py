"""
Which processes have a DRM device open: `/proc/<pid>/fd` and `fdinfo`.

What comes in: a mounted procfs. What goes out: descriptors, and the processes that could not be looked at.

The law: a descriptor is judged by its node (major and minor number) and by what its driver says, never by its name,
which a tenant chooses. Nothing else of a process is read, and no other file is touched: asking about a descriptor of a
network file system that hangs would hang us, so the node is asked for only where a DRM driver spoke, or the link is
called as DRM's nodes are (`renderD128`), wherever a container has them. Looking takes PTRACE_MODE_READ: CAP_SYS_PTRACE,
for what runs as somebody else or has capabilities.
"""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from exporter.cgroups import parse_owner
from exporter.devices.kernel.clients import Descriptor, Holder
from exporter.devices.kernel.fdinfo import parse

MOST = 200_000
"""Descriptors that are looked at in a round, at some 10 microseconds each; a busy node has a few thousand."""
_NAMED = re.compile(r"/(?:card|renderD)\d+$", re.ASCII)
_SYS_PTRACE = 19
"""Number of the capability, in <linux/capability.h>."""
_START = 19
"""Field 22 of `stat`, counted from the third, which is the first after the name."""


@dataclass(frozen=True, slots=True)
class Scan:
    """
    One look at all processes.

    Attributes:
        denied: processes whose descriptors we may not see; `left_out` those that have too many.
        allowed: we have the right to look, so that what is denied is an exception (another AppArmor profile, say).

    """

    descriptors: tuple[Descriptor, ...] = ()
    denied: frozenset[int] = frozenset()
    left_out: frozenset[int] = frozenset()
    allowed: bool = True


def may_look(proc: Path) -> bool:
    """Say whether we may see the descriptors of processes which are not ours: by our right, or those of process 1."""
    if _privileged():
        return True
    try:
        os.listdir(proc / "1/fdinfo")  # noqa: PTH208
    except OSError:
        return False
    return True


def scan(proc: Path, beat: Callable[[str], None]) -> Scan:
    """
    Look at the descriptors of all processes. Processes and descriptors that end meanwhile are left out.

    Whoever holds most descriptors is looked at last, and not at all after `MOST`: a tenant that opens a million files
    hides itself, and nobody else.
    """
    descriptors: list[Descriptor] = []
    numbers: dict[int, list[str]] = {}
    denied: set[int] = set()
    for name in os.listdir(proc):  # noqa: PTH208
        if name.isdecimal():
            with _watched(int(name), denied):
                beat(f"listing {proc}/{name}/fd")
                numbers[int(name)] = os.listdir(f"{proc}/{name}/fd")  # noqa: PTH208
    left, left_out = MOST, set()
    for pid in sorted(numbers, key=lambda pid: (len(numbers[pid]), pid)):
        left -= len(numbers[pid])
        if left < 0:
            left_out.add(pid)
            continue
        with _watched(pid, denied):
            descriptors += _process(f"{proc}/{pid}", pid, numbers[pid], beat)
    return Scan(tuple(descriptors), frozenset(denied), frozenset(left_out), not denied or _privileged())


def _privileged() -> bool:
    try:
        effective = _read("/proc/self/status").partition("\nCapEff:")[2].split("\n")[0]
        return bool(int(effective, 16) >> _SYS_PTRACE & 1)
    except (OSError, ValueError):
        return False


@contextmanager
def _watched(pid: int, denied: set[int]) -> Iterator[None]:
    """Remember a process that may not be looked at; one that is gone is no matter."""
    try:
        yield
    except PermissionError:
        denied.add(pid)
    except OSError:
        return


def _process(folder: str, pid: int, numbers: Iterable[str], beat: Callable[[str], None]) -> Iterator[Descriptor]:
    holder: Holder | None = None
    for number in numbers:
        beat(f"reading {folder}/fdinfo/{number}")
        try:
            target = os.readlink(f"{folder}/fd/{number}")  # noqa: PTH115
            if not target.startswith("/"):
                continue  # a socket, a pipe, an epoll: no device
            text = _read(f"{folder}/fdinfo/{number}")
        except (FileNotFoundError, ProcessLookupError):
            continue
        client = parse(text)
        node = _node(f"{folder}/fd/{number}") if client is not None or _NAMED.search(target) else None
        if client is None and node is None:
            continue
        holder = holder or _holder(folder, pid)
        if holder is not None:
            yield Descriptor(holder, node, client)


def _node(descriptor: str) -> tuple[int, int] | None:
    try:
        found = os.stat(descriptor)  # noqa: PTH116  (through the link, to what is open)
    except OSError:
        return None
    return (os.major(found.st_rdev), os.minor(found.st_rdev)) if stat.S_ISCHR(found.st_mode) else None


def _holder(folder: str, pid: int) -> Holder | None:
    try:
        fields = _read(f"{folder}/stat").rpartition(")")[2].split()
        start = int(fields[_START])
    except (OSError, IndexError, ValueError):
        return None
    try:
        return Holder(pid, start, parse_owner(_read(f"{folder}/cgroup")))
    except OSError:
        return Holder(pid, start)


def _read(path: str) -> str:
    with open(path, "rb") as file:  # noqa: PTH123
        return file.read().decode("utf-8", "surrogateescape")
