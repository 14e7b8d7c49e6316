"""
Finds the cgroups of containers, for the driver.

What comes in: a mounted /proc, and where the unified cgroup hierarchy is mounted. What goes out: paths.

The rule: a path is looked up anew for each fence. What /proc says of many processes is a hint. It counts only where it
names the container itself, because a cgroup of that name cannot become another container's.
"""

from pathlib import Path

from enforcer.actions.fence.fences import NoCgroup, leaf, mounted
from enforcer.actions.processes import VANISHED, cgroups
from enforcer.actions.victim import Victim, container_of
from exporter.base.cgroup_owner import PodCgroups


def mount_point(mountinfo: Path = Path("/proc/self/mountinfo")) -> Path | None:
    """Find where this process has the unified hierarchy mounted; None: nowhere."""
    try:
        hierarchy = mounted(mountinfo.read_text(errors="surrogateescape"))
    except OSError:
        return None
    return Path(hierarchy) if hierarchy else None


class Leaves:
    """The cgroups of this node's containers; its methods block for some files' time."""

    def __init__(self, root: Path, mount: Path | None, pods: PodCgroups) -> None:
        """
        Read `root`, a mounted /proc; `mount` is where the unified hierarchy is, None where it is not.

        `pods` says which cgroups are the kubelet's.
        """
        self._root = root
        self._pods = pods
        self._mount = mount

    def unavailable(self, *, rights: bool = True) -> str | None:
        """
        Say why no container of this node has a cgroup for the driver; None: no reason is known. Raises OSError.

        `rights`: count it as a reason that this daemon's own container is not privileged.
        """
        if self._mount is None:
            return "the unified cgroup hierarchy is not mounted here: that needs cgroup version 2, and /sys/fs/cgroup"
        try:
            lines = (self._root / "1/cgroup").read_text(errors="surrogateescape").split("\n")
        except (FileNotFoundError, PermissionError) as error:
            return f"cannot read {self._root / '1/cgroup'}: {error.strerror}"
        path = next((line[3:] for line in lines if line.startswith("0::")), None)
        if path is None:
            return "this node has no cgroup version 2"
        if rights and "/.." in path:
            return "this daemon is in a private cgroup namespace: its container has to be privileged"
        return None

    def find(self, victim: Victim) -> str | NoCgroup:
        """Find the cgroup of a container among all processes of the node (some 25 microseconds each)."""
        texts, hidden = set(), False
        try:
            for _, text in cgroups(self._root):
                if text is None:
                    hidden = True  # a path that is too long: any user can make one, and it vetoes no fence
                elif not text.rstrip("\n").endswith(" (deleted)") and container_of(self._pods.owner(text)) == victim:
                    texts.add(text)
        except OSError:
            return NoCgroup.UNREADABLE
        return leaf(texts, victim, self._pods) if texts or not hidden else NoCgroup.UNREADABLE

    def path(self, cgroup: str) -> str:
        """Return the path of a cgroup as this process, and so the driver's library, can open it."""
        return f"{self._mount or ''}{cgroup}"

    def there(self, cgroup: str) -> bool:
        """Tell whether a cgroup exists; True also where that cannot be seen."""
        try:
            Path(self.path(cgroup)).stat()
        except VANISHED:
            return False
        except OSError:
            return True
        return True
