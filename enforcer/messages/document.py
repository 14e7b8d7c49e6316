"""
The policy in plain data, for `/api/v1/decisions`, `/api/v1/preview`, the node page, `explain` and `replay`.

What comes in: states of limit holders, decisions, previews. What goes out: dicts; docs/api.md describes the fields.

The rule: unknown is null. Times are Unix seconds, computed from monotonic seconds by the `offset` between both. The
seconds over the limit are those that count for an action (the level), and `due_at` is when it follows at this rate.
"""

from collections.abc import Callable, Iterable
from typing import Any

from enforcer.messages.action_lines import action_line
from enforcer.messages.outlook import NOTHING, Outlook
from enforcer.messages.sentences import duration, obstacle
from enforcer.messages.tally import Decision
from enforcer.policy.history import Action, Holding, Standing, Verdict
from enforcer.policy.preview import Preview
from enforcer.policy.vocabulary import ON_A_CONTAINER, Kind, Mode, State
from exporter.limits.devices import device_name

Json = dict[str, Any]


def standing(holder: Standing, offset: float, at: float, more: Outlook = NOTHING) -> Json:
    """Describe the state of a limit holder at Unix time `at`; `offset` is Unix time minus monotonic time."""
    why, due_in = _obstacle(holder), _due_in(holder)
    return {
        **_holder(holder),
        "claim": holder.claim,
        **_device(holder),
        "state": holder.state,
        "reason": holder.reason,
        "reason_kind": None if holder.reason is None else holder.reason.kind,
        "why": None if holder.reason is None else holder.reason.words,
        "detail": holder.detail,
        "mode": holder.mode,
        "next": None if why else holder.rung,
        "next_container": _container(holder) if why is None else None,
        **_prevented(holder),
        **_amounts(holder),
        "over": holder.over,
        "over_since": None if holder.since is None else holder.since + offset,
        "over_seconds": round(holder.level, 1),
        "capacity_seconds": round(holder.capacity, 1),
        "grace_used_ratio": round(holder.level / holder.capacity, 3) if holder.capacity else None,
        "due_in_seconds": None if due_in is None else round(due_in, 1),
        "due_at": None if due_in is None else at + due_in,
        "wait_seconds": None if more.wait is None else round(more.wait, 1),
        "warned_at": None if holder.warned_at is None else holder.warned_at + offset,
        "text": _line(holder, more),
    }


def decision(decided: Decision) -> Json:
    """Describe an action or a refusal."""
    if decided.action is not None:
        kind = "dry_run" if decided.action.dry else "action"
        text = action_line(decided.action, decided.at, decided.result, decided.detail)
        ended = {"result": decided.result, "detail": decided.detail, "text": text}
        return {"at": decided.at, "kind": kind, **_action(decided.action, decided.offset), **ended}
    assert decided.refusal is not None  # noqa: S101  (a decision is one or the other)
    return {"at": decided.at, "kind": "refusal", **standing(decided.refusal, decided.offset, decided.at)}


def summary(verdict: Verdict, recent: Iterable[Decision], offset: float) -> Json:
    """Describe the node's policy: mode, breakers, budgets, the state of each limit holder, the recent decisions."""
    at = verdict.at.monotonic + offset
    return {
        "mode": verdict.mode,
        "breakers": [
            {"breaker": name, "detail": opened.detail, "by_itself": False} for name, opened in verdict.breakers.items()
        ],
        "budget_remaining": verdict.remaining,
        "standings": [standing(holder, offset, at) for holder in verdict.standings],
        "recent": [decision(decided) for decided in recent],
    }


def preview(forecast: Preview, offset: float, more: Callable[[Standing], Outlook] = lambda _: NOTHING) -> Json:
    """Describe what enforcing would hit now."""
    at = forecast.at + offset
    return {
        "would_act_on": [standing(each, offset, at, more(each)) for each in forecast.would],
        "held": [standing(each, offset, at, more(each)) for each in forecast.held],
        "pods_over": forecast.over,
        "pods_with_limits": forecast.limited,
        "blast_radius_breaker_would_open": forecast.trips,
    }


def _container(holder: Standing) -> str | None:
    """Name the container that the next step acts on; None where that is the pod, or nothing follows."""
    return holder.victim.container if holder.victim and holder.rung in ON_A_CONTAINER else None


def _obstacle(holder: Standing) -> tuple[str, str] | None:
    """Say why no action follows, in one word and in half a sentence. Of mode dry-run, the dry run is what follows."""
    why = obstacle(holder)
    return None if why is not None and why[0] == Mode.DRY_RUN else why


def _due_in(holder: Standing) -> float | None:
    """Count the seconds of further excess after which an action is due; once it is due there are none."""
    if holder.state in (State.DUE, State.HELD, State.ACTING):
        return 0.0
    return holder.due_in


def _prevented(holder: Standing) -> Json:
    """Say why no action would follow: a reason, its kind, and half a sentence; all null where one would."""
    why = _obstacle(holder)
    reason = holder.prevented or (holder.reason if holder.state is State.HELD else None)
    return {
        "prevented": None if why is None else why[0],
        "prevented_kind": None if why is None else (reason.kind if reason else Kind.CHOSEN),
        "prevented_why": None if why is None else why[1],
    }


def _line(holder: Standing, more: Outlook) -> str:
    """Say it in one line."""
    if holder.container:
        subject = f"container {holder.container}"
    else:
        subject = f"claim {holder.claim}" if holder.claim else "the pod"
    about = f"{subject} on {device_name(holder.device)}: {holder.state}"
    if holder.reason is not None:
        left = "" if more.wait is None else f", {duration(more.wait)} left"
        detail = f": {holder.detail}" if holder.detail and holder.state is State.HELD else ""
        about += f", {holder.reason.words} ({holder.reason}{left}){detail}"
    if holder.level > 0:
        about += f", over its limit for {duration(int(holder.level))} of {duration(holder.capacity)}"
        why = _obstacle(holder)
        if why is not None and (holder.reason is None or why[0] != holder.reason):
            remedy = f" ({why[0]}): {more.remedy}" if more.remedy else ""
            about += f", no action follows: {why[1]}{remedy}"
        elif why is None and holder.rung is not None and (due_in := _due_in(holder)):
            victim = f" {holder.pod}" if holder.claim else ""  # of the pods that share a claim
            about += f", {holder.rung}{victim} in {duration(due_in)} at the earliest"
    until = " until the labels of its namespace are read" if more.unread else ""
    return f"{about} [mode {holder.mode}{until}]"


def _action(action: Action, offset: float) -> Json:
    return {
        "action": action.rung,
        **_holder(action),
        "pod_uid": action.pod_uid,
        **_device(action),
        "workload_kind": action.workload[1],
        "workload": action.workload[2],
        **_amounts(action),
        "over_since": action.since + offset,
    }


def _holder(holding: Holding) -> Json:
    return {
        "namespace": holding.namespace or None,
        "pod": holding.pod or None,
        "pod_uid": holding.key.pod_uid or None,
        "container": holding.container,
        "container_id": holding.victim.id if holding.victim and holding.container else None,
    }


def _device(holding: Holding) -> Json:
    return {"uuid": holding.device.uuid, "gpu_instance": holding.device.gpu_instance}


def _amounts(holding: Holding) -> Json:
    return {
        "used_bytes": holding.used,
        "limit_bytes": holding.limit.memory,
        "context_allowance_bytes": holding.allowance,
        "declared": holding.limit.declared,
    }
