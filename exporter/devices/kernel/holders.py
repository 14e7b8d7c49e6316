"""
The processes that have a DRM device open: `/proc/<pid>/fd` and `fdinfo`.

What comes in: a mounted procfs. What goes out: descriptors, and the processes that could not be read.

The rule: a descriptor is judged by its node (major and minor number) and by its driver's text. Its name never counts,
because a tenant chooses it. Nothing else of a process is read, and no other file is touched. The node is read only if a
DRM driver wrote the text, or the link has a name of DRM's nodes (`renderD128`) in any folder. It is read only on a file
system that cannot make the reader wait (`mounts`). Reading needs PTRACE_MODE_READ: CAP_SYS_PTRACE, for a process of
another user or with capabilities.
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

from exporter.base.cgroup_owner import USUAL, PodCgroups
from exporter.devices.kernel.clients import Descriptor, Holder
from exporter.devices.kernel.fdinfo import parse
from exporter.devices.open_files import GONE, TOO_LONG, Mounts, head, listed, paced, target
from exporter.model import Owner

MOST = 200_000
"""Descriptors that are read per round, at some 10 microseconds each; a busy node has a few thousand."""
SECONDS = 4.0
"""Processor time for all of them. A process that locks a file a thousand times makes the kernel print each lock."""
_LONGEST = 64 << 10
"""Bytes of a descriptor's fdinfo: a driver prints some 2,000, after the locks."""
_NAMED = re.compile(r"/(?:card|renderD)\d+$", re.ASCII)
_FLAGS = re.compile(r"^flags:\s*([0-7]+)$", re.ASCII | re.MULTILINE)
_SYS_PTRACE = 19
"""Number of the capability, in <linux/capability.h>."""
_START = 19
"""Field 22 of `stat`, counted from the third, which is the first after the name."""
_ANYBODY = Owner(contradictory=True)
"""The owner of a process whose cgroup cannot be read."""


@dataclass(frozen=True, slots=True)
class Scan:
    """
    One reading of all processes.

    Attributes:
        unseen: the owners, by PID, of processes that were not read: not permitted, failed, or too many descriptors.
        allowed: we have the right to read, so that an unseen process is an exception (another AppArmor profile, say).

    """

    descriptors: tuple[Descriptor, ...] = ()
    unseen: Mapping[int, Owner] = field(default_factory=dict)
    allowed: bool = True


@dataclass(slots=True)
class Asking:
    """The pod whose file is asked for its node at this moment ("": the host); None: no pod. A hang is that pod's."""

    pod: str | None = None


def may_look(proc: Path) -> bool:
    """
    Say whether we may read the descriptors of other users' processes.

    Without the capability, process 1 is tried.
    """
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
    *,
    cgroups: PodCgroups = USUAL,
) -> Scan:
    """
    Read the descriptors of all processes. Processes and descriptors that end meanwhile are left out.

    The pod with the most descriptors is read last, and descriptors beyond `MOST` are not read. The host's own processes
    count as one more pod. Each pod has an equal part of the time, and leaves its rest to the others. So with n pods,
    each one that takes at most an n-th of both is read, whatever the others do. A tenant that opens a million files
    hides only itself. `stuck` are pods whose files made an earlier reading wait: they are not read.
    `cgroups` says where the kubelet keeps its pods.
    """
    parse = lru_cache(maxsize=1024)(cgroups.owner)  # the processes of a container share one text
    owners: dict[int, Owner] = {}
    denied: set[int] = set()
    left_out: set[int] = set()
    pods: dict[str, dict[int, int]] = defaultdict(dict)
    totals: dict[str, int] = defaultdict(int)
    for name in os.listdir(proc):  # noqa: PTH208
        if not name.isdecimal() or (owner := _owner(f"{proc}/{name}", parse)) is None:
            continue
        pid, pod = int(name), _pod(owner)
        owners[pid] = owner
        if totals[pod] > MOST:
            left_out.add(pid)  # a million names take a second: a pod above the limit for all is counted no further
            continue
        beat(f"listing {proc}/{name}/fd")
        with _watched(pid, denied, left_out):
            folder, names = listed(f"{proc}/{name}")
            if folder != f"{proc}/{name}":  # on cgroup v1 a thread that ended is in no container
                owners[pid] = _owner(folder, parse) or owner
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
    Name the pod that shares a part of the limits; the container in this daemon's own pod; empty for the host.

    Processes outside of the kubelet's cgroups are one part together: a user could fake any number of them.
    """
    pod, container = owner.outermost
    if owner.contradictory:
        return "?"
    return pod or container or ""


def _owner(folder: str, parse: Callable[[str], Owner]) -> Owner | None:
    """Read the owner of a process; None if the process is gone."""
    try:
        return parse(_read(f"{folder}/cgroup"))
    except GONE:
        return None
    except OSError:
        return _ANYBODY


def _privileged() -> bool:
    try:
        effective = _read("/proc/self/status").partition("\nCapEff:")[2].split("\n")[0]
        return bool(int(effective, 16) >> _SYS_PTRACE & 1)
    except (OSError, ValueError):
        return False


@contextmanager
def _watched(pid: int, denied: set[int], left_out: set[int]) -> Iterator[None]:
    """Note a process that could not be read, for any reason; one that is gone is ignored."""
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
    """Reads the descriptors of one process: their folder, and the objects that are informed of each step."""

    folder: str
    mounts: Mounts
    step: Callable[[str], None]
    asking: Asking
    pod: str

    def fdinfo(self, number: str) -> str | None:
        """Read the kernel's text about a descriptor; None where it holds no device. Raises OSError."""
        path = f"{self.folder}/fdinfo/{number}"
        self.step(f"reading {path}")
        text = head(path, _LONGEST + 1)
        if len(text) > _LONGEST:
            raise OSError(errno.EFBIG, "there is too much to read", path)
        fdinfo = text.decode("utf-8", "surrogateescape")
        flags = _FLAGS.search(fdinfo)
        # O_PATH opens a name, and asks no driver. So a process without access to a device could look like its holder.
        return None if flags and int(flags[1], 8) & os.O_PATH else fdinfo

    def node(self, number: str, fdinfo: str) -> tuple[int, int] | None:
        """Read the device node that is open, where that cannot make us wait."""
        if not self.mounts.may_be_node(self.folder, fdinfo):
            return None
        link = f"{self.folder}/fd/{number}"
        self.step(f"asking for the node of {link}")
        # The process may replace the file at this moment, and the new one may make us wait for ever.
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
