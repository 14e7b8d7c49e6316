"""
The last look before a call: a fresh answer of the API server, a fresh round, and the policy's judgement of both.

What comes in: an action. What goes out: nothing, if the call may follow at once; or why it must not.

The rule: a look that finds the action unjustified spares the pod. A look without the answer of a source proves nothing
about the pod: it counts as a failure of the daemon, with its reason.
"""

from collections import Counter
from collections.abc import Mapping

import structlog

from enforcer.policy.history import Action
from enforcer.policy.last_look import FRESH, Spared
from enforcer.policy.vocabulary import Kind, Reason
from enforcer.runtime.decider import Decider
from enforcer.runtime.hands import Hands
from exporter.base.clock import Clock
from exporter.kube.errors import KubeError

log = structlog.get_logger()

LOOKS = 2
"""Number of looks: the first may see an edit that the watch has not delivered yet, or get no round."""
LATE_LOOKS = 5
"""Number of looks that may come too late, as on a busy machine, before the action is given up."""
PATIENCE = 10.0
"""Seconds after which no look is repeated: no other action begins meanwhile."""

Why = Reason | Spared

_MOST: Mapping[Why, int] = {
    Spared.LOOK_TOO_OLD: LATE_LOOKS,
    Spared.DECLARATION_CHANGED: LOOKS,
    Spared.LOOK_FAILED: LOOKS,
}
"""Why a look is repeated at once, and how many looks are made: the others end it."""


def unanswered(why: Why) -> bool:
    """Tell whether a look failed because a fact was unknown, and not because the action is unjustified."""
    if isinstance(why, Spared):
        return why in (Spared.LOOK_FAILED, Spared.LOOK_TOO_OLD)
    return why.kind is Kind.UNKNOWN


class LastLooks:
    """Looks through one pair of hands."""

    def __init__(self, decider: Decider, hands: Hands, *, clock: Clock) -> None:
        self._decider = decider
        self._hands = hands
        self._clock = clock

    async def look(self, action: Action, *, second: bool = False) -> Why | None:
        """Look; None: no reason prevents the call, which must follow at once. `second`: SIGKILL after SIGTERM."""
        began, times = self._clock.monotonic(), Counter[Why]()
        while True:
            try:
                why = await self._once(action, second=second)
            except KubeError as error:
                log.warning("enforcer.last_look", reason=error.reason, message=error.message)
                return Spared.LOOK_FAILED
            if why is None or why not in _MOST:
                return why
            times[why] += 1
            if times[why] >= _MOST[why] or self._clock.monotonic() - began >= PATIENCE:
                return why

    async def _once(self, action: Action, *, second: bool) -> Why | None:
        # The server first: a round takes some milliseconds, an answer up to seconds.
        live, answered = await self._hands.ask(action), self._clock.monotonic()
        snapshot = await self._hands.fresh({action.device.uuid})
        if snapshot is None:
            return Spared.LOOK_FAILED
        if self._late(answered):  # with a slow driver a round takes long, and waits for the one before it
            live, answered = await self._hands.ask(action), self._clock.monotonic()
        why = self._hands.spared() or self._decider.still(action, live, snapshot, second=second)
        return Spared.LOOK_TOO_OLD if why is None and self._late(answered) else why

    def _late(self, at: float) -> bool:
        return self._clock.monotonic() - at > FRESH
