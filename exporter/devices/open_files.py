"""
The open files of a process, as far as procfs shows them and a tenant allows it.

What comes in: the folder of a process in a mounted procfs. What goes out: descriptors with their targets, and the first
bytes of texts. Also whether the device number of an open file may be read.

The rule: a tenant must not be able to make its process look absent. A process is gone when the kernel says so (ENOENT,
ESRCH). Any other error goes to the caller, because a process that cannot be read may hold memory.

No file of a tenant's is waited for, either. `stat` of a file on FUSE or on a dead NFS may never return. The name of a
link proves nothing. Device nodes are on devtmpfs (the host's), on tmpfs (a container's `/dev`), or sometimes on a local
disk. There the kernel has the inodes of open files in memory. An overlay is as slow as its lower file system, so it is
excluded. The kernel's mount ids are unique on the whole node: a file system that one process shows for an id is true
for all.
"""

import errno
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

GONE = (FileNotFoundError, ProcessLookupError)
TOO_LONG = "?"
"""Stands for a path of more than 4096 bytes (PATH_MAX), which the kernel does not print."""
_ENDED = frozenset({"Z", "X"})
_MOUNT = re.compile(r"^mnt_id:\s*(\d+)$", re.ASCII | re.MULTILINE)
_PROMPT = frozenset({"devtmpfs", "tmpfs", "ext2", "ext3", "ext4", "xfs", "btrfs"})
_MOST = 4 << 20
"""Bytes of a mountinfo that are read. A line has some hundred; `/dev` is among the first."""


def head(path: str, most: int) -> bytes:
    """Read the first `most` bytes of a file; raises OSError."""
    with open(path, "rb") as file:  # noqa: PTH123  (a Path costs more than the read)
        return file.read(most)


def listed(folder: str) -> tuple[str, list[str]]:
    """
    List the descriptors of a process, with the folder in which they are: the process's own, or a thread's.

    `/proc/<pid>/fd` shows only the first thread. That thread may end (`syscall(SYS_exit)`, `pthread_exit`) while the
    others go on; then one of them is read. Raises OSError, and BlockingIOError when threads end and begin during the
    reading.
    """
    names = os.listdir(f"{folder}/fd")  # noqa: PTH208  (names are enough)
    if names or _state(folder) not in _ENDED:
        return folder, names
    vanished = False
    for number in os.listdir(f"{folder}/task"):  # noqa: PTH208
        thread = f"{folder}/task/{number}"
        try:
            names = os.listdir(f"{thread}/fd")  # noqa: PTH208
            if names or _state(thread) not in _ENDED:
                return thread, names
        except GONE:
            vanished = True
    if vanished and len(os.listdir(f"{folder}/task")) > 1:  # noqa: PTH208
        raise BlockingIOError(errno.EAGAIN, "its threads come and go", folder)
    return folder, []


def target(link: str) -> str:
    """Name the target of a descriptor: a path, `TOO_LONG`, or another kind (`socket:[7]`). Raises OSError."""
    try:
        return os.readlink(link)  # noqa: PTH115
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return TOO_LONG
        raise


def paced(
    beat: Callable[[str], None], seconds: float, clock: Callable[[], float] = time.thread_time
) -> Callable[[str], None]:
    """
    Make a beat that raises TimeoutError, an OSError, as soon as these seconds are over.

    By default they are processor time, which a tenant's text costs the kernel. So neither a busy node nor a throttled
    daemon leaves a process out. Waiting is bounded by the deadline of the thread.
    """
    end = clock() + seconds

    def step(call: str) -> None:
        if clock() > end:
            raise TimeoutError(errno.ETIMEDOUT, "there is too much to look at", call)
        beat(call)

    return step


def _state(folder: str) -> str:
    return head(f"{folder}/stat", 4096).rpartition(b") ")[2][:1].decode("ascii", "replace")


class Mounts:
    """
    The mounts of a node, read when they are needed; valid for one reading of its processes.

    `beat` announces each.
    """

    def __init__(self, proc: Path, beat: Callable[[str], None]) -> None:
        self._first = f"{proc}/1"
        self._beat = beat
        self._kinds: dict[str, str] = {}
        self._read: set[str] = set()

    def may_be_node(self, folder: str, fdinfo: str) -> bool:
        """
        Say whether a descriptor is on a file system that answers at once, so that it may be read.

        `folder`: of the process, or of its thread, in procfs. A mount that neither the process nor the host has (of a
        namespace that was left) is excluded.
        """
        match = _MOUNT.search(fdinfo)
        if match is None:
            return False
        for seen_by in (folder, self._first):
            if match[1] not in self._kinds and seen_by not in self._read:
                self._learn(seen_by)
        return self._kinds.get(match[1]) in _PROMPT

    def _learn(self, folder: str) -> None:
        self._read.add(folder)
        self._beat(f"reading {folder}/mountinfo")
        try:
            text = head(f"{folder}/mountinfo", _MOST).decode("utf-8", "surrogateescape")
        except OSError:
            return
        for line in text.split("\n")[:-1]:  # a line without a line feed was cut short
            before, _, after = line.partition(" - ")  # blanks in names are written \040
            if after:
                self._kinds[before.partition(" ")[0]] = after.partition(" ")[0]
