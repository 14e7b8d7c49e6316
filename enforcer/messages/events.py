"""
Events on pods: which to write, when, and how often.

What comes in: notices, what is remembered, the time. What goes out: Events as they shall stand on the server
(events.k8s.io/v1), and what to remember.

The rule: a change is written at once. What comes back is written again after five minutes at the earliest, as one more
of its series. What lasts is written each half hour. A number that changes by itself does not begin another series. Each
pod gets a burst of 25 and then one write each five minutes (the figures of client-go's recorder). Nothing here grows
without bound. The server does not change the note of an Event, so a series that is half an hour old gets a new Event.
An Event is named by what it says: the same words after a restart continue the same Event.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import sha256
from typing import TypeAlias

from enforcer.messages.action_texts import EventReason
from enforcer.policy.holder import HolderKey
from exporter.model import ContainerKind, PodUid

REMINDER = 300.0
"""Seconds between two writes of one series at least."""
RENEWAL = 1800.0
"""Seconds after which a series whose note would be another begins anew: its figures are that old at most."""
KEPT = 3600.0
"""Seconds that the server keeps an Event after it was last written (`--event-ttl`)."""
BURST, REFILL = 25, 300.0
"""Writes that a pod may cause at once; seconds in which one more is granted."""
MOST_SERIES = 1024
"""Some 2 MB at their longest notes. A node has some 250 pods at most."""
MOST_PODS = 1024
LONGEST_NOTE = 1024
LONGEST_ACTION = 128
LONGEST_NAME = 253
DIGEST = 16


class EventType(StrEnum):
    """The two that there are."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Regarding:
    """What an Event is about; without a container it is the whole pod."""

    namespace: str
    pod: str
    pod_uid: PodUid
    container: str = ""
    kind: ContainerKind = ContainerKind.REGULAR


Key: TypeAlias = tuple[PodUid, str, EventReason, str]


@dataclass(frozen=True, slots=True)
class Notice:
    """
    Something to be written on a pod.

    Attributes:
        at: Unix time at which it was seen.
        topic: tells apart what has the same reason, is another matter, and must be written at once (which refusal,
            which device). Never a number that changes by itself.
        action: what was done; empty for that of the reason.
        holder: of a warning that is asked for now: the grace of this limit holder runs when the server has accepted it.
            It is written at once, as one more of its series where that is known. `warned_at` tells its warnings apart.
        lasting: nothing is new; it is written only where its series was not written for half an hour.

    """

    regarding: Regarding
    reason: EventReason
    note: str
    at: float
    topic: str = ""
    type: EventType = EventType.WARNING
    action: str = ""
    holder: HolderKey | None = None
    warned_at: float = 0.0
    lasting: bool = False

    @property
    def key(self) -> Key:
        """What makes two notices one series."""
        return self.regarding.pod_uid, self.regarding.container, self.reason, self.topic


@dataclass(frozen=True, slots=True)
class Event:
    """
    An Event as it shall stand on the server, whatever stands there now.

    Attributes:
        first: the notice that began it; the server lets nothing of it be changed.
        count: how often it was seen by now.
        last_at: Unix time at which it was seen last.

    """

    name: str
    first: Notice
    count: int
    last_at: float


@dataclass(frozen=True, slots=True)
class Series:
    """An Event with its times on the monotonic clock; `written` is the count that was last handed out."""

    event: Event
    began: float
    written: int
    written_at: float

    @property
    def pending(self) -> bool:
        """Whether more was seen than was written."""
        return self.event.count > self.written


@dataclass(frozen=True, slots=True)
class Remembered:
    """
    What `plan` hands to itself.

    Attributes:
        full_at: when each pod may cause a whole burst again; a pod that may now is not in here.
        dropped: notices that were never written, since the start.

    """

    series: Mapping[Key, Series] = field(default_factory=dict)
    full_at: Mapping[PodUid, float] = field(default_factory=dict)
    dropped: int = 0


