"""
What a step of the ladder can do, and what it hears.

Nothing comes in. What goes out: the seam between the executor and the things that it can do to the world.

The rule: an actuator does one thing to the world and says what it heard. It decides nothing, repeats nothing, and
claims nothing: whether it had an effect is seen, not said.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from enforcer.policy.history import Action
from enforcer.policy.vocabulary import Rung


class Heard(StrEnum):
    """What the world said."""

    ACCEPTED = "accepted"  # it is under way
    EVACUATING = "evacuating"  # another controller moves the pod away, in minutes (KubeVirt)
    BLOCKED = "blocked"  # a PodDisruptionBudget or a webhook does not allow it
    GONE = "gone"  # there is no such pod or process any more
    CHANGED = "changed"  # there is one, and it is another
    TAKEN = "taken"  # another program has done such a thing, which is left alone
    FORBIDDEN = "forbidden"  # 403: the right is missing in this namespace
    UNAUTHORIZED = "unauthorized"  # 401: the token is not accepted
    REFUSED = "refused"  # any other no, for a reason of ours
    IMPOSSIBLE = "impossible"  # this container offers no way to do it
    FAILED = "failed"  # it certainly did not come about, for a reason that is not the pod's
    AMBIGUOUS = "ambiguous"  # it may have come about, or may still
    REHEARSED = "rehearsed"  # dry run: nothing was asked


@dataclass(frozen=True, slots=True)
class Answer:
    """
    What was heard.

    Attributes:
        status: of HTTP, where there was one.
        retry_after: seconds for which the world asks to be left alone.

    """

    heard: Heard
    detail: str = ""
    status: int | None = None
    retry_after: float | None = None


class Actuator(Protocol):
    """One step of the ladder."""

    rung: Rung
    insists: bool
    """Whether something follows when the grace of the pod is over, and it is still there."""
    frees: bool
    """Whether its effect is that the victim goes, and memory with it: then that is waited for."""

    def preflight(self, action: Action) -> Answer | None:
        """Say at once, and without doing anything, why it could not be done; None: nothing speaks against it."""

    async def act(self, action: Action, decision: str) -> Answer:
        """Do it, once; `decision` is the id under which it stands in the journal."""

    async def confirmed(self, action: Action) -> bool | None:
        """Look whether it was carried out, whatever was heard; None when that cannot be seen now."""

    async def insist(self, action: Action, decision: str) -> Answer | None:
        """Do what follows, once; None where nothing does."""

    async def ended(self, action: Action) -> bool | None:
        """Look whether its victim is gone, or else whether it is in force; None when that cannot be seen now."""
