"""The timetable of docs/policy.md is what happens."""

from enforcer.policy.vocabulary import State
from policy.scenes import GIB, UNHURRIED, Actor, Play
from tools.policy_reference import PAGE


def test_minute_by_minute() -> None:
    """`over` at 0:00, warned at 0:15, acted on at 2:15, without any neighbour that is short of memory."""
    play = Play(UNHURRIED)
    greedy = Actor("greedy-0", 70 * GIB, limit=8 * GIB)
    neighbour = Actor("meek-0", GIB, limit=40 * GIB)
    states = []
    for _ in range(28):
        play.step(greedy, neighbour)
        states.append(play.standing(greedy))
    at = {state: states.index(state) * 5 for state in dict.fromkeys(states) if state is not None}
    assert at == {State.OVER: 0, State.GRACE: 15, State.ACTING: 135}
    page = PAGE.read_text(encoding="utf-8")
    assert [f"| {minute}:{second:02} |" in page for minute, second in ((0, 0), (0, 15), (2, 15))] == [True] * 3
