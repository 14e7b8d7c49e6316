"""Control groups made by hand: the kubelet's folders, and those of a workload that lies about its name.

In: cgroup paths as the kernel writes them in /proc/<pid>/cgroup (absolute, "/kubepods/burstable/pod…").
Out: folders in the mounted hierarchies, and no trace of them afterwards.
Law: what a bed makes is written down first, in a place that survives SIGKILL and ends with the boot, as the cgroups
themselves do. That place is empty cgroups below /gpusteward-bed/<token>, one for each path.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from patience import PATIENCE

BEDS = "/gpusteward-bed"
_serial = itertools.count()


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """Where the cgroup file systems are mounted: `v1` one folder for each hierarchy, `v2` the unified one."""

    v1: tuple[Path, ...]
    v2: Path | None

    @property
    def all(self) -> tuple[Path, ...]:
        return self.v1 + ((self.v2,) if self.v2 else ())

    @property
    def kubelet(self) -> tuple[Path, ...]:
        """Where a kubelet and runc work: all of v1 where there is any, else the unified one."""
        return self.v1 or self.all


def hierarchies(mountinfo: str | None = None) -> Hierarchies:
    """The cgroup mounts of this machine, from the text of /proc/self/mountinfo (proc_pid_mountinfo(5))."""
    text = Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo
    found: dict[str, list[Path]] = {"cgroup": [], "cgroup2": []}
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        kind, mountpoint = after.split()[0], Path(before.split()[4])
        if kind in found and mountpoint not in found[kind]:
            found[kind].append(mountpoint)
    return Hierarchies(v1=tuple(found["cgroup"]), v2=next(iter(found["cgroup2"]), None))


def below(root: Path, path: str) -> Path:
    return root / path.strip("/")


def members(folder: Path) -> set[int]:
    """Every process in this cgroup or below it. Empty when the cgroup is gone."""
    pids: set[int] = set()
    for procs in itertools.chain([folder / "cgroup.procs"], folder.rglob("cgroup.procs")):
        with contextlib.suppress(OSError):  # removed while we walk; a threaded cgroup answers EOPNOTSUPP
            pids.update(int(line) for line in procs.read_text().split())
    return pids


def paths(pid: int) -> dict[str, str]:
    """The cgroups of a process as we see them: hierarchy ("memory", "cpu,cpuacct", "" for the unified one) → path."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return {names: path for _, names, path in (line.split(":", 2) for line in lines)}


def kubelet_paths(pid: int) -> set[str]:
    """Its different paths where a kubelet works: one, for a process that was put into a cgroup as a whole."""
    found = paths(pid)
    return {path for names, path in found.items() if names} or set(found.values())


def move(pid: int, folder: Path) -> None:
    """Put a process (all its threads) into a cgroup."""
    (folder / "cgroup.procs").write_text(str(pid))


def make(root: Path, path: str) -> Path:
    """Make a cgroup and what leads to it in one hierarchy. A v1 cpuset takes no process until it has cpus and mems."""
    folder = root
    for segment in path.strip("/").split("/"):
        parent, folder = folder, folder / segment
        folder.mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):
            file = folder / name
            if file.exists() and (parent / name).exists() and not file.read_text().strip():
                with contextlib.suppress(PermissionError):  # v2: empty means "as the parent", and may be read-only
                    file.write_text((parent / name).read_text())
    return folder


def remove(folder: Path) -> bool:
    """End whatever runs in this cgroup or below, then remove it. True when something was there.

    Raises TimeoutError when a process will not go.
    """
    deadline = time.monotonic() + PATIENCE
    if not folder.exists():
        return False
    while True:
        for pid in members(folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if _rmdir_tree(folder):
            return True
        if time.monotonic() > deadline:
            raise TimeoutError(f"cgroup {folder} does not empty: {sorted(members(folder))}")
        time.sleep(0.01)


def _rmdir_tree(folder: Path) -> bool:
    for path, _, _ in os.walk(folder, topdown=False):
        try:
            Path(path).rmdir()
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.ENOENT, errno.ENOTEMPTY):
                raise
    return not folder.exists()


def rmdir_if_unused(folder: Path) -> bool:
    """Remove one cgroup that has neither processes nor children; True when it is gone by our hand."""
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno in (errno.EBUSY, errno.ENOTEMPTY, errno.ENOENT):
            return False
        raise
    return True


def enter_and_read(folder: Path, pid: int) -> str:
    """/proc/<pid>/cgroup as a reader in `folder` sees it who has a private cgroup namespace (cgroup_namespaces(7)).

    A namespace's root is the cgroup in which its first process was, so the reader moves first and unshares then.
    """
    script = 'echo $$ > "$0/cgroup.procs" && exec unshare --cgroup cat "/proc/$1/cgroup"'
    done = subprocess.run(["sh", "-c", script, str(folder), str(pid)], capture_output=True, text=True, check=True)
    return done.stdout


