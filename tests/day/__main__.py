"""
Play a day of the daemon in half an hour, and tell whether it stays flat.

    PYTHONPATH=tests python -m day [--rounds N] [--short] [--readings FILE] [--svg FILE]
    PYTHONPATH=tests python -m day --again FILE [--svg FILE]

In: nothing; `--again`: readings of a day that was played. Out: a table in Markdown, what happened how often, a picture;
exit code 1 if a quantity grew, or nothing happened in a quarter. Law: each reading is in the file at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from cluster import requirements
from day.playing import Day, play
from day.readings import Reading, Written, readings
from day.script import OFTEN, ROUNDS, TWICE, Turn, script
from day.verdict import findings, table


def main() -> None:
    """Play or read a day, and print what became of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--short", action="store_true", help="each event twice")
    parser.add_argument("--readings", type=Path, default=Path(".pytest_cache/day.csv"))
    parser.add_argument("--again", type=Path)
    parser.add_argument("--svg", type=Path)
    words = parser.parse_args()
    turns = script(words.rounds, TWICE if words.short else OFTEN)
    if words.again:
        sys.exit(told(list(readings(words.again)), turns, words.svg))
    if lacking := requirements.missing(node=True):
        sys.exit("; ".join(lacking))
    words.readings.parent.mkdir(parents=True, exist_ok=True)
    day = asyncio.run(played(words.rounds, turns, words.readings))
    happened(day)
    sys.exit(told(day.readings, turns, words.svg) or bool(day.breakers) or day.code)


async def played(rounds: int, turns: Sequence[Turn], file: Path) -> Day:
    """Play it, and write each reading down; the log is beside the readings."""
    written = Written(file)

    def each(reading: Reading) -> None:
        written.add(reading)
        if reading.round % 1000 < 60:
            print(reading, file=sys.stderr, flush=True)

    try:
        with tempfile.TemporaryDirectory() as folder:
            day = await play(Path(folder), turns, rounds=rounds, each=each)
    finally:
        written.close()
    file.with_suffix(".log").write_text("\n".join(day.log))
    return day


def happened(day: Day) -> None:
    """Print what came, went and broke."""
    last = day.readings[-1]
    lines = Counter(json.loads(line)["event"] for line in day.log if line.startswith("{"))
    print(f"{last.round:,} rounds in {last.seconds / 60:.0f} minutes, {day.answers:,} requests answered")
    print(f"{last.pods} pods: {', '.join(f'{count} {end}' for end, count in day.ends.items())}")
    for event, count in Counter(day.happened).items():
        print(f"{event}: {count}")
    print(f"breakers opened: {', '.join(sorted(day.breakers)) or 'none'}; exit code {day.code}")
    print(f"log lines: {', '.join(f'{event} {count}' for event, count in lines.most_common())}\n")


def told(day: list[Reading], turns: Sequence[Turn], svg: Path | None) -> int:
    """Print the table and what is wrong; draw the picture; return the exit code."""
    if svg:
        from day.drawing import draw  # matplotlib is there where the site is built

        draw(day, turns, svg)
    for line in table(day):
        print(line)
    wrong = list(findings(day))
    for line in wrong:
        print(f"not flat: {line}")
    return bool(wrong)


if __name__ == "__main__":
    main()
