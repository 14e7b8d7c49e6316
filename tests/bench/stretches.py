"""
`python -m bench.stretches`: how long the daemon keeps its event loop for itself on the largest node of `make bench`.

In: nothing. Out: a table in Markdown. Law: the CPU time of the thread is counted, which other work on the machine does
not change. A scrape or a probe waits at least that long. Collections of garbage are in it, and also apart, because
those in other threads hold the interpreter's lock.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from bench.__main__ import SIZES, scrapes
from bench.node import running
from daemon.running import Daemon
from driver.build import build

INSIDE = "--inside"
FILE = "STRETCHES"
WARM = 5.0
"""Seconds of scrapes that are left out: the first two of a format render the page on demand."""
SCRAPES = 600


def inside(arguments: list[str]) -> None:
    """Run the daemon, and write each stretch above 0.1 ms to `FILE`: second, part, milliseconds."""
    stretches: list[tuple[int, str, float]] = []
    run: Callable[[asyncio.Handle], None] = asyncio.Handle._run
    collections: dict[int, float] = {}

    def note(part: str, began: float) -> None:
        if (took := 1000 * (time.thread_time() - began)) > 0.1:
            stretches.append((int(time.monotonic()), part, took))

    def timed(handle: asyncio.Handle) -> None:
        began, owner = time.thread_time(), getattr(getattr(handle, "_callback", None), "__self__", None)
        name = owner.get_name() if isinstance(owner, asyncio.Task) else "callbacks"
        run(handle)
        note("requests and short tasks" if name.startswith("Task-") else name, began)

    def collection(phase: str, information: dict[str, int]) -> None:
        thread = threading.get_ident()
        if phase == "start":
            collections[thread] = time.thread_time()
        else:
            full = "full" if information["generation"] == 2 else "young"
            note(f"{full} collections of garbage, any thread", collections[thread])

    from exporter.__main__ import main as daemon  # here, as the parent measures nothing

    asyncio.Handle._run = timed  # type: ignore[assignment,method-assign]
    gc.callbacks.append(collection)
    sys.argv = ["gpusteward-exporter", *arguments]
    try:
        daemon()
    finally:
        Path(os.environ[FILE]).write_text(json.dumps(stretches))


def table(stretches: list[tuple[int, str, float]], warm: float) -> str:
    """Of each part the longest stretch from `warm` on, and the longest of a second (median of the seconds with one)."""
    longest: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for second, part, took in stretches:
        if second >= warm:
            longest[part][second] = max(took, longest[part][second])
    rows = ["| part | longest of a second, median | longest of all | seconds with one |", "|---|---|---|---|"]
    for part, seconds in sorted(longest.items(), key=lambda item: -max(item[1].values())):
        median, most = statistics.median(seconds.values()), max(seconds.values())
        rows.append(f"| {part} | {median:.1f} ms | {most:.1f} ms | {len(seconds)} |")
    return "\n".join(rows)


def main() -> int:
    """Scrape a daemon 20 times a second, at a round a second, and print the table."""
    if sys.argv[1:2] == [INSIDE]:
        inside(sys.argv[2:])
        return 0
    library = build(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpusteward")
    with tempfile.TemporaryDirectory() as name, running(SIZES[-1], Path(name), library) as (node, names):
        file = Path(name) / "stretches"
        with Daemon(
            "--devices=nvml",
            "--sampling.interval=1s",
            f"--names.file={names}",
            "--node.host-root=/",
            "--log.format=json",
            env={**node.environment(), FILE: str(file)},
            command=(sys.executable, "-m", "bench.stretches", INSIDE),
        ) as daemon:
            daemon.until(lambda s: s if s["round"] > 2 else None, "warm rounds")
            warm = time.monotonic() + WARM
            scrapes(daemon, SCRAPES)
            daemon.stop()
        print(table(json.loads(file.read_text()), warm))
    return 0


if __name__ == "__main__":
    sys.exit(main())
