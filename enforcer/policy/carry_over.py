"""
Keeps the part of the past that still counts.

What comes in: the history, with a snapshot or the levels of an earlier daemon. What goes out: the history at this
moment.

The rule: only what has ended is forgotten. A round that misses a pod, a restart of the daemon, or a reload of the
config delays an action by a bounded time. None of them sets a level to 0. After a sleep of the machine all levels start
at 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from enforcer.policy import budgets, holds
from enforcer.policy.history import DueKey, History, Lives, Moment, Series
from enforcer.policy.holder import CaseKey, HolderKey
from enforcer.policy.judgement import Judged
from enforcer.policy.levels import Excess, Level
from enforcer.policy.limit_holders import Case
from enforcer.policy.rules import Rules
from enforcer.policy.settling import settled
from enforcer.policy.vocabulary import Place, Reason, Rung, State, Trigger
from exporter.model import DeviceKey, PodUid, Snapshot

_Key = TypeVar("_Key", Series, DueKey)
_DUE = frozenset({State.DUE, State.HELD})
CLEAN = 600.0
"""Seconds for which the node is held after the last doubt about the owners of processes."""
SUSPENDED = 5.0
"""Seconds by which boot time may run ahead of monotonic time between two snapshots; above that the machine slept."""


def carried(history: History, snapshot: Snapshot, rules: Rules, now: Moment) -> History:
    """Carry the history to this moment."""
    before = history.at
    slept = before is not None and (now.boot - before.boot) - (now.monotonic - before.monotonic) > SUSPENDED
    levels = {} if slept else history.levels
    parts = {device.key: device.mig_uuids for device in snapshot.devices if device.mig_uuids}
    remade = {key for key, uuids in parts.items() if history.parts.get(key, uuids) != uuids}
    if remade:
        levels = {key: _without(level, remade) for key, level in levels.items()}
    carried_ = replace(
        history,
        at=now,
        shown=min(snapshot.monotonic, now.monotonic),
        settled=settled(history, snapshot, rules, now),
        parts={**history.parts, **parts} if parts else history.parts,
        levels=levels,
        spent=budgets.pruned(history.spent, rules, now.boot),
        holds=holds.pruned(history.holds, now),
        deleted=_deleted(history, snapshot, now),
        # A container that restarts while nothing asks for neighbours did not end on a device that was full long ago.
        ended={} if slept else history.ended,  # wall time, which a sleep sets ahead, says which pods took their place
        lives=history.lives if rules.trigger is Trigger.CONTENDED else Lives(),
    )
    if not snapshot.pid_domain_proven:
        carried_ = holds.held(carried_, Place.NODE, "", Reason.PID_DOMAIN, now, seconds=CLEAN)
    return carried_


def restored(history: History, levels: Mapping[HolderKey, Level], now: Moment) -> History:
    """
    Add the levels that an earlier daemon has saved: the same boot, version, rules and drivers are proven.

    The gap counts as unknown, and three readings of each device have to show the excess again. The blast radius was
    judged by the earlier daemon.
    """
    anew = dict(history.levels)
    for key, saved in levels.items():
        if saved.read_at > now.monotonic:
            continue  # of another boot
        mine = anew.get(key)
        counted = {device: replace(excess, readings=0) for device, excess in saved.excesses.items()}
        if mine is None:
            anew[key] = replace(saved, over=None, excesses=counted)
        else:  # this daemon has counted since it started
            counted |= {device: _joined(excess, counted.get(device)) for device, excess in mine.excesses.items()}
            gap = max(0.0, (mine.read_at if mine.since is None else mine.since) - saved.read_at)
            seconds = max(mine.seconds, min(saved.seconds, saved.seconds - gap / 2 + mine.seconds))
            anew[key] = replace(saved, read_at=mine.read_at, over=mine.over, seconds=seconds, excesses=counted)
    settled_ = None if history.settled is None else replace(history.settled, vetted=True)
    return replace(history, levels=anew, settled=settled_)


def _joined(mine: Excess, saved: Excess | None) -> Excess:
    """Add what an earlier daemon counted and announced: the next reading shows whether its limit still holds."""
    if saved is None:
        return mine
    least, cap, most = min(mine.least, saved.least), min(mine.cap, saved.cap), max(mine.most, saved.most)
    return replace(mine, least=least, cap=cap, bound=saved.bound, most=most)


def remembered(
    history: History, cases: Sequence[Judged], levels: dict[HolderKey, Level], snapshot: Snapshot, rules: Rules
) -> History:
    """Put the new levels into the history, keep those of holders that this round misses, and add up seconds."""
    seconds = _over_seconds(history, cases, snapshot, rules)
    round_at = snapshot.monotonic if snapshot.by_time else history.round_at
    if not (history.levels or history.tried or history.done or history.fenced):  # as on most nodes in most rounds
        return replace(history, levels=levels, over_seconds=seconds, round_at=round_at)
    missed = [key for key in history.levels if key not in levels]
    if missed:
        judged_now = {judged.holder for judged in cases}
        lasting = [key for key in missed if key not in judged_now and not _gone(key, snapshot)]
        levels = {key: history.levels[key] for key in lasting} | levels
    pods = set[PodUid]()
    if history.tried:
        pods = {key.pod_uid for key in levels} | {judged.case.limit.pod_uid for judged in cases if judged.level}
    here = {judged.case.key for judged in cases} if history.done else set()
    return replace(
        history,
        levels=levels,
        over_seconds=seconds,
        round_at=round_at,
        tried={uid: at for uid, at in history.tried.items() if uid in pods},
        turns=history.turns if history.tried else {},
        done=frozenset(
            (key, rung)
            for key, rung in history.done
            if (key in here or not _case_gone(key, snapshot))
            and (rung is Rung.FENCE or _excess(levels.get(key.holder)))
        ),
        fenced=frozenset(key for key in history.fenced if not _gone(key.holder, snapshot)),
    )


def _excess(level: Level | None) -> bool:
    """Tell whether an excess lasts: an eviction that was blocked is behind it, and not behind the next one."""
    return level is not None and level.since is not None


def series_of(case: Case) -> Series:
    """Name the counter of a limit holder: a container that restarts goes on in the same one."""
    return case.namespace, case.pod.name if case.pod else "", case.key.container, case.limit.device


def _over_seconds(
    history: History, cases: Sequence[Judged], snapshot: Snapshot, rules: Rules
) -> Mapping[Series, float]:
    """Add the time between two readings of which both were above the limit. An early round's would count twice."""
    seconds = dict(history.over_seconds)
    for judged in cases if history.levels and snapshot.by_time else ():
        before = history.levels.get(judged.holder) if judged.over else None
        if before is None or not before.over:
            continue
        step = snapshot.monotonic - before.read_at
        if 0 < step <= rules.in_a_row and judged.case.limit.device in before.excesses:
            series = series_of(judged.case)
            seconds[series] = seconds.get(series, 0.0) + step
    return _of_living(seconds, snapshot)


