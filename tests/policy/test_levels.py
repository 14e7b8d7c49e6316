"""
The level of one limit holder: the sentences on top of `weighing.py` and `announcing.py`, one after the other.

Traces of readings come in. The level after each reading goes out, and when the holder is warned and due.
"""

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from enforcer.policy.levels import (
    EASED,
    HOUR,
    MOST_VICTIMS,
    PATIENCE,
    Announcement,
    Level,
    Reading,
    capacity,
    full,
    own_time,
    waits,
)
from enforcer.policy.rules import LONGEST_GRACE, Rules
from enforcer.policy.vocabulary import Mode, Reason, Rung, Trigger
from policy.readings import ABOVE, FIRST, LIMIT, RULES, SECOND, Holder, announcement, jittered, levels, on
from policy.scenes import GIB

CONFIRM = replace(RULES, confirm=True)
AT_ONCE = replace(RULES, warn_after=0.0, grace=0.0)


def due(holder: Holder) -> bool:
    """Tell whether an action is due now."""
    return holder.level is not None and full(holder.level, holder.at, holder.grace, Mode.ENFORCE, holder.rules)


def asked_at(holder: Holder) -> float | None:
    """Say when the present warning was asked for."""
    return holder.known.warned_at


def warned(rules: Rules = RULES, trace: str = "oooo") -> Holder:
    """Play until the holder is warned."""
    holder = Holder(rules)
    holder.play(trace)
    assert holder.known.warned_at is not None
    return holder


def accept(holder: Holder) -> None:
    """Let the API server accept the present warning."""
    holder.level = replace(holder.known, unheard_at=None)


@pytest.mark.parametrize(
    ("trace", "after"),
    [
        # two readings over: the level rises by the time between them
        ("o", [0]),
        ("oo", [0, 5]),
        ("ooo", [0, 5, 10]),
        ("oooooooooo", [0, 5, 10, 15, 20, 25, 30, 35, 40, 45]),
        ("oooooooooooo", [0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 45, 45]),
        # one over, one within: it stands
        ("ow", [0, 0]),
        ("oow", [0, 5, 5]),
        ("oowo", [0, 5, 5, 5]),
        ("oowowowoo", [0, 5, 5, 5, 5, 5, 5, 5, 10]),
        # both within: it falls by half of the time
        ("w", [0]),
        ("oooww", [0, 5, 10, 10, 7.5]),
        ("oooowwoo", [0, 5, 10, 15, 15, 12.5, 12.5, 17.5]),
        ("ooowwwwwww", [0, 5, 10, 10, 7.5, 5, 2.5, 0, 0, 0]),
        ("oowwwwo", [0, 5, 5, 2.5, 0, 0, 0]),
        # a reading that is unknown: nothing while the next one may be close; then the whole gap lowers
        ("?", [0]),
        ("oo?", [0, 5, 5]),
        ("oooo?o", [0, 5, 10, 15, 15, 10]),
        ("oooo??", [0, 5, 10, 15, 15, 10]),
        ("oooo????", [0, 5, 10, 15, 15, 10, 10, 5]),
        ("oooo??oo", [0, 5, 10, 15, 15, 10, 7.5, 12.5]),
        ("ooo?w", [0, 5, 10, 10, 5]),
        # no round: of a slow node, or too long
        ("oooo-o", [0, 5, 10, 15, 25]),
        ("oooo--o", [0, 5, 10, 15, 30]),
        ("oooo---o", [0, 5, 10, 15, 5]),
        ("oooo-------o", [0, 5, 10, 15, 0]),
        ("oooo-w", [0, 5, 10, 15, 15]),
        ("oooo---w", [0, 5, 10, 15, 5]),
        ("oo-------------oo", [0, 5, 0, 5]),
    ],
)
def test_the_table_of_traces(trace: str, after: list[float]) -> None:
    """Each sentence of the module's rule, with the level after each round."""
    assert levels(trace) == after


@pytest.mark.parametrize(("step", "level"), [(15.0, 15.0), (15.1, 0.0)])
def test_two_readings_in_a_row_are_together_for_15_s(step: float, level: float) -> None:
    """A holder that is over at both ends of a longer gap is not known to be over between them."""
    assert levels("oo", step=step) == [0.0, level]


@pytest.mark.parametrize("interval", [0.5, 2.0, 5.0])
def test_the_limit_holds_where_a_round_takes_longer_than_an_interval(interval: float) -> None:
    """On a node with rounds of 12 s the action is due after as many seconds over the limit as everywhere else."""
    holder = Holder(replace(RULES, interval=interval))
    holder.play("ooooo", 12.0)
    assert (holder.seconds, due(holder)) == (39.0, False), "the warning was asked for at 15 s"
    assert holder.known.enough_readings(FIRST)
    holder.play("o", 12.0)
    assert (holder.seconds, due(holder)) == (45.0, True)


@pytest.mark.parametrize(("step", "level"), [(3.75, 11.25), (3.8, 0.0)])
def test_readings_with_an_unknown_one_between_are_together_for_one_and_a_half_intervals(
    step: float, level: float
) -> None:
    """That round did not find the holder over, so less is known than of a slow node."""
    assert levels("oo?o", step=step) == [0.0, step, step, level]


def test_a_gap_that_ends_an_excess_ends_its_warning() -> None:
    """The next reading over begins another excess: it has its own time, and its own warning."""
    holder = warned()
    earlier = asked_at(holder)
    assert holder.read(True, after=60.0) == 0.0
    assert (holder.known.warned_at, holder.known.since, holder.known.own) == (None, holder.at, {"main": 0.0})
    holder.play("ooo")
    assert (asked_at(holder), holder.seconds) == (holder.at, RULES.warn_after), earlier


