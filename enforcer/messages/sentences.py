"""
What Events say: one short paragraph for the user whose container it is about.

What comes in: the facts, as arguments. What goes out: text, the same for the same facts.

The law: each says who, which device, used and limit, where the limit was declared, and what happens next. Nothing is
promised that is not the next step, and nothing is said of other people's pods.
"""

from collections.abc import Mapping
from math import ceil

from enforcer.policy.history import Holding
from enforcer.policy.vocabulary import Mode, Reason, Rung
from exporter.limits.devices import device_name
from exporter.limits.explaining import size

_NEXT: Mapping[Rung, str] = {
    Rung.NOTIFY: "its user will be told",
    Rung.FENCE: "the driver will refuse it more memory",
    Rung.EVICT: "the pod will be evicted",
    Rung.KILL: "the container will be killed",
}
_WOULD: Mapping[Rung, str] = {rung: text.replace(" will ", " would ") for rung, text in _NEXT.items()}
_MINUTE = 60


def exceeded(holding: Holding, mode: Mode, rung: Rung | None, seconds: float | None = None) -> str:
    """Say that it is above its limit; `rung` is the next one that it may come to, in so many seconds."""
    if rung is None or rung is Rung.NOTIFY:
        return f"{_said(holding)}. Nothing else will be done about it (mode {mode})."
    moment = "" if seconds is None else f" in {duration(seconds)}"
    if mode is Mode.ENFORCE:
        return f"{_said(holding)}. If it stays above the limit, {_NEXT[rung]}{moment}."
    return f"{_said(holding)}. In mode {Mode.ENFORCE}, {_WOULD[rung]}{moment}; in mode {mode} nothing is done."


def reported(holding: Holding, why: str) -> str:
    """Say that it is above its limit, and that nothing follows: `why` is half a sentence."""
    return f"{_said(holding)}. Nothing else is done about it: {why}."


def fenced(holding: Holding, rung: Rung | None, seconds: float | None = None) -> str:
    """Say that the driver caps it now; `rung` is what follows while it stays above."""
    moment = "" if seconds is None else f" in {duration(seconds)}"
    following = f"If it stays above the limit, {_NEXT[rung]}{moment}" if rung else "What it holds stays with it"
    return f"{_said(holding)}. From now on the driver refuses it more memory of this device. {following}."


def evicted(holding: Holding, over_seconds: float, grace_seconds: float) -> str:
    """Say that its pod was evicted after so long above the limit, and how long it has to end."""
    return (
        f"{_said(holding)}, for {duration(over_seconds)}: the pod is evicted. It has {duration(grace_seconds)} to end; "
        "its controller may start another one."
    )


def killed(holding: Holding, over_seconds: float) -> str:
    """Say that it was killed after so long above the limit."""
    return (
        f"{_said(holding)}, for {duration(over_seconds)}: the container was killed. "
        "Whether it is started again is for the pod's restart policy to say."
    )


def held(holding: Holding, rung: Rung, why: str) -> str:
    """Say that it would be acted on now, but: `why` is half a sentence."""
    return f"{_said(holding)}. Now {_WOULD[rung]}, but {why}. It is looked at again in every round."


def who(container: str) -> str:
    """Name a container in a sentence, or the pod."""
    return f'container "{container}"' if container else "the pod"


def because(reason: Reason, detail: str) -> str:
    """Say why something is held, with its particulars."""
    return f"{reason.words} ({detail})" if detail else reason.words


def duration(seconds: float) -> str:
    """Write a time for people: whole seconds, above two minutes whole minutes; rounded up."""
    whole = ceil(max(seconds, 0.0))
    return f"{whole} s" if whole < 2 * _MINUTE else f"{ceil(whole / _MINUTE)} min"


def _said(holding: Holding) -> str:
    """Say which container (or pod) uses how much of which device, its limit, and where that was declared."""
    used, limit = holding.used or 0, holding.limit.memory or 0
    subject = who(holding.container)
    return (
        f"{subject[0].upper()}{subject[1:]} uses {size(used)} of {device_name(holding.device)}, "
        f"{size(max(used - limit, 0))} more than its limit of {size(limit)} (declared by {holding.limit.declared})"
    )
