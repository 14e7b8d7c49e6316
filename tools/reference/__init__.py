"""
The pages of docs/reference that are written from the code: `python -m tools.reference`.

What comes in: the parsers, the config's schema, the chart's values, the policy's names, the log calls. What goes out:
each page with its text. A test compares them with the files.

The rule: a page states what the code states. The rest is in the page's own module: what to do about a reason, what a
log line means. An entry that is missing there fails.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from tools.reference import api, chart, cli, config, events, log_lines, reasons

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reference"
MARK = "<!-- Written by `make golden` from the code. -->\n\n"

PAGES: Mapping[str, Callable[[], str]] = {
    "api.md": api.page,
    "chart.md": chart.page,
    "cli.md": cli.page,
    "config.md": config.page,
    "events.md": events.page,
    "log-lines.md": log_lines.page,
    "reasons.md": reasons.page,
}
"""File -> the function that writes it."""


def written(name: str) -> str:
    """Write a page, with the mark that it is generated below its heading."""
    heading, _, text = PAGES[name]().partition("\n\n")
    return f"{heading}\n\n{MARK}{text}"
