"""
The picture of a day.

What comes in: readings, and the turns of the script. What goes out: an SVG without scripts. The rule: it has no
date and no random ids, so that the same day is the same file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from day.readings import MIB, Reading
from day.script import ROUNDS, Event, Turn

HOURS = 24
INK, SOFT = "#1f4e79", "#c55a11"


def draw(day: Sequence[Reading], turns: Sequence[Turn], file: Path) -> None:
    """Draw memory, descriptors and threads, journal, and what came and went, over the hours of the day."""
    mpl.rcParams.update({"svg.hashsalt": "day", "svg.fonttype": "none", "font.size": 9, "font.family": "sans-serif"})
    hours = [reading.round / ROUNDS * HOURS for reading in day]
    figure = Figure(figsize=(8, 7), layout="constrained")
    memory, counts, journal, busy = figure.subplots(4, 1, sharex=True)
    memory.plot(hours, [one.rss / MIB for one in day], color=INK, label="RSS, MiB")
    memory.plot(hours, [one.anonymous / MIB for one in day], color=SOFT, label="anonymous, MiB")
    counts.plot(hours, [one.descriptors for one in day], color=INK, label="open descriptors")
    counts.plot(hours, [one.threads for one in day], color=SOFT, label="threads")
    journal.plot(hours, [one.journal / 1024 for one in day], color=INK, label="journal, KiB")
    journal.plot(hours, [one.saved / 1024 for one in day], color=SOFT, label="other saved files, KiB")
    busy.plot(hours, [one.pods for one in day], color=INK, label="pods so far")
    busy.plot(hours, [one.evictions for one in day], color=SOFT, label="evictions so far")
    for axes in (memory, counts, journal, busy):
        axes.set_ylim(bottom=0)
        axes.grid(visible=True, color="#dddddd", linewidth=0.5)
        for turn in turns:
            if turn.event is Event.API_SERVER:
                axes.axvline(turn.round / ROUNDS * HOURS, color="#999999", linewidth=0.5, linestyle=":")
        axes.legend(loc="lower right", framealpha=0.9)
    busy.set_xlim(0, HOURS)
    busy.set_xticks(range(0, HOURS + 1, 3))
    busy.set_xlabel("hour of the day; dotted: the API server is killed")
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    file.write_text("\n".join(line.rstrip() for line in file.read_text().splitlines()) + "\n")
