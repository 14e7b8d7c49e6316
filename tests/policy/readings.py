"""
Readings of one limit holder, for tests of its level alone.

Letters come in, one for each round: `o` over, `w` within, `?` unknown, `-` no round. Levels go out.
"""

from collections.abc import Sequence
from dataclasses import replace

from enforcer.policy.levels import Announcement, Level, OnDevice, Reading, Terms
from enforcer.policy.rules import Rules
from enforcer.policy.vocabulary import Mode, Rung, Trigger
from enforcer.policy.weighing import weigh
from exporter.model import DeviceKey, GpuUuid
from policy.scenes import GIB, UNHURRIED

RULES = replace(UNHURRIED, trigger=Trigger.LIMIT, grace=30.0)
"""An interval is 5 s. The warning comes after 15 s over the limit, an action is due after 45 s."""
LIMIT = 8 * GIB
ABOVE = 12 * GIB
FIRST, SECOND = DeviceKey(GpuUuid("GPU-0")), DeviceKey(GpuUuid("GPU-1"))
STATES = {"o": True, "w": False, "?": None}


def announcement(rules: Rules = RULES, rung: Rung | None = Rung.EVICT, mode: Mode = Mode.ENFORCE) -> Announcement:
    """Say that this step follows in this mode."""
    return Announcement(Terms(mode, rung, rules.trigger, rules.ladder, rules.mps))


def on(device: DeviceKey, over: bool | None, charged: int = ABOVE, bound: int = LIMIT, cap: int = 0) -> OnDevice:
    """Make what a round read of a device."""
    return OnDevice(device, over, charged, bound, cap)


class Holder:
    """One limit holder, and its level."""

    def __init__(self, rules: Rules = RULES, *, at: float = 0.0, level: Level | None = None) -> None:
        self.rules = rules
        self.at = at
        self.level = level
        self.says = announcement(rules)
        self.grace = rules.grace

    @property
    def seconds(self) -> float:
        """The level."""
        return 0.0 if self.level is None else self.level.seconds

    @property
    def known(self) -> Level:
        """The level, where there is one."""
        assert self.level is not None
        return self.level

    def read(
        self,
        *over: bool | None,
        after: float = 5.0,
        charged: int = ABOVE,
        bound: int = LIMIT,
        cap: int = 0,
        victim: str = "main",
        several: bool = False,
    ) -> float:
        """Read the devices after so many seconds; the level after it."""
        earlier, self.at = self.at, self.at + after
        devices = tuple(
            on(device, state, charged, bound, cap) for device, state in zip((FIRST, SECOND), over, strict=False)
        )
        reading = Reading(self.at, devices, victim, several, earlier)
        self.level = weigh(self.level, reading, self.says, self.grace, self.rules)
        return self.seconds

    def play(self, trace: str, step: float = 5.0) -> list[float]:
        """Read one device for each letter; the level after each round that took place."""
        missed, levels = 0, []
        for letter in trace:
            if letter == "-":
                missed += 1
                continue
            levels.append(self.read(STATES[letter], after=step * (missed + 1)))
            missed = 0
        return levels


def levels(trace: str, rules: Rules = RULES, step: float = 5.0) -> list[float]:
    """Play a trace from the beginning."""
    return Holder(rules).play(trace, step)


def jittered(count: int, random: Sequence[float], interval: float = 5.0) -> list[float]:
    """Space rounds by 0.8 to 1.2 intervals; `random` has numbers from 0 to 1."""
    return [interval * (0.8 + 0.4 * random[index % len(random)]) for index in range(count)]
