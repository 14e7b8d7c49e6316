"""The workload: what it says that it holds is, to the byte, what the driver charges."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from driver.node import FakeNode, GiB, MiB, Says, WorkloadError, gpus, until
from driver.probe import Probe


def charged(fake_node: FakeNode, nvml: Probe) -> dict[str, int]:
    used = {gpu.uuid: nvml.ask("nvmlDeviceGetMemoryInfo", nvml.device(gpu.uuid))["used"] for gpu in fake_node.gpus}
    return {uuid: size for uuid, size in used.items() if size}


def test_it_says_what_the_driver_charges(fake_node: FakeNode, nvml: Probe) -> None:
    """Through allocations, children, ghosts, threads, exec and free, the two agree to the byte."""
    fake_node.write(gpus(2))
    job = fake_node.spawn("alloc 0 12345", "alloc 1 2MiB")
    steps: tuple[Callable[[], Says], ...] = (
        lambda: job.children(3, 0, 1001),
        lambda: job.ghost(1, 777),
        lambda: job.thread(1, 5),
        job.exec,
        lambda: job.alloc(0, GiB),
        lambda: job.fork("stay"),
        lambda: job.free(0),
        job.zombie,
        job.free,
    )
    for does in steps:
        assert dict(does().held) == charged(fake_node, nvml)
    assert job.says().total == 3 * 1001 + 777


def test_freeing_takes_it_from_a_forked_child_too(fake_node: FakeNode, nvml: Probe) -> None:
    """The descriptor that a child inherited keeps memory of the living and the dead, not what was freed."""
    fake_node.write(gpus(1))
    job = fake_node.spawn("alloc 0 1GiB")
    job.fork("stay")
    assert job.free().total == 0
    assert charged(fake_node, nvml) == {}


def test_out_of_memory(fake_node: FakeNode, nvml: Probe) -> None:
    """More than free (reserved and other counted) is refused and said; on the command line it is exit code 12."""
    fake_node.write(gpus(1, total=10 * GiB, reserved=GiB, other=GiB))
    job = fake_node.spawn("alloc 0 6GiB")
    with pytest.raises(WorkloadError, match="out of memory"):
        job.alloc(0, 2 * GiB + 1)
    assert job.alloc(0, 2 * GiB).total == 8 * GiB
    late = fake_node.spawn("alloc 0 1", wait=False)
    assert late.wait() == 12
    assert late.says().error == "out of memory"
    job.close()
    assert fake_node.spawn("alloc 0 8GiB").says().total == 8 * GiB


def test_two_at_once_cannot_both_have_the_last_bytes(fake_node: FakeNode, nvml: Probe) -> None:
    """The capacity check and the allocation are one step under a lock: of five that want a third, three get it."""
    fake_node.write(gpus(1, total=3 * GiB))
    lock = fake_node.folder / "alloc" / ".lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        inode = f":{lock.stat().st_ino} "
        jobs = [fake_node.spawn("alloc 0 1GiB", wait=False) for _ in range(5)]

        def waiting() -> bool:
            return sum("->" in line for line in Path("/proc/locks").read_text().splitlines() if inode in line) == 5

        until(waiting, "all five to stand before the lock")
    for job in jobs:
        with contextlib.suppress(WorkloadError):
            job.ready()
    assert sorted(job.says().error for job in jobs) == [""] * 3 + ["out of memory"] * 2
    assert charged(fake_node, nvml) == {fake_node.gpus[0].uuid: 3 * GiB}


@pytest.mark.parametrize(
    ("visible", "device", "expected"),
    [
        ("GPU-00000001-0000-4000-8000-000000000001", "visible", 1),
        ("GPU-00000001-0000-4000-8000-000000000001::3", "visible", 1),
        ("1,0", "visible:1", 0),
        ("all", "visible:1", 1),
    ],
)
def test_visible_devices(fake_node: FakeNode, visible: str, device: str, expected: int) -> None:
    """The default device comes from NVIDIA_VISIBLE_DEVICES, without the device plugin's replica."""
    fake_node.write(gpus(2))
    job = fake_node.spawn(f"alloc {device} 7", env={"NVIDIA_VISIBLE_DEVICES": visible})
    assert job.says().held == {fake_node.gpus[expected].uuid: 7}


