"""A `/proc` and a `/dev` of files: processes of any cgroup, with descriptors that are links to real device nodes.

`/dev/null` and `/dev/zero` play the vendor's nodes, since only root may make others: what counts is that the link leads
to a character device, and to which.
"""

from dataclasses import dataclass
from pathlib import Path

NULL, ZERO = Path("/dev/null"), Path("/dev/zero")


@dataclass(frozen=True, slots=True)
class Proc:
    """The root of a host: `proc` and `dev` below it."""

    root: Path

    @classmethod
    def made(cls, root: Path) -> "Proc":
        """Make an empty one, which shows process 1."""
        for name in ("proc/self", "dev"):
            (root / name).mkdir(parents=True)
        host = cls(root)
        host.process(1, "0::/init.scope")
        (host.proc / "self/stat").write_text((host.proc / "1/stat").read_text())
        return host

    @property
    def proc(self) -> Path:
        return self.root / "proc"

    @property
    def dev(self) -> Path:
        return self.root / "dev"

    def node(self, name: str, real: Path = NULL) -> None:
        """Make a device node."""
        (self.dev / name).parent.mkdir(parents=True, exist_ok=True)
        (self.dev / name).symlink_to(real)

    def process(self, pid: int, cgroup: str, *opened: Path, hidden: bool = False) -> None:
        """Start a process. `hidden`: nobody may look at its descriptors."""
        folder = self.proc / str(pid)
        (folder / "task" / str(pid)).mkdir(parents=True)
        after = ["S", "1", "1", "1", "0", "-1", "4194560", *["0"] * 10, "1", "0", str(1000 + pid), *["0"] * 30]
        (folder / "stat").write_text(f"{pid} (python) {' '.join(after)}\n")
        (folder / "status").write_text(f"Name:\tpython\nTgid:\t{pid}\nPid:\t{pid}\n")
        (folder / "cgroup").write_text(f"{cgroup}\n")
        if hidden:
            (folder / "fd").write_text("")  # like a folder that may not be listed: an error that is not "gone"
            return
        (folder / "fd").mkdir()
        for number, path in enumerate((NULL.parent / "pts", *opened)):
            (folder / "fd" / str(number)).symlink_to(path)


def pod_cgroup(uid: str, container: str) -> str:
    """Give the cgroup of a container, as containerd and systemd name it."""
    return f"0::/kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/cri-containerd-{container}.scope"