def test_an_unknown_reading_between_two_close_ones_changes_nothing() -> None:
    """An early round that could not read the process does not part the readings before and after it."""
    holder = Holder()
    holder.play("oo")
    holder.read(None, after=2.0)
    assert holder.read(True, after=3.0) == 10.0


@pytest.mark.parametrize(
    ("states", "over"),
    [
        ((True, False), True),
        ((True, None), True),
        ((False, False), False),
        ((False, None), None),
        ((None, None), None),
        ((), None),
    ],
)
def test_a_holder_on_two_devices_is_over_on_one_and_within_on_all(
    states: tuple[bool | None, ...], over: bool | None
) -> None:
    """Unknown on one device says nothing of the holder, unless it is over on the other one."""
    holder = Holder()
    holder.read(True)
    holder.read(*states)
    assert holder.seconds == (5.0 if over else 0.0)
    assert holder.level is None or holder.level.over is (True if over is None else over)
    assert Reading(0.0, tuple(on(FIRST, state) for state in states)).over is over


def test_two_devices_raise_one_level_and_each_device_counts_its_readings() -> None:
    """A job that exceeds its limit on another GPU each time is over all the time, and each GPU needs three readings."""
    holder = Holder()
    assert [holder.read(*states) for states in ((True, False), (False, True)) * 5] == [5.0 * n for n in range(10)]
    assert due(holder)
    assert [holder.known.enough_readings(device) for device in (FIRST, SECOND)] == [True, True]
    once = Holder()
    once.read(True, True)
    for _ in range(9):
        once.read(True, False)
    assert [once.known.enough_readings(device) for device in (FIRST, SECOND)] == [True, False]


@pytest.mark.parametrize(
    ("trace", "counted"),
    [
        ("o", 1),
        ("oo", 2),
        ("ooo", 3),
        ("oooooo", 3),
        ("oowowo", 3),
        ("owowo", 1),
        ("oooowwwww", 3),
        ("oooowwwwwwo", 1),
        ("oooooo------o", 1),
    ],
)
def test_three_readings_none_of_them_long_ago(trace: str, counted: int) -> None:
    """An earlier reading counts for six intervals: one spike must not complete an old excess."""
    holder = Holder()
    holder.play(trace)
    assert holder.known.excesses[FIRST].readings == counted
    assert holder.known.enough_readings(FIRST) is (counted == 3)


@pytest.mark.parametrize("interval", [1.0, 2.0])
@pytest.mark.parametrize(("gap", "counted"), [(6, 3), (7, 1)])
def test_fast_rounds_forget_a_reading_as_fast(interval: float, gap: int, counted: int) -> None:
    """Six intervals are six seconds, if rounds come once a second: what a slow node needs counts on slow nodes only."""
    holder = Holder(replace(RULES, interval=interval))
    holder.play("o" * 20 + "w" * (gap - 1) + "o", interval)
    assert holder.known.excesses[FIRST].readings == counted


@pytest.mark.parametrize(("step", "counted"), [(3.75, 3), (3.7, 2)])
def test_readings_are_three_quarters_of_an_interval_apart(step: float, counted: int) -> None:
    """Rounds are jittered by a fifth; an early round is no reading of its own."""
    holder = Holder()
    holder.play("ooo", step)
    assert holder.known.excesses[FIRST].readings == counted


@pytest.mark.parametrize(("gap", "counted"), [(30.0, 3), (30.1, 1)])
def test_six_intervals_are_not_long_ago(gap: float, counted: int) -> None:
    """The edge of what counts: exactly six intervals."""
    holder = Holder()
    holder.play("ooooooooo")
    holder.read(True, after=gap)
    assert holder.known.excesses[FIRST].readings == counted


def test_the_fast_beat_counts_seconds_and_not_looks() -> None:
    """One round each second: warned after 15 s, due after 45 s, as with rounds of 5 s."""
    holder = Holder()
    holder.play("o" * 16, 1.0)
    assert (holder.seconds, holder.known.warned_at) == (15.0, 16.0)
    holder.play("o" * 29, 1.0)
    assert not due(holder)
    holder.play("o", 1.0)
    assert due(holder)


@given(st.lists(st.floats(0, 1), min_size=10, max_size=40))
def test_jittered_rounds_count_the_same_seconds(random: list[float]) -> None:
    """However rounds are spaced: nothing is due before warn_after and grace, or much later than that."""
    holder = Holder()
    holder.read(True)
    begun = holder.at
    for step in jittered(40, random):
        holder.read(True, after=step)
        if due(holder):
            break
    assert due(holder)
    # The level that overshoots warn_after within a round is cut there, so that the grace is whole.
    assert 45.0 <= holder.at - begun <= 45.0 + 2 * 6.0
    assert holder.at - (asked_at(holder) or begun) >= RULES.grace


TRACES = st.lists(st.tuples(st.sampled_from("ow?"), st.floats(0.5, 20.0)), max_size=120)


@given(TRACES)
def test_no_trace_raises_a_level_by_more_than_the_seconds_over(trace: list[tuple[str, float]]) -> None:
    """The level is never above the time between pairs of close readings over, and never above warn_after and grace."""
    holder, total, last, near = Holder(), 0.0, None, 0.0
    for letter, step in trace:
        before = holder.seconds
        now = {"o": True, "w": False, "?": None}[letter]
        longest = 15.0 if near == 0.0 else 7.5
        near += step
        holder.read(now, after=step)
        if now and last and near <= longest:
            total += near
        assert 0.0 <= holder.seconds <= min(total + 1e-9, 45.0)
        assert holder.seconds >= before - near / 2 - 1e-9
        assert not due(holder) or total >= 45.0 - 1e-9
        if now is not None or near > longest:
            last, near = now, 0.0


