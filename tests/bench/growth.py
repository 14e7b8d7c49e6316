"""
How the daemon's cost grows with GPUs and with processes: a table, and docs/growth.svg.

    PYTHONPATH=tests python -m bench.growth [--seconds N] [--svg FILE]

In: seconds for each point. Out: CPU and scrapes of `gpusteward run` with its defaults, at one round and one compressed
scrape a second, beside the floor. Law: as in `bench.peers`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from bench.node import Size, running
from bench.peers import Figures, Setting, cache, floor, observing
from driver.build import build

BY_PROCESSES = tuple(Size(8, processes) for processes in (1, 8, 32, 64, 128, 256))
BY_GPUS = tuple(Size(gpus, 8) for gpus in (1, 2, 4, 8, 16))
INK, SOFT = "#1f4e79", "#c55a11"


@dataclass(frozen=True, slots=True)
class Point:
    """The daemon and the floor on a node of this size."""

    size: Size
    ours: Figures
    floor: Figures

    @property
    def processes(self) -> int:
        """Processes on all GPUs."""
        return self.size.gpus * self.size.processes


def measured(sizes: Sequence[Size], seconds: float) -> list[Point]:
    """Measure each size, and print a line for it."""
    library, points = build(cache()), []
    for size in sizes:
        with (
            tempfile.TemporaryDirectory() as folder,
            running(size, Path(folder), library, limit="1Gi") as (node, names),
        ):
            setting = Setting(node, names, size.gpus * size.processes, seconds)
            one = Point(size, observing(setting), floor(setting))
        print(
            f"| {size} | {one.processes:,} | {one.ours.cpu:.2f} % | {one.floor.cpu:.2f} % | {one.ours.p99:.1f} ms | "
            f"{one.ours.rss_mb:.0f} MB |",
            flush=True,
        )
        points.append(one)
    return points


def draw(by_processes: Sequence[Point], by_gpus: Sequence[Point], file: Path) -> None:
    """Draw CPU over processes, and over GPUs."""
    import matplotlib as mpl  # it is there where the site is built
    from matplotlib.figure import Figure

    mpl.rcParams.update({"svg.hashsalt": "growth", "svg.fonttype": "none", "font.size": 9, "font.family": "sans-serif"})
    figure = Figure(figsize=(8, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    for axes, points, places in (
        (left, by_processes, [one.processes for one in by_processes]),
        (right, by_gpus, [one.size.gpus for one in by_gpus]),
    ):
        axes.plot(places, [one.ours.cpu for one in points], "o-", color=INK, label="gpusteward run")
        axes.plot(places, [one.floor.cpu for one in points], "o-", color=SOFT, label="the floor")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.grid(visible=True, color="#dddddd", linewidth=0.5)
        axes.legend(loc="lower right", framealpha=0.9)
    left.set_xlabel("processes on 8 GPUs")
    right.set_xlabel("GPUs with 8 processes each")
    left.set_ylabel("CPU, per cent of a core")
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    file.write_text("\n".join(line.rstrip() for line in file.read_text().splitlines()) + "\n")


def main() -> int:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(prog="python -m bench.growth")
    parser.add_argument("--seconds", type=float, default=30, help="for each point")
    parser.add_argument("--svg", type=Path)
    chosen = parser.parse_args()
    if chosen.svg and find_spec("matplotlib") is None:  # said before a quarter of an hour is measured in vain
        parser.error("--svg needs matplotlib. fix: make .venv/.docs")
    print("| GPUs x processes | processes | CPU | floor | scrape p99 | RSS |\n|---|---|---|---|---|---|", flush=True)
    by_processes, by_gpus = measured(BY_PROCESSES, chosen.seconds), measured(BY_GPUS, chosen.seconds)
    if chosen.svg:
        draw(by_processes, by_gpus, chosen.svg)
    return 0


if __name__ == "__main__":
    sys.exit(main())
