"""Which Events are written, when, and how often: a stepped clock, and arbitrary histories."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from enforcer.messages.action_texts import EventReason
from enforcer.messages.events import (
    BURST,
    MOST_SERIES,
    REFILL,
    REMINDER,
    RENEWAL,
    Event,
    EventType,
    Notice,
    Regarding,
    Remembered,
    cut,
    event_name,
    plan,
)
from enforcer.policy.holder import HolderKey
from exporter.model import PodUid
from pace import quick

AT = 1_700_000_000.0
EXCEEDED, HELD, EVICTED = EventReason.EXCEEDED, EventReason.HELD, EventReason.EVICTED


def notice(
    reason: EventReason = EXCEEDED,
    *,
    uid: str = "uid-1",
    container: str = "main",
    topic: str = "",
    note: str = "uses too much",
    pod: str = "train-0",
    at: float = AT,
) -> Notice:
    return Notice(Regarding("team-a", pod, PodUid(uid), container), reason, note, at, topic)


class Steps:
    """The aggregator, and a clock that is stepped."""

    def __init__(self) -> None:
        self.remembered = Remembered()
        self.now = 1000.0

    def tell(self, *notices: Notice, after: float = 0.0) -> tuple[Event, ...]:
        """Step, and tell; notices that were seen `after` seconds later say so."""
        self.now += after
        seen = [replace(one, at=AT + self.now - 1000.0) for one in notices]
        self.remembered, events = plan(seen, self.remembered, self.now)
        return events


def counts(events: Iterable[Event]) -> list[int]:
    return [event.count for event in events]


def test_a_change_is_told_at_once() -> None:
    """The first notice of a reason is an Event in the same round, and so is the first of the next reason."""
    steps = Steps()
    (exceeded,) = steps.tell(notice())
    assert (exceeded.first.reason, exceeded.count, exceeded.last_at) == (EXCEEDED, 1, AT)
    (evicted,) = steps.tell(notice(EVICTED), after=5.0)
    assert (evicted.first.reason, evicted.count) == (EVICTED, 1)
    assert exceeded.name != evicted.name


@pytest.mark.fault(5)
def test_what_lasts_is_reported_again_after_five_minutes() -> None:
    """Said in every round, it is written once, and then each five minutes as one more of its series, not between."""
    steps = Steps()
    (first,) = steps.tell(notice())
    written = [event for _ in range(180) for event in steps.tell(notice(), after=5.0)]
    assert counts(written) == [61, 121, 181]
    assert {event.name for event in written} == {first.name}
    assert [event.last_at - AT for event in written] == [300.0, 600.0, 900.0]


def test_figures_in_the_note_do_not_make_another_event() -> None:
    """The note may have other bytes in each round: it is still one series, and its first note stays."""
    steps = Steps()
    (first,) = steps.tell(notice(note="uses 9 GiB"))
    assert steps.tell(notice(note="uses 10 GiB"), after=5.0) == ()
    (again,) = steps.tell(after=REMINDER)
    assert (again.name, again.first.note, again.count) == (first.name, "uses 9 GiB", 2)


def test_what_came_back_within_five_minutes_is_told_when_they_are_over() -> None:
    """Seen again after a minute, and then no more: the reminder says when it was seen, not when it was written."""
    steps = Steps()
    steps.tell(notice())
    assert steps.tell(notice(), after=60.0) == ()
    assert steps.tell(after=REMINDER - 61.0) == ()
    (again,) = steps.tell(after=1.0)
    assert (again.count, again.last_at) == (2, AT + 60.0)
    assert steps.tell(after=REMINDER) == (), "nothing was seen since"


def test_another_topic_is_another_matter() -> None:
    """A refusal that changes has an Event at once, and each reason has a series of its own."""
    steps = Steps()
    (budget,) = steps.tell(notice(HELD, topic="budget_node"))
    (blocked,) = steps.tell(notice(HELD, topic="blocked"), after=5.0)
    assert budget.name != blocked.name
    assert steps.tell(notice(HELD, topic="budget_node"), after=5.0) == ()


def test_a_series_of_half_an_hour_begins_anew_with_new_figures() -> None:
    """The server does not allow a note to change: after half an hour another Event has the present figures."""
    steps = Steps()
    (old,) = steps.tell(notice(note="uses 9 GiB"))
    rounds = int(RENEWAL / 5.0)
    written = [event for _ in range(rounds) for event in steps.tell(notice(note="uses 12 GiB"), after=5.0)]
    assert [event.name == old.name for event in written] == [True] * 5 + [False]
    assert (written[-1].first.note, written[-1].count) == ("uses 12 GiB", 1)


def test_a_series_whose_words_are_the_same_goes_on() -> None:
    """There is nothing to renew: a limit that is invalid for hours is one Event, however long."""
    steps = Steps()
    (old,) = steps.tell(notice())
    rounds = int(2 * RENEWAL / 5.0)
    written = [event for _ in range(rounds) for event in steps.tell(notice(), after=5.0)]
    assert ({event.name for event in written}, counts(written)[-1]) == ({old.name}, rounds + 1)


def test_an_event_is_named_by_what_it_says() -> None:
    """After a restart the same words are the same Event, whenever they are said; other figures are another one."""
    (before,), (same,) = Steps().tell(notice()), Steps().tell(notice(), after=60.0)
    (other,) = Steps().tell(notice(note="uses more"))
    assert (same.name, same.last_at) == (before.name, before.last_at + 60.0)
    assert other.name != before.name


def test_what_lasts_without_news_is_written_each_half_hour() -> None:
    """Said in every round as lasting, it makes a write each half hour, with the figures of its own time."""
    steps = Steps()
    steps.tell(notice(note="uses 9 GiB"))
    lasting = replace(notice(note="uses 12 GiB"), lasting=True)
    written = [(number, event) for number in range(1, 1081) for event in steps.tell(lasting, after=5.0)]
    assert [number * 5.0 for number, _ in written] == [RENEWAL, 2 * RENEWAL, 3 * RENEWAL]
    assert [event.first.note for _, event in written] == ["uses 12 GiB"] * 3
    assert steps.remembered.dropped == 0


def test_what_lasts_is_written_at_once_where_it_is_not_known() -> None:
    """A daemon that has just started does not know which Events stand."""
    steps = Steps()
    assert len(steps.tell(replace(notice(), lasting=True))) == 1


def test_a_warning_that_is_asked_for_is_written_at_once_each_time() -> None:
    """A grace waits for it: it is one more of its series, and names the holder whose grace runs then."""
    steps = Steps()
    (first,) = steps.tell(notice())
    holder = HolderKey(PodUid("uid-1"), "main", "")
    (again,) = steps.tell(replace(notice(), holder=holder), after=10.0)
    assert (again.name, again.count, again.first.holder) == (first.name, 2, holder)
    burst = [steps.tell(replace(notice(), holder=holder), after=1.0) for _ in range(2 * BURST)]
    assert len([event for events in burst for event in events]) == BURST - 2, "the pod's burst bounds it"


def test_what_the_server_has_forgotten_begins_anew() -> None:
    """An hour after the last write nothing is remembered, and the same notice is an Event at once."""
    steps = Steps()
    (old,) = steps.tell(notice())
    steps.tell(after=3600.0)
    assert steps.remembered.series == {}
    (new,) = steps.tell(notice())
    assert (new.count, new.first.at) == (1, old.first.at + 3600.0)


def test_a_pod_made_anew_has_events_of_its_own() -> None:
    """The same names with another UID: an Event at once, under another name."""
    steps = Steps()
    (old,) = steps.tell(notice(uid="uid-1"))
    (new,) = steps.tell(notice(uid="uid-2"))
    assert (new.first.regarding.pod_uid, new.name != old.name) == ("uid-2", True)


def test_a_pod_gets_a_burst_and_then_one_each_five_minutes() -> None:
    """A user who rewrites an annotation for ever makes 25 Events, then one in five minutes; the rest is counted."""
    steps = Steps()
    burst = steps.tell(*(notice(topic=str(number)) for number in range(100)))
    assert (len(burst), steps.remembered.dropped) == (BURST, 75)
    assert len(steps.tell(notice(uid="uid-2"))) == 1, "another pod pays nothing for it"
    assert steps.tell(notice(topic="a"), after=REFILL - 1.0) == ()
    assert len(steps.tell(notice(topic="b"), notice(topic="c"), after=1.0)) == 1


def test_no_more_is_remembered_than_a_bound() -> None:
    """A node of short-lived pods: the series written longest ago is forgotten, and the new one is written."""
    steps = Steps()
    pods = [f"uid-{number}" for number in range(MOST_SERIES + 128)]
    for first in range(0, len(pods), 32):  # new in one round; one at a time they cost half a second
        assert len(steps.tell(*(notice(uid=uid) for uid in pods[first : first + 32]), after=0.32)) == 32
    assert list(steps.remembered.series) == [(uid, "main", EXCEEDED, "") for uid in pods[128:]]


@pytest.mark.parametrize(
    "pod",
    [
        *(
            "a",
            "train-0",
            ".".join([*["a" * 63] * 3, "b" * 61]),
            "a" * 235 + "." + "b" * 17,
            "a" * 235 + "-" + "b" * 17,
        ),
        *("Not_A.Name", "", "a..b", "-a", "été", "\udcff"),
    ],
)
def test_an_event_has_a_valid_name(pod: str) -> None:
    """A DNS subdomain of at most 253 characters that begins like the pod's name, also where that is none."""
    name = event_name(notice(pod=pod))
    labels = name.split(".")
    assert len(name) <= 253
    assert all(label.isascii() and label.replace("-", "a").isalnum() and label == label.lower() for label in labels)
    assert all(label[0] != "-" != label[-1] for label in labels)
    assert name.startswith(pod[:200] if len(pod) > 1 and pod[0] in "at" and ".." not in pod else ("a.", "pod."))


