"""`gpusteward close`: the command line, and what it leaves for the daemon."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest

from enforcer.commands.close import _await
from enforcer.journal.close_requests import ask, folder, take
from enforcer.policy.vocabulary import Breaker
from patience import PATIENCE

pytestmark = pytest.mark.daemon
GPUSTEWARD = Path(sys.executable).with_name("gpusteward")


def close(journal: Path, *arguments: str, stdout: int | IO[str] = subprocess.PIPE) -> "subprocess.Popen[str]":
    config = journal.with_name("config.yaml")
    config.write_text(f"policy: {{journal: {journal}}}\n")
    config.chmod(0o600)
    # A shell starts what runs in its background without SIGINT, and these tests with it.
    command = ["env", "--default-signal=INT", str(GPUSTEWARD), "close", *arguments, "--config", str(config)]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    place = tmp_path / "state"
    place.mkdir(mode=0o700)
    return place / "journal"


def test_it_waits_until_the_daemon_took_the_request(journal: Path) -> None:
    """The request stands beside the journal; when it is taken, exit code 0, and a line that says so."""
    asked = close(journal, "attribution", "--by", "ann")
    taken: list[tuple[Breaker, str]] = []
    while not taken and asked.poll() is None:
        taken = list(take(journal, time.time()))
    out, err = asked.communicate(timeout=PATIENCE)
    assert (taken, asked.returncode, err) == ([(Breaker.ATTRIBUTION, "ann")], 0, "")
    assert out.startswith("attribution: the daemon took the request")


def test_a_breaker_that_is_gone_is_refused(journal: Path) -> None:
    """`config` was one of version 0.1: exit code 2, the choices, and no file."""
    asked = close(journal, "config")
    _, err = asked.communicate(timeout=PATIENCE)
    assert asked.returncode == 2 and "blast_radius" in err and "attribution" in err
    assert not folder(journal).exists()


def left(journal: Path) -> list[str]:
    return [one.name for one in folder(journal).iterdir()]


def test_without_a_daemon_it_leaves_nothing_behind(journal: Path) -> None:
    """Exit code 1 after the time-out, and no request that a daemon of next week would carry out."""
    asked = close(journal, "internal")
    _, err = asked.communicate(timeout=PATIENCE)
    assert asked.returncode == 1
    what, cause, fix = err.splitlines()
    assert what == "gpusteward close: no daemon took the request within 15 s; it is withdrawn"
    assert cause == "cause: no daemon on this node is armed"
    assert fix == "fix: without mode enforce the daemon has no journal: delete its pod when the cause is gone"
    assert left(journal) == [] and list(take(journal, time.time())) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_command_leaves_nothing_behind(journal: Path, number: signal.Signals) -> None:
    """Ctrl-C, the end of a pod's exec, a closed terminal: exit code 130, and the request is withdrawn."""
    asked = close(journal, "internal")
    while not folder(journal).exists() or "internal" not in left(journal):
        assert asked.poll() is None
        time.sleep(0.01)
    asked.send_signal(number)
    _, err = asked.communicate(timeout=PATIENCE)
    assert (asked.returncode, left(journal)) == (130, [])
    assert "interrupted before a daemon took the request; it is withdrawn" in err


@pytest.mark.parametrize(("interrupted", "code"), [(False, 1), (True, 130)])
def test_a_request_that_cannot_be_withdrawn(
    journal: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *, interrupted: bool, code: int
) -> None:
    """The exit code is that of a request that no daemon took. The error names the file that is left."""

    def sleep(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("enforcer.commands.close.PATIENCE", float(interrupted))
    monkeypatch.setattr("time.sleep", sleep)
    asked = ask(journal, Breaker.INTERNAL, "ann")
    moved = folder(journal).rename(journal.with_name("moved"))
    folder(journal).symlink_to(moved)
    assert _await(asked, "enforce") == code
    err = capfd.readouterr().err
    assert "and it was not withdrawn" in err and f"fix: rm {folder(journal)}/internal" in err


def test_what_the_daemon_took_is_taken_on_a_full_disk_too(journal: Path) -> None:
    """Exit code 0 although the line cannot be written, which standard error says."""
    taken: list[tuple[Breaker, str]] = []
    with Path("/dev/full").open("w") as full:
        asked = close(journal, "internal", stdout=full)
        while not taken and asked.poll() is None:
            taken = list(take(journal, time.time()))
        _, err = asked.communicate(timeout=PATIENCE)
    assert asked.returncode == 0
    assert err.startswith("gpusteward close: standard output cannot be written\ncause: No space left on device\n")


def test_where_it_may_not_write_it_says_where(journal: Path) -> None:
    """A folder that others may write: exit code 1, and its name."""
    journal.parent.chmod(0o777)
    asked = close(journal, "internal")
    _, err = asked.communicate(timeout=PATIENCE)
    assert asked.returncode == 1
    assert " ".join(err.split()) == (
        f"gpusteward close: a request beside {journal} would not be safe "
        f"cause: {journal.parent} is writable by other users fix: chmod go-w {journal.parent}"
    )


def test_where_the_daemon_has_no_journal_it_says_what_closes_the_breaker(journal: Path) -> None:
    """In mode dry-run the chart mounts no folder for the journal, and the container's files are read-only."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("mounts need CAP_SYS_ADMIN")
    config = journal.with_name("config.yaml")
    config.write_text(f"policy: {{journal: {journal.parent}/none/journal}}\n")
    (journal.parent / "none").mkdir()
    mount = 'mount -t tmpfs -o ro,mode=700 none "$0" && exec "$@"'
    command = [str(GPUSTEWARD), "close", "blast_radius", "--config", str(config)]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", mount, str(journal.parent / "none"), *command],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 1 and "Read-only file system" in done.stderr
    assert "without mode enforce the daemon has no journal: delete its pod" in done.stderr
