"""
Files that only root and this daemon's user may write.

What comes in: paths. What goes out: folders and descriptors that can be trusted, or OSError; `UntrustedError` says why
not, and has the fix.

The rule: **no other user of the node could have written, placed or exchanged the file.** Each step of its path is
checked, from / on, because the owner of any step could put another folder in its place.

- A step belongs to root or to this daemon's user, and no other user may write it.
- A sticky folder (`/tmp`) may lead to a trusted one. Other users can neither move nor replace what is not theirs.
  The file itself is in no such folder, because they can make new names there.
- A link to a folder is followed if it belongs to root or this user (`/var/run`, made by root). No other user can change
  it, and each step that it leads to is checked, too. The file itself is never a link.

In a container the path begins at the container's root. The steps above a mounted folder are not visible there.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_LINKS = 40
"""The most links of one path, as in the kernel."""


class UntrustedError(PermissionError):
    """Another user could have written a file, or placed it. `strerror` has cause and fix."""

    def __init__(self, path: Path, cause: str, fix: str) -> None:
        super().__init__(errno.EPERM, f"{path} {cause}; fix: {fix}", str(path))
        self.cause = f"{path} {cause}"
        self.fix = fix


def folder(path: Path) -> None:
    """Make a missing folder for this user alone, so that it outlives a power cut, and check it. Raises OSError."""
    _make(path)
    checked(path)


def checked(path: Path) -> None:
    """Check a folder and all that leads to it. Raises OSError; FileNotFoundError where there is none."""
    _lead(path)
    _ours_alone(path, path.stat())


def opened(path: Path, flags: int) -> int:
    """Open a regular file of ours, or make it with mode 0600; no child inherits it. Raises OSError."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW, 0o600)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UntrustedError(path, "is not a regular file", f"rm {path}")
        _owned(path, status)
        _ours_alone(path, status)
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


def _make(path: Path) -> None:
    """Make a missing folder, and those above it; what is there already is checked first."""
    with suppress(FileNotFoundError):
        return _lead(path)
    _make(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    return sync_folder(path.parent)


def _lead(path: Path) -> None:
    """Check that each step of a path leads where root or this user wanted. Raises OSError."""
    for step, status in _steps(path):
        _owned(step, status)
        if stat.S_ISLNK(status.st_mode):
            continue
        if not stat.S_ISDIR(status.st_mode):
            raise UntrustedError(step, "is not a folder", f"move it away, or configure another path than {path}")
        if not status.st_mode & stat.S_ISVTX:
            _ours_alone(step, status)


def _steps(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield each step of a path with what it is: the folders from / on, and the links. Raises OSError."""
    real, left, links = Path("/"), [*reversed(path.absolute().parts[1:])], 0
    yield real, real.lstat()
    while left:
        if (name := left.pop()) == "..":
            real = real.parent
            continue
        step = real / name
        status = step.lstat()
        yield step, status
        if not stat.S_ISLNK(status.st_mode):
            real = step
            continue
        if (links := links + 1) > _LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = step.readlink()
        real = Path("/") if target.is_absolute() else real
        left += reversed(target.parts[1:] if target.is_absolute() else target.parts)


def _owned(path: Path, status: os.stat_result) -> None:
    if status.st_uid not in (0, os.geteuid()):
        fix = f"find out why it is there, then chown {os.geteuid()} {path}"
        raise UntrustedError(path, f"belongs to uid {status.st_uid}", fix)


def _ours_alone(path: Path, status: os.stat_result) -> None:
    if status.st_mode & 0o022:
        raise UntrustedError(path, "is writable by other users", f"chmod go-w {path}")
