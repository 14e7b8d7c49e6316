"""Ownership: the lock and the journal of a daemon that is ended while it takes them."""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from enforcer.journal import file as journal_file
from enforcer.journal import lock
from enforcer.runtime.ownership import Ownership
from policy.scenes import UNHURRIED


class HeldUp:
    """A function that waits before it does its work."""

    def __init__(self, work: Callable[..., Any]) -> None:
        self._work = work
        self.began, self.may_go_on, self.ended = threading.Event(), threading.Event(), threading.Event()

    def __call__(self, *given: Any, **named: Any) -> Any:
        self.began.set()
        self.may_go_on.wait()
        try:
            return self._work(*given, **named)
        finally:
            self.ended.set()


def open_below(folder: Path) -> list[str]:
    """List the files of a folder that this process has open."""
    return [one for one in map(os.path.realpath, Path("/proc/self/fd").iterdir()) if one.startswith(str(folder))]


@pytest.mark.parametrize("what", ["lock", "journal"])
async def test_what_a_cancelled_daemon_was_taking_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The thread cannot be cancelled: the task ends after it, and no file stays open. The next daemon gets both."""
    module, name = {"lock": (lock, "take"), "journal": (journal_file, "opened")}[what]
    slow = HeldUp(getattr(module, name))
    path = tmp_path / "state" / "journal"
    path.parent.mkdir(mode=0o700)

    async def daemon() -> None:
        owner = Ownership(path)
        try:
            assert not await owner.take_lock()
            assert not await owner.open_journal(UNHURRIED)
        finally:
            owner.release()

    with monkeypatch.context() as during:
        during.setattr(module, name, slow)
        first = asyncio.create_task(daemon())
        await asyncio.to_thread(slow.began.wait)
        first.cancel()
        await asyncio.wait([first], timeout=0.05)
        slow.may_go_on.set()
        await asyncio.gather(first, asyncio.to_thread(slow.ended.wait), return_exceptions=True)
    assert first.cancelled()
    assert not open_below(path.parent)
    await daemon()
