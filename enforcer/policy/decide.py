"""
The policy: one pure, total function, run on every snapshot.

What comes in: a snapshot, the rules, the history and the moment. What goes out: the new history and the verdict. The
verdict has the state of each limit holder, at most one action, and the reason of each due holder that is not acted on.

The rule: **safety and liveness** (docs/policy.md). A holder is acted on only if it is not protected, and certainly
exceeded its own declared limit for the announced time. A holder that is over for more than a third of the time is acted
on within a bound. The bound does not depend on other tenants. The policy reads no clock, asks no server and never
raises: on an error of its own it takes no action, and opens a breaker.

    state      means                                                       goes to
    unjudged   no valid limit, or no reading                               any
    exempt     protected: measured, and left alone                         any, from the beginning
    ok         within the limit, and its level is 0                        over
    over       the level has left 0, and not reached warn_after            grace, ok
    grace      warned; the level is below warn_after + grace               due, held, ok
    due        the level is full; in dry-run: logged, and not performed    acting, held, ok
    held       due, and a reason prevents the action                       due, acting, ok
    acting     the action is in flight                                     gone, held, or from the beginning
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from enforcer.policy import breakers, budgets
from enforcer.policy.abnormal_ends import ended, lived
from enforcer.policy.carry_over import carried, due_seconds, remembered
from enforcer.policy.contention import Needs, needs
from enforcer.policy.entitlements import entitlements
from enforcer.policy.history import History, Moment, Verdict
from enforcer.policy.holder import HolderKey
from enforcer.policy.holder_states import changes, standings
from enforcer.policy.holds import InForce
from enforcer.policy.judgement import Judged, judge_all
from enforcer.policy.levels import Level
from enforcer.policy.rules import Ceiling, Rules
from enforcer.policy.settling import blast, settling
from enforcer.policy.victims import Scene, choose, excess_of, taken
from enforcer.policy.vocabulary import Breaker, Mode, Reason, Trigger
from exporter.model import DeviceKey, Snapshot


def decide(snapshot: Snapshot, rules: Rules, history: History, now: Moment) -> tuple[History, Verdict]:
    """
    Judge one snapshot.

    Args:
        snapshot: of one round; one that is not later than the last adds nothing.
        rules: what the operator wants now.
        history: what this function returned last time, or an outcome after it; at first `History()`.
        now: when this is called.

    """
    try:
        return _decide(snapshot, rules, history, now)
    except Exception as error:  # noqa: BLE001  (total: whatever a snapshot holds, no action follows from an error)
        opened = breakers.opened(history.breakers, Breaker.INTERNAL, now.boot, f"{type(error).__name__}: {error}")
        safe = replace(history, breakers=opened, at=now, levels=_unknown(history.levels), standings={})
        return safe, Verdict(now, rules.ceiling.mode, breakers=opened)


def _decide(snapshot: Snapshot, rules: Rules, history: History, now: Moment) -> tuple[History, Verdict]:
    rules = in_force(rules, snapshot)
    mode = rules.ceiling.mode
    old = history.shown is not None and snapshot.monotonic <= history.shown  # and may contradict what is newer
    if old or (history.at is not None and now.monotonic <= history.at.monotonic):
        return history, Verdict(now, mode, tuple(history.standings.values()), breakers=history.breakers)
    step = 0.0 if history.at is None else now.monotonic - history.at.monotonic
    past = carried(due_seconds(history, step, snapshot, rules), snapshot, rules, now)
    if mode is Mode.OFF:
        return replace(past, levels={}, standings={}), Verdict(now, mode, breakers=past.breakers)
    judged, levels = judge_all(snapshot, rules, past, now)
    present = remembered(past, judged, levels, snapshot, rules)
    if rules.trigger is Trigger.CONTENDED:
        present = _neighbours(present, judged, snapshot, now)
    over, limited = blast(judged)
    present, scene = _settle(present, scene_of(judged, snapshot, rules, present, now), (over, limited), now)
    action, reasons = choose(judged, scene)
    if action is not None:
        present = taken(present, action, now, snapshot.taken_at)
    states = standings(judged, reasons, present, rules)
    verdict = Verdict(
        now,
        mode,
        states,
        action,
        changes(past.standings, states),
        present.breakers,
        budgets.remaining(present.spent, rules, now.boot),
        (over, limited),
    )
    return replace(present, standings={each.key: each for each in states}), verdict


def in_force(rules: Rules, snapshot: Snapshot) -> Rules:
    """Return the rules with what a snapshot says of the config: one that cannot be used allows no action."""
    invalid = next((fault for fault in snapshot.faults if fault.reason == "config_invalid"), None)
    if invalid is None:
        return rules
    return replace(rules, ceilings=(*rules.ceilings, Ceiling(Mode.OBSERVE, Reason.CONFIG, invalid.message)))


def scene_of(judged: Sequence[Judged], snapshot: Snapshot, rules: Rules, history: History, now: Moment) -> Scene:
    """Gather what the choice of a victim is made from."""
    lacking: Mapping[DeviceKey, Needs] = {}
    excess: dict[DeviceKey, int] = defaultdict(int)
    if rules.trigger is Trigger.CONTENDED:
        lacking = needs([each.case for each in judged], snapshot, history.ended, history.deleted, now.monotonic)
        for each in judged:
            excess[each.case.limit.device] += excess_of(each)
    state = history.settled
    why = settling(state, rules, now) if state is not None else None
    return Scene(snapshot, rules, history, now, InForce(history.holds, now), lacking, excess, why)


def _neighbours(history: History, judged: Sequence[Judged], snapshot: Snapshot, now: Moment) -> History:
    """Remember which neighbours ended abnormally: they still need memory, and do not hold any."""
    table = ended(history.ended, history.lives, snapshot, now.monotonic)
    entitled = entitlements([each.case for each in judged], snapshot)
    return replace(history, ended=table, lives=lived(history.lives, entitled, snapshot))


def _settle(history: History, scene: Scene, counted: tuple[int, int], now: Moment) -> tuple[History, Scene]:
    """Judge the blast radius once after a change of ours, when it has settled."""
    state = history.settled
    assert state is not None  # noqa: S101  (`carried` notes it in each round)
    if state.vetted or scene.settling is not None:
        return history, scene
    opened = history.breakers
    if breakers.blast(*counted):
        over, limited = counted
        detail = f"{over} of {limited} workloads with limits are over them after a change of version, rules or driver"
        opened = breakers.opened(opened, Breaker.BLAST_RADIUS, now.boot, detail)
    judged_once = replace(history, settled=replace(state, vetted=True), breakers=opened)
    return judged_once, replace(scene, history=judged_once)


def _unknown(levels: Mapping[HolderKey, Level]) -> dict[HolderKey, Level]:
    return {key: replace(level, over=None) for key, level in levels.items()}
