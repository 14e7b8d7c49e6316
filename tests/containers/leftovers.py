"""What a bed leaves on a machine when it is killed, and how it goes: processes, mounts, sockets, cgroups, files.

In: a bed's token. Out: nothing of that bed, and a list of what there was.
Law: a bed is stale when the process that made it is gone (pid and start time are in its token). The bed of a living
process is never touched. A process is a bed's when it is in the bed's cgroup, or a descendant of one that is.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from containers.cgroupfs import Ledger, hierarchies, members, owner_lives, rmdir_if_unused, start_ticks, tokens
from patience import PATIENCE

SHIM_SOCKETS = Path("/run/containerd/s")  # compiled into the shim; only a mount namespace could move it


def home_name(token: str) -> str:
    return f"gpusteward-bed-{token}"


_HOME = re.compile(r"(/\S*?/gpusteward-bed-(\d+-\d+-\d+))(?=/|\s|$)")


def remove_stale() -> list[str]:
    """Remove every bed whose owner is gone. Returns in words what was removed; empty on a clean machine."""
    with _alone():
        homes = {token: Path(path) for point in mounts() for path, token in _HOME.findall(str(point))}
        removed: list[str] = []
        for token in sorted({*tokens(), *homes}):
            if not owner_lives(token):
                removed += remove_bed(token, home=homes.get(token))
    return removed


def remove_bed(token: str, *, home: Path | None) -> list[str]:
    """Remove all of one bed, alive or not. `home` None: as its processes' command lines tell.

    Raises TimeoutError when a process or a cgroup will not go; nothing is deleted below a path that is still a mount.
    """
    ledger = Ledger(token)
    home = home or _home_of(members(ledger.folder), token)
    removed = _kill(ledger, deadline=time.monotonic() + PATIENCE)
    if home is not None:
        removed += [f"mount {path}" for path in _unmount_below(home)]
        _remove_shim_sockets(home)
        if home.exists():
            shutil.rmtree(home)
            removed.append(f"folder {home}")
    return removed + ledger.clear()


def mounts() -> list[Path]:
    """All mount points that we see, in the order in which they were mounted."""
    return [Path(line.split()[4]) for line in Path("/proc/self/mountinfo").read_text().splitlines()]


def mounts_below(folder: Path) -> list[Path]:
    """Mount points in this folder, in the order in which they were mounted."""
    return [point for point in mounts() if point.is_relative_to(folder)]


def descendants(pids: Iterable[int], parents: Mapping[int, int]) -> set[int]:
    """These processes and all their children's children, given child → parent of the machine."""
    found = set(pids)
    while more := {child for child, parent in parents.items() if parent in found and child not in found}:
        found |= more
    return found


def parents_of_all() -> dict[int, int]:
    """Child → parent of every process, from field 4 of /proc/<pid>/stat."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    return parents


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Let one process at a time sweep this machine; the lock is on a folder that is always there."""
    folder = os.open(hierarchies().all[-1], os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _kill(ledger: Ledger, *, deadline: float) -> list[str]:
    killed: dict[int, str] = {}
    while True:
        # Containers left the bed's cgroup for the pod's, but are children of a shim that stayed.
        pids = {pid for pid in descendants(members(ledger.folder), parents_of_all()) if start_ticks(pid) is not None}
        if not pids:
            return [f"process {pid} ({name})" for pid, name in sorted(killed.items())]
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes of bed {ledger.token} do not end: {sorted(pids)}")
        # Stopped first, so that no shim can die and orphan a container between our look and our signal.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                with contextlib.suppress(OSError):
                    killed.setdefault(pid, Path(f"/proc/{pid}/comm").read_text().strip())
                    os.kill(pid, number)
        time.sleep(0.01)


def _home_of(pids: Iterable[int], token: str) -> Path | None:
    for pid in pids:
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
            for path, found in _HOME.findall(command):
                if found == token:
                    return Path(path)
    return None


def _unmount_below(home: Path) -> list[Path]:
    gone = []
    for point in reversed(mounts_below(home)):
        if subprocess.run(["umount", str(point)], capture_output=True, check=False).returncode:
            subprocess.run(["umount", "--lazy", str(point)], capture_output=True, check=True)
        gone.append(point)
    if remaining := mounts_below(home):
        raise TimeoutError(f"still mounted: {remaining}")
    return gone


def _remove_shim_sockets(home: Path) -> None:
    for file in home.glob("state/io.containerd.runtime.v2.task/*/*/address"):
        socket = Path(file.read_text().strip().removeprefix("unix://"))
        if socket.parent == SHIM_SOCKETS:
            socket.unlink(missing_ok=True)
    # Shims make these two folders when they are not there, and could miss one that goes while they start.
    if not any(owner_lives(token) for token in tokens() if home_name(token) != home.name):
        for folder in (SHIM_SOCKETS, SHIM_SOCKETS.parent):
            rmdir_if_unused(folder)
