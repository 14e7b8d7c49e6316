"""
The note of an Event: one short paragraph for the user of the container.

What comes in: the facts, as arguments. What goes out: text, the same for the same facts.

The rule: each note names the container, the device, its usage and limit, the declaration of the limit, and what
follows. "Will be" is written only where nothing but further excess is missing. No note mentions a pod of another user.
"""

from math import ceil

from enforcer.messages.action_texts import TEXTS
from enforcer.policy.history import Holding, Standing
from enforcer.policy.vocabulary import Kind, Mode, Reason, Rung, State, Trigger
from exporter.limits.devices import device_name
from exporter.limits.explaining import size

_MINUTE, _HOUR = 60, 3600
_FULL = frozenset({State.DUE, State.HELD, State.ACTING})
"""States in which nothing but a reason that passes is between the holder and the action."""


def exceeded(standing: Standing, trigger: Trigger) -> str:
    """Say that the holder is over its limit, for how long in total, and what follows, or why nothing does."""
    so_far = f"{_said(standing)}. It was over its limit for {duration(int(standing.level))} in total"
    if (why := obstacle(standing)) is not None:
        return f"{so_far}. For now, only this message follows: {why[1]}."
    assert standing.rung is not None  # noqa: S101  (a ladder that has ended is an obstacle)
    after = "now" if standing.state in _FULL else f"after {duration(standing.capacity)} in total"
    return f"{so_far}; {after} {_next(standing, standing.rung, trigger)}."


def obstacle(standing: Standing) -> tuple[str, str] | None:
    """Say why no action would follow, in one word and in half a sentence; None where an action would follow."""
    held_now = standing.reason if standing.state is State.HELD else None
    reason = standing.prevented or (held_now if held_now and held_now.kind is not Kind.WAITING else None)
    if reason in (Reason.MODE, Reason.DRY_RUN) or (reason is None and standing.mode is not Mode.ENFORCE):
        return standing.mode, f"the mode is {standing.mode}"
    if reason is None and standing.rung in (None, Rung.NOTIFY):
        reason = Reason.NO_RUNG
    if reason is None:
        return None
    return reason, because(reason, standing.detail if reason is standing.reason else "")


def held(standing: Standing, why: str) -> str:
    """Say that the holder would be acted on now, but: `why` is half a sentence."""
    so_far = f"{_said(standing)}. It was over its limit for {duration(int(standing.level))} in total"
    if standing.rung is None or standing.rung is Rung.NOTIFY:
        return f"{so_far}. No action follows: {why}."
    would = TEXTS[standing.rung].would.format(**_names(standing))
    return f"{so_far}. Now {would}, but {why}."


def acted(note: str, holding: Holding, done: str = "", **seconds: float) -> str:
    """
    Fill the note of an action's Event (`action_texts.EventText`).

    `done`: what was done, as a sentence without its end. Each of `seconds` is a time that the note may name.
    """
    times = {name: duration(value) for name, value in seconds.items()}
    return note.format(excess=_said(holding), how=f": {done}" if done else "", **times)


def compared(holding: Holding, verb: str = "uses") -> str:
    """
    Say which container (or pod) uses how much of which device, its limit, and where that was declared.

    The excess is what is above the limit and above what is allowed for CUDA contexts.
    """
    used, limit = holding.used or 0, holding.limit.memory or 0
    whose = "its pod's" if holding.container and not holding.key.container else "its"
    contexts = f" plus {size(holding.allowance)} allowed for CUDA contexts" if holding.allowance else ""
    excess = used - limit - holding.allowance
    related = f"{size(excess)} more than {whose} limit" if excess > 0 else f"within {whose} limit"
    return (
        f"{who(holding.container)} {verb} {size(used)} of {device_name(holding.device)}, "
        f"{related} of {size(limit)} (declared by {holding.limit.declared}){contexts}"
    )


def who(container: str) -> str:
    """Name a container in a sentence, or the pod."""
    return f'container "{container}"' if container else "the pod"


def because(reason: Reason, detail: str) -> str:
    """Say why something is held, with its particulars."""
    return f"{reason.words} ({detail})" if detail else reason.words


def duration(seconds: float) -> str:
    """Write a time for people, rounded up: "45 s", "2 min 15 s", "1 h 5 min"."""
    whole = ceil(max(seconds, 0.0))
    if whole < 2 * _MINUTE:
        return f"{whole} s"
    if whole >= _HOUR:
        hours, minutes = divmod(ceil(whole / _MINUTE), _MINUTE)
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    minutes, rest = divmod(whole, _MINUTE)
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


def _next(holding: Holding, rung: Rung, trigger: Trigger) -> str:
    """Say what the action will do; with the trigger `contended` it depends on the neighbours, too."""
    if trigger is Trigger.CONTENDED:
        return f"{TEXTS[rung].may.format(**_names(holding))} when a neighbour is short of memory"
    return TEXTS[rung].next.format(**_names(holding))


def _names(holding: Holding) -> dict[str, str]:
    """Name what is acted on. A container that is acted on for its pod's limit is named."""
    name = who(holding.victim.container) if holding.victim and not holding.key.container else ""
    return {"it": name or "it", "container": name or "the container"}


def _said(holding: Holding) -> str:
    """Say the same as the beginning of a note."""
    subject = compared(holding)
    return f"{subject[0].upper()}{subject[1:]}"
