"""
What a limit holder is warned of, and when it is due.

A level that a reading has moved comes in, with what would be announced now. It is brought within its bounds: with the
warning that is asked for, and with the moment at which it became due.

The rule: **no action without an announcement that is still true.** The level goes back to warn_after, and the pod is
warned anew, when another mode or trigger was written, a harsher step follows, an operator's hold has ended, or the
declared limit was lowered (once an hour at most) below a usage that kept the announced one. A grace that was announced
is never shortened.
"""

from dataclasses import replace

from enforcer.policy.levels import Announcement, Level, Reading, Terms, lasts, own_time, waits
from enforcer.policy.rules import FEWEST_INTERVALS, Rules
from enforcer.policy.vocabulary import WRITTEN, Mode, Rung

_ORDER = {rung: place for place, rung in enumerate(Rung)}
DUE_UNTIL = 0.5
"""Of the full level: a holder that was due stays due until then. Else a holder that is over for little more than a
third of the time would be due for a moment in each period, and later holders would take its turn."""


def announce(level: Level, reading: Reading, now: Announcement, least: float, rules: Rules) -> None:
    """
    Warn at warn_after, warn anew where something else was announced, and keep the level within its bounds.

    `least`: seconds over the limit after which an action would be due by the present grace.
    """
    at = reading.at
    if level.seconds < rules.warn_after and not lasts(level.warned_at, at):
        level.warned_at, level.accepted, level.terms, level.announced = None, False, None, 0.0
        level.due_at = None
    if level.warned_at is None:
        if level.seconds >= rules.warn_after:
            _ask(level, at, rules)
            level.terms = None if now.prevented is not None or now.silent else now.terms
            level.seconds = rules.warn_after  # the grace begins now
            if reading.several:  # the others are warned themselves when they hold most
                level.own = {reading.victim: level.own.get(reading.victim, 0.0)}
            _bound(level, reading)
    elif now.prevented in WRITTEN:
        level.terms = None
    elif now.prevented is None and now.terms is not None and not now.silent:
        _renew(level, reading, now.terms, least, rules)
    if level.warned_at is not None:
        level.announced = max(level.announced, least)
    mode = Mode.ENFORCE if now.terms is None else now.terms.mode  # while labels cannot be read, it waits
    most = max(least, level.announced)
    waiting = waits(level, at, mode)
    if level.seconds >= most and level.due_at is None and not waiting:
        level.due_at = at
        level.place_at = at if level.place_at is None else level.place_at
    elif level.seconds < DUE_UNTIL * most:
        level.due_at = None
    level.seconds = min(level.seconds, most, rules.warn_after if waiting else most)


def _renew(level: Level, reading: Reading, terms: Terms, least: float, rules: Rules) -> None:
    """Warn anew where the announcement is not true any more; a pod that joined a shared claim is warned for itself."""
    at, excesses = reading.at, level.excesses
    lowered = any(device.over and device.charged <= excesses[device.device].bound for device in reading.devices)
    eased = lowered and level.may_ease(at)
    if eased or _other(level.terms, terms):
        level.eased_at = at if eased else level.eased_at
        _ask(level, at, rules)
        seconds = min(level.seconds, rules.warn_after, least - FEWEST_INTERVALS * rules.interval)
        level.seconds, level.due_at, level.terms, level.announced = max(0.0, seconds), None, terms, 0.0
        _bound(level, reading)
        if reading.several:  # the others are warned themselves when they hold most
            level.own = {reading.victim: level.own.get(reading.victim, 0.0)}
    elif reading.several and reading.victim not in level.own:
        _ask(level, at, rules)
        level.own = own_time(level.own, reading.victim, 0.0)


def _ask(level: Level, at: float, rules: Rules) -> None:
    """Ask for a warning."""
    if not rules.confirm:
        level.unheard_at = None
    elif not lasts(level.unheard_at, at):
        level.unheard_at = at
    level.warned_at, level.accepted = at, False


def _bound(level: Level, reading: Reading) -> None:
    """Note what the holder is told that it may use."""
    bounds = {device.device: device.bound for device in reading.devices}
    level.excesses = {key: replace(each, bound=bounds.get(key, each.bound)) for key, each in level.excesses.items()}


def _other(announced: Terms | None, now: Terms) -> bool:
    """Tell whether the announcement is not true any more. A gentler step than announced needs no other grace."""
    if announced is None:
        return True
    if announced.mode is not now.mode or announced.trigger is not now.trigger:
        return True
    if announced.rung is None or now.rung is None:
        return announced.rung is not now.rung
    return _ORDER[now.rung] > _ORDER[announced.rung]
