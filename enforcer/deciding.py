"""
The policy at work in the daemon: it hears every snapshot, and remembers.

What comes in: each snapshot, the operator's rules, the stop file. What goes out: verdicts, told to the log and to
users; metrics, documents and standings, whenever somebody asks.

The law: `hear` waits for nobody: one call of the pure policy (some 20 microseconds a container), the rest is memory.
Clocks are read here and nowhere else in the enforcer.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog
from prometheus_client.core import Metric

from enforcer import document, metrics
from enforcer.events import Notice
from enforcer.history import History, Moment, Verdict
from enforcer.invalid_limits import Told, invalid_limits
from enforcer.policy import decide
from enforcer.preview import preview
from enforcer.rules import Ceiling, Rules
from enforcer.tallies import Tally
from enforcer.telling import lines, notices
from enforcer.terms import Mode, Reason
from exporter.model import PodUid, Snapshot

log = structlog.get_logger()

SHOWN = 10
"""Decisions on the node page; /api/v1/decisions has more."""
Tell = Callable[[Iterable[Notice]], None]


def read_moment() -> Moment:
    """Read both clocks."""
    return Moment(time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME))


class Deciding:
    """
    Decides on every snapshot. One task calls `hear`, whoever serves asks the rest.

    Attributes:
        rules: in force; exchange them whole.

    """

    def __init__(
        self,
        rules: Rules,
        stop_file: Path,
        *,
        tell: Tell = lambda _: None,
        moment: Callable[[], Moment] = read_moment,
    ) -> None:
        self.rules = rules
        self._stop_file = stop_file
        self._tell = tell
        self._moment = moment
        self._history = History()
        self._tally = Tally()
        self._told: Told = {}
        self._verdict: Verdict | None = None
        self._snapshot: Snapshot | None = None

    def hear(self, snapshot: Snapshot) -> None:
        """Judge a snapshot, and tell what changed."""
        rules = self._in_force()
        before = self._verdict
        self._history, verdict = decide(snapshot, rules, self._history, self._moment())
        self._tally = self._tally.after(verdict, snapshot.taken_at)
        self._verdict, self._snapshot = verdict, snapshot
        for line in lines(verdict, before):
            (log.warning if line.warning else log.info)(line.event, **line.data)
        told = [*notices(verdict, snapshot)]
        if verdict.mode.rank >= Mode.WARN.rank:
            self._told, invalid = invalid_limits(snapshot, self._told)
            told += invalid
        self._tell(told)

    def families(self, snapshot: Snapshot) -> Iterator[Metric]:
        """Yield the policy's metrics."""
        if self._verdict is not None:
            yield from metrics.collect(snapshot, self._verdict, self._history, self._tally, self.rules)

    def summary(self) -> dict[str, Any] | None:
        """Describe mode, breakers, budgets and where everybody stands; None before the first round."""
        if self._verdict is None:
            return None
        return document.summary(self._verdict, self._tally.recent[:SHOWN], self._offset)

    def decisions(self) -> dict[str, Any]:
        """Describe the recent actions and refusals, the newest first."""
        return {"recent": [document.decision(one, self._offset) for one in self._tally.recent]}

    def preview(self) -> dict[str, Any] | None:
        """Describe what enforcing would hit now; None before the first round."""
        if self._snapshot is None:
            return None
        return document.preview(preview(self._snapshot, self.rules), self._offset)

    def standings(self, pod: PodUid) -> list[dict[str, Any]]:
        """Describe where the subjects of a pod stand."""
        found = self._verdict.standings if self._verdict else ()
        return [document.standing(one, self._offset) for one in found if one.key.pod_uid == pod]

    @property
    def _offset(self) -> float:
        return self._snapshot.taken_at - self._snapshot.monotonic if self._snapshot else 0.0

    def _in_force(self) -> Rules:
        """Return the rules, below the stop file's ceiling while there is one, or it cannot be looked for."""
        try:
            self._stop_file.lstat()
        except FileNotFoundError:
            return self.rules
        except OSError as error:
            log.warning("enforcer.stop_file", file=str(self._stop_file), reason=str(error))
        return replace(self.rules, ceilings=(*self.rules.ceilings, Ceiling(Mode.OBSERVE, Reason.STOPPED)))
