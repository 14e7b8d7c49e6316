"""The courses of two policies over one stretch of time, as text and as data."""

from dataclasses import replace

import pytest

from enforcer.messages.timeline import KEY, Course, Mark, compared, data_of
from enforcer.policy.outcomes import rehearsed
from enforcer.policy.rules import Rules
from enforcer.policy.vocabulary import Mode, Reason, State
from policy.scenes import BEGIN, GIB, GREEDY, MEEK, UNHURRIED, WALL, Actor, Play, settled

DRY = replace(UNHURRIED, mode=Mode.DRY_RUN)
NAME = ("team", "greedy-1", "main", "")


def clock(at: float) -> str:
    return f"t{at - WALL:.0f}"


def course(rules: Rules, *rounds: tuple[int, tuple[Actor, ...]], **world: object) -> Course:
    """Play so many rounds of these actors, and the next; a dry run ends at once."""
    play, result = Play(rules, settled(rules)), Course()
    for count, actors in rounds:
        for _ in range(count):
            verdict = play.step(*actors, **world)  # type: ignore[arg-type]
            result.hear(verdict, WALL + play.monotonic - BEGIN)
            if verdict.action is not None:
                play.history = rehearsed(play.history, verdict.action, play.now)
    return result


CALM = (replace(GREEDY, used=GIB), MEEK)
STORY = ((10, CALM), (40, (GREEDY, MEEK)), (10, CALM))
"""300 s in rounds of 5 s: within the limit, over it for 200 s, within it again."""


def test_a_character_is_a_part_of_the_time() -> None:
    """Within, over, warned, the action, due while the victim stays; within again, and still due."""
    assert course(DRY, *STORY).drawn(NAME, 60) == "." * 10 + "ooo" + "g" * 24 + "!" + "D" * 12 + "h" * 10


@pytest.mark.parametrize("width", [1, 2, 7, 30, 1000])
def test_whatever_the_width_nothing_urgent_is_lost(width: int) -> None:
    """The most urgent state of each part is shown, and the line is as long as was asked for."""
    line = course(DRY, *STORY).drawn(NAME, width)
    assert len(line) == width
    assert Mark.ACTED in line


def test_a_container_that_comes_and_goes_has_gaps() -> None:
    """Before it came and after it went there is nothing."""
    late = course(DRY, (10, (MEEK,)), (10, (GREEDY, MEEK)), (10, (MEEK,)))
    line = late.drawn(NAME, 30)
    assert (line[:10].strip(), line[10] == Mark.OVER, line[-5:].strip()) == ("", True, "")


def test_two_policies_stand_below_one_another() -> None:
    """The same time in the same column; then when each would act first, and how much earlier the second one does."""
    a, b = (course(replace(DRY, grace=grace), *STORY) for grace in (120.0, 60.0))
    lines = list(compared(a, b, 64, clock))
    assert lines[0] == KEY
    assert lines[1] == "    t5" + "t300".rjust(58)
    assert lines[2:5] == ["team/greedy-1/main", f"  A {a.drawn(NAME, 60)}", f"  B {b.drawn(NAME, 60)}"]
    assert all(len(line) <= 64 for line in lines[1:5])
    assert lines[5:] == [
        "1 more with a limit were never over it",
        "",
        "FIRST ACTION ON     A           B           CHANGE",
        "team/greedy-1/main  evict t190  evict t130  60 s earlier",
    ]


def test_what_prevents_an_action_stands_in_its_place() -> None:
    """Held, with the reason; nothing at all where it was never due."""
    held = course(DRY, *STORY, namespaces={"team": {}})
    short = course(replace(DRY, grace=3600.0), *STORY)
    *_, row = compared(held, course(DRY, *STORY), 80, clock)
    assert row.split("  ")[1:] == [f"held: {Reason.NO_CONSENT}", "evict t190", "only B acts"]
    *_, row = compared(course(DRY, *STORY), short, 80, clock)
    assert row.split("  ")[1:] == ["evict t190", "none", "only A acts"]
    *_, row = compared(short, short, 80, clock)
    assert row.endswith("the same")


def test_where_no_container_was_over_there_is_no_line() -> None:
    """All that is said is how many there were."""
    calm = course(DRY, (10, CALM))
    assert list(compared(calm, calm, 80, clock)) == ["2 more with a limit were never over it"]


def test_a_claim_and_a_pods_limit_have_names_of_their_own() -> None:
    """A claim is named by itself, because several pods may share it."""
    claimed = Actor("rank-0", 40 * GIB, scope="claim", claim="team/shared")
    whole = Actor("all-1", 30 * GIB, scope="pod")
    found = course(DRY, (10, (claimed, whole)))
    assert found.over() == {("", "", "", "team/shared"), ("team", "all-1", "", "")}
    names = [line for line in compared(found, found, 80, clock) if not line.startswith(" ")]
    assert names[1:3] == ["claim team/shared", "team/all-1"]


def test_the_data_has_both() -> None:
    """Of each container the changes of its state, the actions, and why its action was held last."""
    a, b = (course(replace(DRY, grace=grace), *STORY) for grace in (120.0, 60.0))
    (one,) = data_of(a, b, clock)
    assert (one["namespace"], one["pod"], one["container"], one["claim"]) == NAME
    assert [one[label]["actions"] for label in "ab"] == [
        [{"at": "t190", "action": "evict"}],
        [{"at": "t130", "action": "evict"}],
    ]
    assert one["a"]["states"][:3] == [
        {"at": "t5", "state": "ok"},
        {"at": "t55", "state": "over"},
        {"at": "t70", "state": "grace"},
    ]
    assert one["a"]["held"] is Reason.NOT_OVER_NOW


def test_each_state_has_a_mark() -> None:
    """A state that is new cannot be forgotten here."""
    play = Play()
    verdict = play.step(GREEDY, MEEK)
    for state in State:
        found = Course()
        found.hear(replace(verdict, standings=(replace(verdict.standings[0], state=state),)), WALL)
        assert found.drawn(NAME, 1).strip()