@pytest.mark.parametrize(
    ("share", "period"),
    [(share, period) for share in (0.4, 0.5, 0.7, 0.9) for period in (60.0, 300.0) if (share, period) != (0.4, 60.0)],
)
def test_a_holder_that_is_over_for_more_than_a_third_of_the_time_becomes_due(share: float, period: float) -> None:
    """Within the bound of docs/policy.md: C / ((3d - 1)/2 - 2h/P) + P + 2h, with jittered rounds."""
    slope = (3 * share - 1) / 2 - 2 * 5.0 / period
    bound = 45.0 / slope + period + 2 * 6.0
    random = Random(18)
    for _ in range(40):
        phase, holder = random.random() * period, Holder()
        while not due(holder):
            step = 5.0 * random.uniform(0.8, 1.2)
            over = (holder.at + step + phase) % period < share * period
            holder.read(over, after=step)
            assert holder.at <= bound


def test_a_holder_that_is_over_for_a_third_of_the_time_is_never_due() -> None:
    """20 s of each minute: rounds cannot tell it from a holder that returns to its limit."""
    holder = Holder()
    for index in range(2000):
        holder.read(index % 12 < 4)
        assert holder.seconds <= 25.0


def test_the_warning_is_at_warn_after_and_the_grace_begins_there() -> None:
    """The level is cut to warn_after in the round of the warning: seconds before it are none of the grace."""
    holder = Holder()
    holder.play("oooo", 4.8)
    assert asked_at(holder) is None
    assert holder.read(True, after=4.0) == 15.0
    assert asked_at(holder) == holder.at
    assert not due(holder)


@pytest.mark.parametrize(
    ("rules", "rounds"),
    [
        (AT_ONCE, 3),
        (replace(RULES, warn_after=0.0, grace=12.0), 4),
        (replace(RULES, warn_after=15.0, grace=0.0), 4),
        (replace(RULES, warn_after=5.0, grace=0.0), 3),
    ],
)
def test_a_grace_and_a_warn_after_of_zero(rules: Rules, rounds: int) -> None:
    """Two intervals of excess remain, and three readings: never fewer."""
    holder = Holder(rules)
    for index in range(1, rounds + 1):
        holder.read(True)
        assert due(holder) is (index == rounds)
    assert holder.known.enough_readings(FIRST)


def test_with_warn_after_zero_the_first_reading_over_warns() -> None:
    """The Event and the action are two intervals apart even then."""
    holder = Holder(AT_ONCE)
    holder.read(True)
    assert holder.known.warned_at == holder.at
    holder.play("o" * 10, 1.0)
    assert due(holder)


def test_with_a_warn_after_of_zero_the_level_waits_for_its_warning() -> None:
    """Where the API server has to accept it, the level waits at 0, and rises from there."""
    holder = Holder(replace(AT_ONCE, confirm=True))
    holder.play("ooooo")
    assert (holder.seconds, due(holder)) == (0.0, False)
    accept(holder)
    holder.play("oo")
    assert (holder.seconds, due(holder)) == (10.0, True)


def test_a_place_in_the_order_outlives_a_pause() -> None:
    """What was over for long keeps its place when its level is 0, and loses it after twice the time of its excess."""
    holder = warned(trace="o" * 40)
    place = holder.known.place_at
    assert place is not None
    holder.play("w" * 30)
    assert (holder.seconds, holder.known.place_at) == (0.0, place)
    holder.play("o" * 10)
    assert (due(holder), holder.known.place_at) == (True, place)
    holder.play("w" * 200)
    assert holder.level is None


def test_due_until_half_of_the_level() -> None:
    """A holder that was due keeps its place between its phases, and loses it below half of the full level."""
    holder = warned(trace="o" * 10)
    assert due(holder)
    since = holder.known.due_at
    while holder.seconds > 22.5:
        assert due(holder)
        holder.read(False)
    assert (holder.seconds, due(holder), holder.known.due_at) == (22.5, True, since)
    holder.read(False)
    assert (due(holder), holder.known.due_at) == (False, None)


def test_a_warning_that_is_not_accepted_keeps_the_level_at_warn_after_for_a_minute() -> None:
    """`confirm`: the grace begins when the API server has accepted the warning, or when a minute is over."""
    holder = warned(CONFIRM)
    asked = holder.known.warned_at
    assert asked is not None
    while holder.at + 5 < asked + PATIENCE:
        assert holder.read(True) == 15.0
        assert waits(holder.known, holder.at, Mode.ENFORCE)
        assert waits(holder.known, holder.at, Mode.WARN)
    assert holder.read(True) == 20.0, "a minute at most"
    holder.play("oooooo")
    assert due(holder)
    assert holder.at - asked >= PATIENCE + 30.0 - 5.0


def test_an_accepted_warning_lets_the_grace_run() -> None:
    """Seconds before the acceptance count for warn_after only."""
    holder = warned(CONFIRM)
    holder.play("oooo")
    accept(holder)
    assert holder.play("oooooo") == [20.0, 25.0, 30.0, 35.0, 40.0, 45.0]
    assert due(holder)


def test_without_confirmation_nothing_waits() -> None:
    """A replay has no API server."""
    holder = warned()
    assert not waits(holder.known, holder.at, Mode.ENFORCE)
    assert holder.read(True) == 20.0


