"""
Stands in for a step of the ladder: all but the last move.

What comes in: which step, and what speaks against it before anything is begun. What goes out: that nothing was asked.

The rule: there is nothing here that could change anything: no client, no descriptor, no limit.
"""

from collections.abc import Callable

from enforcer.actions.interface import Answer, Heard
from enforcer.policy.history import Action
from enforcer.policy.vocabulary import Rung

REHEARSED = Answer(Heard.REHEARSED, "in mode enforce it would have been done now")


def _nothing(_: Action) -> None:
    """Say nothing: only by doing it could more be known."""


class DryRun:
    """A step that does nothing. `doubt` is the real one's preflight."""

    insists = False
    frees = False

    def __init__(self, rung: Rung, doubt: Callable[[Action], Answer | None] = _nothing) -> None:
        self.rung = rung
        self._doubt = doubt

    def preflight(self, action: Action) -> Answer | None:
        """Say what the real step would say, except that rights are missing: a dry run is not given those of enforce."""
        doubt = self._doubt(action)
        return None if doubt is not None and doubt.heard is Heard.REFUSED else doubt

    async def act(self, _action: Action, _decision: str) -> Answer:
        """Say that nothing was asked."""
        return REHEARSED

    async def confirmed(self, _action: Action) -> bool | None:
        """Nothing was done that could be confirmed."""
        return False

    async def insist(self, _action: Action, _decision: str) -> Answer | None:
        """Nothing follows."""
        return None

    async def ended(self, _action: Action) -> bool | None:
        """There is no effect that could be seen."""
        return None
