"""
Evidence, step by step: the table on top of `enforcer/policy/evidence.py`, row by row.

What comes in: one pod whose use is told for each round. What goes out: where it stands after each round.
"""

from dataclasses import replace

import pytest

from default_rules import default_rules
from enforcer.policy.evidence import Evidence
from enforcer.policy.protection import grace
from enforcer.policy.rules import ALLOW_EXEMPTION, GRACE, LONGEST_GRACE, Ceiling, Rules
from enforcer.policy.vocabulary import Mode, Reason, State
from policy.scenes import GIB, GREEDY, MEEK, UNHURRIED, Actor, Play

SHORT = replace(UNHURRIED, grace=30.0)
"""Told in round 4, due in round 10."""
USES = {
    "o": 70 * GIB,  # over
    "t": 8 * GIB + 2**20,  # between the limit and its tolerance
    "b": 8 * GIB,  # at the limit
    "?": None,  # unknown
}
LETTERS = {
    State.OK: "k",
    State.OVER: "v",
    State.GRACE: "g",
    State.ACTING: "A",
    State.HELD: "h",
    State.UNJUDGED: "u",
    State.DUE: "d",
}


def stands(trace: str, rules: Rules = SHORT, *, neighbour: bool = True) -> str:
    """
    Play a trace; one letter a round, see `USES`; `-` is a round that did not happen.

    `neighbour`: MEEK is there, denied its due whatever GREEDY holds.
    """
    play, told, missed = Play(rules), "", 1
    for letter in trace:
        if letter == "-":
            missed += 1
            told += "-"
            continue
        others = (MEEK,) if neighbour else ()
        actor = replace(GREEDY, used=USES[letter])
        play.step(actor, *others, after=missed * rules.interval, hidden={0: 78 * GIB if neighbour else 0})
        missed = 1
        state = play.standing(actor)
        assert state is not None
        told += LETTERS[state]
    return told


@pytest.mark.parametrize(
    ("trace", "told"),
    [
        # ok: a reading over begins, all else leaves it
        ("b", "k"),
        ("t", "k"),
        ("o", "v"),
        # over: seen for warn_after and in three rounds
        ("oooo", "vvvg"),
        ("ooob", "vvvk"),
        ("oootoooo", "vvvvvvvg"),
        ("ooboooo", "vvkvvvg"),
        ("oo?ooo", "vvvvvg"),
        # grace: due when seen for the grace; what lies between or is unknown adds nothing
        ("oooooooooo", "vvvggggggA"),
        ("oooottooooooo", "vvvgggggggggA"),
        ("oooobbo", "vvvgggg"),
        ("oooobbb", "vvvgggk"),
        ("oooobbbo", "vvvgggkv"),
        ("oooobobobo", "vvvggggggg"),
        # a gap: one round may be missed, two may not
        ("oo-oo", "vv-vv"),
        ("oooo-o", "vvvg-g"),
        ("oooo--o", "vvvg--v"),
        ("oooo??o", "vvvgggv"),
        ("oooo???", "vvvgggu"),
    ],
)
def test_each_row_of_the_table(trace: str, told: str) -> None:
    """Each transition of the evidence's table, and no other."""
    assert stands(trace) == told


def test_due_and_held_the_table_s_last_row() -> None:
    """Held without a neighbour: a while between limit and tolerance it stays held; three rounds at the limit end it."""
    begun = "oooooooooo"
    assert stands(begun, neighbour=False)[-1] == "h"
    assert stands(begun + "tt", neighbour=False)[-2:] == "hh"
    assert stands(begun + "tttt", neighbour=False)[-4:] == "hhgg"  # long enough between to be told anew
    assert stands(begun + "bb", neighbour=False)[-2:] == "hh"
    assert stands(begun + "bbb", neighbour=False)[-1] == "k"


def test_the_first_round_over_is_not_the_first_that_counts_after_a_dip() -> None:
    """Between limit and tolerance `over` begins again: three rounds and warn_after count from the next reading over."""
    assert stands("ooto") == "vvvv"
    assert stands("ootooo") == "vvvvvv"
    assert stands("ootoooo") == "vvvvvvg"


def test_before_the_grace_nobody_after_it_exactly_this_one() -> None:
    """The kubelet's table: until round 27 nobody is acted on, in round 28 GREEDY is, and nobody else."""
    play = Play()
    play.steps(27, GREEDY, MEEK)
    assert play.actions == []
    assert play.standing(GREEDY) is State.GRACE
    play.step(GREEDY, MEEK)
    assert play.actions == ["evict team/greedy-1"]
    play.steps(100, GREEDY, MEEK)
    assert play.actions == ["evict team/greedy-1"]


def test_early_rounds_are_not_evidence_of_their_own() -> None:
    """Ten rounds within five seconds are no three rounds an interval apart: time counts, looks do not."""
    play = Play(SHORT)
    for _ in range(25):
        play.step(GREEDY, MEEK, after=0.5)
    assert play.standing(GREEDY) is State.OVER  # seen for 12 s
    play.step(GREEDY, MEEK)
    assert play.standing(GREEDY) is State.GRACE  # for 17 s


