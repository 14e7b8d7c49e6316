"""
A short day: each event twice, and pods that come, crash, exceed their limits and are evicted. Nothing is timed.

What comes in: some hundred rounds. What goes out: what the daemon holds after the second half, beside what it held
after the first. Whether its memory stays flat, a day of 17,280 rounds tells (`make day`).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from cluster import requirements
from cluster.fixtures import require
from day.playing import play
from day.script import TWICE, script

pytestmark = pytest.mark.cluster

ROUNDS = 900
LAST = 4
"""Readings at the end of each half: the least of them has no scrape under way."""
POOL = 4
"""Threads that asyncio's pool may still start: it starts one when all are at work, up to a fixed number."""
KEPT_OPEN = 3
"""Connections to the API server and the kubelet that come and go: 16 to 21 descriptors in one run."""


async def test_a_short_day_leaves_nothing_open(tmp_path: Path) -> None:
    """The daemon acts in both halves. The second leaves no more descriptors than the first, and ends as it should."""
    require(requirements.missing(node=True))
    day = await play(tmp_path, script(ROUNDS, TWICE), rounds=ROUNDS, life=40, readings=ROUNDS // 20)
    assert Counter(day.happened) == TWICE
    assert day.code == 0 and not day.breakers and "Traceback" not in "".join(day.log), "\n".join(day.log[-20:])
    middle, end = [one for one in day.readings if one.round <= ROUNDS // 2], day.readings
    assert 0 < middle[-1].evictions < end[-1].evictions, day.ends
    most = max(one.descriptors for one in middle[-LAST:])
    assert min(one.descriptors for one in end[-LAST:]) <= most + KEPT_OPEN
    assert min(one.threads for one in end[-LAST:]) <= max(one.threads for one in middle[-LAST:]) + POOL
