"""
Moves the level of a limit holder by one reading.

What comes in: the level so far, and one reading. What goes out: the level after it.

The rule: two readings close together decide the time between them. Both over: the level rises by that time. One over
and one within: it stays. Otherwise (both within, or no reading for longer) it falls by half of the time. So noise and
gaps cannot raise a level, and an old excess does not count for ever. A holder that is certainly over for more than a
third of the time cannot keep its level down.

The level returns to 0 when the declared limit rises above all counted usage. A tenant that lowers its own limit and
raises it again gains nothing: its usage above the higher limit stays counted. The allowance for CUDA contexts changes
with each process. So each reading is judged by the ceiling of its own moment, and a new allowance restarts nothing.

`weigh` copies the level once and changes only the copy: the level that came in stays as it was.
"""

from dataclasses import replace

from enforcer.policy.announcing import announce
from enforcer.policy.levels import Announcement, Excess, Level, Reading, lasts, own_time
from enforcer.policy.rules import APART, READINGS, TOGETHER, Rules

RECENT = 6.0
"""Intervals after which an earlier reading does not count towards three: one spike must not complete an old excess. The
number is per device with an excess, because a holder may move it from one device to the next. Where rounds take longer
it is the time of two of them."""


def weigh(before: Level | None, reading: Reading, now: Announcement, grace: float, rules: Rules) -> Level | None:
    """Add a reading, which is later than all before it; None: the level is 0, and nothing has to be kept."""
    over = reading.over
    if before is None:
        level = Level(reading.at)
    elif _raised(before, reading):
        level = _anew(before, reading.at)
    else:
        level = before.copied()
    least = rules.capacity(grace)
    _move(level, reading, max(least, level.announced), rules, over=over)
    if level.seconds <= 0:
        if not over:
            return _ended(level)
        level = _anew(level, reading.at)  # a gap has ended the excess, and its warning with it
        _move(level, reading, least, rules, over=over)
    _count(level, reading, rules)
    if level.since is None:
        level.since = reading.at
    announce(level, reading, now, least, rules)
    return level


def _raised(level: Level, reading: Reading) -> bool:
    """Tell whether the declared limits have risen above all usage counted against the old ones."""
    excesses, found = level.excesses, 0
    for device in reading.devices:
        excess = excesses.get(device.device)
        if excess is not None:
            if device.bound < excess.most:
                return False
            found += 1
    return 0 < found == len(excesses)


def _ended(level: Level) -> Level | None:
    """End an excess; None: nothing of it has to be kept."""
    ended = _anew(level, level.read_at, over=level.over)
    return None if ended.unheard_at is None and ended.eased == 0 and ended.place_at is None else ended


def _anew(level: Level, at: float, *, over: bool | None = None) -> Level:
    """Begin at 0. What must not be gained a second time by a short pause is remembered."""
    anew = Level(at, over=over, unheard_at=level.unheard_at if lasts(level.unheard_at, at) else None)
    anew.unbounded, anew.place_at, anew.eased = level.unbounded, level.place_at, level.eased
    return anew


def _move(level: Level, reading: Reading, most: float, rules: Rules, *, over: bool | None) -> None:
    step = reading.at - level.read_at
    # Without a round in between only the node was slow. With one, that round did not find the holder over or within.
    near = step <= (rules.in_a_row if level.read_at == reading.earlier else TOGETHER * rules.interval)
    if over is None and near:
        return  # the next reading may still be close to the last one that is known
    together = near and level.over is not None
    if together and over and level.over:
        level.seconds += step
        level.unbounded += step
        _credit(level, reading, step, most)
    elif not together or not (over or level.over):
        level.seconds = max(0.0, level.seconds - step / 2)
        level.unbounded = max(0.0, level.unbounded - step / 2)
        if level.unbounded <= 0:
            level.place_at, level.eased = None, 0
    victim = reading.victim or level.victim
    if victim not in level.own and victim != level.victim and not reading.several:
        level.own = own_time(level.own, victim, 0.0)
        level.excesses = {key: replace(each, readings=0) for key, each in level.excesses.items()}
    level.read_at, level.over, level.victim = reading.at, over, victim
    if reading.victim:
        level.several = reading.several


def _credit(level: Level, reading: Reading, step: float, most: float) -> None:
    """Note the seconds of the victim. Where it was another one at the beginning, half of them are for each."""
    own, now = level.own, reading.victim
    if now == level.victim:
        if level.warned_at is None or now in own:  # a pod that joins later is warned for itself first
            level.own = own_time(own, now, min(own.get(now, 0.0) + step, most))
        return
    for victim in (level.victim, now):
        if victim in own:
            level.own = own = own_time(own, victim, min(own[victim] + step / 2, most))


def _count(level: Level, reading: Reading, rules: Rules) -> None:
    excesses, slow = dict(level.excesses), 0.0
    if reading.earlier is not None:
        slow = 2 * min(rules.in_a_row, reading.at - reading.earlier)
    for device in reading.devices:
        if not device.over:
            continue
        place = device.device
        known = level.excesses.get(place)
        if known is None:
            excesses[place] = Excess(1, reading.at, device.charged, device.cap, device.bound, device.charged)
            continue
        gap = reading.at - known.last_at
        readings, last_at = known.readings, known.last_at
        if gap > max(RECENT * rules.interval, slow) * len(level.excesses):
            readings, last_at = 1, reading.at
        elif readings == 0 or gap >= APART * rules.interval:
            readings, last_at = min(readings + 1, READINGS), reading.at
        least, cap = min(known.least, device.charged), min(known.cap, device.cap)
        excesses[place] = Excess(readings, last_at, least, cap, known.bound, max(known.most, device.charged))
    level.excesses = excesses
