"""
What the journal costs: milliseconds a record on this disk, and reading it at the start. Figures, no verdict.

    PYTHONPATH=tests python -m bench.journal [FOLDER]

In: a folder on the disk to be measured; the working directory unless said. Out: a table in Markdown. Law: the records
are those of an action; CPU time is the process's own, the rest is the disk's.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from default_rules import default_rules
from enforcer.actions.interface import Answer, Heard
from enforcer.journal import file as journal_file
from enforcer.journal.file import Given, read_clocks
from enforcer.journal.fold import replayed
from enforcer.journal.records import Acked, Ended, Sent
from enforcer.policy.history import Result
from journals import BOOT, action, intended, uuid

if TYPE_CHECKING:
    from collections.abc import Callable

ACTIONS = 100


def main() -> int:
    """Measure, and print the table."""
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else ".") as folder:
        path = Path(folder) / "journal"
        given = Given(BOOT, read_clocks, 1 << 30)
        journal = journal_file.opened(path, default_rules(), given=given)
        took: dict[str, list[float]] = {"intent": [], "sent": [], "acked": [], "ended": []}
        cpu = time.process_time()
        for number in range(ACTIONS):
            decision = uuid(number)
            steps: dict[str, Callable[[], None]] = {
                "intent": partial(journal.append, intended(decision, action(number))),
                "sent": partial(journal.append, Sent(decision)),
                "acked": partial(journal.append, Acked(decision, Answer(Heard.ACCEPTED, "", 201))),
                "ended": partial(journal.append, Ended(decision, Result.VERIFIED, "")),
            }
            for name, step in steps.items():
                began = time.perf_counter()
                step()
                took[name].append(1000 * (time.perf_counter() - began))
        cpu = 1000 * (time.process_time() - cpu) / (4 * ACTIONS)
        journal.close()
        lines = path.read_bytes().splitlines()
        print("| record | bytes | p50 | p99 | most |")
        print("|---|---|---|---|---|")
        for place, (name, all_) in enumerate(took.items()):
            ordered, size = sorted(all_), len(lines[2 + place]) + 1
            print(
                f"| {name} | {size} | {statistics.median(ordered):.2f} ms | {ordered[int(0.99 * ACTIONS)]:.2f} ms | "
                f"{ordered[-1]:.2f} ms |"
            )
        data = path.read_bytes()
        began = time.process_time()
        assert len(replayed(data, read_clocks()[0], BOOT, most=3).kept.spent) == ACTIONS
        read = 1000 * (time.process_time() - began) / (len(data) / 2**20)
        print(f"\nCPU a record: {cpu:.2f} ms; reading at the start: {read:.0f} ms a MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
