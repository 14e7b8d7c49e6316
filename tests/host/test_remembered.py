"""Promises of exporter/host/remembered.py: a process that is remembered is the one that is there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.host.procfs import ProcFs
from exporter.host.remembered import KEPT, YOUNG, Remembered, boot_time
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


def test_an_unchanged_process_costs_one_file(sleeping: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three system calls: open, read, close. The first look takes its folder and three files."""
    later = boot_time() + 2 * YOUNG
    source = ProcFs(Path("/proc"), trusted=True, remember=Remembered(Path("/proc"), lambda: later))
    calls: Counter[str] = Counter()
    for name in ("open", "read", "close"):
        call = getattr(os, name)

        def counted(*given: Any, name: str = name, call: Any = call, **more: Any) -> Any:
            calls[name] += 1
            return call(*given, **more)

        monkeypatch.setattr(os, name, counted)
    first = source.sample([sleeping]).processes[sleeping]
    assert calls == {"open": 4, "read": 6, "close": 4}
    calls.clear()
    assert source.sample([sleeping]).processes[sleeping] is first
    assert calls == {"open": 1, "read": 1, "close": 1}