def due_seconds(history: History, step: float, snapshot: Snapshot, rules: Rules) -> History:
    """Add the time since the last snapshot to the counters of the holders that were due then, by reason."""
    if step > 2 * rules.in_a_row:
        return history
    due = [standing for standing in history.standings.values() if standing.state in _DUE]
    if not due and not history.due_seconds:
        return history
    seconds = dict(history.due_seconds)
    for standing in due:
        key = (standing.namespace, standing.pod, standing.container, standing.device, standing.reason)
        seconds[key] = seconds.get(key, 0.0) + step
    return replace(history, due_seconds=_of_living(seconds, snapshot))


def _of_living(seconds: dict[_Key, float], snapshot: Snapshot) -> dict[_Key, float]:
    """Drop the counters of the pods that do not exist any more."""
    if not seconds or not snapshot.names_live:
        return seconds
    living = {(pod.namespace, pod.name) for pod in snapshot.pods.values()}
    for key in [key for key in seconds if key[:2] not in living]:
        del seconds[key]
    return seconds


def _without(level: Level, remade: set[DeviceKey]) -> Level:
    """Forget the readings of instances that were made anew under an old number."""
    return replace(level, excesses={key: each for key, each in level.excesses.items() if key not in remade})


def _deleted(history: History, snapshot: Snapshot, now: Moment) -> Mapping[PodUid, float]:
    return {uid: history.deleted.get(uid, now.monotonic) for uid, pod in snapshot.pods.items() if pod.terminating}


def _gone(key: HolderKey, snapshot: Snapshot) -> bool:
    """Tell whether a holder does not exist any more, by names that are live; in doubt it exists."""
    if not snapshot.names_live:
        return False
    if key.claim:  # live names say nothing of claims that were not read yet
        return bool(snapshot.claims) and all(f"{each.namespace}/{each.name}" != key.claim for each in snapshot.claims)
    return key.pod_uid not in snapshot.pods


def _case_gone(key: CaseKey, snapshot: Snapshot) -> bool:
    if _gone(key.holder, snapshot):
        return True
    known = {each.id for each in snapshot.containers if (each.pod_uid, each.name) == (key.pod_uid, key.container)}
    return snapshot.names_live and bool(known) and not known & {None, key.container_id}