def plan(notices: Iterable[Notice], remembered: Remembered, now: float) -> tuple[Remembered, tuple[Event, ...]]:
    """
    Say which Events to write now; `now` is in seconds of a clock that only grows.

    To be asked once a round, also without notices: what was seen since the last write follows when its time has come.
    """
    series = {key: known for key, known in remembered.series.items() if now - known.written_at < KEPT}
    granted = _Granted({uid: at for uid, at in remembered.full_at.items() if at > now}, now)
    forgotten = [known for key, known in remembered.series.items() if key not in series]
    dropped = remembered.dropped + sum(known.pending for known in forgotten)
    writes: dict[str, Event] = {}
    for notice in map(_fitting, notices):
        known = series.get(notice.key)
        begun = Event(event_name(notice), notice, 1, notice.at)
        if notice.lasting and known is not None and now - known.written_at < RENEWAL:
            continue
        if (known is None or _outlived(known, begun, now)) and granted.to(notice.regarding.pod_uid):
            if known is None and len(series) >= MOST_SERIES:
                dropped += series.pop(min(series, key=lambda key: series[key].written_at)).pending
            series[notice.key] = Series(begun, began=now, written=1, written_at=now)
            writes[begun.name] = begun
        elif known is not None:
            asked = notice if notice.holder is not None else known.event.first
            first = replace(known.event.first, holder=asked.holder, warned_at=asked.warned_at)
            seen = replace(known.event, first=first, count=known.event.count + 1, last_at=notice.at)
            series[notice.key] = replace(known, event=seen)
            if notice.holder is not None and granted.to(notice.regarding.pod_uid):
                series[notice.key] = Series(seen, known.began, written=seen.count, written_at=now)
                writes[seen.name] = seen
        elif not notice.lasting:
            dropped += 1
    for key, known in series.items():
        if known.pending and now - known.written_at >= REMINDER and granted.to(known.event.first.regarding.pod_uid):
            series[key] = replace(known, written=known.event.count, written_at=now)
            writes[known.event.name] = known.event
    return Remembered(series, granted.full_at, dropped), tuple(writes.values())


def event_name(notice: Notice) -> str:
    """Name the Event that this notice begins: a DNS subdomain, the same whenever that is said, and for nothing else."""
    text = repr((notice.regarding.namespace, *notice.key, notice.note))
    digest = sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:DIGEST]
    stem = notice.regarding.pod[: LONGEST_NAME - DIGEST - 1].rstrip("-.")
    return f"{stem if _is_subdomain(stem) else 'pod'}.{digest}"


def cut(text: str, longest: int) -> str:
    """
    Cut to so many bytes of UTF-8, between characters.

    What a terminal would act on, or could not show, becomes a space: names and declarations are the users' own words.
    """
    shown = "".join(letter if letter.isprintable() else " " for letter in text[: longest + 1])
    if len(shown.encode()) <= longest:
        return shown
    return shown.encode()[: longest - len("…".encode())].decode(errors="ignore") + "…"


class _Granted:
    """
    The writes that pods have left: one number each, the moment at which the whole burst is there again.

    `full_at` has no moments that are past.
    """

    def __init__(self, full_at: dict[PodUid, float], now: float) -> None:
        self.full_at = full_at
        self._now = now

    def to(self, pod: PodUid) -> bool:
        """Take one, if there is one."""
        full = self.full_at.get(pod, self._now)
        if full - self._now > (BURST - 1) * REFILL:
            return False
        if pod not in self.full_at and len(self.full_at) >= MOST_PODS:
            del self.full_at[min(self.full_at, key=self.full_at.__getitem__)]
        self.full_at[pod] = full + REFILL
        return True


def _outlived(known: Series, begun: Event, now: float) -> bool:
    return begun.name != known.event.name and now - known.began >= RENEWAL and now - known.written_at >= REMINDER


def _fitting(notice: Notice) -> Notice:
    """Make it fit the server's bounds."""
    action = cut(notice.action or notice.reason.action, LONGEST_ACTION)
    return replace(notice, note=cut(notice.note, LONGEST_NOTE), action=action)


def _is_subdomain(name: str) -> bool:
    labels = name.split(".")
    letters = set("abcdefghijklmnopqrstuvwxyz0123456789-")
    return all(label and set(label) <= letters and label.strip("-") == label for label in labels)