def start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/<pid>/stat, or None for a process that is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def new_token() -> str:
    """Name of a bed: which process owns it (pid, start time), and the how-manieth it is."""
    return f"{os.getpid()}-{start_ticks(os.getpid())}-{next(_serial)}"


def owner_lives(token: str) -> bool:
    pid, ticks, _ = token.split("-")
    return start_ticks(int(pid)) == int(ticks)


class Ledger:
    """The cgroups that one bed made, kept in /gpusteward-bed/<token> of one hierarchy.

    The bed's own daemons live in that cgroup too, so their children are found even when no parent waits for them.
    """

    def __init__(self, token: str) -> None:
        self.token = token
        self.mounts = hierarchies()
        self.folder = below(self.mounts.v2 or self.mounts.v1[0], f"{BEDS}/{token}")

    def open(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        # No path of the ledger can have this name. v2 wants processes only in cgroups without children.
        (self.folder / "daemons").mkdir(exist_ok=True)
        return self.folder / "daemons"

    def own(self, path: str) -> None:
        """Declare a cgroup path as this bed's: it and all below it, in every hierarchy, go when the bed goes."""
        (self.folder / _entry("own", path)).mkdir(parents=True, exist_ok=True)

    def make(self, path: str, *, roots: tuple[Path, ...] | None = None) -> None:
        """Make a cgroup as the kubelet does, in all its hierarchies. Parents that are new are removed once unused."""
        roots = self.mounts.kubelet if roots is None else roots
        segments = path.strip("/").split("/")
        for depth in range(1, len(segments)):
            parent = "/" + "/".join(segments[:depth])
            if not all(below(root, parent).exists() for root in roots) or self._known_to_a_bed(parent):
                (self.folder / _entry("parent", parent)).mkdir(parents=True, exist_ok=True)
        self.own(path)
        for root in roots:
            make(root, path)

    def paths(self, kind: str) -> list[str]:
        """Recorded paths, deepest first. `kind` is "own" or "parent"."""
        if not self.folder.exists():
            return []
        names = [entry.name for entry in self.folder.iterdir() if entry.name.startswith(f"{kind}=")]
        return sorted((_path(name) for name in names), key=lambda path: path.count("/"), reverse=True)

    def remove(self, path: str) -> bool:
        """Remove one owned cgroup now, with what runs in it. True when it was there. Raises TimeoutError."""
        found = [remove(below(root, path)) for root in self.mounts.all]
        rmdir_if_unused(self.folder / _entry("own", path))
        return any(found)

    def clear(self) -> list[str]:
        """Remove every cgroup of this bed, with what runs in it, and then the ledger. Returns what was there."""
        owned = self.paths("own")
        removed = [f"cgroup {path}" for path in owned if self.remove(path)]
        for path in self.paths("parent"):
            gone = [rmdir_if_unused(below(root, path)) for root in self.mounts.all]
            if any(gone):
                removed.append(f"cgroup {path}")
        if remove(self.folder):
            removed.append(f"cgroup {BEDS}/{self.token}")
        rmdir_if_unused(self.folder.parent)
        return removed

    def _known_to_a_bed(self, path: str) -> bool:
        return any((bed / _entry("parent", path)).exists() for bed in self.folder.parent.iterdir())

    def nest(self, parent: str, child: str, pid: int) -> str:
        """Make the cgroup `child` (may have several segments) below a container's and move a process there.

        As a workload does that may write its cgroups: docker or kind in a pod, or one with a lie for a name.
        It goes with the pod's cgroup, which the ledger has. Returns the new path.
        """
        path = f"{parent}/{child.strip('/')}"
        for root in self.mounts.kubelet:
            move(pid, make(root, path))
        return path

    def scope_v2(self, uid: str, container_id: str, *, qos: str = "burstable", runtime: str = "cri-containerd") -> Path:
        """Make the cgroup of a container as systemd and the runtime name it, in the unified hierarchy; its folder.

        On a hybrid machine too: membership needs no controller, so the `0::` line of what is moved there is real.
        Raises LookupError where cgroup v2 is not mounted at all.
        """
        if self.mounts.v2 is None:
            raise LookupError("cgroup v2 is not mounted")
        tier = "" if qos == "guaranteed" else f"-{qos}"
        slices = ["kubepods.slice", *([f"kubepods{tier}.slice"] if tier else [])]
        pod = "/" + "/".join([*slices, f"kubepods{tier}-pod{uid.replace('-', '_')}.slice"])
        self.make(pod, roots=(self.mounts.v2,))
        return make(self.mounts.v2, f"{pod}/{runtime}-{container_id}.scope")


def _entry(kind: str, path: str) -> str:
    return f"{kind}={path.strip('/').replace('/', '!')}"


def _path(entry: str) -> str:
    return "/" + entry.partition("=")[2].replace("!", "/")


def tokens() -> Iterator[str]:
    """All beds that have a ledger, of this process or of others, alive or not."""
    mounts = hierarchies()
    folder = below(mounts.v2 or mounts.v1[0], BEDS)
    if folder.exists():
        yield from sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
