"""Promises of exporter/rounds/latest.py: each task that waits for a round gets the newest."""

import asyncio

from builders import snapshot
from exporter.rounds.latest import Latest, Tally


async def test_all_who_wait_get_the_newest_round() -> None:
    """Of two rounds in one step of the event loop they get the second. A cancelled task does not stop the others."""
    latest = Latest()
    waiting = [asyncio.create_task(latest.newer_than(0)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    for number in (1, 2):
        latest.publish(snapshot(round=number), Tally())
    async with asyncio.timeout(10):
        found = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert found[1:] == [latest.snapshot] * 2
    assert latest.snapshot == snapshot(round=2)


async def test_a_round_that_was_seen_is_not_given_again() -> None:
    """A waiter sleeps until there is a later one; one that is there already is given at once."""
    latest = Latest()
    latest.publish(snapshot(round=1), Tally())
    waiting = asyncio.create_task(latest.newer_than(1))
    await asyncio.sleep(0)
    latest.publish(snapshot(round=1), Tally())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    latest.publish(snapshot(round=2), Tally())
    async with asyncio.timeout(10):
        assert (await waiting).round == 2
        assert (await latest.newer_than(0)).round == 2
