"""
An error, as people read it.

What comes in: what happened, and perhaps its cause and its fix. What goes out: lines for a terminal.

The rule: each part is on a line of its own, and no line is longer than 160 characters. Unprintable text is escaped.
No part shows a secret.
"""

import textwrap
from collections.abc import Iterator

from exporter.base.printable import printable
from exporter.base.secrets import hidden

WIDEST = 160
"""Characters of a line. A longer word stays whole: it may be a path that is copied."""


class Problem(Exception):  # noqa: N818  (the base of errors; each has a name of its own)
    """An error with its cause and its fix. Its text is all of it in one line."""

    fix = ""

    def __init__(self, what: str, *, cause: str = "", fix: str = "") -> None:
        self.what = hidden(what)
        self.cause = hidden(cause)
        super().__init__(self.what)
        self.fix = fix or self.fix

    @property
    def reason(self) -> str:
        """What happened and its cause, in one line."""
        return f"{self.what}: {self.cause}" if self.cause else self.what

    def __str__(self) -> str:
        """Write what happened, its cause and its fix in one line."""
        return f"{self.reason}; fix: {self.fix}" if self.fix else self.reason


def lines(program: str, error: BaseException | str) -> Iterator[str]:
    """Write an error for a terminal: what happened, then `cause:`, then `fix:`."""
    cause, fix = (error.cause, error.fix) if isinstance(error, Problem) else ("", "")
    yield from _wrapped(f"{program}: {error.what if isinstance(error, Problem) else error}")
    if cause:
        yield from _wrapped(f"cause: {cause}")
    if fix:
        yield from _wrapped(f"fix: {fix}")


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        printable(hidden(text)), WIDEST, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
