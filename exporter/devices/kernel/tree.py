"""
A folder of small files that the kernel writes: sysfs, cgroups.

What comes in: a root, and names below it. What goes out: text, or None.

The rule: a file that is missing, or cannot be read now, is an unknown figure, and does not affect the others. A GPU
that sleeps answers EBUSY. A file for which a right is missing is noted in `denied`, so that the caller can report it.
"""

import os
from collections.abc import Callable
from pathlib import Path

_MOST = 1 << 20
"""Bytes: each file that is read here is far smaller; only a fake one is larger."""


class Tree:
    """One reading of the files below `root`. `beat` is called with each folder or file before it is touched."""

    def __init__(self, root: Path, beat: Callable[[str], None]) -> None:
        self._root = str(root)
        self._beat = beat
        self.denied: list[str] = []

    def text(self, name: str) -> str | None:
        """Read a file; None if that is not possible."""
        path = f"{self._root}/{name}"
        self._beat(f"reading {path}")
        try:
            with open(path, "rb") as file:  # noqa: PTH123  (a Path costs more than the read)
                return file.read(_MOST).decode("utf-8", "surrogateescape")
        except PermissionError:
            self.denied.append(path)
            return None
        except OSError:
            return None

    def number(self, name: str) -> int | None:
        """Read a file that holds one whole number, perhaps negative."""
        text = (self.text(name) or "").strip()
        return int(text) if text.removeprefix("-").isdecimal() else None

    def names(self, folder: str) -> tuple[str, ...]:
        """List a folder, in order; empty if it does not exist."""
        path = f"{self._root}/{folder}"
        self._beat(f"listing {path}")
        try:
            return tuple(sorted(os.listdir(path)))  # noqa: PTH208
        except PermissionError:
            self.denied.append(path)
            return ()
        except OSError:
            return ()

    def folders(self, folder: str) -> tuple[str, ...]:
        """List the folders in a folder, in order."""
        path = f"{self._root}/{folder}"
        self._beat(f"listing {path}")
        try:
            with os.scandir(path) as entries:
                return tuple(sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False)))
        except OSError:
            return ()

    def target(self, link: str) -> str:
        """Name the final target of a link: the last part of its path; empty if it does not exist."""
        path = os.path.realpath(f"{self._root}/{link}")
        return os.path.basename(path) if os.path.exists(path) else ""  # noqa: PTH110, PTH119
