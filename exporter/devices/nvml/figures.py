"""
Single figures, each of which a GPU may not have.

What comes in: a question. What goes out: its answer, or None. A figure that the GPU does not have is nothing to speak
of; one that it failed to give is remembered, so that somebody can say so.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from exporter.devices.nvml.errors import CallError, UnsupportedError

P = ParamSpec("P")
T = TypeVar("T")


class Figures:
    """Asks for figures of one GPU, and collects in `unread` what was refused. A lost GPU still raises."""

    def __init__(self) -> None:
        self.unread: list[CallError] = []

    def __call__(self, question: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Ask, and give None when there is no answer."""
        try:
            return question(*args, **kwargs)
        except UnsupportedError:
            return None
        except CallError as error:
            self.unread.append(error)
            return None
