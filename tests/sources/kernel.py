"""
A node of AMD and Intel GPUs made of files: `/proc`, `/sys` and the cgroup root, below one folder.

In: what a test says of GPUs, ROCm's processes, descriptors and cgroups. Out: the files as the kernel writes them.
`Node(root)` plays processes too; `Node(root, real=Path("/proc"))` shows real ones, with descriptors that it plays.
Law: nothing here is read by the code under test but through the file system.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from exporter.devices.kernel import Roots

RENDER = 226
DEV, ELSEWHERE = 26, 40
"""Mounts of each process here: `/dev`, and a network file system of its own."""
OPENED = os.O_RDWR | os.O_CLOEXEC | 0o100000
"""Flags of most descriptors; the last is O_LARGEFILE, which Python has as 0."""


@dataclass(slots=True)
class Node:
    """A folder with a node's files. `real`: the `/proc` that real processes are shown from."""

    root: Path
    real: Path | None = None

    def __post_init__(self) -> None:
        for folder in ("proc", "sys/class/drm", "sys/fs/cgroup", "sys/devices"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        if self.real is not None:
            (self.root / "proc/self").symlink_to(self.real / "self")
            self.show(1)  # its descriptors are played, too: they decide whether we may look
        else:
            self.process(1, cgroup="0::/init.scope")
            (self.root / "proc/self").symlink_to("1")

    @property
    def roots(self) -> Roots:
        """Where it is."""
        return Roots(self.root / "sys", self.root / "proc", self.root / "sys/fs/cgroup")

    def write(self, name: str, text: str | int) -> Path:
        """Write a file below the root."""
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n" if isinstance(text, int) else text)
        return file

    def card(
        self,
        pci: str,
        *,
        driver: str = "amdgpu",
        number: int = 0,
        minor: int = 128,
        figures: Mapping[str, str | int] | None = None,
    ) -> None:
        """Add a GPU on PCI, with a card and a render node, and figures by file name."""
        device = f"sys/devices/pci0000:00/{pci}"
        identity = {"amdgpu": "1002:74A1", "xe": "8086:E20B", "i915": "8086:56A6"}.get(driver, "1A03:2000")
        self.write(f"{device}/uevent", f"DRIVER={driver}\nPCI_CLASS=38000\nPCI_ID={identity}\nPCI_SLOT_NAME={pci}\n")
        for name, text in (figures or {}).items():
            self.write(f"{device}/{name}", text)
        for name in (f"card{number}", f"renderD{minor}"):
            self.node(name, self.root / device)
        self.write(f"sys/class/drm/card{number}-DP-1/status", "connected\n")

    def node(self, name: str, device: Path) -> None:
        """Add a DRM device node to sysfs; `device` is what it belongs to."""
        device.mkdir(parents=True, exist_ok=True)
        folder = self.root / "sys/class/drm" / name
        folder.mkdir(parents=True)
        (folder / "device").symlink_to(device)

    def xcp(self, number: int, minor: int) -> None:
        """Add a render node of amdgpu's for a partition, used or not."""
        device = self.root / f"sys/devices/platform/amdgpu_xcp_{number}"
        self.node(f"renderD{minor}", device)
        (device / "uevent").write_text("DRIVER=amdgpu_xcp_drv\nMODALIAS=platform:amdgpu_xcp\n")

    def rocm_node(self, number: int, gpu_id: int, *, bank: int = 0, **properties: int) -> None:
        """Add a node to KFD's topology."""
        folder = f"sys/class/kfd/kfd/topology/nodes/{number}"
        self.write(f"{folder}/gpu_id", gpu_id)
        self.write(f"{folder}/properties", "".join(f"{key} {value}\n" for key, value in properties.items()))
        if bank:
            text = f"heap_type 1\nsize_in_bytes {bank}\nflags 0\nwidth 8192\nmem_clk_max 1300\n"
            self.write(f"{folder}/mem_banks/0/properties", text)

    def rocm(self, pid: int, held: Mapping[int, int], *, queues: tuple[int, ...] = (), context: str = "") -> None:
        """Say what KFD says of a process: GPU id to bytes, and a queue on each of `queues`."""
        folder = f"sys/class/kfd/kfd/proc/{pid}{context and '/' + context}"
        self.write(f"{folder}/pasid", "0")
        for gpu_id, size in held.items():
            self.write(f"{folder}/vram_{gpu_id}", size)
        for number, gpu_id in enumerate(queues):
            self.write(f"{folder}/queues/{number}/gpuid", str(gpu_id))  # without a line feed, as the kernel does
            self.write(f"{folder}/queues/{number}/type", "2")

    def evicted(self, pid: int, gpu_id: int, milliseconds: int) -> None:
        """Say for how long KFD has had the queues of a process off a GPU."""
        self.write(f"sys/class/kfd/kfd/proc/{pid}/stats_{gpu_id}/evicted_ms", milliseconds)

    def process(self, pid: int, *, cgroup: str, start: int = 1000) -> None:
        """Play a process of this cgroup, started at `start` ticks."""
        fields = ["S", "1", "1", "1", "0", "-1", "4194560", *["0"] * 10, "1", "0", str(start), *["0"] * 30]
        fields[17], fields[19] = "1", str(start)
        self.write(f"proc/{pid}/stat", f"{pid} (python) {' '.join(fields)}\n")
        self.write(f"proc/{pid}/status", f"Name:\tpython\nTgid:\t{pid}\nPid:\t{pid}\n")
        self.write(f"proc/{pid}/cgroup", f"{cgroup}\n")
        self._folders(pid)
        (self.root / f"proc/{pid}/task/{pid}").mkdir(parents=True, exist_ok=True)

    def leader_ends(self, pid: int, thread: int, *, v1: bool = False) -> None:
        """Let the first thread of a process end, as by `syscall(SYS_exit)`; this one goes on. `v1`: of cgroups."""
        process, living = self.root / f"proc/{pid}", self.root / f"proc/{pid}/task/{thread}"
        living.mkdir()
        for name in ("fd", "fdinfo", "mountinfo", "cgroup"):
            (process / name).rename(living / name)
        stat = (process / "stat").read_text()
        (living / "stat").write_text(stat.replace(f"{pid} (", f"{thread} ("))
        for folder in (process, process / f"task/{pid}"):
            (folder / "stat").write_text(stat.replace(") S ", ") Z "))
            for name in ("fd", "fdinfo"):
                (folder / name).mkdir()
        (process / "cgroup").write_text("0::/\n" if v1 else (living / "cgroup").read_text())

    def show(self, pid: int) -> None:
        """Show a real process, whose descriptors are played."""
        assert self.real is not None
        folder = self.root / f"proc/{pid}"
        folder.mkdir()
        for name in ("stat", "status", "cgroup", "task"):
            (folder / name).symlink_to(self.real / str(pid) / name)
        self._folders(pid)

    def _folders(self, pid: int) -> None:
        for name in ("fd", "fdinfo"):
            (self.root / f"proc/{pid}/{name}").mkdir(parents=True, exist_ok=True)
        self.write(
            f"proc/{pid}/mountinfo",
            f"{DEV} 25 0:5 / /dev rw,nosuid shared:2 - tmpfs tmpfs rw,size=65536k,mode=755\n"
            f"{ELSEWHERE} 25 0:50 / /data\\040-\\040mine rw,relatime - nfs4 10.0.0.1:/mine rw,vers=4.2\n",
        )

    def descriptor(
        self,
        pid: int,
        number: int,
        text: str,
        *,
        minor: int | None = None,
        name: str = "",
        mount: int = DEV,
        flags: int = OPENED,
    ) -> None:
        """
        Let a process hold a descriptor of which the kernel says `text`.

        `minor`: of the device node that it leads to, which is made (as root); without it the link leads nowhere.
        `mount`: where the file is. `flags`: of the call that opened it.
        """
        link = self.root / f"proc/{pid}/fd/{number}"
        target = Path(name or "/dev/dri/renderD-not-here")
        if minor is not None:
            target = self.root / f"dri/renderD{minor}"
            if not target.exists():
                target.parent.mkdir(exist_ok=True)
                os.mknod(target, stat.S_IFCHR | 0o600, os.makedev(RENDER, minor))
        if not link.is_symlink():
            link.symlink_to(target)
        self.fdinfo(pid, number, text, mount=mount, flags=flags)

    def fdinfo(self, pid: int, number: int, text: str, *, mount: int = DEV, flags: int = OPENED) -> None:
        """Change what the kernel says of a descriptor: at once, as a read of the real file would see it."""
        new = self.root / "fdinfo.new"
        new.write_text(f"pos:\t0\nflags:\t0{flags:o}\nmnt_id:\t{mount}\nino:\t287\n{text}\n")
        new.replace(self.root / f"proc/{pid}/fdinfo/{number}")

    def cgroup(self, path: str, files: Mapping[str, str]) -> None:
        """Write `dmem.<name>` files of a cgroup; the root is ""."""
        for name, text in files.items():
            self.write(f"sys/fs/cgroup/{path}/dmem.{name}", text)


@pytest.fixture
def as_nobody(tmp_path: Path) -> Iterator[Callable[[], None]]:
    """From its call on the test may read no more than what its files' modes allow, also where root runs the tests."""
    with ExitStack() as stack:

        def drop() -> None:
            if os.geteuid() != 0:
                return
            for folder in (tmp_path, *tmp_path.parents):
                if folder != Path("/") and folder.stat().st_uid == 0 and folder != Path("/tmp"):
                    folder.chmod(folder.stat().st_mode | 0o011)
            stack.callback(os.seteuid, 0)
            os.seteuid(65534)

        yield drop