def test_a_holder_whose_warning_is_waited_for_has_no_place_yet() -> None:
    """With a grace of 0 the level is full at once: it is due when the warning was accepted, and not before."""
    holder = warned(replace(CONFIRM, grace=0.0), "o" * 8)
    assert (due(holder), holder.known.place_at) == (False, None)
    accept(holder)
    holder.read(True)
    assert (due(holder), holder.known.place_at) == (True, holder.at)


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.OBSERVE])
def test_a_mode_that_warns_nothing_waits_for_no_warning(mode: Mode) -> None:
    """Observing shows the level as it would be."""
    holder = Holder(CONFIRM)
    holder.says = announcement(CONFIRM, mode=mode)
    assert holder.play("o" * 10)[-1] == 45.0


def given_up(holder: Holder) -> None:
    """Let a minute pass in which no server accepts the warning."""
    before = holder.known.warned_at
    assert before is not None
    while holder.at - before < PATIENCE:
        holder.read(True)
    assert holder.known.unheard_at == before


def test_a_level_waits_for_a_warning_once_an_hour() -> None:
    """Without an API server the limit holds, too: a second excess within the hour waits for no minute again."""
    holder = warned(CONFIRM)
    given_up(holder)
    holder.play("w" * 100)
    assert holder.level is not None, "that the warning was given up is remembered"
    assert (holder.seconds, holder.known.warned_at) == (0.0, None)
    assert holder.play("o" * 10)[-1] == 45.0
    assert due(holder)


@pytest.mark.parametrize("several", [False, True], ids=["container", "shared claim"])
def test_a_second_excess_within_the_minute_waits_for_the_rest_of_it(several: bool) -> None:
    """The minute begins with the first warning that the API server has not accepted, whatever was before it."""
    holder = Holder(replace(CONFIRM, warn_after=5.0))
    plain, holder.says = holder.says, replace(holder.says, silent=True)
    for _ in range(2):
        holder.read(True, several=several)
    accept(holder)
    holder.says = plain
    holder.read(True, several=several)
    first = asked_at(holder) or 0.0
    assert (first, holder.known.unheard_at) == (holder.at, holder.at), "what was accepted announced no action"
    for _ in range(5):
        holder.read(False, several=several)
    assert asked_at(holder) is None
    while holder.at < first + PATIENCE:
        assert holder.seconds <= 5.0
        holder.read(True, several=several)
    assert holder.seconds == 10.0
    assert (asked_at(holder) or 0.0) > first, "the second one was not accepted either"


def test_after_an_hour_it_waits_again_and_again_once() -> None:
    """The next hour is as the first one: one minute, and then no other."""
    holder = warned(CONFIRM)
    given_up(holder)
    first = holder.at
    holder.play("w" * 800)
    assert holder.level is None, "an hour later nothing is remembered"
    assert holder.at - first > HOUR
    second = Holder(CONFIRM, at=10_000.0, level=Level(10_000.0, over=False, unheard_at=10_000.0 - HOUR))
    second.play("oooo")
    assert waits(second.known, second.at, Mode.ENFORCE)
    given_up(second)
    second.says = announcement(CONFIRM, Rung.KILL)
    second.play("o")
    assert second.known.warned_at == second.at, "a harsher step is announced"
    assert not waits(second.known, second.at, Mode.ENFORCE)


@pytest.mark.parametrize(
    "changed",
    [
        announcement(mode=Mode.DRY_RUN),
        announcement(rung=Rung.KILL),
        announcement(rung=None),
        announcement(replace(RULES, trigger=Trigger.CONTENDED)),
        announcement(replace(RULES, ladder=(Rung.NOTIFY, Rung.FENCE, Rung.EVICT))),
        announcement(replace(RULES, mps=Rung.EVICT)),
    ],
    ids=["mode", "a harsher step", "no further step", "trigger", "ladder", "mps"],
)
def test_another_announcement_falls_back_to_warn_after(changed: Announcement) -> None:
    """Where what was announced is not true any more, the pod is warned anew, and has the whole grace again."""
    holder = warned(trace="o" * 10)
    holder.says = changed
    assert holder.read(True) == 15.0
    assert (holder.known.warned_at, holder.known.due_at, due(holder)) == (holder.at, None, False)
    assert holder.play("o" * 6) == [20.0, 25.0, 30.0, 35.0, 40.0, 45.0]
    assert due(holder)


def test_a_step_where_none_was_announced_is_announced() -> None:
    """A pod that was warned of no step is warned anew when one follows."""
    holder = warned(trace="o" * 10)
    plain, holder.says = holder.says, announcement(rung=None)
    assert holder.play("ooo") == [15.0, 20.0, 25.0]
    holder.says = plain
    assert holder.read(True) == 15.0
    assert holder.known.warned_at == holder.at


@pytest.mark.parametrize(
    "says",
    [
        announcement(replace(RULES, grace=10.0)),
        announcement(replace(RULES, grace=60.0)),
        announcement(rung=Rung.FENCE),
        Announcement(None),
        Announcement(announcement().terms, Reason.EXCLUSIVE),
        Announcement(announcement().terms, Reason.MIG),
        Announcement(announcement().terms, Reason.MPS),
        Announcement(announcement(rung=None).terms, Reason.NO_RUNG),
        Announcement(announcement().terms, Reason.REPORT_ONLY),
    ],
    ids=[
        "shorter grace",
        "longer grace",
        "gentler step",
        "unreadable labels",
        "exclusive",
        "mig",
        "mps",
        "no step for the moment",
        "report only",
    ],
)
def test_what_restarts_no_grace(says: Announcement) -> None:
    """Neighbours, the declaration, what cannot be read and a changed grace come and go: the level goes on."""
    holder = warned(trace="ooooo")
    asked = holder.known.warned_at
    before = holder.says
    for index in range(8):
        holder.says = before if index % 2 else says
        holder.read(True)
    assert (holder.seconds, holder.known.warned_at) == (45.0, asked)


