"""Requests beside the journal: which users may ask the daemon to close a breaker, and how long a request counts."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from enforcer.journal import close_requests
from enforcer.journal.close_requests import EXPIRES, LONGEST, ask, folder
from enforcer.policy.vocabulary import Breaker


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    place = tmp_path / "state"
    place.mkdir(mode=0o700)
    return place / "journal"


def take(journal: Path, after: float = 0.0) -> list[tuple[Breaker, str]]:
    """Take the requests, so many seconds from now."""
    return list(close_requests.take(journal, time.time() + after))


def test_what_is_asked_is_heard_once(journal: Path) -> None:
    """Breaker and name; the file is gone then, and asking twice before that is asking once."""
    assert take(journal) == []
    for who in ("ann", "bob"):
        asked = ask(journal, Breaker.BLAST_RADIUS, who)
    assert asked.path.parent == folder(journal) and asked.path.stat().st_mode & 0o777 == 0o600
    assert asked.waits
    assert take(journal) == [(Breaker.BLAST_RADIUS, "bob")]
    assert take(journal) == [] and not asked.path.exists() and not asked.withdraw()


def test_what_is_withdrawn_was_never_asked(journal: Path) -> None:
    """No daemon that starts later closes a breaker by it; and nothing is left."""
    asked = ask(journal, Breaker.BLAST_RADIUS, "ann")
    assert asked.withdraw()
    assert take(journal) == [] and not [*folder(journal).iterdir()]
    assert not asked.withdraw()


def test_nobody_withdraws_the_request_of_another(journal: Path) -> None:
    """Bob's request has the same name as Ann's, and another identity: it stays."""
    ann, bob = (ask(journal, Breaker.BLAST_RADIUS, who) for who in ("ann", "bob"))
    assert not ann.withdraw()
    assert bob.waits
    assert take(journal) == [(Breaker.BLAST_RADIUS, "bob")]


@pytest.mark.parametrize("after", [EXPIRES + 1.0, 86400.0, -86400.0])
def test_what_was_left_behind_closes_nothing(journal: Path, after: float) -> None:
    """A command that was killed withdraws nothing: a daemon of later, or of another clock, removes and logs that."""
    ask(journal, Breaker.BLAST_RADIUS, "ann")
    ask(journal, Breaker.INTERNAL, "bob")
    with capture_logs() as lines:
        assert take(journal, after) == []
    assert {(line["event"], line["breaker"], line["by"]) for line in lines} == {
        ("enforcer.close_request_expired", "internal", "bob"),
        ("enforcer.close_request_expired", "blast_radius", "ann"),
    }
    assert not [*folder(journal).iterdir()]


def test_a_request_counts_for_a_minute(journal: Path) -> None:
    """A daemon that takes a while to arm still takes it."""
    ask(journal, Breaker.BLAST_RADIUS, "ann")
    assert take(journal, EXPIRES - 5.0) == [(Breaker.BLAST_RADIUS, "ann")]


def test_a_name_is_what_can_be_printed(journal: Path) -> None:
    """The name that a person typed goes into a log and a journal: without line breaks, and not too long."""
    ask(journal, Breaker.BLAST_RADIUS, "ann\n\x1b[2J" + "x" * 1000)
    ((_, by),) = take(journal)
    assert by.startswith("ann[2Jxx") and len(by) <= LONGEST


def test_who_may_not_write_the_journal_may_not_ask(journal: Path) -> None:
    """A file that others may write, a link, a pipe: each stays where it is, and closes nothing."""
    place = folder(journal)
    place.mkdir(mode=0o700)
    (place / Breaker.ATTRIBUTION).write_text("mallory")
    (place / Breaker.ATTRIBUTION).chmod(0o666)
    (place / "elsewhere").write_text("mallory")
    (place / Breaker.JOURNAL).symlink_to(place / "elsewhere")
    os.mkfifo(place / Breaker.INTERNAL)
    (place / "effectiveness").write_text("a breaker of version 0.1")
    before = sorted(one.name for one in place.iterdir())
    assert take(journal) == []
    assert sorted(one.name for one in place.iterdir()) == before


@pytest.mark.parametrize("opened", [folder, lambda journal: journal.parent], ids=["folder", "parent"])
def test_nothing_is_taken_from_a_folder_that_others_may_write(journal: Path, opened: Callable[[Path], Path]) -> None:
    """Another user could have linked a file of root's there."""
    asked = ask(journal, Breaker.BLAST_RADIUS, "ann")
    opened(journal).chmod(0o777)
    assert take(journal) == [] and asked.waits


def test_a_folder_that_others_may_write_is_refused(journal: Path) -> None:
    """A user who can put a request there could close a breaker."""
    folder(journal).mkdir()
    folder(journal).chmod(0o777)
    with pytest.raises(PermissionError):
        ask(journal, Breaker.BLAST_RADIUS, "ann")
