"""
What happens in the day, and when.

What comes in: the number of rounds, and how often each thing happens. What goes out: turns in the order of their
rounds. The rule: nothing is drawn by lot, each kind is spread evenly, and no two kinds begin together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

ROUNDS = 17_280
"""A day of rounds every 5 s."""


class Event(StrEnum):
    """What happens to the daemon, beside the pods that come and go."""

    API_SERVER = "API server killed and restarted"
    KUBELET = "kubelet restarted"
    DRIVER = "driver unloaded and loaded"
    GPU = "GPU lost and found"
    HANG = "driver call hangs"
    EDIT = "config edited"
    BROKEN = "config broken and repaired"
    STOP = "stop file set and removed"
    TOKEN = "token rotated"
    XID = "XID error"


OFTEN: Mapping[Event, int] = {
    Event.API_SERVER: 6,
    Event.KUBELET: 24,
    Event.DRIVER: 8,
    Event.GPU: 12,
    Event.HANG: 6,
    Event.EDIT: 24,
    Event.BROKEN: 6,
    Event.STOP: 12,
    Event.TOKEN: 24,
    Event.XID: 48,
}
"""Times a day."""
TWICE: Mapping[Event, int] = dict.fromkeys(Event, 2)
"""Once in each half."""


@dataclass(frozen=True, slots=True, order=True)
class Turn:
    """An event, and the round in which it begins."""

    round: int
    event: Event


def script(rounds: int = ROUNDS, often: Mapping[Event, int] = OFTEN) -> list[Turn]:
    """Spread the events over a day of so many rounds; the first and the last twentieth are quiet."""
    kinds = [event for event in Event if often.get(event)]
    turns = [
        Turn(round(rounds * (0.05 + 0.9 * (number + (place + 0.5) / len(kinds)) / often[event])), event)
        for place, event in enumerate(kinds)
        for number in range(often[event])
    ]
    return sorted(turns)
