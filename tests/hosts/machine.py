"""
A virtual machine: QEMU without KVM, and its guest agent.

In: disks, a folder, and perhaps the memory of a machine that was suspended. Out: a machine that answers, and after
`stop()` nothing; or after `suspend()` a file of its memory.

The rule: /dev/kvm is not used because it is there. On some machines it opens, makes a virtual CPU and hangs.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.processes import MARK, free_port
from hosts.agent import Agent, GuestError
from patience import PATIENCE

MEMORY_MB = 2048
PROCESSOR = "Nehalem"
"""With QEMU 7.2 a kernel 6.12 panics on `max` and on two of any: cmpxchg16b is not emulated there."""
APPEND = "console=ttyS0 root=/dev/vda rw quiet panic=-1 cgroup_no_v1=all mitigations=off"
"""Guards against the processor's speculation are off: emulated, each costs many instructions, and each call of the
kernel would empty the translations of addresses."""
NICE = -10
"""Kubelet and containerd give up after seconds of the clock, whatever else this machine does."""
PROGRAM = "qemu-system-x86_64"


@dataclass(frozen=True, slots=True)
class Drives:
    """
    What a machine starts from. None of it is written to.

    `disk` is qcow2, `programs` is raw. `memory`: of a suspended machine, which goes on; None: the kernel boots.
    """

    kernel: Path
    initrd: Path
    disk: Path
    programs: Path
    memory: Path | None = None


class Machine:
    """A machine that is on from `start()` to `stop()`. `agent` runs commands in it."""

    def __init__(self, folder: Path, drives: Drives, token: str) -> None:
        self.folder = folder
        self.agent = Agent(folder / "agent")
        self._drives, self._token = drives, token
        self._process: subprocess.Popen[bytes] | None = None
        self._forwards: dict[int, tuple[str, int]] = {}

    @property
    def disk(self) -> Path:
        """What it has written, on top of the disk that it started from."""
        return self.folder / "disk.qcow2"

    def forward(self, port: int, address: str = "127.0.0.1", at: int | None = None) -> int:
        """Let a port of the guest be reached at a port of this machine, and return that; before `start`."""
        self._forwards[port] = address, at or free_port()
        return self._forwards[port][1]

    def start(self) -> None:
        """Start, and return when the guest answers. Raises GuestError."""
        self.folder.mkdir(parents=True)
        below = ["-F", "qcow2", "-b", str(self._drives.disk)]
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *below, str(self.disk)], check=True)
        with (self.folder / "qemu.log").open("wb") as log:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", MARK: self._token},
            )  # fmt: skip
        _prefer(self._process.pid)
        deadline = time.monotonic() + PATIENCE
        if self._drives.memory:
            self._await(self._restored, deadline)
            self._monitor("cont")
        self._await(self.agent.answers, deadline)

    def suspend(self, memory: Path) -> None:
        """
        Write its memory and devices to a file, and end it. With `disk` of this moment a machine can go on.

        It is stopped before: what an emulated processor writes meanwhile may be missed
        (https://bugs.launchpad.net/mos/7.0.x/+bug/1371130/comments/35). One went on with a timer without
        a function, and its kernel panicked.
        """
        self._monitor("stop")
        self._monitor("migrate", uri=f"exec:cat > '{memory}'")
        deadline = time.monotonic() + PATIENCE
        while (state := self._monitor("query-migrate")["status"]) != "completed":
            if state in ("failed", "cancelled") or time.monotonic() > deadline:
                raise GuestError(f"the guest's memory could not be written: {state}\n{self._said()}")
            time.sleep(0.2)
        self._monitor("quit")
        if self._process is not None:
            self._process.wait()

    def stop(self) -> None:
        """Switch it off, as a power cut does. Safe twice."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _await(self, condition: Callable[[], bool], deadline: float) -> None:
        assert self._process is not None
        while not condition():
            if self._process.poll() is not None:
                raise GuestError(f"QEMU ended with {self._process.returncode}:\n{self._said()}")
            if time.monotonic() > deadline:
                raise GuestError(f"the guest does not answer after {PATIENCE:.0f} s:\n{self._said()}")
            time.sleep(0.5)

    def _restored(self) -> bool:
        """Tell whether the memory of the suspended machine is read."""
        try:
            return bool(self._monitor("query-status")["status"] == "paused")
        except OSError:  # the port is not there yet
            return False

    def _monitor(self, command: str, **arguments: object) -> Any:
        """Ask QEMU itself (QMP)."""
        with socket.socket(socket.AF_UNIX) as port:
            port.settimeout(60)
            port.connect(str(self.folder / "monitor"))
            lines = port.makefile(encoding="utf-8")
            for one, given in (("qmp_capabilities", {}), (command, arguments)):
                port.sendall(json.dumps({"execute": one, "arguments": given}).encode())
            answers = (json.loads(line) for line in lines)
            greeting_and_events = ("QMP", "event")
            said = [next(each for each in answers if not each.keys() & set(greeting_and_events)) for _ in range(2)]
        if "error" in said[1]:
            raise GuestError(f"{command}: {said[1]['error']['desc']}")
        return said[1]["return"]

    def _said(self) -> str:
        logs = [self.folder / name for name in ("qemu.log", "console.log")]
        return "\n".join(log.read_text(errors="replace")[-4000:] for log in logs if log.exists())

    def _command(self) -> list[str]:
        drives, forwards = self._drives, [f"hostfwd=tcp:{h}:{at}-:{port}" for port, (h, at) in self._forwards.items()]
        serial = f"socket,id=agent,path={self.folder / 'agent'},server=on,wait=off"
        return [
            PROGRAM, "-accel", "tcg,thread=single", "-cpu", PROCESSOR, "-smp", "1", "-m", str(MEMORY_MB),
            "-display", "none", "-no-reboot",
            "-serial", f"file:{self.folder / 'console.log'}",
            "-qmp", f"unix:{self.folder / 'monitor'},server=on,wait=off",
            "-kernel", str(drives.kernel), "-initrd", str(drives.initrd), "-append", APPEND,
            "-drive", f"file={self.disk},format=qcow2,if=virtio,cache=unsafe",
            "-drive", f"file={drives.programs},format=raw,if=virtio,readonly=on",
            "-netdev", ",".join(["user", "id=network", *forwards]), "-device", "virtio-net-pci,netdev=network,romfile=",
            "-device", "virtio-serial-pci", "-chardev", serial,
            "-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0",
            *(["-incoming", f"exec:cat '{drives.memory}'"] if drives.memory else []),
        ]  # fmt: skip


def _prefer(pid: int) -> None:
    """Give a process more of the processor; where sessions share it evenly (autogroup, sched(7)), its session."""
    group = Path(f"/proc/{pid}/autogroup")
    if group.exists():
        group.write_text(str(NICE))
    os.setpriority(os.PRIO_PROCESS, pid, NICE)


__all__ = ["PROGRAM", "Drives", "Machine"]
