"""
Applies the outcome of an action to the history.

What comes in: the history, the outcome of the action in flight, and the moment. What goes out: the history after it.

The rule: **an outcome concerns its own pod.** If certainly nothing was done, the budget is given back, and the pod
waits, longer each time. The node makes no other request for five seconds. A pod that cannot be acted on costs the
others these five seconds, and nothing more.
"""

from dataclasses import replace

from enforcer.policy import holds
from enforcer.policy.budgets import without
from enforcer.policy.history import Action, History, InFlight, Moment, Result
from enforcer.policy.holder import HolderKey
from enforcer.policy.vocabulary import Place, Reason, Rung

PAUSE = 5.0
"""Seconds until the next request of the node after one that failed."""
REST = 600.0
"""Seconds for which a pod rests after its dry run."""
LONGEST_WATCH = 900.0
"""Seconds after which a pod is no longer held, if the end of its watch was never reported."""
LOOK_AGAIN = 10.0
"""Seconds after a last look that found the holder within its limit."""
REFUSAL = 60.0
"""Seconds for which the node is held after an answer that does not accept its token."""

_BACKS_OFF = {
    Result.BLOCKED: Reason.BLOCKED,
    Result.FORBIDDEN: Reason.NO_RIGHTS,
    Result.REFUSED: Reason.REFUSED,
    Result.FAILED: Reason.FAILED,
    Result.IMPOSSIBLE: Reason.KILL_IMPOSSIBLE,
}


def conclude(history: History, result: Result, now: Moment, *, detail: str = "") -> History:
    """End the action in flight. Without one nothing changes."""
    flight = history.in_flight
    if flight is None:
        return history
    ended = replace(history, in_flight=None)
    if not result.harmless:
        return _accepted(ended, flight, now)
    action = flight.action
    ended = replace(
        ended,
        spent=without(history.spent, flight.token),
        tried={**history.tried, action.pod_uid: now.monotonic},
        turns={**history.turns, action.namespace: now.monotonic},
        retry_next=action.pod_uid not in history.tried,
    )
    if result is not Result.ABANDONED:  # nothing was asked of the API server
        ended = holds.held(ended, Place.NODE, "", Reason.SPACING, now, seconds=PAUSE)
    return _waits(ended, action, result, now, detail)


def rehearsed(
    history: History, action: Action, now: Moment, *, detail: str = "", result: Result = Result.REHEARSED
) -> History:
    """
    End a dry run: its pod rests, and nothing else changes.

    One that failed shows nothing of the pod. It is tried again as an action would be, after a wait that grows.
    """
    if history.dry_flight is None or history.dry_flight.action != action:
        return history
    ended = replace(history, dry_flight=None)
    if result is Result.FAILED:
        return holds.backed_off(ended, action.pod_uid, Reason.DRY_RUN, now, detail)
    return holds.held(ended, Place.POD, action.pod_uid, Reason.DRY_RUN, now, seconds=REST, detail=detail)


def warned(history: History, holder: HolderKey, warned_at: float) -> History:
    """Note that the API server has accepted the warning that a holder was given at that time: its grace begins."""
    level = history.levels.get(holder)
    if level is None or level.warned_at != warned_at:
        return history
    heard = level.copied()
    heard.unheard_at = None
    return replace(history, levels={**history.levels, holder: heard})


def watching(history: History, action: Action, now: Moment) -> History:
    """Hold the pod of an accepted action while its end is watched: no second action on it begins meanwhile."""
    return holds.held(history, Place.POD, action.pod_uid, Reason.IN_FLIGHT, now, seconds=LONGEST_WATCH)


def watched(history: History, action: Action) -> History:
    """End that hold."""
    return holds.lifted(history, Place.POD, action.pod_uid, Reason.IN_FLIGHT)


def _accepted(ended: History, flight: InFlight, now: Moment) -> History:
    """Start the levels of the victim's holders anew. A fence acts on one holder, all else on the pod."""
    action = flight.action
    mine = action.key.holder
    fence = action.rung is Rung.FENCE
    levels = {
        key: level
        for key, level in ended.levels.items()
        if key != mine and (fence or action.pod_uid not in (key.pod_uid, level.victim))
    }
    acted = replace(
        ended,
        levels=levels,
        ended_at=now.monotonic,
        retry_next=action.pod_uid not in ended.tried,
        tried={uid: at for uid, at in ended.tried.items() if uid != action.pod_uid},
    )
    return _fenced(acted, action) if fence else acted


def _fenced(history: History, action: Action) -> History:
    """Note that the step `fence` is behind this generation of the container, and may be left out for later ones."""
    done, fenced = history.done | {(action.key, Rung.FENCE)}, history.fenced | {action.key.any_generation}
    return replace(history, done=done, fenced=fenced)


def _waits(ended: History, action: Action, result: Result, now: Moment, detail: str) -> History:
    pod = action.pod_uid
    if result is Result.UNAUTHORIZED:
        return holds.held(ended, Place.NODE, "", Reason.UNAUTHORIZED, now, seconds=REFUSAL, detail=detail)
    if result is Result.IMPOSSIBLE:
        if action.rung is Rung.FENCE:
            # A container that the driver cannot fence goes on up the ladder: odd cgroups must not be a shield.
            return _fenced(ended, action)
        # A container that cannot be killed: the eviction is requested again.
        ended = replace(ended, done=ended.done - {(action.key, Rung.EVICT)})
    # The key of a claim that several pods share names no pod: a kill might hit one whose eviction was never requested.
    if result is Result.BLOCKED and action.rung is Rung.EVICT and action.key.pod_uid and _kills(ended):
        return replace(ended, done=ended.done | {(action.key, Rung.EVICT)})
    reason = _BACKS_OFF.get(result)
    if reason is not None:
        return holds.backed_off(ended, pod, reason, now, detail)
    return holds.held(ended, Place.POD, pod, Reason.LAST_LOOK, now, seconds=LOOK_AGAIN, detail=detail)


def _kills(history: History) -> bool:
    rules = history.settled.rules if history.settled is not None else None
    return rules is not None and rules.kill_when_blocked and rules.lacks(Rung.KILL) is None
