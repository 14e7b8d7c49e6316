"""
The policy in plain data: for `/api/v1/decisions`, `/api/v1/preview`, the node page, `explain` and `replay`.

What comes in: standings, decisions, previews. What goes out: dicts; docs/api.md describes the fields.

The law: unknown is null, and times are Unix seconds, made of monotonic ones with the moment at which both were read.
"""

from collections.abc import Iterable
from typing import Any

from enforcer.messages.tally import Decision
from enforcer.policy.history import Action, Holding, Standing, Verdict
from enforcer.policy.preview import Preview
from enforcer.policy.vocabulary import MANUAL
from exporter.limits.devices import device_name

Json = dict[str, Any]


def standing(one: Standing, offset: float) -> Json:
    """Describe where a subject stands; `offset` is Unix time minus monotonic time."""
    return {
        **_holder(one),
        "claim": one.claim,
        **_device(one),
        "state": one.state,
        "reason": one.reason,
        "why": None if one.reason is None else one.reason.words,
        "detail": one.detail,
        "mode": one.mode,
        "next": None if one.spared else one.rung,
        **_amounts(one),
        "over": one.over,
        "over_since": None if one.since is None else one.since + offset,
        "due_at": None if one.due_at is None else one.due_at + offset,
        "text": _line(one),
    }


def decision(one: Decision, offset: float) -> Json:
    """Describe an action or a refusal."""
    if one.action is not None:
        kind = "dry_run" if one.action.dry else "action"
        ended = {"result": one.result, "detail": one.detail}
        return {"at": one.at, "kind": kind, **_action(one.action, offset), **ended}
    assert one.refusal is not None  # noqa: S101  (a decision is one or the other)
    return {"at": one.at, "kind": "refusal", **standing(one.refusal, offset)}


def summary(verdict: Verdict, recent: Iterable[Decision], offset: float) -> Json:
    """Describe the node's policy: mode, breakers, budgets, where everybody stands, what was decided of late."""
    return {
        "mode": verdict.mode,
        "breakers": [
            {"breaker": name, "detail": one.detail, "by_itself": name not in MANUAL}
            for name, one in verdict.breakers.items()
        ],
        "budget_remaining": verdict.remaining,
        "standings": [standing(one, offset) for one in verdict.standings],
        "recent": [decision(one, offset) for one in recent],
    }


def preview(one: Preview, offset: float) -> Json:
    """Describe what enforcing would hit now."""
    return {
        "would_act_on": [standing(each, offset) for each in one.would],
        "held": [standing(each, offset) for each in one.held],
        "pods_over": one.over,
        "pods_with_limits": one.limited,
        "blast_radius_breaker_would_open": one.trips,
    }


def _line(one: Standing) -> str:
    """Say it in one line."""
    who = f"container {one.container}" if one.container else f"claim {one.claim}" if one.claim else "the pod"
    about = f"{who} on {device_name(one.device)}: {one.state}"
    if one.reason is not None:
        about += f", {one.reason.words} ({one.reason})"
    return f"{about} [mode {one.mode}]"


def _action(one: Action, offset: float) -> Json:
    return {
        "action": one.rung,
        **_holder(one),
        **_device(one),
        "workload_kind": one.workload[1],
        "workload": one.workload[2],
        **_amounts(one),
        "over_since": one.since + offset,
    }


def _holder(one: Holding) -> Json:
    return {
        "namespace": one.namespace or None,
        "pod": one.pod or None,
        "pod_uid": one.key.pod_uid or None,
        "container": one.container,
        "container_id": one.key.container_id or None,
    }


def _device(one: Holding) -> Json:
    return {"uuid": one.device.uuid, "gpu_instance": one.device.gpu_instance}


def _amounts(one: Holding) -> Json:
    return {"used_bytes": one.used, "limit_bytes": one.limit.memory, "declared": one.limit.declared}
