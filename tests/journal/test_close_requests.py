"""Requests beside the journal: who may ask the daemon to close a breaker, and how often it hears that."""

import os
from pathlib import Path

import pytest

from enforcer.journal.close_requests import LONGEST, ask, folder, take
from enforcer.policy.vocabulary import Breaker


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    place = tmp_path / "state"
    place.mkdir(mode=0o700)
    return place / "journal"


def test_what_is_asked_is_heard_once(journal: Path) -> None:
    """Breaker and name; the file is gone then, and asking twice before that is asking once."""
    assert list(take(journal)) == []
    for who in ("ann", "bob"):
        asked = ask(journal, Breaker.BLAST_RADIUS, who)
    assert asked.parent == folder(journal) and asked.stat().st_mode & 0o777 == 0o600
    assert list(take(journal)) == [(Breaker.BLAST_RADIUS, "bob")]
    assert list(take(journal)) == [] and not asked.exists()


def test_a_name_is_what_can_be_printed(journal: Path) -> None:
    """What somebody typed goes into a log and a journal: no line breaks, no book."""
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
    assert list(take(journal)) == []
    assert sorted(one.name for one in place.iterdir()) == before


def test_a_folder_that_others_may_write_is_refused(journal: Path) -> None:
    """Whoever could put a request there could close a breaker."""
    folder(journal).mkdir()
    folder(journal).chmod(0o777)
    with pytest.raises(PermissionError):
        ask(journal, Breaker.BLAST_RADIUS, "ann")
