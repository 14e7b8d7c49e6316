"""Promises of enforcer/lock: of two daemons on a node one acts, and a dead one does not block another."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from enforcer.journal import lock
from enforcer.journal.lock import LockError

ROOT = Path(__file__).resolve().parents[2]
HOLD = """
import subprocess, sys, time
from pathlib import Path
from enforcer.journal import lock

held = lock.take(Path(sys.argv[1]))
child = subprocess.Popen(["sleep", "600"], close_fds=False) if len(sys.argv) > 2 else None
print("none" if held is None else child.pid if child else "held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the lock is to be: in a folder that is not there yet."""
    return tmp_path / "gpusteward" / "journal.lock"


@contextmanager
def daemon(path: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a process that takes the lock and lives until its input ends; yield it and what it said."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), *more],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.mark.fault(53)
def test_the_second_daemon_gets_nothing(path: Path) -> None:
    """While one process holds the lock, another gets None at once, and can read which process has it."""
    with daemon(path) as (process, said):
        assert said == "held"
        assert lock.take(path) is None
        assert lock.holder(path) == f"process {process.pid}"
        with daemon(path) as (_, second):
            assert second == "none"


def test_within_a_process_too(path: Path) -> None:
    """A process that asks twice gets one lock, which is free once it is released."""
    held = lock.take(path)
    assert held is not None and held.holds()
    assert lock.take(path) is None
    held.release()
    again = lock.take(path)
    assert again is not None
    again.release()


@pytest.mark.fault(52, 54)
def test_a_killed_daemon_leaves_no_lock(path: Path) -> None:
    """After SIGKILL the lock is free, whatever process number is still in the file."""
    with daemon(path) as (process, said):
        assert said == "held"
        process.send_signal(signal.SIGKILL)
        process.wait()
        held = lock.take(path)
        assert held is not None
        assert lock.holder(path) == f"process {os.getpid()}"
        held.release()


def test_no_child_inherits_it(path: Path) -> None:
    """A process that the daemon started, and that outlives it, does not hold the lock on."""
    with daemon(path, "with child") as (process, said):
        child = int(said)
        try:
            process.send_signal(signal.SIGKILL)
            process.wait()
            os.kill(child, 0)  # it lives
            held = lock.take(path)
            assert held is not None
            held.release()
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.fault(53)
def test_a_removed_file_is_noticed(path: Path) -> None:
    """A removed file lets a second daemon take the lock: the first one notices before it acts."""
    held = lock.take(path)
    assert held is not None and held.holds()
    path.unlink()
    assert not held.holds()
    second = lock.take(path)
    assert second is not None and second.holds()
    assert not held.holds()
    second.release()
    held.release()


def _link(path: Path) -> None:
    (path.parent / "other").touch()
    path.symlink_to(path.parent / "other")


def _file_as_folder(path: Path) -> None:
    path.parent.rmdir()
    path.parent.touch()


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        (_file_as_folder, "is not a folder"),
        (_link, "symbolic link"),
        (os.mkfifo, "is not a regular file; fix: rm "),
        (lambda path: path.parent.chmod(0o777), "is writable by other users"),
        (lambda path: path.parent.parent.chmod(0o777), "is writable by other users"),
    ],
    ids=["no folder", "link", "pipe", "open folder", "open parent"],
)
def test_what_cannot_be_locked_is_an_error(path: Path, prepare: Callable[[Path], object], why: str) -> None:
    """An error says what is wrong, and is not the same as being the only one."""
    path.parent.mkdir(mode=0o700)
    prepare(path)
    with pytest.raises(LockError, match=why):
        lock.take(path)


def test_a_read_only_folder_is_an_error() -> None:
    """Where no file can be made there is no lock: `/proc` takes no files, not even from root."""
    with pytest.raises(LockError):
        lock.take(Path("/proc/self/lock"))


@pytest.mark.parametrize("content", [b"", b"\xff\x00\x1b[2J", b"process 5\nand more than that", None])
def test_whatever_stands_in_the_file_is_only_told(path: Path, content: bytes | None) -> None:
    """The text in the file names the holder for people, or is nothing: it decides nothing."""
    path.parent.mkdir(mode=0o700)
    if content is not None:
        path.write_bytes(content)
    assert lock.holder(path) == ""
    held = lock.take(path)
    assert held is not None
    assert lock.holder(path) == f"process {os.getpid()}"
    held.release()
