"""
`python -m bench.policy`: what a decision costs.

In: nothing. Out: a table in Markdown on standard output. Hostile traces: `make traces` (`policy.hostile`).
"""

from __future__ import annotations

import gc
import statistics
import time
import tracemalloc
from dataclasses import replace

from enforcer.policy.decide import decide
from enforcer.policy.history import Moment
from exporter.daemon import COLLECTED_AFTER
from exporter.model import Tolerance
from policy.scenes import BEGIN, UNHURRIED, Actor, settled, snapshot

SIZES = (50, 500, 5000)
GPUS = 16
MIB = 2**20
RULES = replace(UNHURRIED, tolerance=Tolerance(0.0, 0, 0), interval=30.0, warn_after=30.0, grace=30.0)
WARM = 5
"""Rounds: past warn_after and grace, so that all holders over their limits are due."""
MEASURED = 5


def actors(count: int, share: float) -> list[Actor]:
    """Make containers of a workload each, on all GPUs, this share of which are over their limits."""
    used, limit = 200 * MIB, 210 * MIB
    return [
        Actor(f"w{index}-0", used, limit // 2 if index < share * count else limit, gpu=index % GPUS)
        for index in range(count)
    ]


def decision(count: int, share: float) -> tuple[float, int]:
    """CPU milliseconds of a decision with a warm history (median of some), and the bytes that it makes and keeps."""
    cast = actors(count, share)
    took, history = [], settled(RULES)
    for one in range(WARM + MEASURED):
        seen = snapshot(cast, BEGIN + RULES.interval * one, round_=one, gpus=GPUS)
        now = Moment(seen.monotonic, seen.monotonic)
        if one == WARM + MEASURED - 1:
            tracemalloc.start()  # each round makes levels and states anew: one round has all of them
        began = time.process_time()
        history, _ = decide(seen, RULES, history, now)
        took.append(1000 * (time.process_time() - began))
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(history.levels) == (count if share else 0)
    return statistics.median(took[WARM:-1]), held


def costs() -> None:
    """Print what decisions cost, with the daemon's collector."""
    gc.set_threshold(COLLECTED_AFTER)
    print("| containers on 16 GPUs | none over | all over and due | history, all over |\n|---|---|---|---|", flush=True)
    for count in SIZES:
        (quiet, _), (due, held) = decision(count, 0.0), decision(count, 1.0)
        print(f"| {count:,} | {quiet:.1f} ms | {due:.1f} ms | {held / MIB:.1f} MB |", flush=True)


if __name__ == "__main__":
    costs()
