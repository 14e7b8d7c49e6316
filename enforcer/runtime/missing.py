"""
The missing prerequisites of acting, as ceilings of the mode.

What comes in: reasons, with details as text. What goes out: ceilings for the decider, and a log line each.

The rule: while one prerequisite is missing, no pod is acted on, and each due limit holder names it.
"""

import structlog

from enforcer.policy.rules import Ceiling
from enforcer.policy.vocabulary import Mode, Reason
from enforcer.runtime.decider import Decider

log = structlog.get_logger()


class Missing:
    """The prerequisites that are missing now."""

    def __init__(self, decider: Decider) -> None:
        self._decider = decider
        self._known: dict[Reason, str] = {}

    def __contains__(self, reason: Reason) -> bool:
        return reason in self._known

    def take(self, reason: Reason, why: str) -> None:
        """Take note that a prerequisite is missing, and log it once; with "" that it is there."""
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
        # Of several the first is shown: its name helps more than the count.
        self._decider.ceilings = tuple(sorted(all_, key=lambda ceiling: ceiling.reason is Reason.NOT_ARMED))

    def end(self, reason: Reason) -> None:
        """Take note that a prerequisite is there."""
        self._known.pop(reason, None)
        self._decider.ceilings = tuple(ceiling for ceiling in self._decider.ceilings if ceiling.reason is not reason)
