"""
The processes that have a device node open, read from `/proc/<pid>/fd`.

What comes in: the mount points of `/proc` and `/dev`, and the names of a vendor's device nodes. What goes out: whether
processes hold one of them, or which do.

The rule: a node is identified by its number (`st_rdev`), never by its name alone, which `mknod` chooses. Only links
into `/dev` are followed, and only on file systems for device nodes. A volume may be mounted below `/dev`, and a file on
a dead network file system would never answer. Reading the descriptors of other users needs CAP_SYS_PTRACE. Without it
nothing is known, and that is reported. A reading lasts `SECONDS` at most: a process that was not reached may have the
device open.
"""

import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path, PurePosixPath

from exporter.devices.errors import NodesUnseenError
from exporter.devices.open_files import GONE, TOO_LONG, Mounts, head, listed, paced, target

SECONDS = 2.0
"""Processor time for one reading of all processes; some thousand descriptors take 10 ms."""
_FDINFO = 4096
"""Bytes: the mount is printed in the first 100, before the locks, which a tenant can make long."""


class OpenNodes:
    """Looks for open device nodes whose names below `dev` match one of `patterns`. `beat` announces each descriptor."""

    def __init__(
        self,
        proc: Path,
        dev: Path,
        patterns: Sequence[str],
        beat: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._proc = proc
        self._dev = dev
        self._patterns = patterns
        self._beat = beat
        self._clock = clock

    def numbers(self, paths: Iterable[Path] | None = None) -> frozenset[int]:
        """Return the device numbers of the vendor's nodes, or of these paths."""
        if paths is None:
            paths = (path for dev in self._devs() for pattern in self._patterns for path in dev.glob(pattern))
        numbers = set()
        for path in paths:
            try:
                node = path.stat()
            except OSError:
                continue
            if stat.S_ISCHR(node.st_mode):
                numbers.add(node.st_rdev)
        return frozenset(numbers)

    def below(self, path: PurePosixPath) -> Path:
        """Return the path here of a node that is called `path` on the host (`/dev/dri/renderD128`)."""
        if not path.is_relative_to("/dev"):
            return Path(path)
        places = [dev / path.relative_to("/dev") for dev in self._devs()]
        return next((place for place in places if os.path.exists(place)), places[-1])  # noqa: PTH110  (see below)

    def _devs(self) -> tuple[Path, ...]:
        """
        Name the `/dev` of process 1, if we may read it, and our own.

        A container's `/dev` is a copy from its start, also in a privileged container. It lacks the nodes of a driver
        that was loaded later. Process 1 of the host has the host's.
        """
        host = self._proc / "1/root/dev"
        return (host, self._dev) if os.path.isdir(host) else (self._dev,)  # noqa: PTH112  (a Path raises, this says no)

    def held_by_all(self, pids: Collection[int]) -> bool:
        """
        Say whether these PIDs are processes here that have the vendor's nodes open: then the PIDs are the host's.

        Each process that lives and can be read must have one open, and at least one process must.
        """
        nodes = self.numbers()
        look = self._look()
        looks = [look(pid, nodes) for pid in pids] if nodes else []
        return True in looks and False not in looks

    def holders(self, nodes: Collection[int]) -> frozenset[int]:
        """List the processes that have one of the nodes open. Raises NodesUnseenError if one cannot be read."""
        pids, look = set(), self._look()
        for entry in self._proc.iterdir():
            if not entry.name.isdecimal():
                continue
            pid = int(entry.name)
            holds = look(pid, nodes)
            if holds:
                pids.add(pid)
            elif holds is None and entry.exists():
                raise NodesUnseenError(f"/proc/{pid}/fd", "cannot be looked at, and may have the device open")
        return frozenset(pids)

    def _look(self) -> Callable[[int, Collection[int]], bool | None]:
        """Begin a reading: returns a function that says whether a process has one of the nodes open (see `_holds`)."""
        step, mounts = paced(self._beat, SECONDS, self._clock), Mounts(self._proc, self._beat)

        def holds(pid: int, nodes: Collection[int]) -> bool | None:
            try:
                return _holds(f"{self._proc}/{pid}", nodes, mounts, step)
            except OSError:
                return None

        return holds


def _holds(process: str, nodes: Collection[int], mounts: Mounts, step: Callable[[str], None]) -> bool:
    """Say whether a process has one of the nodes open. Raises OSError if it is gone or cannot be read."""
    step(f"listing {process}/fd")
    folder, descriptors = listed(process)
    for descriptor in descriptors:
        link = f"{folder}/fd/{descriptor}"
        step(f"reading {link}")
        try:
            if not target(link).startswith(("/dev/", TOO_LONG)):
                continue
            fdinfo = head(f"{folder}/fdinfo/{descriptor}", _FDINFO).decode("utf-8", "surrogateescape")
            if not mounts.may_be_node(folder, fdinfo):
                continue
            node = os.stat(link)  # noqa: PTH116  (some thousand of these a round)
        except GONE:
            continue
        if stat.S_ISCHR(node.st_mode) and node.st_rdev in nodes:
            return True
    return False