@pytest.mark.parametrize("reason", [Reason.MODE, Reason.STOPPED, Reason.NO_CONSENT, Reason.BARE_POD, Reason.DAEMON_SET])
def test_the_end_of_an_operator_s_hold_starts_the_grace_anew(reason: Reason) -> None:
    """While it lasts the level stands as it is; when it ends the pod is warned of what follows now."""
    holder = warned(trace="o" * 10)
    plain = holder.says
    holder.says = Announcement(plain.terms, reason)
    assert holder.play("ooo") == [45.0] * 3
    assert holder.known.terms is None
    holder.says = plain
    assert holder.read(True) == 15.0
    assert holder.known.warned_at == holder.at


@pytest.mark.parametrize(
    "meanwhile",
    [
        Announcement(announcement(replace(RULES, ladder=(Rung.NOTIFY,)), rung=None).terms, Reason.NO_RUNG),
        Announcement(announcement(replace(RULES, mps=Rung.EVICT)).terms, Reason.MPS),
        Announcement(announcement(mode=Mode.DRY_RUN).terms, Reason.EXCLUSIVE),
        Announcement(announcement(mode=Mode.DRY_RUN).terms, silent=True),
        Announcement(announcement(replace(RULES, trigger=Trigger.CONTENDED)).terms, silent=True),
    ],
    ids=["ladder", "mps", "mode of an exclusive device", "mode while something is missing", "trigger likewise"],
)
def test_what_was_written_while_nothing_could_be_announced_is_not_forgotten(meanwhile: Announcement) -> None:
    """For one round something else is written, of which the pod cannot be warned: it is warned anew afterwards."""
    holder = warned(trace="o" * 10)
    plain, asked = holder.says, holder.known.warned_at
    holder.says = meanwhile
    assert holder.read(True) == 45.0
    assert holder.known.warned_at == asked
    holder.says = plain
    assert (holder.read(True), due(holder)) == (15.0, False)
    assert holder.known.warned_at == holder.at


@pytest.mark.parametrize(
    ("now", "then"),
    [
        (announcement(mode=Mode.DRY_RUN), announcement(mode=Mode.DRY_RUN)),
        (announcement(mode=Mode.DRY_RUN), announcement()),
        (announcement(rung=Rung.KILL), announcement(rung=Rung.KILL)),
    ],
    ids=["mode", "mode of one round", "a harsher step"],
)
def test_a_warning_waits_for_a_round_that_knows_the_usage(now: Announcement, then: Announcement) -> None:
    """An Event says what the holder uses, so nothing is announced anew before that is known."""
    holder = warned(trace="o" * 10)
    asked, holder.says = holder.known.warned_at, now
    assert (holder.read(None), holder.known.warned_at) == (45.0, asked)
    holder.says = then
    assert (holder.read(True), holder.known.warned_at, due(holder)) == (15.0, holder.at, False)


@pytest.mark.parametrize(("warn_after", "grace"), [(5.0, 30.0), (5.0, 5.0), (10.0, 0.0)])
def test_a_warn_after_that_was_shortened_warns_in_a_round_that_knows_the_usage(warn_after: float, grace: float) -> None:
    """An unknown usage right after the reload delays the first warning; its grace begins with it."""
    holder = Holder()
    holder.play("ooo")
    holder.rules, holder.grace = replace(RULES, warn_after=warn_after, grace=grace), grace
    assert (holder.read(None, after=3.0), holder.known.warned_at) == (warn_after, None)
    assert (holder.read(True, after=3.0), holder.known.warned_at) == (warn_after, holder.at)
    assert due(holder) is (grace == 0.0)


def test_a_pod_that_was_warned_while_it_was_held_is_warned_anew_when_the_hold_ends() -> None:
    """The first warning said that no action follows: it announced no grace."""
    holder = Holder()
    plain = holder.says
    holder.says = Announcement(plain.terms, Reason.EXCLUSIVE)
    holder.play("o" * 12)
    assert (holder.seconds, holder.known.terms) == (45.0, None)
    holder.says = plain
    assert holder.read(True) == 15.0


def test_a_short_grace_falls_below_warn_after() -> None:
    """Two intervals of excess remain after each new warning."""
    holder = warned(replace(RULES, grace=0.0), "o" * 4)
    assert due(holder)
    holder.says = announcement(holder.rules, Rung.KILL)
    assert (holder.read(True), due(holder)) == (5.0, False)
    assert (holder.play("oo"), due(holder)) == ([10.0, 15.0], True)


def test_an_announced_grace_is_never_shortened() -> None:
    """If two minutes were announced to a pod, it has them, whatever grace applies now. A longer one counts at once."""
    holder = warned()
    assert capacity(holder.known, 5.0, RULES) == 45.0
    assert capacity(holder.known, 60.0, RULES) == 75.0
    assert capacity(holder.known, LONGEST_GRACE, RULES) == 15.0 + LONGEST_GRACE
    assert capacity(None, 5.0, RULES) == 20.0


