"""Promises of exporter/host/remembered.py: a process that is remembered is the one that is there."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from driver.node import FakeNode, gpus
from driver.workload import until
from exporter.base.clock import SystemClock
from exporter.config import parse_arguments, start
from exporter.host import procfs, remembered
from exporter.host.procfs import ProcFs
from exporter.host.remembered import KEPT, SPARE, YOUNG, Remembered, boot_time
from exporter.sources import open_sources
from host.test_procfs import stat_line

POD = "0::/kubepods/besteffort/pod11111111-1111-1111-1111-111111111111/" + "a" * 64 + "\n"
OTHER = POD.replace("a" * 64, "b" * 64)
OLD = 7
"""Ticks after boot: a process that is not young, by the clock of these tests."""


class Proc:
    """A folder in the form of /proc, read with a memory, at a time that the test sets."""

    def __init__(self, root: Path) -> None:
        self.root, self.now = root, 1000.0
        for name in ("self", "1"):
            self.put(name, OLD)
        self.source = ProcFs(root, trusted=True, own=root, remember=Remembered(root, lambda: self.now))

    def put(self, name: str, start: int, cgroup: str = POD, **stat: Any) -> None:
        folder = self.root / name
        folder.mkdir(exist_ok=True)
        pid = 1 if name == "self" else int(name)
        (folder / "stat").write_text(stat_line(pid, start=start, **stat))
        (folder / "status").write_text(f"Name:\tpython\nTgid:\t{pid}\n")
        (folder / "cgroup").write_text(cgroup)

    def container(self, pid: int) -> str | None:
        """The container of a process by its first letter; None if it is gone or has none."""
        process = self.source.sample([pid]).processes.get(pid)
        return process.owner.pairs[0][1][0] if process and process.owner and process.owner.pairs else None  # type: ignore[index]


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def test_a_process_keeps_its_cgroup_for_a_minute_at_most(proc: Proc) -> None:
    """Within that time the same object is given; after it the cgroup of now."""
    proc.put("10", OLD)
    first = proc.source.sample([10]).processes[10]
    proc.put("10", OLD, OTHER)
    assert proc.source.sample([10]).processes[10] is first
    proc.now += KEPT
    assert proc.container(10) == "b"


def test_the_processes_of_a_container_share_one_owner(proc: Proc) -> None:
    """Also if they are read in different rounds: a node has more processes than containers."""
    proc.put("10", OLD)
    proc.put("11", OLD)
    first = proc.source.sample([10]).processes[10].owner
    proc.now += KEPT
    assert first is not None and proc.source.sample([11]).processes[11].owner is first


def test_owners_are_kept_up_to_a_number(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods that come and go do not fill the memory; what is given is right all the same."""
    monkeypatch.setattr(procfs, "SHARED_OWNERS", 2)
    kept = proc.source._owners
    for pid in range(10, 40):
        proc.put(str(pid), OLD, POD.replace("a" * 64, f"{pid:064x}"))
        owner = proc.source.sample([pid]).processes[pid].owner
        assert owner is not None and owner.pairs[0][1] == f"{pid:064x}" and len(kept) <= 2


def test_a_number_with_another_start_is_another_process(proc: Proc) -> None:
    """A number that was given anew is read at once, however short the time."""
    proc.put("10", OLD)
    assert proc.container(10) == "a"
    proc.put("10", OLD + 1, OTHER)
    assert proc.container(10) == "b"


def test_a_young_process_is_read_each_time(proc: Proc) -> None:
    """A runtime starts a process in its own cgroup, and then moves it: the container is known at once."""
    start = int((proc.now - YOUNG / 2) * os.sysconf("SC_CLK_TCK"))
    proc.put("10", start, "0::/system.slice/containerd.service\n")
    assert proc.container(10) is None
    proc.put("10", start, POD)
    assert proc.container(10) == "a"


