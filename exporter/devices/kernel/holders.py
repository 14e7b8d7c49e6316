"""
Which processes have a DRM device open: `/proc/<pid>/fd` and `fdinfo`.

What comes in: a mounted procfs. What goes out: descriptors, and who could not be looked at.

The law: a descriptor is judged by its node (major and minor number) and by what its driver says, never by its name,
which a tenant chooses. Nothing else of a process is read, and no other file is touched: the node is asked for only
where a DRM driver spoke, or the link is called as DRM's nodes are (`renderD128`), wherever a container has them, and
only where the file system cannot make us wait (`mounts`). Looking takes PTRACE_MODE_READ: CAP_SYS_PTRACE, for what runs
as somebody else or has capabilities.
"""

import os
import re
import stat
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from exporter.cgroups import parse_owner
from exporter.devices.kernel.clients import Descriptor, Holder
from exporter.devices.kernel.fdinfo import parse
from exporter.devices.mounts import Mounts
from exporter.model import Owner

MOST = 200_000
"""Descriptors that are looked at in a round, at some 10 microseconds each; a busy node has a few thousand."""
_NAMED = re.compile(r"/(?:card|renderD)\d+$", re.ASCII)
_SYS_PTRACE = 19
"""Number of the capability, in <linux/capability.h>."""
_START = 19
"""Field 22 of `stat`, counted from the third, which is the first after the name."""
_ANYBODY = Owner(contradictory=True)
"""Whose cgroup cannot be read."""


@dataclass(frozen=True, slots=True)
class Scan:
    """
    One look at all processes.

    Attributes:
        unseen: who was not looked at, because we may not or because there is too much to see, by process.
        allowed: we have the right to look, so that who is unseen is an exception (another AppArmor profile, say).

    """

    descriptors: tuple[Descriptor, ...] = ()
    unseen: Mapping[int, Owner] = field(default_factory=dict)
    allowed: bool = True


@dataclass(slots=True)
class Asking:
    """Whom a look waits for: the process whose file is asked for its node at this moment; None: for none."""

    pid: int | None = None


def may_look(proc: Path) -> bool:
    """Say whether we may see the descriptors of processes which are not ours: by our right, or those of process 1."""
    if _privileged():
        return True
    try:
        os.listdir(proc / "1/fdinfo")  # noqa: PTH208
    except OSError:
        return False
    return True


def scan(proc: Path, beat: Callable[[str], None], asking: Asking | None = None, stuck: Collection[int] = ()) -> Scan:
    """
    Look at the descriptors of all processes. Processes and descriptors that end meanwhile are left out.

    The pod that holds most descriptors is looked at last (the host's own processes are one pod more), and what exceeds
    `MOST` not at all. So of n pods each is seen that has no more than an n-th of it, whatever the others do: a tenant
    that opens a million files hides itself, and nobody else. `stuck` are processes whose files kept an earlier look
    waiting: their pods are not looked at.
    """
    owners: dict[int, Owner] = {}
    denied: set[int] = set()
    left_out: set[int] = set()
    pods: dict[str, dict[int, int]] = defaultdict(dict)
    totals: dict[str, int] = defaultdict(int)
    for name in os.listdir(proc):  # noqa: PTH208
        if not name.isdecimal() or (owner := _owner(f"{proc}/{name}")) is None:
            continue
        pid, pod = int(name), _pod(owner)
        owners[pid] = owner
        if totals[pod] > MOST:
            left_out.add(pid)  # a million names take a second: who has more than there is for all is counted no further
            continue
        beat(f"listing {proc}/{name}/fd")
        with _watched(pid, denied):
            pods[pod][pid] = len(os.listdir(f"{proc}/{name}/fd"))  # noqa: PTH208
            totals[pod] += pods[pod][pid]
    for pod in {_pod(owners[pid]) for pid in stuck if pid in owners}:
        left_out.update(pods.pop(pod, {}))
    descriptors: list[Descriptor] = []
    mounts, left = Mounts(proc), MOST
    for pod in sorted(pods, key=lambda pod: totals[pod]):
        for pid, number in sorted(pods[pod].items(), key=lambda counted: (counted[1], counted[0])):
            with _watched(pid, denied):
                names = os.listdir(f"{proc}/{pid}/fd") if number <= left else []  # noqa: PTH208
                if max(number, len(names)) > left:
                    left_out.add(pid)
                    continue
                left -= len(names)
                looked = _process(f"{proc}/{pid}", pid, names, owners[pid], mounts, beat, asking or Asking())
                descriptors += looked
    unseen = {pid: owners[pid] for pid in sorted(denied | left_out)}
    return Scan(tuple(descriptors), unseen, not denied or _privileged())


def _pod(owner: Owner) -> str:
    """
    Name who shares a part: the pod, or without one the container. The outermost, which a workload cannot make up.

    On a nested node (kind) the outermost container is the whole node, and the pod stands below it.
    """
    if not owner.pairs:
        return "?" if owner.contradictory else ""
    return next((pod for pod, _ in owner.pairs if pod is not None), owner.pairs[0][1] or "")


def _owner(folder: str) -> Owner | None:
    """Read whose a process is; None if it is gone."""
    try:
        return _parsed(_read(f"{folder}/cgroup"))
    except (FileNotFoundError, ProcessLookupError):
        return None
    except OSError:
        return _ANYBODY


_parsed = lru_cache(maxsize=1024)(parse_owner)  # the processes of a container share one text


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


def _process(  # noqa: PLR0917
    folder: str,
    pid: int,
    numbers: Iterable[str],
    owner: Owner,
    mounts: Mounts,
    beat: Callable[[str], None],
    asking: Asking,
) -> Iterator[Descriptor]:
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
        node = None
        if (client is not None or _NAMED.search(target)) and mounts.may_be_node(pid, text):
            beat(f"asking for the node of {folder}/fd/{number}")
            # A process may put another file in its place right now, and that one may keep us for ever.
            asking.pid = pid
            node = _node(f"{folder}/fd/{number}")
            asking.pid = None
        if client is None and node is None:
            continue
        holder = holder or _holder(folder, pid, owner)
        if holder is not None:
            yield Descriptor(holder, node, client)


def _node(descriptor: str) -> tuple[int, int] | None:
    try:
        found = os.stat(descriptor)  # noqa: PTH116  (through the link, to what is open)
    except OSError:
        return None
    return (os.major(found.st_rdev), os.minor(found.st_rdev)) if stat.S_ISCHR(found.st_mode) else None


def _holder(folder: str, pid: int, owner: Owner) -> Holder | None:
    try:
        fields = _read(f"{folder}/stat").rpartition(")")[2].split()
        start = int(fields[_START])
    except (OSError, IndexError, ValueError):
        return None
    return Holder(pid, start, None if owner == _ANYBODY else owner)


def _read(path: str) -> str:
    with open(path, "rb") as file:  # noqa: PTH123
        return file.read().decode("utf-8", "surrogateescape")
