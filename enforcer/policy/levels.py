"""
The level of one limit holder: for how long, in total, it was certainly over its limit.

Nothing comes in. The types go out that a level, a reading and an announcement are made of, and what a level allows.

The rule: a level alone says whether the pod is warned, whether its warning is waited for, and whether an action is due.
`enforcer.policy.weighing` moves it, and `enforcer.policy.announcing` says when the pod is warned.

    seconds                what follows
    0                      nothing
    warn_after             the pod is warned; the level waits here until the API server has accepted the warning
    warn_after + grace     an action is due, until the level is below half of that
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from enforcer.policy.rules import FEWEST_INTERVALS, READINGS, Rules
from enforcer.policy.vocabulary import Kind, Mode, Reason, Rung, Trigger
from exporter.model import DeviceKey

PATIENCE = 60.0
"""Seconds for which a level waits for its warning to be accepted: without an API server the limit holds, too."""
HOUR = 3600.0
"""Seconds for which the API server keeps an Event. A level below warn_after needs a new warning after that."""
OWN = 30.0
"""Seconds at most for which a restarted container must be over itself. More would pay a tenant for its restarts."""
EASED = 3
"""Times at most that a change of the declared limit lowers a level: an administrator may correct a change, and a tenant
that moves its own limit up and down gains no more than that."""
MOST_VICTIMS = 256
"""Containers or pods of one holder whose own time is remembered: more than a node has pods, or they could take turns
and be forgotten."""


@dataclass(slots=True)  # as `Case`
class Terms:
    """
    What a pod is warned of.

    `rung` is the step that follows. All else is as written: what is missing for the moment changes no terms.
    """

    mode: Mode
    rung: Rung | None
    trigger: Trigger
    ladder: tuple[Rung, ...]
    mps: Rung

    def rewritten(self, now: "Terms") -> bool:
        """Tell whether an operator or an administrator has written something else since then."""
        return (self.mode, self.trigger, self.ladder, self.mps) != (now.mode, now.trigger, now.ladder, now.mps)


@dataclass(slots=True)  # as `Case`
class Excess:
    """
    What was counted on one device since the level was last 0.

    Attributes:
        readings: over, an interval apart, none of them long ago; counting stops at three.
        last_at: monotonic seconds of the last that counted.
        least: the smallest usage among the readings over, without what was allowed for contexts, bytes. It begins anew
            when the pod is warned anew.
        cap: the smallest cap of that allowance among them, bytes.
        bound: the announced limit, up to which the holder may use memory: the declared limit and the tolerance, bytes.
        most: the largest usage among all readings over, bytes.

    """

    readings: int
    last_at: float
    least: int
    cap: int
    bound: int = 0
    most: int = 0


@dataclass(slots=True)  # as `Case`
class Level:
    """
    The level of one limit holder. Times are monotonic seconds.

    Attributes:
        read_at: the last reading.
        over: what it said; None: unknown.
        seconds: the level.
        since: when it last left 0; `due_at` when it was full, and None again once it is below half of that.
        unbounded: the level as it would be without an upper bound. `place_at`: when the level was first full since
            `unbounded` was last 0, which gives the holder its place in the order. A holder that is over for more than a
            third of the time keeps its place, however long its pauses are.
        eased: how often a change of the declared limit has lowered the level since `unbounded` was last 0.
        warned_at: when the present warning was asked for; None before.
        unheard_at: when the first warning that the API server has not accepted was asked for, remembered for an hour.
            The level waits once, however often it falls and rises meanwhile.
        terms: what was announced; None while an operator's hold prevented any action.
        announced: the longest time over the limit after which an action was announced, seconds.
        victim: what an action would end now: a container in one generation; of a shared claim a pod.
        several: the victim is one of several pods that share the limit.
        own: seconds over while each of them was the victim, so that none is acted on for another one's excess. Of pods
            that share the limit it names, once there is a warning, those that were warned themselves.
        excesses: by device.

    """

    read_at: float
    over: bool | None = None
    seconds: float = 0.0
    since: float | None = None
    due_at: float | None = None
    warned_at: float | None = None
    unheard_at: float | None = None
    terms: Terms | None = None
    announced: float = 0.0
    victim: str = ""
    several: bool = False
    own: Mapping[str, float] = field(default_factory=dict)
    excesses: Mapping[DeviceKey, Excess] = field(default_factory=dict)
    unbounded: float = 0.0
    place_at: float | None = None
    eased: int = 0

    def copied(self) -> "Level":
        """Make another one that may be changed until it is handed on; `dataclasses.replace` takes ten times as long."""
        return Level(
            self.read_at,
            self.over,
            self.seconds,
            self.since,
            self.due_at,
            self.warned_at,
            self.unheard_at,
            self.terms,
            self.announced,
            self.victim,
            self.several,
            self.own,
            self.excesses,
            self.unbounded,
            self.place_at,
            self.eased,
        )

    def enough_readings(self, device: DeviceKey) -> bool:
        """Tell whether three readings of this device, an interval apart, showed the excess."""
        excess = self.excesses.get(device)
        return excess is not None and excess.readings >= READINGS


@dataclass(slots=True)  # as `Case`
class OnDevice:
    """
    One device in a reading.

    Attributes:
        over: certainly above the ceiling (True), certainly not (False), or unknown (None).
        charged: bytes that are certainly used, without what is allowed for contexts.
        bound: bytes above which `charged` is an excess: the declared limit and the tolerance.
        cap: the most that may be allowed for contexts.

    """

    device: DeviceKey
    over: bool | None
    charged: int
    bound: int
    cap: int


@dataclass(slots=True)  # as `Case`
class Reading:
    """
    All devices of a limit holder at one moment.

    Attributes:
        victim: what an action would end; `several`: it is one of several pods that share the limit.
        earlier: when the last round by time before this one was read; None for the first one.

    """

    at: float
    devices: tuple[OnDevice, ...]
    victim: str = ""
    several: bool = False
    earlier: float | None = None

    @property
    def over(self) -> bool | None:
        """Over: some device is. Within: all are. Else unknown."""
        states = [device.over for device in self.devices]
        if True in states:
            return True
        return None if None in states or not states else False


@dataclass(slots=True)  # as `Case`
class Announcement:
    """
    What would be announced now.

    Attributes:
        terms: None where the namespace's labels cannot be read.
        prevented: the reason of kind chosen that prevents any action; None where there is none.
        silent: no Event is written, because something is missing for the moment: the pod is warned when it is there.

    """

    terms: Terms | None
    prevented: Reason | None = None
    silent: bool = False


def lasts(since: float | None, at: float) -> bool:
    """Tell whether something was less than an hour ago: so long it is remembered."""
    return since is not None and at - since < HOUR


def waits(level: Level, at: float, mode: Mode) -> bool:
    """Tell whether the level waits for its warning to be accepted. Without `confirm` none is unheard."""
    if mode.rank < Mode.WARN.rank or level.unheard_at is None:
        return False
    return at - level.unheard_at < PATIENCE


def capacity(level: Level | None, grace: float, rules: Rules) -> float:
    """Return the seconds over the limit after which an action is due: never fewer than were announced."""
    return max(rules.capacity(grace), 0.0 if level is None else level.announced)


def full(level: Level, at: float, grace: float, mode: Mode, rules: Rules) -> bool:
    """Tell whether an action is due: the level was full, the warning was delivered, and the victim had its own time."""
    most = capacity(level, grace, rules)
    own = most if level.several else max(min(rules.warn_after, OWN), FEWEST_INTERVALS * rules.interval)
    mine = level.own.get(level.victim, 0.0)
    return level.due_at is not None and mine >= min(own, most) and not waits(level, at, mode)


def prevents(reason: Reason | None) -> Reason | None:
    """Return the reason where it is of kind chosen: only these are announced."""
    return reason if reason is not None and reason.kind is Kind.CHOSEN else None


def own_time(own: Mapping[str, float], victim: str, seconds: float) -> Mapping[str, float]:
    """Note the seconds of a victim, and forget the one with the least where there are many."""
    noted = {**own, victim: seconds}
    if len(noted) > MOST_VICTIMS:
        del noted[min(noted.keys() - {victim}, key=lambda name: (noted[name], name))]
    return noted
