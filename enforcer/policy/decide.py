"""
The policy: one pure, total function, run on every snapshot.

What comes in: a snapshot, the rules, the history, the moment. What goes out: the new history, and the verdict: where
each subject stands, at most one action, each refusal with its reason.

The law: **whoever is acted on exceeded its own declared limit, certainly and for as long as it was told; is tied to one
pod and container that live now; is protected by nobody; and is the only one.** Nothing but seen excess advances
anything (`evidence`), and each guard alone suffices to hold the action back (`choosing`). The policy reads no clock,
asks nobody and never raises: an error of its own is no action, and an open breaker.

    state      means                                                   goes to
    unjudged   no valid limit, or no reading                           any, with the first reading
    exempt     protected: measured, and left alone                     any, when the protection ends, from the beginning
    ok         within limit and tolerance                              over
    over       above, not yet for warn_after and three rounds          grace, ok
    grace      told; the grace runs while the excess is seen           due, held, ok
    due        the grace is over; the action is taken, or rehearsed    acting, held, grace, ok
    held       would be acted on, but: the reason says what            due, acting, grace, ok
    acting     the action is in flight                                 gone, held, or over from the beginning
"""

from collections.abc import Sequence
from dataclasses import replace

from enforcer.policy import breakers, budgets
from enforcer.policy.carry_over import carried, remembered, without_evidence
from enforcer.policy.certain_usage import certain
from enforcer.policy.contention import needs
from enforcer.policy.evidence import Phase
from enforcer.policy.history import History, Moment, Verdict
from enforcer.policy.holder_states import changes, standing
from enforcer.policy.judgement import Judged, judge
from enforcer.policy.limit_holders import cases
from enforcer.policy.rules import Ceiling, Rules
from enforcer.policy.victims import Scene, choose, taken
from enforcer.policy.vocabulary import Breaker, Mode, Reason
from exporter.model import Snapshot


def decide(snapshot: Snapshot, rules: Rules, history: History, now: Moment) -> tuple[History, Verdict]:
    """
    Judge one snapshot.

    Args:
        snapshot: of one round; one that is not later than the last adds nothing.
        rules: what the operator wants now. Other rules than last time void all evidence.
        history: what this function returned last time, or `conclude` after it; at first `History()`.
        now: when this is called.

    """
    try:
        return _decide(certain(snapshot), rules, history, now)
    except Exception as error:  # noqa: BLE001  (total: whatever a snapshot holds, no action follows from an error)
        detail = f"{type(error).__name__}: {error}"
        opened = breakers.opened(history.breakers, Breaker.INTERNAL, now.boot, detail)
        safe = replace(without_evidence(history), breakers=opened, at=now, started=now.monotonic, standings={})
        return safe, Verdict(now, rules.ceiling.mode, breakers=opened)


def _decide(snapshot: Snapshot, rules: Rules, history: History, now: Moment) -> tuple[History, Verdict]:
    known = history.shown is not None and snapshot.monotonic <= history.shown  # and may contradict what is newer
    if known or (history.at is not None and now.monotonic <= history.at.monotonic):
        return history, Verdict(now, rules.ceiling.mode, tuple(history.standings.values()), breakers=history.breakers)
    if any(fault.reason == "config_invalid" for fault in snapshot.faults):
        rules = replace(rules, ceilings=(*rules.ceilings, Ceiling(Mode.OBSERVE, Reason.BREAKER)))
    mode = rules.ceiling.mode
    history = replace(carried(history, snapshot, rules, now), shown=min(snapshot.monotonic, now.monotonic))
    if mode is Mode.OFF:
        history = replace(without_evidence(history), standings={}, armed=False)
        return history, Verdict(now, mode, breakers=history.breakers)
    found = [judge(case, snapshot, rules, history, now) for case in cases(snapshot)]
    history = remembered(history, found, snapshot, rules, now)
    over, limited = blast(found, armed=history.armed)
    acting = mode.rank >= Mode.DRY_RUN.rank
    if acting and breakers.blast(over, limited):
        detail = f"{over} of {limited} pods with limits are over them at once"
        opened = breakers.opened(history.breakers, Breaker.BLAST_RADIUS, now.boot, detail)
        history = replace(history, breakers=opened)
    needed = needs((one.case for one in found), snapshot)
    action, reasons = choose(found, Scene(snapshot, needed, rules, history, now))
    if action is not None:
        history = taken(history, action, now)
    standings = tuple(standing(one, reasons, history) for one in found)
    verdict = Verdict(
        now,
        mode,
        standings,
        action,
        changes(history.standings, standings),
        history.breakers,
        budgets.remaining(history.spent, rules, now.boot, dry=mode is not Mode.ENFORCE),
        (over, limited),
    )
    return replace(history, standings={one.key: one for one in standings}, armed=acting), verdict


def blast(found: Sequence[Judged], *, armed: bool) -> tuple[int, int]:
    """
    Count the pods over their limits, and those with limits.

    Not `armed`: acting was not allowed until now, and any excess of this moment counts, told or not.
    """
    phases = (Phase.GRACE, Phase.DUE) if armed else (Phase.OVER, Phase.GRACE, Phase.DUE)
    known = [one for one in found if one.evidence is not None]
    over = {
        one.case.key.pod_uid for one in known if one.evidence and one.evidence.over and one.evidence.phase in phases
    }
    return len(over), len({one.case.key.pod_uid for one in known})
