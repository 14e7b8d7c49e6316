"""
On what kind of file system an open file is, told without asking that file system.

What comes in: a mounted procfs, a process, and what `fdinfo` says of one of its descriptors. What goes out: whether the
file may be asked for its device number.

The law: whom a tenant chose is never waited for. `stat` of a file on FUSE or on a dead NFS lasts as long as its server
likes, and the name of a link proves nothing. Device nodes are on devtmpfs (the host's) or tmpfs (a container's `/dev`),
some on a local disk: of these the kernel has in memory what is open. An overlay is as slow as what it lies over, so it
is none of them. Ids of mounts are the kernel's, and unique on the whole node, so that what one process sees of an id is
true of all.
"""

import re
from collections.abc import Callable
from pathlib import Path

from exporter.devices.openfiles import head

_MOUNT = re.compile(r"^mnt_id:\s*(\d+)$", re.ASCII | re.MULTILINE)
_PROMPT = frozenset({"devtmpfs", "tmpfs", "ext2", "ext3", "ext4", "xfs", "btrfs"})
_MOST = 4 << 20
"""Bytes of a mountinfo that are read. A line has some hundred; `/dev` is among the first."""


class Mounts:
    """The mounts of a node, read as they are asked for; good for one look at its processes. `beat` is told each."""

    def __init__(self, proc: Path, beat: Callable[[str], None]) -> None:
        self._first = f"{proc}/1"
        self._beat = beat
        self._kinds: dict[str, str] = {}
        self._read: set[str] = set()

    def may_be_node(self, folder: str, fdinfo: str) -> bool:
        """
        Say whether a descriptor of a process is on a file system that answers at once, so that it may be asked.

        `folder`: of the process, or of its thread, in procfs.
        A mount that neither the process nor the host has (of a namespace that was left) is none of those.
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
        for line in text.split("\n")[:-1]:  # what has no line feed was cut short
            before, _, after = line.partition(" - ")  # blanks in names are written \040
            if after:
                self._kinds[before.partition(" ")[0]] = after.partition(" ")[0]