@pytest.mark.parametrize("over", [True, False, None])
def test_a_limit_that_rises_above_all_usage_starts_at_zero(over: bool | None) -> None:
    """Nothing that was counted against the old limit is an excess of the new one. However often an operator does it."""
    holder = Holder()
    for limit in (LIMIT, 16 * GIB, 32 * GIB, 48 * GIB, 64 * GIB, 72 * GIB):
        for _ in range(10):
            holder.read(True, charged=limit + GIB, bound=limit)
        assert due(holder), "it was warned of each limit, and had its grace"
        assert holder.read(over, charged=limit + 2 * GIB, bound=limit + GIB) == 0.0
        assert holder.level is None or over or holder.known.warned_at is None


def test_a_limit_that_rises_above_part_of_the_usage_warns_anew() -> None:
    """The old limit was announced, and the pod may have kept the new one: it has a whole grace for that."""
    holder = warned(trace="ooooo")
    holder.read(True, charged=10 * GIB)
    holder.play("ooooo")
    assert due(holder)
    assert holder.read(False, bound=10 * GIB) == 45.0
    assert (holder.read(True, bound=10 * GIB), due(holder)) == (15.0, False)
    assert (holder.known.warned_at, holder.known.excesses[FIRST].bound) == (holder.at, 10 * GIB)
    assert [holder.read(True, bound=10 * GIB) for _ in range(6)] == [20.0, 25.0, 30.0, 35.0, 40.0, 45.0]
    assert due(holder)


def test_a_limit_that_rises_on_one_of_two_devices_is_no_end_of_the_excess() -> None:
    """What was counted on the other device stays counted, also while that device cannot be read."""
    holder = Holder()
    for _ in range(5):
        holder.read(True, True)
    assert holder.read(False, bound=ABOVE) == 20.0
    assert holder.read(False, False, bound=ABOVE) == 0.0


@pytest.mark.parametrize("bound", [LIMIT + GIB, ABOVE - 1])
def test_a_limit_that_stays_below_all_usage_changes_nothing(bound: int) -> None:
    """All readings were above the new limit, too."""
    holder = warned(trace="ooooo")
    asked = holder.known.warned_at
    assert holder.read(True, bound=bound) == 25.0
    assert holder.known.warned_at == asked


@pytest.mark.parametrize(("cap", "after"), [(0, 25.0), (2 * GIB, 25.0), (4 * GIB, 15.0)])
def test_a_limit_that_comes_to_allow_contexts_is_another_limit(cap: int, after: float) -> None:
    """Only another declaration changes the cap: what was counted must exceed the new one's most, too."""
    holder = warned(trace="ooooo")
    assert holder.read(True, charged=20 * GIB, cap=cap) == after


@pytest.mark.parametrize("charged", [7 * GIB, LIMIT])
def test_a_lowered_limit_that_the_pod_was_not_told_of_warns_anew(charged: int) -> None:
    """The usage keeps the announced limit, and exceeds the new one: nothing of the old grace counts for that."""
    holder = warned(trace="o" * 10)
    assert holder.read(True, charged=charged, bound=4 * GIB) == 15.0
    assert holder.known.warned_at == holder.at
    assert holder.known.excesses[FIRST].bound == 4 * GIB
    assert [holder.read(True, charged=charged, bound=4 * GIB) for _ in range(2)] == [20.0, 25.0]


def test_a_lowered_limit_below_a_usage_that_exceeds_both_changes_nothing() -> None:
    """The pod was warned, and did nothing: a lower limit is no reason for another grace."""
    holder = warned(trace="ooooo")
    asked = holder.known.warned_at
    assert holder.read(True, bound=4 * GIB) == 25.0
    assert holder.known.warned_at == asked


def test_each_correction_of_a_lowered_limit_has_a_grace_of_its_own() -> None:
    """An administrator lowers a limit and corrects it twice, and the pod keeps each limit that was announced."""
    holder = warned(trace="o" * 10)
    for told, limit in ((8, 6), (6, 5), (5, 2)):
        assert holder.read(True, charged=told * GIB, bound=limit * GIB) == 15.0
        assert (holder.known.warned_at, due(holder)) == (holder.at, False)
        for _ in range(5):
            holder.read(True, charged=told * GIB, bound=limit * GIB)
        assert (holder.seconds, due(holder)) == (40.0, False)


def test_a_limit_that_is_lowered_and_raised_again_lowers_the_level_three_times() -> None:
    """A tenant that lowers its own limit while its usage dips, and then raises it again, gains no more than that."""
    holder = warned(trace="o" * 10)
    after = []
    for index in range(6):
        small = GIB - 2 * index
        holder.read(True, charged=small + 1, bound=small)
        after.append(holder.read(False, charged=small))
        holder.play("o" * 10)
    assert after == [15.0, 15.0, 15.0, 45.0, 45.0, 45.0]
    assert due(holder)


def test_a_tenant_that_creeps_up_to_its_limit_gains_no_more_than_that() -> None:
    """It lowers its own limit far, and raises it by a byte beyond a dip of its usage, again and again."""
    holder = warned(trace="o" * 10)
    gained = 0
    for limit in range(GIB, GIB + 40, 2):
        holder.read(True, charged=limit + 1, bound=limit)
        for _ in range(5):
            holder.read(True, bound=limit + 1)
        gained += not due(holder)
    assert gained == EASED