def test_early_rounds_do_not_shorten_the_grace() -> None:
    """Rounds twice a second: it is told after 15 s and acted on after 30 s more, not after so many looks."""
    play = Play(SHORT)
    begin = play.monotonic
    play.until_action(GREEDY, MEEK, after=0.5)
    assert play.monotonic - begin >= 45.0


@pytest.mark.parametrize(
    ("change", "rules"),
    [
        ({"namespaces": {"team": {}}}, SHORT),
        ({"namespaces": {}}, SHORT),
        ({"vendor": "amd"}, SHORT),
    ],
    ids=["consent is given", "the namespace gets known", "the backend is trusted"],
)
@pytest.mark.parametrize("interval", [5.0, 30.0])
def test_who_was_told_something_else_is_told_anew(change: dict[str, object], rules: Rules, interval: float) -> None:
    """Held for a reason that goes away: a whole grace passes from then on, however long an interval is."""
    play = Play(replace(rules, interval=interval, warn_after=max(15.0, interval), spacing=60.0))
    play.steps(20, GREEDY, MEEK, **change)
    assert play.standing(GREEDY) is State.HELD
    play.step(GREEDY, MEEK)
    freed = play.monotonic
    if play.standing(GREEDY) is State.GRACE:
        assert play.actions == []
        play.until_action(GREEDY, MEEK)
    assert play.monotonic - freed >= play.rules.grace


def test_a_stricter_mode_and_back_begins_the_grace_anew() -> None:
    """The stop file appears for one round in the middle of a grace: the grace runs anew from its removal."""
    play = Play(SHORT)
    play.steps(9, GREEDY, MEEK)
    play.rules = replace(SHORT, ceilings=(Ceiling(Mode.OBSERVE, Reason.STOPPED),))
    play.step(GREEDY, MEEK)
    assert play.actions == []
    play.rules = SHORT
    play.step(GREEDY, MEEK)
    begun = play.monotonic
    play.until_action(GREEDY, MEEK)
    assert play.monotonic - begun >= SHORT.grace


@pytest.mark.parametrize(
    ("wish", "granted", "seconds"),
    [
        ("60", False, 60.0),  # stricter for itself: always
        ("600", False, 120.0),  # laxer: not on its own word
        ("600", True, 600.0),
        ("0", False, 30.0),  # never below the shortest
        ("-5", True, 120.0),
        ("1e3", True, 120.0),
        ("\u0663\u0660", True, 120.0),
        ("9" * 500, True, 120.0),
        ("", True, 120.0),
    ],
)
def test_the_grace_a_pod_asks_for(wish: str, granted: bool, seconds: float) -> None:
    """Shorter on its own word, longer with its namespace's; what is no number is the rules' grace."""
    labels = {"gpusteward.io/mode": "enforce"} | ({"gpusteward.io/allow-pod-exemption": "true"} if granted else {})
    actor = replace(GREEDY, facts={"annotations": {GRACE: wish}})
    play = Play()
    play.until(State.GRACE, actor, MEEK, namespaces={"team": labels})
    begun = play.monotonic
    play.until_action(actor, MEEK, namespaces={"team": labels}, most=1000)
    assert play.monotonic - begun == pytest.approx(seconds, abs=play.rules.interval)
    assert play.monotonic - begun >= seconds


def test_the_longest_grace() -> None:
    """An hour, whatever a pod with its namespace's word asks for."""
    pod = replace(GREEDY, facts={"annotations": {GRACE: "99999"}}).named()
    assert grace(pod, {ALLOW_EXEMPTION: "true"}, default_rules()) == LONGEST_GRACE


@pytest.mark.parametrize(
    ("limit", "used", "over"),
    [
        (8 * GIB, 8 * GIB + 256 * 2**20, False),
        (8 * GIB, 8 * GIB + 256 * 2**20 + 1, True),
        (40 * GIB, 40 * GIB + 40 * GIB // 50, False),
        (40 * GIB, 40 * GIB + 40 * GIB // 50 + 1, True),
        (1, 256 * 2**20 + 2, True),
    ],
)
def test_the_tolerance_is_the_larger_of_both(limit: int, used: int, over: bool) -> None:
    """256 MiB or 2 %: not over at the sum, over one byte above it."""
    play = Play()
    play.step(Actor("greedy-1", used, limit=limit), MEEK)
    assert play.standing(GREEDY) is (State.OVER if over else State.OK)


def test_due_at_is_a_promise_kept() -> None:
    """While the excess is seen in each round, the end of the grace that was told first is the one that comes."""
    play = Play()
    verdict = play.until(State.GRACE, GREEDY, MEEK)
    promised = next(one.due_at for one in verdict.standings if one.pod == GREEDY.pod)
    play.until_action(GREEDY, MEEK)
    assert play.monotonic == promised


def test_outside_of_a_grace_nothing_is_due() -> None:
    """Before it is told nobody has an hour at which anything happens."""
    play = Play()
    verdict = play.step(GREEDY, MEEK)
    assert [one.due_at for one in verdict.standings] == [None, None]
    assert all(isinstance(one, Evidence) for one in play.history.evidence.values())
