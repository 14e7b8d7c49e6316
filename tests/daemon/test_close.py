"""`gpusteward close`: the command line, and what it leaves for the daemon."""

import subprocess
import sys
from pathlib import Path

import pytest

from enforcer.journal.close_requests import folder, take
from enforcer.policy.vocabulary import Breaker

pytestmark = pytest.mark.daemon
GPUSTEWARD = Path(sys.executable).with_name("gpusteward")


def close(journal: Path, *arguments: str) -> "subprocess.Popen[str]":
    config = journal.with_name("config.yaml")
    config.write_text(f"policy: {{journal: {journal}}}\n")
    config.chmod(0o600)
    command = [str(GPUSTEWARD), "close", *arguments, "--config", str(config)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


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
        taken = list(take(journal))
    out, err = asked.communicate(timeout=30)
    assert (taken, asked.returncode, err) == ([(Breaker.ATTRIBUTION, "ann")], 0, "")
    assert out.startswith("attribution: the daemon took the request")


def test_a_breaker_that_is_gone_is_refused(journal: Path) -> None:
    """`config` was one of version 0.1: exit code 2, the choices, and no file."""
    asked = close(journal, "config")
    _, err = asked.communicate(timeout=30)
    assert asked.returncode == 2 and "blast_radius" in err and "attribution" in err
    assert not folder(journal).exists()


def test_where_it_may_not_write_it_says_where(journal: Path) -> None:
    """A folder that others may write: exit code 1, and its name."""
    journal.parent.chmod(0o777)
    asked = close(journal, "internal")
    _, err = asked.communicate(timeout=30)
    assert asked.returncode == 1
    told = f"gpusteward close: {journal.parent}: others than its owner may write it fix: run this command"
    assert " ".join(err.split()).startswith(told)
