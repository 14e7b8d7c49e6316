"""
A virtual machine: QEMU without KVM, and its guest agent.

In: a guest, a disk of programs, a folder. Out: a machine that answers, and after `stop()` nothing.

The rule: /dev/kvm is not used because it is there. On some machines it opens, makes a virtual CPU and hangs.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from cluster.processes import MARK, free_port
from hosts.agent import Agent, GuestError
from hosts.guest import Guest

MEMORY_MB = 2048
BOOTS_WITHIN_S = 400.0
PROCESSOR = "Nehalem"
"""With QEMU 7.2 a kernel 6.12 panics on `max` and on two of any: cmpxchg16b is not emulated there."""
APPEND = "console=ttyS0 root=/dev/vda rw quiet panic=-1 cgroup_no_v1=all"


class Machine:
    """A machine that is on from `start()` to `stop()`. `agent` runs commands in it."""

    def __init__(self, folder: Path, guest: Guest, programs: Path, token: str) -> None:
        self.folder = folder
        self.agent = Agent(folder / "agent")
        self._guest, self._programs, self._token = guest, programs, token
        self._process: subprocess.Popen[bytes] | None = None
        self._forwards: dict[int, tuple[str, int]] = {}

    def forward(self, port: int, address: str = "127.0.0.1", at: int | None = None) -> int:
        """Let a port of the guest be reached at a port of this machine, and return that; before `start`."""
        self._forwards[port] = address, at or free_port()
        return self._forwards[port][1]

    def start(self) -> None:
        """Start, and return when the guest answers. Raises GuestError."""
        self.folder.mkdir(parents=True)
        disk = self.folder / "disk.qcow2"
        made = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", str(self._guest.disk), str(disk)]
        subprocess.run(made, check=True)
        with (self.folder / "qemu.log").open("wb") as log:
            self._process = subprocess.Popen(
                self._command(disk), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", MARK: self._token},
            )  # fmt: skip
        deadline = time.monotonic() + BOOTS_WITHIN_S
        while not self.agent.answers():
            if self._process.poll() is not None:
                raise GuestError(f"QEMU ended with {self._process.returncode}:\n{self._said()}")
            if time.monotonic() > deadline:
                raise GuestError(f"the guest does not answer after {BOOTS_WITHIN_S:.0f} s:\n{self._said()}")
            time.sleep(0.5)

    def stop(self) -> None:
        """Switch it off, as a power cut does. Safe twice."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _said(self) -> str:
        logs = [self.folder / name for name in ("qemu.log", "console.log")]
        return "\n".join(log.read_text(errors="replace")[-1500:] for log in logs if log.exists())

    def _command(self, disk: Path) -> list[str]:
        forwards = [f"hostfwd=tcp:{host}:{at}-:{port}" for port, (host, at) in self._forwards.items()]
        serial = f"socket,id=agent,path={self.folder / 'agent'},server=on,wait=off"
        return [
            "qemu-system-x86_64", "-accel", "tcg,thread=single", "-cpu", PROCESSOR, "-smp", "1", "-m", str(MEMORY_MB),
            "-display", "none", "-no-reboot", "-serial", f"file:{self.folder / 'console.log'}",
            "-kernel", str(self._guest.kernel), "-initrd", str(self._guest.initrd), "-append", APPEND,
            "-drive", f"file={disk},format=qcow2,if=virtio,cache=unsafe",
            "-drive", f"file={self._programs},format=raw,if=virtio,readonly=on",
            "-netdev", ",".join(["user", "id=network", *forwards]), "-device", "virtio-net-pci,netdev=network,romfile=",
            "-device", "virtio-serial-pci", "-chardev", serial,
            "-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0",
        ]  # fmt: skip


__all__ = ["Machine"]
