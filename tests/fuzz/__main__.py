"""
A campaign: `python -m fuzz`, millions of inputs for all targets in turn, guided by coverage.

What comes in: a number of inputs, and a folder. What goes out, in that folder:
- `counts.json`: how many inputs each target has had. A campaign that was ended goes on from there.
- `inputs/TARGET`: the inputs that reached something new. `findings/TARGET`: those that broke a promise.
- on the terminal: a table after each turn, and each broken promise.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from fuzz.targets import HERE, SHARES

TURNS = 200
"""Turns of a campaign: in each, every target has a part of its inputs. The counts are kept after each part."""
_keeping = threading.Lock()
_RUNS = re.compile(r"^stat::number_of_executed_units: +(\d+)", re.MULTILINE)


@dataclass
class Count:
    """What a target has had."""

    inputs: int = 0
    seconds: float = 0.0
    kept: int = 0
    broken: int = 0


def turn(name: str, runs: int, seed: int, folder: Path, count: Count) -> None:
    """Let a target have so many inputs."""
    inputs, findings = folder / "inputs" / name, folder / "findings" / name
    for place in (inputs, findings):
        place.mkdir(parents=True, exist_ok=True)
    given = [str(HERE / kind / name) for kind in ("seeds", "findings") if (HERE / kind / name).is_dir()]
    flags = [f"-runs={runs}", f"-seed={seed}", f"-artifact_prefix={findings}/"]
    began = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-m", "fuzz.guided", name, *flags, str(inputs), *given],
        capture_output=True, text=True, errors="replace", check=False, env={**os.environ, "PYTHONHASHSEED": "0"},
    )  # fmt: skip
    done = _RUNS.search(ended.stderr)
    count.inputs += int(done[1]) if done else 0
    count.seconds += time.monotonic() - began
    count.kept = len(list(inputs.iterdir()))
    if ended.returncode:
        count.broken += 1
        print(f"{name}: a promise is broken\n{ended.stderr[-3000:]}", file=sys.stderr, flush=True)


def table(counts: dict[str, Count]) -> str:
    """Write the counts for docs/fuzzing.md."""
    rows = [f"| `{name}` | {one.inputs:,} | {one.kept:,} | {one.broken} |" for name, one in counts.items()]
    total = (
        f"| in all | {sum(one.inputs for one in counts.values()):,} | | {sum(one.broken for one in counts.values())} |"
    )
    return "\n".join(["| target | inputs | kept | promises broken |", "|---|---|---|---|", *rows, total])


def keep(path: Path, counts: dict[str, Count]) -> None:
    """Write the counts; the file is whole at each moment."""
    with _keeping:
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps({name: asdict(count) for name, count in counts.items()}, indent=1))
        draft.replace(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000_000, help="in all, with those of a campaign that goes on")
    parser.add_argument("--folder", type=Path, default=Path(".fuzz"))
    parser.add_argument("--only", choices=SHARES, action="append", help="these targets alone")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    asked = parser.parse_args(arguments)
    asked.folder.mkdir(parents=True, exist_ok=True)
    kept = asked.folder / "counts.json"
    known = json.loads(kept.read_text()) if kept.exists() else {}
    counts = {name: Count(**known.get(name, {})) for name in SHARES}
    wanted = {name: asked.inputs * share // 100 for name, share in SHARES.items() if name in (asked.only or SHARES)}
    while left := [name for name in wanted if counts[name].inputs < wanted[name]]:
        before = sum(counts[name].inputs for name in left)
        with ThreadPoolExecutor(asked.jobs) as pool:
            for name in left:
                count = counts[name]
                runs = min(max(wanted[name] // TURNS, 1000), wanted[name] - count.inputs)
                ending = pool.submit(turn, name, runs, count.inputs % 2**31 + 1, asked.folder, count)
                ending.add_done_callback(lambda _ended: keep(kept, counts))
        if sum(counts[name].inputs for name in left) == before:
            return 2  # the guide does not start
        print(f"\n{time.strftime('%H:%M:%S')}\n{table(counts)}", flush=True)
    return 1 if any(count.broken for count in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
