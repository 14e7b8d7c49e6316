"""A `/proc` and a `/dev` of files: processes of any cgroup, with descriptors that are links to real device nodes.

`/dev/null` and `/dev/zero` play the vendor's nodes, since only root may make others: what counts is that the link leads
to a character device, and to which.
"""

from dataclasses import dataclass
from pathlib import Path

NULL, ZERO = Path("/dev/null"), Path("/dev/zero")
DEV, VOLUME = 26, 40
"""Mounts of each process here: `/dev`, and a volume below it."""


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

    def process(self, pid: int, cgroup: str, *opened: Path, hidden: bool = False, mount: int = DEV) -> None:
        """Start a process. `hidden`: its descriptors may not be looked at; `mount`: where its files are."""
        folder = self.proc / str(pid)
        (folder / "task" / str(pid)).mkdir(parents=True)
        after = ["S", "1", "1", "1", "0", "-1", "4194560", *["0"] * 10, "1", "0", str(1000 + pid), *["0"] * 30]
        (folder / "stat").write_text(f"{pid} (python) {' '.join(after)}\n")
        (folder / "status").write_text(f"Name:\tpython\nTgid:\t{pid}\nPid:\t{pid}\n")
        (folder / "cgroup").write_text(f"{cgroup}\n")
        if hidden:
            (folder / "fd").write_text("")  # like a folder that may not be listed: an error that is not "gone"
            return
        for name in ("fd", "fdinfo"):
            (folder / name).mkdir()
        (folder / "mountinfo").write_text(
            f"{DEV} 25 0:5 / /dev rw,nosuid - tmpfs tmpfs rw\n"
            f"{VOLUME} 26 0:50 / /dev/data rw - fuse.sshfs me@there:/ rw\n"
        )
        for number, path in enumerate((NULL.parent / "pts", *opened)):
            (folder / "fd" / str(number)).symlink_to(path)
            (folder / "fdinfo" / str(number)).write_text(f"pos:\t0\nflags:\t0100002\nmnt_id:\t{mount}\nino:\t5\n")


def pod_cgroup(uid: str, container: str) -> str:
    """Give the cgroup of a container, as containerd and systemd name it."""
    return f"0::/kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/cri-containerd-{container}.scope"
