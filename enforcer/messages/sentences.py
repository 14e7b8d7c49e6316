"""
The note of an Event: one short paragraph for the user of the container.

What comes in: the facts, as arguments. What goes out: text, the same for the same facts.

The rule: each note names the container, the device, its usage and limit, the declaration of the limit, and the next
step. A note announces no later step, and mentions no pod of another user.
"""

from math import ceil

from enforcer.messages.action_texts import TEXTS
from enforcer.policy.history import Holding
from enforcer.policy.vocabulary import Mode, Reason, Rung
from exporter.limits.devices import device_name
from exporter.limits.explaining import size

_MINUTE = 60


def exceeded(holding: Holding, mode: Mode, rung: Rung | None, seconds: float | None = None) -> str:
    """Say that it is above its limit; `rung` is the next one that it may come to, in so many seconds."""
    if rung is None or rung is Rung.NOTIFY:
        return f"{_said(holding)}. Nothing else will be done about it (mode {mode})."
    moment = "" if seconds is None else f" in {duration(seconds)}"
    if mode is Mode.ENFORCE:
        return f"{_said(holding)}. If it stays above the limit, {_next(holding, rung)}{moment}."
    would = _next(holding, rung, would=True)
    return f"{_said(holding)}. In mode {Mode.ENFORCE}, {would}{moment}; in mode {mode} nothing is done."


def reported(holding: Holding, why: str) -> str:
    """Say that it is above its limit, and that nothing follows: `why` is half a sentence."""
    return f"{_said(holding)}. Nothing else is done about it: {why}."


def acted(note: str, holding: Holding, **seconds: float) -> str:
    """Fill the note of an action's Event (`action_texts.EventText`); each of `seconds` is a time that it may name."""
    times = {name: duration(value) for name, value in seconds.items()}
    return note.format(excess=_said(holding), **times)


def held(holding: Holding, rung: Rung, why: str) -> str:
    """Say that it would be acted on now, but: `why` is half a sentence."""
    return f"{_said(holding)}. Now {_next(holding, rung, would=True)}, but {why}. It is looked at again in every round."


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


def _next(holding: Holding, rung: Rung, *, would: bool = False) -> str:
    """Say what an action will do. A container that is acted on for its pod's limit is named."""
    name = who(holding.victim.container) if holding.victim and not holding.key.container else ""
    text = TEXTS[rung].would if would else TEXTS[rung].next
    return text.format(it=name or "it", container=name or "the container")


def _said(holding: Holding) -> str:
    """Say which container (or pod) uses how much of which device, its limit, and where that was declared."""
    used, limit = holding.used or 0, holding.limit.memory or 0
    subject = who(holding.container)
    whose = "its pod's" if holding.container and not holding.key.container else "its"
    contexts = f" plus {size(holding.allowance)} allowed for CUDA contexts" if holding.allowance else ""
    return (
        f"{subject[0].upper()}{subject[1:]} uses {size(used)} of {device_name(holding.device)}, "
        f"{size(max(used - limit - holding.allowance, 0))} more than {whose} limit of {size(limit)} "
        f"(declared by {holding.limit.declared}){contexts}"
    )