def test_the_note_fits_the_server() -> None:
    """At most 1,024 bytes, cut between characters; an action at most 128; what was cut ends in an ellipsis."""
    steps = Steps()
    long = replace(notice(note="€" * 1000), action="Ä" * 100)
    (event,) = steps.tell(long)
    assert event.first.note == "€" * 340 + "…"
    assert len(event.first.action.encode()) <= 128
    assert event.first.action.endswith("Ä…")
    assert cut("a" * 1024, 1024) == "a" * 1024
    assert cut("a" * 1025, 1024) == "a" * 1021 + "…"


def test_a_note_leaves_the_terminal_alone() -> None:
    """Users' own words are quoted: line feeds, escapes and halves of characters become spaces."""
    assert cut("a\n\x1b[31mb\udcffc\u202e", 100) == "a  [31mb c "


def test_an_event_says_what_was_done() -> None:
    """Each reason has an action where the notice names none, and is a warning unless it says otherwise."""
    steps = Steps()
    events = steps.tell(*(notice(reason) for reason in EventReason))
    assert [event.first.action for event in events] == ["Notify", "Fence", "Evict", "Kill", "Hold", "ReadLimit"]
    assert {event.first.type for event in events} == {EventType.WARNING}


HISTORIES = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.5, 5.0, 60.0, 299.0, 300.0, 301.0, 1800.0, 3599.0, 3600.0, 90_000.0]),
        st.lists(
            st.builds(
                notice,
                st.sampled_from(EventReason),
                uid=st.sampled_from(["uid-1", "uid-2"]),
                container=st.sampled_from(["main", "side"]),
                topic=st.text("ab", max_size=3),
                note=st.text(max_size=2000),
            ),
            max_size=40,
        ),
    ),
    max_size=30,
)


