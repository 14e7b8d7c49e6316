"""
A step of the ladder in a dry run: it does everything except the action.

What comes in: the step, and its own checks before it begins. What goes out: the answer that nothing was requested.

The rule: this module has no client, no descriptor and no limit, so it cannot change anything.
"""

from collections.abc import Callable

from enforcer.actions.interface import Answer, Heard
from enforcer.policy.history import Action
from enforcer.policy.vocabulary import Rung

REHEARSED = Answer(Heard.REHEARSED, "in mode enforce it would have been done now")


def _nothing(_: Action) -> None:
    """Return None: without the action nothing more can be known."""


class DryRun:
    """A step that does nothing. `doubt` is the preflight of the real step."""

    insists = False
    frees = False

    def __init__(self, rung: Rung, doubt: Callable[[Action], Answer | None] = _nothing) -> None:
        self.rung = rung
        self._doubt = doubt

    def preflight(self, action: Action) -> Answer | None:
        """Answer as the real step, but ignore missing rights: a dry run does not have those of `enforce`."""
        doubt = self._doubt(action)
        return None if doubt is not None and doubt.heard is Heard.REFUSED else doubt

    async def act(self, _action: Action, _decision: str) -> Answer:
        """Answer that nothing was requested."""
        return REHEARSED

    async def confirmed(self, _action: Action) -> bool | None:
        """Return False: nothing was done."""
        return False

    async def insist(self, _action: Action, _decision: str) -> Answer | None:
        """Do nothing: a dry run has no second part."""
        return None

    async def ended(self, _action: Action) -> bool | None:
        """Return None: a dry run has no effect to see."""
        return None
