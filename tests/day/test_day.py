"""
A short day: each event once, and pods that come, crash, exceed their limits and are evicted. Nothing is timed.

What comes in: some hundred rounds. What goes out: what the daemon holds afterwards, beside what it held before. Whether
its memory stays flat, a day of 17,280 rounds tells (`make day`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster import requirements
from cluster.fixtures import require
from day.playing import play
from day.script import ONCE, Event, script

pytestmark = pytest.mark.cluster

ROUNDS = 700


async def test_a_short_day_leaves_nothing_open(tmp_path: Path) -> None:
    """After all events the daemon acts as before, and holds no more threads and descriptors."""
    require(requirements.missing(node=True))
    day = await play(tmp_path, script(ROUNDS, ONCE), rounds=ROUNDS, life=40, readings=35)
    assert sorted(day.happened) == sorted(Event)
    assert day.code == 0 and not day.breakers, day.log[-20:]
    assert day.ends["evicted"] and day.readings[-1].pods > len(Event)
    assert "Traceback" not in "".join(day.log)
    quiet, after = day.readings[1:4], day.readings[-4:]
    assert min(one.threads for one in after) <= max(one.threads for one in quiet)
    assert min(one.descriptors for one in after) <= max(one.descriptors for one in quiet)