@pytest.mark.parametrize(("pause", "after"), [(60, 45.0), (200, 15.0)])
def test_a_pause_gives_back_what_was_gained_when_it_outweighs_the_excess(pause: int, after: float) -> None:
    """Also what was gained before the level was 0 is remembered, until twice the time over the limit was within it."""
    holder = warned(trace="o" * 10)
    for index in range(EASED):
        holder.play("o" * 10)
        holder.read(True, charged=GIB - index, bound=GIB - 1 - index)
    holder.play("w" * pause)
    assert holder.seconds == 0.0
    holder.play("o" * 11)
    assert holder.read(True, charged=GIB, bound=GIB - 1) == after


STEPS = st.lists(
    st.tuples(st.sampled_from(("hog", "hog below", "dip", "creep", "rest")), st.integers(1, 12)), min_size=1, max_size=6
)


@given(STEPS)
@example([("hog", 7), ("dip", 1)])
@example([("hog", 7), ("dip", 1), ("rest", 8)])
@example([("dip", 1), ("creep", 1), ("hog below", 7)])
def test_no_moves_of_its_own_limit_keep_a_level_down(steps: list[tuple[str, int]]) -> None:
    """
    The same usage, judged by the highest limit alone, is the measure: four full levels there are one here.

    A tenant repeats a cycle of its choice. In a step it uses much more than its limit (hog), or uses next to nothing
    (rest). Or it dips to just above a limit that it lowers by a byte (dip). Or it raises its limit by a byte above that
    dip (creep).
    """
    moving, still, own = Holder(), Holder(), 4 * GIB
    for _ in range(60):
        for step, rounds in steps:
            for _ in range(rounds):
                own += {"dip": -2, "creep": 3}.get(step, 0)
                limit = own if step in {"hog below", "dip", "creep"} else LIMIT
                used = {"dip": own + 1, "creep": own, "rest": 1}.get(step, 2 * LIMIT)
                moving.read(used > limit, charged=used, bound=limit)
                still.read(used > LIMIT, charged=used)
                if due(moving):
                    return  # it was acted on: no level was kept down
                assert still.level is None or still.known.unbounded < (1 + EASED) * 45.0


def test_a_warning_that_the_api_server_has_forgotten_is_given_again() -> None:
    """An Event is kept for an hour: a level that comes back to warn_after after that warns once more."""
    holder = warned()
    asked = holder.known.warned_at
    holder.play("wo" * 400)
    assert holder.seconds == 15.0, "at warn_after the warning stands"
    assert holder.known.warned_at == asked
    holder.play("ww")
    assert asked_at(holder) is None
    holder.play("oooo")
    assert (asked_at(holder) or 0.0) > (asked or 0.0) + HOUR


def test_a_holder_that_is_warned_again_after_an_hour_is_not_due_before_its_grace() -> None:
    """It was due, and stayed so above half of the full level: the new warning begins a new grace."""
    holder = warned(replace(RULES, grace=10.0), "o" * 8)
    assert due(holder)
    holder.play("wwww" + "wo" * 400)
    assert (holder.seconds, due(holder)) == (15.0, True)
    holder.play("ww")
    assert (holder.seconds, holder.known.warned_at, due(holder)) == (12.5, None, False)
    holder.play("oo")
    assert (holder.seconds, holder.known.warned_at, due(holder)) == (15.0, holder.at, False)
    holder.play("oo")
    assert due(holder)


def test_a_restarted_container_keeps_the_level_and_needs_readings_and_time_of_its_own() -> None:
    """Three readings, and 15 s of its own excess (warn_after, where that is below 30 s), before an action."""
    holder = warned(trace="o" * 10)
    assert due(holder)
    assert holder.read(True, victim="second generation") == 45.0
    assert not due(holder)
    assert holder.known.excesses[FIRST].readings == 1
    for after in (False, False, True):
        holder.read(True, victim="second generation")
        assert due(holder) is after
    assert holder.known.enough_readings(FIRST)


@pytest.mark.parametrize(
    ("warn_after", "grace", "own"), [(15.0, 30.0, 15.0), (60.0, 30.0, 30.0), (0.0, 30.0, 10.0), (0.0, 0.0, 10.0)]
)
def test_how_long_a_restarted_container_must_be_over_itself(warn_after: float, grace: float, own: float) -> None:
    """warn_after, at most 30 s, at least two intervals."""
    holder = Holder(replace(RULES, warn_after=warn_after, grace=grace))
    holder.play("o" * 30)
    assert due(holder)
    holder.read(True, victim="second generation")
    begun = holder.at
    while not due(holder):
        holder.read(True, victim="second generation")
    assert holder.at - begun == own


def test_a_container_that_restarts_all_the_time_keeps_its_level() -> None:
    """A crash loop lowers the level only while the container does not run."""
    holder = Holder()
    for generation in range(6):
        for _ in range(5):
            holder.read(True, victim=f"generation {generation}")
        assert due(holder) is (generation >= 2), generation
        holder.read(False, victim="")


def test_the_first_reading_of_a_restarted_container_counts_whenever_it_is() -> None:
    """Also a moment after the last reading of the one before."""
    holder = warned(trace="o" * 10)
    holder.read(True, after=1.0, victim="second generation")
    assert holder.known.excesses[FIRST].readings == 1


def test_a_round_that_reads_nothing_is_no_restart() -> None:
    """The readings that counted still count, and the next one is of the same container."""
    holder = warned(trace="o" * 10)
    holder.read(after=20.0, victim="")  # later than a slow node's next round
    assert (holder.known.victim, holder.known.enough_readings(FIRST)) == ("main", True)
    holder.read(True)
    assert due(holder)


def test_a_restart_whose_usage_is_not_known_yet_is_not_warned_of() -> None:
    """The warning was the holder's: one that has begun anew gets no second one."""
    holder = warned()
    asked = holder.known.warned_at
    holder.read(None, after=2.0, victim="second generation")
    assert holder.known.warned_at == asked


