"""
What is missing for acting, as ceilings of the mode.

What comes in: reasons, with particulars in words. What goes out: ceilings for the decider, and a log line each.

The rule: as long as one thing is missing no pod is acted on, and each limit holder that is due says which.
"""

import structlog

from enforcer.policy.rules import Ceiling
from enforcer.policy.vocabulary import Mode, Reason
from enforcer.runtime.decider import Decider

log = structlog.get_logger()


class Missing:
    """What is missing now."""

    def __init__(self, decider: Decider) -> None:
        self._decider = decider
        self._known: dict[Reason, str] = {}

    def __contains__(self, reason: Reason) -> bool:
        return reason in self._known

    def take(self, reason: Reason, why: str) -> None:
        """Take that it is missing, and say so once; or ("") that it is there."""
        if not why:
            self.end(reason)
        if self._known.get(reason, "") == why:
            return
        if self._decider.rules.mode is Mode.ENFORCE:
            log.warning("enforcer.not_armed", reason=reason, detail=why)
        self._known[reason] = why
        # At most dry runs, where a namespace asks for them; where another daemon acts, nothing.
        mode = Mode.OBSERVE if reason is Reason.NOT_OWNER else Mode.DRY_RUN
        others = (ceiling for ceiling in self._decider.ceilings if ceiling.reason is not reason)
        all_ = (Ceiling(mode, reason, why), *others)
        # Of several the first is shown: what is missing says more than that something is.
        self._decider.ceilings = tuple(sorted(all_, key=lambda ceiling: ceiling.reason is Reason.NOT_ARMED))

    def end(self, reason: Reason) -> None:
        """Take that it is there."""
        self._known.pop(reason, None)
        self._decider.ceilings = tuple(ceiling for ceiling in self._decider.ceilings if ceiling.reason is not reason)
