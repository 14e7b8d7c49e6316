"""
The table on a terminal, drawn in place: the only file that imports rich.

What comes in: lines for the terminal's present size. What goes out: coloured text on the terminal's alternate screen.
The former content is back when the program ends.

The rule: rich only draws. It gets text, never markup, so names of other programs cannot change the drawing.
"""

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from exporter.top.layout import Line
from exporter.top.rows import Tone

STYLES = {
    Tone.PLAIN: "",
    Tone.SOFT: "dim",
    Tone.STRONG: "bold",
    Tone.GOOD: "green",
    Tone.WARN: "yellow",
    Tone.BAD: "bold red",
}


class Screen:
    """The terminal's alternate screen, a context manager. Follows the terminal's size, NO_COLOR and TERM."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False, markup=False, emoji=False)
        self._live = Live(
            console=self.console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )

    def show(self, laid_out: Callable[[int, int], Iterable[Line]]) -> None:
        """Draw the lines of `laid_out` for the present columns and rows. Raises OSError if the terminal is closed."""
        columns, rows = self.console.size
        self._live.update(painted(laid_out(columns, rows)), refresh=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, traceback)


def painted(lines: Iterable[Line]) -> Text:
    """Convert lines to rich's text, with a style per tone."""
    whole = Text(no_wrap=True, overflow="crop", end="")
    for number, line in enumerate(lines):
        whole.append("\n" if number else "")
        for part, tone in line:
            whole.append(part, STYLES[tone])
    return whole
