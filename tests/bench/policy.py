"""
`python -m bench.policy`: what a decision costs, and hostile traces by the hundred thousand.

In: how many traces, from which seed on, on how many cores. Out: tables in Markdown on standard output.
Law: figures, and one verdict: it ends with 1 when a trace breaks an invariant, and names its seed. `play(SEED)` of
`bench.policy_world` is that trace.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import tracemalloc
from collections import Counter
from dataclasses import dataclass, field, replace
from multiprocessing import Pool
from typing import TYPE_CHECKING

from bench.policy_world import play
from enforcer.policy.decide import decide
from enforcer.policy.history import History, Moment
from enforcer.policy.vocabulary import Reason
from exporter.model import Tolerance
from policy.scenes import BEGIN, UNHURRIED, Actor, snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZES = (50, 500, 5000)
GPUS = 16
MIB = 2**20
RULES = replace(UNHURRIED, tolerance=Tolerance(0.0, 0, 0), interval=30.0, warn_after=30.0, grace=30.0)
WARM = 5
"""Rounds: past warn_after and grace, so that those who are over are due."""
MEASURED = 5
CHUNK = 500


@dataclass(slots=True)
class Tally:
    """What some traces came to."""

    traces: int = 0
    decisions: int = 0
    acted: int = 0
    rehearsed: int = 0
    wrong: list[str] = field(default_factory=list)
    reasons: Counter[Reason] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        """Add another tally to this one."""
        self.traces += other.traces
        self.decisions += other.decisions
        self.acted += other.acted
        self.rehearsed += other.rehearsed
        self.wrong += other.wrong
        self.reasons += other.reasons


def played(seeds: range) -> Tally:
    """Play the traces of these seeds."""
    tally = Tally()
    for seed in seeds:
        world = play(seed)
        tally.traces += 1
        tally.decisions += len(world.trace)
        tally.wrong += [f"seed {seed}: {what}" for what in world.found]
        for step in world.trace:
            action = step.verdict.action
            tally.acted += action is not None and not action.dry
            tally.rehearsed += action is not None and action.dry
            tally.reasons.update(one.after.reason for one in step.verdict.changes if one.after.reason is not None)
    return tally


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
    took, history = [], History()
    for one in range(WARM + MEASURED):
        seen = snapshot(cast, BEGIN + RULES.interval * one, round_=one, gpus=GPUS)
        now = Moment(seen.monotonic, seen.monotonic)
        if one == WARM + MEASURED - 1:
            tracemalloc.start()  # each round makes evidence and standings anew: one is all of them
        began = time.process_time()
        history, _ = decide(seen, RULES, history, now)
        took.append(1000 * (time.process_time() - began))
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(history.evidence) == count
    return statistics.median(took[WARM:-1]), held


def costs() -> None:
    """Print what decisions cost."""
    print(
        "| containers on 16 GPUs | nobody over | all over and due | history, all over |\n|---|---|---|---|", flush=True
    )
    for count in SIZES:
        (quiet, _), (due, held) = decision(count, 0.0), decision(count, 1.0)
        print(f"| {count:,} | {quiet:.1f} ms | {due:.1f} ms | {held / MIB:.1f} MB |", flush=True)


def hostile(traces: int, seed: int, jobs: int) -> Tally:
    """Play traces and print what they came to."""
    began, tally = time.perf_counter(), Tally()
    chunks = [range(one, min(one + CHUNK, seed + traces)) for one in range(seed, seed + traces, CHUNK)]
    with Pool(jobs) as pool:
        for one in pool.imap_unordered(played, chunks):
            tally.add(one)
    rate = tally.traces / (time.perf_counter() - began)
    print(
        f"\n{tally.traces:,} hostile traces (seeds {seed} to {seed + traces - 1}), {tally.decisions:,} decisions, ",
        end="",
    )
    print(f"{rate:.0f} traces a second on {jobs} core(s): {tally.acted:,} actions, {tally.rehearsed:,} rehearsed,")
    print(f"{len(tally.wrong)} against an invariant.\n\n| reason | given |\n|---|---|")
    for reason in Reason:
        print(f"| `{reason}` | {tally.reasons[reason]:,} |")
    return tally


UNPLAYED = frozenset({Reason.OWNER_UNKNOWN})
"""Reasons that no trace comes to: one more thing to be drawn would make other traces of the seeds that tests name."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both; 1 when an invariant is broken, or when some reason was never given: then too little was tried."""
    parser = argparse.ArgumentParser(prog="bench.policy", description=__doc__)
    parser.add_argument("--traces", type=int, default=2_000, help="hostile traces; a million takes hours")
    parser.add_argument("--seed", type=int, default=0, help="the first one's")
    parser.add_argument("--jobs", type=int, default=1, help="cores")
    asked = parser.parse_args(arguments)
    costs()
    tally = hostile(asked.traces, asked.seed, asked.jobs)
    for what in tally.wrong[:50]:
        print(what, file=sys.stderr)
    missing = [reason.value for reason in Reason if not tally.reasons[reason] and reason not in UNPLAYED]
    if missing:
        print(f"never given: {', '.join(missing)}", file=sys.stderr)
    return 1 if tally.wrong or missing else 0


if __name__ == "__main__":
    sys.exit(main())