@pytest.mark.parametrize("change", [{"state": "Z"}, {"flags": 0x4}], ids=["zombie", "exits"])
def test_a_process_that_ends_is_looked_at_as_a_whole(proc: Proc, change: dict[str, Any]) -> None:
    """A zombie is not alive; of a process that exits, the other threads are looked at."""
    proc.put("10", OLD)
    assert proc.container(10) == "a"
    proc.put("10", OLD, "0::/\n", **change)
    (proc.root / "10" / "task").mkdir()
    process = proc.source.sample([10]).processes[10]
    assert not process.alive or process.owner is None


def test_the_number_of_a_thread_says_what_its_process_is(proc: Proc) -> None:
    """Some drivers list threads. A thread that began in the same tick does not stand for a process that has died."""
    proc.put("10", OLD, threads=2)
    proc.put("11", OLD)
    (proc.root / "11" / "status").write_text("Name:\tpython\nTgid:\t10\n")
    (proc.root / "10" / "task" / "11").mkdir(parents=True)
    assert proc.source.sample([11]).processes[11].alive
    proc.put("10", OLD, state="Z")
    assert not proc.source.sample([11]).processes[11].alive


def test_a_process_that_is_gone_is_gone(proc: Proc) -> None:
    """Its folder is gone: so is the process."""
    proc.put("10", OLD)
    assert proc.container(10) == "a"
    for file in (proc.root / "10").iterdir():
        file.unlink()
    (proc.root / "10").rmdir()
    assert 10 not in proc.source.sample([10]).processes


