"""
Which processes have a DRM device open: `/proc/<pid>/fd` and `fdinfo`.

What comes in: a mounted procfs. What goes out: descriptors, and who could not be looked at.

The rule: a descriptor is judged by its node (major and minor number) and by what its driver says, never by its name,
which a tenant chooses. Nothing else of a process is read, and no other file is touched: the node is asked for only
where a DRM driver spoke, or the link is called as DRM's nodes are (`renderD128`), wherever a container has them, and
only where the file system cannot make us wait (`mounts`). Looking takes PTRACE_MODE_READ: CAP_SYS_PTRACE, for what runs
as somebody else or has capabilities.
"""

import errno
import os
import re
import stat
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from exporter.base.cgroup_owner import parse_owner
from exporter.devices.kernel.clients import Descriptor, Holder
from exporter.devices.kernel.fdinfo import parse
from exporter.devices.open_files import GONE, TOO_LONG, Mounts, head, listed, paced, target
from exporter.model import Owner

MOST = 200_000
"""Descriptors that are looked at in a round, at some 10 microseconds each; a busy node has a few thousand."""
SECONDS = 4.0
"""Of the processor, for all of them. Who locks a file a thousand times makes the kernel print that by descriptor."""
_LONGEST = 64 << 10
"""Bytes of a descriptor's fdinfo: a driver prints some 2,000, after the locks."""
_NAMED = re.compile(r"/(?:card|renderD)\d+$", re.ASCII)
_FLAGS = re.compile(r"^flags:\s*([0-7]+)$", re.ASCII | re.MULTILINE)
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
        unseen: who was not looked at, because we may not, cannot, or because there is too much to see, by process.
        allowed: we have the right to look, so that who is unseen is an exception (another AppArmor profile, say).

    """

    descriptors: tuple[Descriptor, ...] = ()
    unseen: Mapping[int, Owner] = field(default_factory=dict)
    allowed: bool = True


@dataclass(slots=True)
class Asking:
    """Whom a look waits for: the pod whose file is asked for its node at this moment ("": the host); None: for none."""

    pod: str | None = None


def may_look(proc: Path) -> bool:
    """Say whether we may see the descriptors of processes which are not ours: by our right, or those of process 1."""
    if _privileged():
        return True
    try:
        os.listdir(proc / "1/fdinfo")  # noqa: PTH208
    except OSError:
        return False
    return True


def scan(
    proc: Path,
    beat: Callable[[str], None],
    asking: Asking | None = None,
    stuck: Collection[str] = (),
    clock: Callable[[], float] = time.thread_time,
) -> Scan:
    """
    Look at the descriptors of all processes. Processes and descriptors that end meanwhile are left out.

    The pod that holds most descriptors is looked at last (the host's own processes are one pod more), and what exceeds
    `MOST` not at all. Of the time each pod has an equal part, and what it leaves is the others'. So of n pods each is
    seen that takes no more than an n-th of either, whatever the others do: a tenant that opens a million files hides
    itself, and nobody else. `stuck` are pods whose files kept an earlier look waiting: they are not looked at.
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
        with _watched(pid, denied, left_out):
            folder, names = listed(f"{proc}/{name}")
            if folder != f"{proc}/{name}":  # on cgroup v1 a thread that ended is in no container
                owners[pid] = _owner(folder) or owner
                pod = _pod(owners[pid])
            pods[pod][pid] = len(names)
            totals[pod] += len(names)
    for pod in stuck:
        left_out.update(pods.pop(pod, {}))
    descriptors: list[Descriptor] = []
    mounts, left, end = Mounts(proc, beat), MOST, clock() + SECONDS
    for place, pod in enumerate(sorted(pods, key=lambda pod: totals[pod])):
        step = paced(beat, (end - clock()) / (len(pods) - place), clock)
        for pid, number in sorted(pods[pod].items(), key=lambda counted: (counted[1], counted[0])):
            with _watched(pid, denied, left_out):
                step(f"listing {proc}/{pid}/fd")
                folder, names = listed(f"{proc}/{pid}") if number <= left else ("", [])
                if max(number, len(names)) > left:
                    left_out.add(pid)
                    continue
                left -= len(names)
                asks = _Asks(folder, mounts, step, asking or Asking(), pod)
                open_devices = list(_process(f"{proc}/{pid}", pid, names, owners[pid], asks))
                if folder != f"{proc}/{pid}" and listed(f"{proc}/{pid}")[0] != folder:
                    raise BlockingIOError(errno.EAGAIN, "the thread ended", folder)  # and its descriptors were "gone"
                descriptors += open_devices
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
    except GONE:
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
def _watched(pid: int, denied: set[int], left_out: set[int]) -> Iterator[None]:
    """Remember a process that may not or cannot be looked at, for whatever reason; one that is gone is no matter."""
    try:
        yield
    except GONE:
        return
    except PermissionError:
        denied.add(pid)
    except OSError:
        left_out.add(pid)


@dataclass(frozen=True, slots=True)
class _Asks:
    """How the descriptors of one process are asked: where they are, and who is told what is asked."""

    folder: str
    mounts: Mounts
    step: Callable[[str], None]
    asking: Asking
    pod: str

    def fdinfo(self, number: str) -> str | None:
        """Read what the kernel says of a descriptor; None where it holds no device. Raises OSError."""
        path = f"{self.folder}/fdinfo/{number}"
        self.step(f"reading {path}")
        text = head(path, _LONGEST + 1)
        if len(text) > _LONGEST:
            raise OSError(errno.EFBIG, "there is too much to read", path)
        fdinfo = text.decode("utf-8", "surrogateescape")
        flags = _FLAGS.search(fdinfo)
        # O_PATH opens a name, and asks no driver: whoever may name a device could look as if he held some of it.
        return None if flags and int(flags[1], 8) & os.O_PATH else fdinfo

    def node(self, number: str, fdinfo: str) -> tuple[int, int] | None:
        """Ask for the device node that is open, where that cannot make us wait."""
        if not self.mounts.may_be_node(self.folder, fdinfo):
            return None
        link = f"{self.folder}/fd/{number}"
        self.step(f"asking for the node of {link}")
        # A process may put another file in its place right now, and that one may keep us for ever.
        self.asking.pod = self.pod
        node = _node(link)
        self.asking.pod = None
        return node


def _process(process: str, pid: int, numbers: Iterable[str], owner: Owner, asks: _Asks) -> Iterator[Descriptor]:
    holder: Holder | None = None
    for number in numbers:
        try:
            path = target(f"{asks.folder}/fd/{number}")
            if not path.startswith(("/", TOO_LONG)):
                continue  # a socket, a pipe, an epoll: no device
            text = asks.fdinfo(number)
        except GONE:
            continue
        if text is None:
            continue
        client = parse(text)
        named = path == TOO_LONG or _NAMED.search(path)
        node = asks.node(number, text) if client is not None or named else None
        if client is None and node is None:
            continue
        holder = holder or _holder(process, pid, owner)
        if holder is not None:
            yield Descriptor(holder, node, client)


def _node(descriptor: str) -> tuple[int, int] | None:
    try:
        node = os.stat(descriptor)  # noqa: PTH116  (through the link, to what is open)
    except OSError:
        return None
    return (os.major(node.st_rdev), os.minor(node.st_rdev)) if stat.S_ISCHR(node.st_mode) else None


def _holder(folder: str, pid: int, owner: Owner) -> Holder | None:
    try:
        fields = _read(f"{folder}/stat").rpartition(")")[2].split()
        start = int(fields[_START])
    except (*GONE, IndexError, ValueError):
        return None
    return Holder(pid, start, None if owner == _ANYBODY else owner)


def _read(path: str) -> str:
    with open(path, "rb") as file:  # noqa: PTH123
        return file.read().decode("utf-8", "surrogateescape")