@settings(max_examples=settings().max_examples * (1 if quick() else 2), deadline=None)
@given(HISTORIES)
@example([(after, [notice(topic=str(number)) for number in range(30)]) for after in (0.0, 299.0, 1.0)])
def test_the_bounds_hold_in_every_history(history: list[tuple[float, list[Notice]]]) -> None:
    """
    For any notices at any times, no pod causes more than 25 writes and one more each five minutes.

    No series is written twice in five minutes. Counts grow, nothing is invented, and each text fits the server.
    """
    steps = Steps()
    by_pod: dict[str, list[float]] = defaultdict(list)
    by_key: dict[object, list[float]] = defaultdict(list)
    count: dict[tuple[str, float], int] = {}
    told = 0
    for after, notices in history:
        told += len(notices)
        for event in steps.tell(*notices, after=after):
            by_pod[event.first.regarding.pod_uid].append(steps.now)
            by_key[event.first.key].append(steps.now)
            begun = event.name, event.first.at
            assert event.count > count.get(begun, 0)
            count[begun] = event.count
            assert len(event.first.note.encode()) <= 1024
    for times in by_pod.values():
        for start, begin in enumerate(times):
            for number, end in enumerate(times[start:], start=1):
                assert number <= BURST + (end - begin) / REFILL
    for times in by_key.values():
        assert all(later - earlier >= REMINDER for earlier, later in pairwise(times))
    unwritten = sum(known.event.count - known.written for known in steps.remembered.series.values())
    assert sum(count.values()) + steps.remembered.dropped + unwritten <= told
    assert len(steps.remembered.series) <= MOST_SERIES
