"""
What is missing for acting, as ceilings of the mode.

What comes in: reasons, with particulars in words. What goes out: ceilings on the one who decides, and a log line each.

The law: as long as one thing is missing nobody is acted on, and the subject that is due says which.
"""

import structlog

from enforcer.policy.rules import Ceiling
from enforcer.policy.vocabulary import Mode, Reason, Rung
from enforcer.runtime.decider import Decider

log = structlog.get_logger()


class Missing:
    """What is missing now."""

    def __init__(self, decider: Decider) -> None:
        self._decider = decider
        self._told: dict[Reason, str] = {}
        self._rungs: dict[Rung, str] = {}

    def __contains__(self, reason: Reason) -> bool:
        return reason in self._told

    def take(self, reason: Reason, why: str) -> None:
        """Take that it is missing, and say so once; or ("") that it is there."""
        if not why:
            self.end(reason)
        if self._told.get(reason, "") == why:
            return
        if self._decider.rules.mode is Mode.ENFORCE:
            log.warning("enforcer.not_armed", reason=reason, detail=why)
        self._told[reason] = why
        # Rehearsals that somebody wished at most; where another daemon acts, nothing.
        mode = Mode.OBSERVE if reason is Reason.NOT_OWNER else Mode.DRY_RUN
        others = (ceiling for ceiling in self._decider.ceilings if ceiling.reason is not reason)
        all_ = (Ceiling(mode, reason, why), *others)
        # Of several the first is told: what is missing says more than that something is.
        self._decider.ceilings = tuple(sorted(all_, key=lambda ceiling: ceiling.reason is Reason.NOT_ARMED))

    def take_rung(self, rung: Rung, why: str) -> None:
        """Take that an action of the ladder is not possible here, or ("") that it is."""
        self._rungs = {name: known for name, known in {**self._rungs, rung: why}.items() if known}
        self.take(Reason.NO_RUNG, "; ".join(self._rungs.values()))

    def end(self, reason: Reason) -> None:
        """Take that it is there."""
        self._told.pop(reason, None)
        self._decider.ceilings = tuple(ceiling for ceiling in self._decider.ceilings if ceiling.reason is not reason)
