"""
The policy in plain data, for `/api/v1/decisions`, `/api/v1/preview`, the node page, `explain` and `replay`.

What comes in: states of limit holders, decisions, previews. What goes out: dicts; docs/api.md describes the fields.

The rule: unknown is null. Times are Unix seconds, computed from monotonic seconds by the `offset` between both.
"""

from collections.abc import Iterable
from typing import Any

from enforcer.messages.tally import Decision
from enforcer.policy.history import Action, Holding, Standing, Verdict
from enforcer.policy.preview import Preview
from enforcer.policy.vocabulary import MANUAL, ON_A_CONTAINER
from exporter.limits.devices import device_name

Json = dict[str, Any]


def standing(holder: Standing, offset: float) -> Json:
    """Describe the state of a limit holder; `offset` is Unix time minus monotonic time."""
    return {
        **_holder(holder),
        "claim": holder.claim,
        **_device(holder),
        "state": holder.state,
        "reason": holder.reason,
        "why": None if holder.reason is None else holder.reason.words,
        "detail": holder.detail,
        "mode": holder.mode,
        "next": None if holder.spared else holder.rung,
        "next_container": _container(holder),
        **_amounts(holder),
        "over": holder.over,
        "over_since": None if holder.since is None else holder.since + offset,
        "due_at": None if holder.due_at is None else holder.due_at + offset,
        "text": _line(holder),
    }


def decision(decided: Decision, offset: float) -> Json:
    """Describe an action or a refusal."""
    if decided.action is not None:
        kind = "dry_run" if decided.action.dry else "action"
        ended = {"result": decided.result, "detail": decided.detail}
        return {"at": decided.at, "kind": kind, **_action(decided.action, offset), **ended}
    assert decided.refusal is not None  # noqa: S101  (a decision is one or the other)
    return {"at": decided.at, "kind": "refusal", **standing(decided.refusal, offset)}


def summary(verdict: Verdict, recent: Iterable[Decision], offset: float) -> Json:
    """Describe the node's policy: mode, breakers, budgets, the state of each limit holder, the recent decisions."""
    return {
        "mode": verdict.mode,
        "breakers": [
            {"breaker": name, "detail": opened.detail, "by_itself": name not in MANUAL}
            for name, opened in verdict.breakers.items()
        ],
        "budget_remaining": verdict.remaining,
        "standings": [standing(holder, offset) for holder in verdict.standings],
        "recent": [decision(decided, offset) for decided in recent],
    }


def preview(forecast: Preview, offset: float) -> Json:
    """Describe what enforcing would hit now."""
    return {
        "would_act_on": [standing(each, offset) for each in forecast.would],
        "held": [standing(each, offset) for each in forecast.held],
        "pods_over": forecast.over,
        "pods_with_limits": forecast.limited,
        "blast_radius_breaker_would_open": forecast.trips,
    }


def _container(holder: Standing) -> str | None:
    """Name the container that the next rung acts on; None where that is the pod, or nothing follows."""
    return holder.victim.container if holder.victim and holder.rung in ON_A_CONTAINER and not holder.spared else None


def _line(holder: Standing) -> str:
    """Say it in one line."""
    if holder.container:
        who = f"container {holder.container}"
    else:
        who = f"claim {holder.claim}" if holder.claim else "the pod"
    about = f"{who} on {device_name(holder.device)}: {holder.state}"
    if holder.reason is not None:
        about += f", {holder.reason.words} ({holder.reason})"
    return f"{about} [mode {holder.mode}]"


def _action(action: Action, offset: float) -> Json:
    return {
        "action": action.rung,
        **_holder(action),
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
