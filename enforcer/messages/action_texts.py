"""
What users read about each action: the words of sentences, and its own Event.

What comes in: nothing. What goes out: the reasons of all Events, and a row of texts for each action.

The rule: the texts of an action stand here, and nowhere else. `sentences` and `notices` know no action by its name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from enforcer.policy.vocabulary import Rung


class EventReason(StrEnum):
    """What users, scripts and alerts look for, so that it stays; and what was done, where the notice does not say."""

    _value_: str
    action: str

    def __new__(cls, reason: str, action: str = "") -> Self:
        """Make a member that is its `reason`."""
        member = str.__new__(cls, reason)
        member._value_, member.action = reason, action
        return member

    EXCEEDED = "GPUMemoryLimitExceeded", "Notify"
    FENCED = "GPUMemoryLimitFenced", "Fence"
    EVICTED = "GPUMemoryLimitEvicted", "Evict"
    KILLED = "GPUMemoryLimitKilled", "Kill"
    HELD = "GPUMemoryLimitHeld", "Hold"
    INVALID = "GPUMemoryLimitInvalid", "ReadLimit"


@dataclass(frozen=True, slots=True)
class EventText:
    """
    The Event of an action.

    Attributes:
        note: `{excess}` stands for container, usage and limit, and `{since}` for the time since
            gpusteward began to count the excess. The excess can be older: a change of the mode starts the count anew.
            Before an action, `{grace}` stands for the time that the pod has to end. Afterwards, `{how}` says what was
            done.

    """

    reason: EventReason
    note: str


@dataclass(frozen=True, slots=True)
class ActionTexts:
    """
    The texts of one action.

    Attributes:
        next: what the action will do, as half a sentence. Where the action depends on more, "may" replaces "will", and
            where it does not follow, "would". `{it}` and `{container}` stand for the container that is acted on.
        past: the verb of an action that was done.
        before: the Event that is written before the action, because the pod goes with the action.
        after: the Event that is written once the effect was seen.

    """

    next: str
    past: str
    before: EventText | None = None
    after: EventText | None = None

    @property
    def would(self) -> str:
        """What the action would do, as half a sentence."""
        return self.next.replace(" will ", " would ")

    @property
    def may(self) -> str:
        """What the action may do, as half a sentence."""
        return self.next.replace(" will ", " may ")


TEXTS: Mapping[Rung, ActionTexts] = {
    Rung.NOTIFY: ActionTexts("an Event will be written on the pod", "notified"),
    Rung.FENCE: ActionTexts(
        "the driver will refuse {it} more memory",
        "fenced",
        after=EventText(
            EventReason.FENCED,
            "{excess}. From now on the driver refuses it more memory of this device. It keeps the memory that it has.",
        ),
    ),
    Rung.EVICT: ActionTexts(
        "the pod will be evicted",
        "evicted",
        before=EventText(
            EventReason.EVICTED,
            "{excess}. gpusteward began to count this excess {since} ago, and the pod is evicted. "
            "It has {grace} to end. Its controller may start another one.",
        ),
    ),
    Rung.KILL: ActionTexts(
        "{container} will be killed",
        "killed",
        after=EventText(
            EventReason.KILLED,
            "{excess}. gpusteward began to count this excess {since} ago, and the container was killed{how}. "
            "The pod's restart policy says whether it starts again.",
        ),
    ),
}
