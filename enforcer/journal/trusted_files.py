"""
Files that only root and this daemon's user may write.

What comes in: paths. What goes out: folders and descriptors that can be trusted, or OSError.

The rule: a file that an ordinary user of the node could have written or placed is refused. No link is followed, the
owner is root or this daemon's user, and no other user may write.
"""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path


def folder(path: Path) -> None:
    """Make a missing folder for this user alone, so that it outlives a power cut. Raises OSError."""
    missing = [directory for directory in (path, *path.parents) if not directory.exists()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for directory in reversed(missing):
        sync_folder(directory.parent)
    _trust(path.stat(), path, stat.S_ISDIR)


def opened(path: Path, flags: int) -> int:
    """Open a regular file of ours, or make it with mode 0600; no child inherits it. Raises OSError."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW, 0o600)
    try:
        _trust(os.fstat(descriptor), path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def sync_folder(path: Path) -> None:
    """Make the folder's names outlive a power cut. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _trust(status: os.stat_result, path: Path, kind: Callable[[int], bool] = stat.S_ISREG) -> None:
    if not kind(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file, or not a folder", str(path))
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "others than its owner may write it", str(path))
