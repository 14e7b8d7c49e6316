"""A daemon is asked again and again; while it is away, what it said last stays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from builders import device, gpu, snapshot
from exporter.api.client import AskError
from exporter.api.schema import Document
from exporter.top.fetch import parse
from exporter.top.follow import LONGEST_PAUSE, PAUSE, SHORTEST_PAUSE, Seen, pause, watch
from exporter.top.table import waiting
from serving.table import served

Answer = Document | AskError


class EnoughError(Exception):
    """The script is at its end."""


def document(number: int) -> Document:
    facts = snapshot(device(gpu(), attributed=0), round=number)
    return parse(served(facts))


def scripted(*answers: Answer) -> Callable[[], Awaitable[tuple[bytes, Document]]]:
    """Make a daemon that answers one after the other, and then ends the test."""
    left = list(answers)

    async def ask() -> tuple[bytes, Document]:
        if not left:
            raise EnoughError
        answer = left.pop(0)
        if isinstance(answer, AskError):
            raise answer
        return b"body", answer

    return ask


async def test_each_answer_is_shown_once() -> None:
    """Without a beat: what came, when it came, and nothing twice."""
    shown: list[Seen] = []
    with pytest.raises(EnoughError):
        await watch(scripted(document(1), document(2)), shown.append, every=0.0)
    assert [one.document.round if one.document else None for one in shown] == [1, 2]
    assert shown[0].body == b"body"


async def test_what_was_said_last_stays() -> None:
    """A daemon that is away is named; the table is the last one, older; when the daemon is back all is well."""
    shown: list[Seen] = []
    answers = scripted(AskError("not yet"), document(1), AskError("gone"), AskError("gone"), document(2))
    with pytest.raises(EnoughError):
        await watch(answers, shown.append, every=0.0)
    assert [one.trouble for one in shown] == ["not yet", "", "gone", "gone", ""]
    assert [one.document.round if one.document else None for one in shown] == [None, 1, 1, 1, 2]
    assert shown[0].table(0.0) == waiting("not yet")
    gone = shown[2].table(shown[2].at + 30.0)
    assert [part for part, _ in gone.status][1] == "STALE, 31s old"


async def test_it_grows_older_while_an_answer_is_waited_for() -> None:
    """With a beat what is known is shown on and on, also while the daemon hangs."""
    shown: list[Seen] = []
    free = asyncio.Event()

    async def hanging() -> tuple[bytes, Document]:
        await free.wait()
        raise EnoughError

    def show(seen: Seen) -> None:
        shown.append(seen)
        if len(shown) == 3:
            free.set()

    with pytest.raises(EnoughError):
        await watch(hanging, show, beat=0.001)
    assert shown == [Seen()] * 3


async def test_nobody_is_asked_any_more_after_the_end() -> None:
    """Cancelled in the middle of a question, it leaves none open."""
    asked: list[asyncio.Task[object] | None] = []
    began = asyncio.Event()

    async def hanging() -> tuple[bytes, Document]:
        asked.append(asyncio.current_task())
        began.set()
        await asyncio.Event().wait()
        raise AssertionError

    watching = asyncio.ensure_future(watch(hanging, lambda _: None))
    await began.wait()
    watching.cancel()
    await asyncio.wait({watching})
    (question,) = asked
    assert question is not None
    await asyncio.wait({question})
    assert watching.cancelled() and question.cancelled()


def test_it_asks_as_often_as_there_is_news() -> None:
    """Each interval of the daemon, within bounds: whatever answers there sets neither a storm nor a standstill."""

    def between(interval: float) -> float:
        return pause(msgspec.structs.replace(document(1), interval_seconds=interval))

    assert [between(seconds) for seconds in (5.0, 0.2, -1.0, 1e9)] == [
        5.0,
        SHORTEST_PAUSE,
        SHORTEST_PAUSE,
        LONGEST_PAUSE,
    ]
    assert pause(None) == PAUSE
