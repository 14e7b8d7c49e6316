"""
The interface of a step of the ladder, and the answers that it can get.

Nothing comes in. What goes out: the protocol between the executor and the steps.

The rule: an actuator makes one request and returns its answer. It decides nothing, repeats nothing, and claims no
effect: the effect is looked up afterwards.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from enforcer.policy.history import Action
from enforcer.policy.vocabulary import Rung


class Heard(StrEnum):
    """What the other side answered: the API server, the kernel or the driver."""

    ACCEPTED = "accepted"  # it is under way
    EVACUATING = "evacuating"  # another controller moves the pod away, in minutes (KubeVirt)
    BLOCKED = "blocked"  # a PodDisruptionBudget or a webhook does not allow it
    GONE = "gone"  # there is no such pod or process any more
    CHANGED = "changed"  # another pod or process has its name
    TAKEN = "taken"  # another program has set a limit, which is left alone
    FORBIDDEN = "forbidden"  # 403: the right is missing in this namespace
    UNAUTHORIZED = "unauthorized"  # 401: the token is not accepted
    REFUSED = "refused"  # any other refusal, for a reason of ours
    IMPOSSIBLE = "impossible"  # this container offers no way to do it
    FAILED = "failed"  # it was certainly not done, for a reason that is not the pod's
    AMBIGUOUS = "ambiguous"  # it may have been done, or may still be done
    REHEARSED = "rehearsed"  # dry run: nothing was requested


@dataclass(frozen=True, slots=True)
class Answer:
    """
    An answer to a request.

    Attributes:
        status: of HTTP, where there was one.
        retry_after: seconds to wait before the next request, if the server said so.

    """

    heard: Heard
    detail: str = ""
    status: int | None = None
    retry_after: float | None = None


class Actuator(Protocol):
    """One step of the ladder."""

    rung: Rung
    insists: bool
    """Whether the step has a second part (`insist`) for a pod that is still there after its grace period."""
    frees: bool
    """Whether its effect is that the victim ends and its memory is freed: then the daemon watches for that."""

    def preflight(self, action: Action) -> Answer | None:
        """Say at once, and without doing anything, why the step is not possible; None: no reason is known."""

    async def act(self, action: Action, decision: str) -> Answer:
        """Perform the step, once; `decision` is its id in the journal."""

    async def confirmed(self, action: Action) -> bool | None:
        """Look whether the step was carried out, whatever the answer; None when that cannot be seen now."""

    async def insist(self, action: Action, decision: str) -> Answer | None:
        """Perform the second part, once; None where there is none."""

    async def ended(self, action: Action) -> bool | None:
        """Look whether the victim is gone, or the fence in force; None when that cannot be seen now."""
