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
from pathlib import Path

_MOUNT = re.compile(r"^mnt_id:\s*(\d+)$", re.ASCII | re.MULTILINE)
_PROMPT = frozenset({"devtmpfs", "tmpfs", "ext2", "ext3", "ext4", "xfs", "btrfs"})


class Mounts:
    """The mounts of a node, read as they are asked for; good for one look at its processes."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._kinds: dict[str, str] = {}
        self._read: set[int] = set()

    def may_be_node(self, pid: int, fdinfo: str) -> bool:
        """
        Say whether a descriptor of a process is on a file system that answers at once, so that it may be asked.

        A mount that neither the process nor the host has (of a namespace that was left) is none of those.
        """
        match = _MOUNT.search(fdinfo)
        if match is None:
            return False
        for seen_by in (pid, 1):
            if match[1] not in self._kinds and seen_by not in self._read:
                self._learn(seen_by)
        return self._kinds.get(match[1]) in _PROMPT

    def _learn(self, pid: int) -> None:
        self._read.add(pid)
        try:
            text = (self._proc / str(pid) / "mountinfo").read_text(errors="surrogateescape")
        except OSError:
            return
        for line in text.split("\n"):
            before, _, after = line.partition(" - ")  # blanks in names are written \040
            if after:
                self._kinds[before.partition(" ")[0]] = after.partition(" ")[0]