def test_containers_that_take_turns_as_the_largest_of_a_pod_are_due() -> None:
    """What is known of an earlier one is kept: its time adds up, and its turn begins no readings anew."""
    holder = Holder()
    holder.play("o" * 10)
    for index in range(12):
        holder.read(True, victim=("main", "side")[index // 2 % 2])
    assert due(holder)
    assert holder.known.enough_readings(FIRST)


def test_the_own_time_of_256_is_remembered() -> None:
    """The one with the least is forgotten, and never the one that was noted last."""
    own: Mapping[str, float] = {}
    for index in range(MOST_VICTIMS):
        own = own_time(own, f"pod-{index}", 1000.0 - index)
    assert len(own) == 256
    own = own_time(own, "last", 0.0)
    assert len(own) == 256
    assert "last" in own
    assert f"pod-{MOST_VICTIMS - 1}" not in own


def shared(holder: Holder, victim: str, rounds: int = 1) -> None:
    """Let a pod be the largest of several that share a claim."""
    for _ in range(rounds):
        holder.read(True, victim=victim, several=True)


def test_a_pod_of_a_shared_claim_is_acted_on_for_its_own_time_only() -> None:
    """The largest pod needs warn_after and grace while it was the largest; the level is the claim's."""
    holder = Holder()
    shared(holder, "first", 10)
    assert due(holder)
    shared(holder, "second")
    assert (due(holder), holder.known.warned_at) == (False, holder.at)
    begun = holder.at
    while not due(holder):
        shared(holder, "second")
    assert holder.at - begun == 45.0


@pytest.mark.parametrize(("pods", "each"), [(2, 3), (2, 1), (5, 3), (9, 1), (20, 2)])
def test_pods_that_take_turns_as_the_largest_cannot_keep_all_of_them_from_being_due(pods: int, each: int) -> None:
    """Each one's own time adds up, however fast they rotate: at most as many times warn_after and grace as pods."""
    holder = Holder()
    for index in range(1000):
        shared(holder, f"pod-{index // each % pods}")
        if due(holder):
            break
    assert due(holder)
    assert holder.at <= (pods + 1) * 45.0 + pods * 5.0


def test_a_pod_that_joined_while_its_node_was_exclusive_is_warned_itself() -> None:
    """An unknown reading does not show which pods were warned."""
    holder = Holder()
    shared(holder, "first", 5)
    plain, holder.says = holder.says, Announcement(holder.says.terms, Reason.EXCLUSIVE)
    shared(holder, "second")
    holder.read(after=20.0, victim="")  # later than a slow node's next round
    holder.says = plain
    shared(holder, "second")
    assert holder.known.warned_at == holder.at


def test_a_pod_that_joined_while_nothing_could_be_announced_has_its_own_time_after_its_warning() -> None:
    """While the limit is only reported a newcomer is not warned, so its time of its own does not begin."""
    holder = Holder()
    shared(holder, "first", 10)
    plain, holder.says = holder.says, Announcement(holder.says.terms, Reason.REPORT_ONLY)
    shared(holder, "second", 12)
    holder.says = plain
    shared(holder, "second")
    assert (holder.known.warned_at, due(holder)) == (holder.at, False)
    begun = holder.at
    while not due(holder):
        shared(holder, "second")
    assert holder.at - begun == 45.0


def test_a_pod_that_joined_is_not_due_before_its_own_warning_is_accepted() -> None:
    """However short the grace is: the level of the claim waits for the warning of each pod."""
    holder = Holder(replace(CONFIRM, grace=0.0))
    shared(holder, "first", 5)
    accept(holder)
    shared(holder, "first", 2)
    assert due(holder)
    shared(holder, "second", 6)
    assert holder.known.own["second"] >= 15.0
    assert not due(holder)
    accept(holder)
    shared(holder, "second")
    assert due(holder)


def test_a_pod_that_joins_is_warned_once() -> None:
    """Two pods that take turns are warned twice in all, and not each time."""
    holder = Holder()
    asked = set()
    for index in range(60):
        shared(holder, f"pod-{index % 2}")
        asked.add(holder.known.warned_at)
    assert len(asked - {None}) <= 2


def test_a_harsher_step_is_announced_to_each_pod_of_a_claim() -> None:
    """The largest pod is warned of it now; each other pod is warned in its own turn, and has the whole time."""
    holder = Holder()
    shared(holder, "first", 5)
    shared(holder, "second", 5)
    holder.says = announcement(rung=Rung.KILL)
    shared(holder, "first")
    shared(holder, "second")
    assert holder.known.warned_at == holder.at
    begun = holder.at
    while not due(holder):
        shared(holder, "second")
    assert holder.at - begun == 45.0


@pytest.mark.parametrize(("early", "remembered"), [(0.1, True), (0.0, False)])
def test_a_warning_is_remembered_for_an_hour(early: float, *, remembered: bool) -> None:
    """The API server keeps its Event for as long. A level below `warn_after` needs a new warning after that."""
    holder = warned(trace="ooooww")
    asked = holder.known.warned_at
    assert asked is not None and holder.seconds == 12.5
    while holder.at < asked + HOUR - 5.0:
        holder.read(not holder.known.over)
    holder.read(not holder.known.over, after=5.0 - early)
    assert holder.at - asked == pytest.approx(3600.0 - early)
    assert holder.seconds == 12.5
    assert holder.known.warned_at == (asked if remembered else None)