def test_what_is_remembered_has_a_bound(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that are not asked for any more are dropped."""
    memory = proc.source._remembered
    assert memory is not None
    monkeypatch.setattr("exporter.host.remembered.SPARE", 4)
    for pid in range(100, 120):
        proc.put(str(pid), OLD)
        proc.source.sample([pid])
        proc.now += KEPT / 2
    assert len(memory._known) <= 6


@pytest.fixture
def sleeping() -> Iterator[int]:
    """The number of a real process."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What this process opens, reads and closes."""
    counts: Counter[str] = Counter()
    for name in ("open", "read", "close", "pidfd_open"):
        call = getattr(os, name)

        def counted(*given: Any, name: str = name, call: Any = call, **more: Any) -> Any:
            counts[name] += 1
            return call(*given, **more)

        monkeypatch.setattr(os, name, counted)
    return counts


class Full:
    """An epoll set that takes nothing: `fs.epoll.max_user_watches` is for all processes of a user."""

    def poll(self, _timeout: float) -> list[tuple[int, int]]:
        return []

    def register(self, _file: int, _events: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def watching(*, pidfds: bool = True) -> ProcFs:
    """The real /proc, at a time at which no process is young."""
    later = boot_time() + 2 * YOUNG
    return ProcFs(Path("/proc"), trusted=True, remember=Remembered(Path("/proc"), lambda: later, pidfds=pidfds))


def test_an_unchanged_process_costs_one_file(sleeping: int, calls: Counter[str]) -> None:
    """Without pidfds three system calls: open, read, close. The first look takes its folder and three files."""
    source = watching(pidfds=False)
    first = source.sample([sleeping]).processes[sleeping]
    assert calls == {"open": 4, "read": 6, "close": 4}
    calls.clear()
    assert source.sample([sleeping]).processes[sleeping] is first
    assert calls == {"open": 1, "read": 1, "close": 1}


def test_an_unchanged_process_with_a_pidfd_costs_no_file(sleeping: int, calls: Counter[str]) -> None:
    """Its start is read once more after the pidfd was opened, because the PID may have been given anew before."""
    source = watching()
    first = source.sample([sleeping]).processes[sleeping]
    assert calls == {"open": 5, "read": 7, "close": 5, "pidfd_open": 1}
    calls.clear()
    assert source.sample([sleeping]).processes[sleeping] is first
    assert not calls


@pytest.mark.parametrize("collected", [False, True], ids=["a zombie", "gone"])
def test_a_process_with_a_pidfd_that_ends_is_seen_at_once(*, collected: bool) -> None:
    """Also before its parent has heard of it; and its pidfd is closed."""
    source = watching()
    files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert source.sample([process.pid]).processes[process.pid].alive
        assert source.sample([process.pid]).processes[process.pid].alive
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        if collected:
            process.wait()
        found = source.sample([process.pid]).processes.get(process.pid)
        assert found is None if collected else (found is not None and not found.alive)
    assert len(os.listdir("/proc/self/fd")) == files  # noqa: PTH208


def test_a_process_whose_leader_has_ended_lives_while_a_thread_does() -> None:
    """The pidfd of a process is ready when its last thread has ended."""
    source = watching()
    program = (
        "import ctypes, threading, time; threading.Thread(target=input).start(); ctypes.CDLL(None).pthread_exit(0)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as process:
        stat = Path(f"/proc/{process.pid}/stat")
        until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z", "the leader's end")
        for _ in range(2):
            assert source.sample([process.pid]).processes[process.pid].alive
        process.kill()


@pytest.mark.parametrize("reason", ["refused", "too many files", "given anew", "too many watches"])
def test_a_process_without_a_pidfd_is_confirmed_by_its_start(
    sleeping: int, calls: Counter[str], monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """A seccomp profile may forbid pidfds, and not every file of the daemon is for them."""
    source = watching()
    memory = source._remembered
    assert memory is not None
    if reason == "refused":

        def refused(_pid: int) -> int:
            raise PermissionError

        monkeypatch.setattr(os, "pidfd_open", refused)
    elif reason == "too many files":
        memory._most = 0
    elif reason == "too many watches":
        memory._ends = Full()  # type: ignore[assignment]
    else:  # what the pidfd was opened for is gone, and so is the process of the first look
        monkeypatch.setattr(os, "pidfd_open", lambda _pid: os.open("/dev/null", os.O_RDONLY))
        answers = iter([False])
        real = remembered._is_there
        monkeypatch.setattr(remembered, "_is_there", lambda *given: next(answers, True) and real(*given))
    files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    first = source.sample([sleeping]).processes[sleeping]
    calls.clear()
    assert source.sample([sleeping]).processes[sleeping] is first
    assert calls == {"open": 1, "read": 1, "close": 1}
    assert len(os.listdir("/proc/self/fd")) == files  # noqa: PTH208


def test_a_look_without_pids_leaves_the_memory_alone() -> None:
    """It may come while another thread, which is late, still uses it."""
    source = watching()
    memory = source._remembered
    assert memory is not None
    with subprocess.Popen(["sleep", "60"]) as process:
        source.sample([process.pid])
        process.kill()
        process.wait()
        source.sample([])
        assert process.pid in memory._known


@pytest.mark.parametrize("trusted", [False, True])
async def test_pids_of_another_namespace_have_no_pidfds(
    fake_node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, trusted: bool
) -> None:
    """A pidfd is opened in our own PID namespace; with `trust_pid_namespace` the PIDs may be of another one."""
    written = f"{{devices: nvml, node: {{name: n, host_root: {tmp_path}, trust_pid_namespace: {json.dumps(trusted)}}}}}"
    (tmp_path / "config.yaml").write_text(written)
    monkeypatch.setenv("FAKE_NVML_STATE", str(fake_node.folder))
    fake_node.write(gpus(1))
    fake_node.preload()
    config, _ = start(parse_arguments([f"--config={tmp_path}/config.yaml"], {}, program="gpusteward", version="1"))
    sources = await open_sources(config, SystemClock())
    try:
        assert isinstance(sources.host, ProcFs) and sources.host._remembered is not None
        assert (sources.host._remembered._ends is None) == trusted
    finally:
        await sources.devices.close()


def test_as_many_pidfds_are_kept_as_there_are_processes() -> None:
    """Processes that left the GPU and live on are let go of, a minute later."""
    now = boot_time() + 2 * YOUNG
    memory = Remembered(Path("/proc"), lambda: now, pidfds=True)
    source = ProcFs(Path("/proc"), trusted=True, remember=memory)
    with ExitStack() as stack:
        many = [stack.enter_context(subprocess.Popen(["sleep", "60"])) for _ in range(SPARE + 2)]
        source.sample([one.pid for one in many])
        assert len(memory._pid) == SPARE + 2
        now += KEPT
        source.sample([many[0].pid])
        assert len(memory._pid) == 1
        for one in many:
            one.kill()
