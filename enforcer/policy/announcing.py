"""
What a limit holder is warned of, and when it is due.

A level that a reading has moved comes in, with what would be announced now. It is brought within its bounds: with the
warning that is asked for, and with the moment at which it became due.

The rule: **no action without an announcement that is still true.** In these cases the level goes back to warn_after,
and the pod is warned anew:

    - another mode, trigger, ladder or step for MPS was written
    - a harsher step follows
    - an operator's hold has ended
    - the declared limit changed, and part of the counted usage keeps the higher of the two (three times at most)

A grace that was announced is never shortened.
"""

from dataclasses import replace

from enforcer.policy.levels import (
    EASED,
    Announcement,
    Excess,
    Level,
    OnDevice,
    Reading,
    Terms,
    lasts,
    own_time,
    waits,
)
from enforcer.policy.rules import FEWEST_INTERVALS, Rules
from enforcer.policy.vocabulary import WRITTEN, Mode, Rung

_ORDER = {rung: place for place, rung in enumerate(Rung)}
DUE_UNTIL = 0.5
"""Of the full level: a holder that was due stays due until then. Without it, a holder that is over for little more than
a third of the time would be due only for moments. Later holders would take its turn."""


def announce(level: Level, reading: Reading, now: Announcement, least: float, rules: Rules) -> None:
    """
    Warn at warn_after, warn anew where something else was announced, and keep the level within its bounds.

    A warning says what the holder uses beyond its limit, so none is asked for in a round that does not show the excess.

    `least`: seconds over the limit after which an action would be due by the present grace.
    """
    at = reading.at
    if level.seconds < rules.warn_after and not lasts(level.warned_at, at):
        level.warned_at, level.terms, level.announced = None, None, 0.0
        level.due_at = None
    if level.warned_at is None:
        if level.seconds >= rules.warn_after:
            level.seconds = rules.warn_after  # the grace begins with the warning
            if reading.over:
                _warn(level, reading, now, rules)
    elif reading.over and now.prevented is None and now.terms is not None and not now.silent:
        _renew(level, reading, now.terms, least, rules)
    elif now.prevented in WRITTEN or (now.terms and level.terms and level.terms.rewritten(now.terms)):
        level.terms = None  # warned anew when an action can follow again
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
    if waiting and level.victim in level.own:  # a pod that joins a claim has its grace after its own warning
        level.own = own_time(level.own, level.victim, min(level.own[level.victim], rules.warn_after))


def _warn(level: Level, reading: Reading, now: Announcement, rules: Rules) -> None:
    """Give the first warning. It announces no step while something prevents one."""
    _ask(level, reading.at, rules)
    level.terms = None if now.prevented is not None or now.silent else now.terms
    if reading.several:  # the others are warned themselves when they hold most
        level.own = {reading.victim: level.own.get(reading.victim, 0.0)}
    _bound(level, reading)


def _renew(level: Level, reading: Reading, terms: Terms, least: float, rules: Rules) -> None:
    """Warn anew where the announcement is not true any more; a pod that joined a shared claim is warned for itself."""
    at, other = reading.at, _other(level.terms, terms)
    if other or (level.eased < EASED and _another_limit(level, reading)):
        level.eased += not other
        _ask(level, at, rules)
        seconds = min(level.seconds, rules.warn_after, least - FEWEST_INTERVALS * rules.interval)
        level.seconds, level.due_at, level.terms, level.announced = max(0.0, seconds), None, terms, 0.0
        _bound(level, reading)
        if reading.several:  # the others are warned themselves when they hold most
            level.own = {reading.victim: level.own.get(reading.victim, 0.0)}
    elif reading.several and reading.victim not in level.own:
        _ask(level, at, rules)
        level.terms, level.own = terms, own_time(level.own, reading.victim, 0.0)  # of a gentler step, maybe


def _ask(level: Level, at: float, rules: Rules) -> None:
    """Ask for a warning."""
    if not rules.confirm:
        level.unheard_at = None
    elif not lasts(level.unheard_at, at):
        level.unheard_at = at
    level.warned_at = at


def _bound(level: Level, reading: Reading) -> None:
    """Note the announced limit. Of the usage counted before, the largest stays."""
    excesses = dict(level.excesses)
    for device in reading.devices:
        known = excesses.get(device.device)
        if known is not None:
            least = max(known.most, device.bound + 1)
            excesses[device.device] = replace(known, least=least, cap=device.cap, bound=device.bound)
    level.excesses = excesses


def _another_limit(level: Level, reading: Reading) -> bool:
    """Tell whether a limit is not the announced one, and part of what was counted keeps the higher of the two."""
    return any(device.over and _keeps(level.excesses[device.device], device) for device in reading.devices)


def _keeps(excess: Excess, device: OnDevice) -> bool:
    # Another limit may allow more for contexts than the one under which the readings were taken.
    return excess.least <= max(excess.bound, device.bound + max(0, device.cap - excess.cap))


def _other(announced: Terms | None, now: Terms) -> bool:
    """Tell whether the announcement is not true any more. A gentler step than announced needs no other grace."""
    if announced is None or announced.rewritten(now):
        return True
    if announced.rung is None or now.rung is None:
        return announced.rung is not now.rung
    return _ORDER[now.rung] > _ORDER[announced.rung]