def test_nothing_visible_is_no_device(fake_node: FakeNode) -> None:
    """`void`, `none`, and an index past the end: no such device, exit code 2."""
    fake_node.write(gpus(1))
    for visible, device in (("void", "visible"), ("none", "visible"), ("0", "visible:1"), ("", "7")):
        job = fake_node.spawn(f"alloc {device} 7", env={"NVIDIA_VISIBLE_DEVICES": visible}, wait=False)
        assert job.wait() == 2
        assert job.says().error == "no such device"


def test_it_ends_at_sigterm_unless_told_not_to(fake_node: FakeNode) -> None:
    """SIGTERM is exit code 143; after `ignore-term` only SIGKILL ends it, through an exec too."""
    fake_node.write(gpus(1))
    polite, stubborn = fake_node.spawn("alloc 0 1"), fake_node.spawn("alloc 0 1", "ignore-term")
    for job in (polite, stubborn):
        job.kill(signal.SIGTERM)
    assert polite.wait() == 143
    stubborn.exec()
    stubborn.kill(signal.SIGTERM)
    assert stubborn.alloc(0, 1).total == 2
    stubborn.kill()
    assert stubborn.wait() == -9


def test_a_killed_child_is_no_longer_said(fake_node: FakeNode, nvml: Probe) -> None:
    """When a child is killed from outside, its bytes leave the account, without a command."""
    fake_node.write(gpus(1))
    job = fake_node.spawn(f"alloc 0 {MiB}")
    child = next(pid for pid in job.children(2, 0, GiB).processes if pid != job.pid)
    os.kill(child, signal.SIGKILL)
    until(lambda: job.says().total == GiB + MiB, "the child to be missed")
    assert charged(fake_node, nvml) == {fake_node.gpus[0].uuid: GiB + MiB}
    assert child not in job.says().members


def test_it_has_the_device_files_open(fake_node: FakeNode) -> None:
    """As with the real driver, a process with memory has /dev/nvidiaN and /dev/nvidiactl open; its forked child too."""
    fake_node.write(gpus(2))
    job = fake_node.spawn("alloc 1 1")
    says = job.fork("stay")
    for pid in says.members:
        links = {link.readlink().name for link in Path(f"/proc/{pid}/fd").iterdir()}
        assert {"nvidia1", "nvidiactl"} <= links
        assert "nvidia0" not in links


def test_commands_it_does_not_know(fake_node: FakeNode) -> None:
    """An unknown command is an error with its name; on the command line exit code 2, and `--keep-going` goes on."""
    fake_node.write(gpus(1))
    job = fake_node.spawn()
    with pytest.raises(WorkloadError, match="unknown command dance"):
        job.command('dance "now"')
    bad = fake_node.spawn("dance", wait=False)
    assert bad.wait() == 2
    going = fake_node.spawn("--keep-going", "alloc 9 1", "alloc 0 1")
    assert going.says().total == 1


def test_exit_and_environment(fake_node: FakeNode) -> None:
    """Commands may come from the environment (a container without arguments); `exit` gives its code and says so."""
    fake_node.write(gpus(1))
    job = fake_node.spawn(env={"WORKLOAD": "alloc 0 3; alloc 0 4"})
    assert job.says().total == 7
    assert job.exit(5).exited
    assert job.wait() == 5


STARTS_AND_DIES = """
import os, sys
from pathlib import Path
from driver.node import FakeNode
job = FakeNode(Path(sys.argv[1]), Path(sys.argv[2])).spawn("alloc 0 1GiB", "children 2 0 1MiB", "ghost 0 5")
print(job.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def test_nothing_outlives_a_test_that_was_killed(fake_node: FakeNode, nvml: Probe) -> None:
    """When the process that started a workload dies without cleaning up, the workload ends with its whole tree."""
    fake_node.write(gpus(1))
    path = os.pathsep.join(filter(None, (str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-c", STARTS_AND_DIES, str(fake_node.folder), str(fake_node.build)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == -9
    assert int(done.stdout) > 0
    until(lambda: not charged(fake_node, nvml), "the workload to end")
