"""
A daemon that writes a journal and is killed (SIGKILL) before or after any one of its calls to the kernel.

In: a folder. Out: in it a folder for each death, with the two files that the dead process left. One is the journal.
The other, `said`, has a line for each promise that was made before the death: `token`, `open ID`, `end ID`, `breaker`.
Law: `said` is written after the journal's call returned, so each promise in it had to be on disk. The calls to the
kernel are real, and so is the kill.

    python -m dying FOLDER [EVERY]

EVERY is 1 if it is not given; 3 leaves out two of three deaths.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from default_rules import default_rules
from enforcer.actions.interface import Answer, Heard
from enforcer.journal import file as journal_file
from enforcer.journal.file import JournalFile
from enforcer.journal.fold import changes
from enforcer.journal.records import Acked, Ended, Sent
from enforcer.policy.history import History, Opened, Result
from enforcer.policy.vocabulary import Breaker
from journals import Hands, action, intended, uuid

CALLS = ("open", "write", "fdatasync", "fsync", "link", "replace", "rename", "unlink", "ftruncate", "mkdir")
_WRITE, _OPEN, _KILL = os.write, os.open, os.kill


def story(folder: Path, said: Callable[[str], None]) -> None:
    """Two daemons, one after the other: three actions, a breaker, files that are rewritten after each kilobyte."""
    hands = Hands(limit=2000)
    for first in (1, 4):
        journal = journal_file.opened(folder / "state" / "journal", default_rules(), given=hands.given)
        tell(journal, hands, first, said)
        journal.close()


def tell(journal: JournalFile, hands: Hands, first: int, said: Callable[[str], None]) -> None:
    """Three actions, of which the last does not end, and a breaker."""
    for number in range(first, first + 3):
        hands.boottime += 10.0
        journal.append(intended(uuid(number), action(number)))
        said("token")
        said(f"open {uuid(number)}")
        journal.append(Sent(uuid(number)))
        journal.append(Acked(uuid(number), Answer(Heard.ACCEPTED, "", 201)))
        if number < first + 2:
            said(f"end {uuid(number)}")  # said first: to forget that it is open would be the mistake
            journal.append(Ended(uuid(number), Result.VERIFIED, ""))
    journal.append(*changes(History(), History(breakers={Breaker.INTERNAL: Opened(hands.boottime, "?")})))
    said("breaker")


def mortal(life: int) -> Callable[[], None]:
    """Count the calls to the kernel, each twice: before and after; kill this process at the one with number `life`."""
    lived = 0

    def step() -> None:
        nonlocal lived
        lived += 1
        if lived == life:
            _KILL(os.getpid(), signal.SIGKILL)

    def around(call: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, **kwargs: Any) -> Any:
            step()
            result = call(*args, **kwargs)
            step()
            return result

        return made

    for name in CALLS:
        setattr(os, name, around(getattr(os, name)))
    return step


def live(folder: Path, life: int) -> None:
    """Tell the story, and die on the way."""
    folder.mkdir()
    notes = _OPEN(folder / "said", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    mortal(life)

    def said(text: str) -> None:
        _WRITE(notes, f"{text}\n".encode())

    story(folder, said)


def main() -> int:
    """Die at each step, or each `EVERY`th one; the last life reaches the end of the story."""
    folder, every = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    for life in range(1, 10_000, every):
        child = os.fork()
        if child == 0:
            code = 70
            try:
                live(folder / str(life), life)
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            return os.WEXITSTATUS(status)
        assert os.WTERMSIG(status) == signal.SIGKILL
    return 1


if __name__ == "__main__":
    sys.exit(main())
