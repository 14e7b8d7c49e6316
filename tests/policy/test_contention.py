"""
Trigger `contended`: only who denies somebody something is acted on.

What comes in: GREEDY with 70 of 80 GiB (limit 8), and a neighbour of each kind. What goes out: acted on, or held with
`not_contended`.
"""

from dataclasses import replace

import pytest

from enforcer.policy.contention import shortage
from enforcer.policy.limit_holders import cases
from enforcer.policy.vocabulary import Reason, Trigger
from exporter.model import ContainerKind
from policy import invariants
from policy.refusals import ENOUGH
from policy.scenes import CARD, GIB, GREEDY, MEEK, UNHURRIED, Actor, Play, snapshot

HELD: tuple[list[str], str | None] = ([], Reason.NOT_CONTENDED)
ACTED: tuple[list[str], str | None] = (["evict team/greedy-1"], None)


def outcome(*others: Actor, greedy: Actor = GREEDY, **world: object) -> tuple[list[str], str | None]:
    play = Play()
    play.steps(ENOUGH, greedy, *others, **world)
    return play.actions, play.reason(greedy)


@pytest.mark.parametrize(
    ("neighbour", "expected"),
    [
        (Actor("n-1", 2 * GIB, limit=10 * GIB), HELD),  # 8 owed, 8 free
        (Actor("n-1", 2 * GIB, limit=10 * GIB + 1), ACTED),  # one byte more
        (Actor("n-1", 10 * GIB, limit=10 * GIB), HELD),  # has all it declared
        (Actor("n-1", 10 * GIB, limit=9 * GIB), HELD),  # is over itself: denied nothing
        (Actor("n-1", 2 * GIB, limit=None), HELD),  # declares nothing: entitled to nothing
        (Actor("n-1", 0, limit=11 * GIB), ACTED),  # holds nothing yet
        (Actor("n-1", None, limit=11 * GIB), ACTED),  # unknown, and nothing is unexplained
        (Actor("n-1", 2 * GIB, limit=70 * GIB, scope="process"), HELD),
        (Actor("n-1", 2 * GIB, limit=70 * GIB, report_only=("a hint",)), HELD),
        (Actor("n-1", 2 * GIB, limit=None, problems=("what?",)), HELD),
        (Actor("n-1", 2 * GIB, limit=70 * GIB, gpu=1), HELD),  # elsewhere
        (Actor("n-1", 2 * GIB, limit=70 * GIB, facts={"terminating": True}), HELD),
        (Actor("n-1", 2 * GIB, limit=70 * GIB, facts={"phase": "Succeeded"}), HELD),
        (Actor("n-1", 2 * GIB, limit=70 * GIB, facts={"phase": "Pending"}), ACTED),
        (Actor("n-1", 2 * GIB, limit=70 * GIB, kind=ContainerKind.INIT), HELD),  # has ended: the pod runs
        (Actor("n-1", 2 * GIB, limit=70 * GIB, kind=ContainerKind.INIT, facts={"phase": "Pending"}), ACTED),
        (Actor("n-1", 2 * GIB, limit=70 * GIB, kind=ContainerKind.SIDECAR), ACTED),
        (Actor("n-1", 2 * GIB, limit=70 * GIB, namespace="kube-system"), ACTED),  # the protected are entitled, too
        (Actor("n-1", 2 * GIB, limit=70 * GIB, facts={"priority": None}), ACTED),
    ],
)
def test_whose_need_counts(neighbour: Actor, expected: tuple[list[str], str | None]) -> None:
    """A neighbour's need counts when it is declared, valid, on this device, and the neighbour lives."""
    assert outcome(neighbour, gpus=2) == expected


def test_alone_it_harms_nobody() -> None:
    """Without a neighbour nothing is destroyed, whatever is free."""
    assert outcome() == HELD


def test_trigger_limit_asks_nobody() -> None:
    """The twin: with trigger `limit` the declared limit suffices."""
    play = Play(replace(UNHURRIED, trigger=Trigger.LIMIT))
    play.steps(ENOUGH, GREEDY)
    assert play.actions == ["evict team/greedy-1"]


def test_its_own_containers_are_no_neighbours() -> None:
    """What the same pod's other container may still take is no reason to evict the pod."""
    sibling = replace(GREEDY, container="sidecar", used=GIB, limit=40 * GIB)
    assert outcome(sibling) == HELD


def test_needs_of_several_add_up() -> None:
    """Three neighbours that each would find room, and all together would not."""
    few = [Actor(f"n{number}-1", GIB, limit=3 * GIB) for number in range(3)]
    assert outcome(*few) == HELD  # 6 owed, 7 free
    more = [Actor(f"n{number}-1", GIB, limit=4 * GIB) for number in range(3)]
    assert outcome(*more) == ACTED  # 9 owed


def test_a_pod_s_limit_stands_for_its_containers() -> None:
    """Containers with limits below a pod's own limit: the pod is owed once."""
    one = Actor("n-1", 2 * GIB, limit=6 * GIB)
    both = (one, replace(one, scope="pod", container="other", used=0, limit=9 * GIB))
    assert outcome(*both) == HELD  # 7 owed by the pod's limit, 8 free; 4 more by the container's would be 11


def test_a_crash_looping_neighbour_is_entitled_once() -> None:
    """Two generations of one container: what both hold counts against its one entitlement."""
    old, new = Actor("n-1", 2 * GIB, limit=9 * GIB), Actor("n-1", GIB, limit=9 * GIB, generation=1)
    assert outcome(old, new) == HELD  # 6 owed, 7 free
    assert outcome(replace(old, limit=11 * GIB), replace(new, limit=11 * GIB)) == ACTED  # 8 owed


def test_unknown_neighbours_hold_at_most_what_is_unexplained() -> None:
    """Of a neighbour with an unknown use as much is spared as nobody explains, and no more."""
    unknown = Actor("n-1", None, limit=20 * GIB)
    seen = replace(GREEDY, used=60 * GIB)
    assert outcome(unknown, greedy=seen, hidden={0: 18 * GIB}) == HELD  # owed 2 at least, 2 free
    assert outcome(unknown, greedy=seen, hidden={0: 15 * GIB}) == HELD  # owed 5, 5 free
    assert outcome(replace(unknown, limit=21 * GIB), greedy=seen, hidden={0: 15 * GIB}) == ACTED  # owed 6, 5 free


def test_neighbours_known_by_half_may_hold_what_is_unexplained_besides() -> None:
    """Where the lists have one way of use alone, a neighbour is not short by what it may hold in another."""
    half, seen = Actor("n-1", 2 * GIB, limit=20 * GIB), replace(GREEDY, used=60 * GIB)
    assert outcome(half, greedy=seen, hidden={0: 16 * GIB}) == ACTED  # 18 owed, 2 free
    assert outcome(half, greedy=seen, hidden={0: 16 * GIB}, partial=True) == HELD  # owed 2 at least
    assert outcome(replace(half, limit=21 * GIB), greedy=seen, hidden={0: 16 * GIB}, partial=True) == ACTED  # 3
    assert outcome(replace(half, used=20 * GIB), greedy=seen, partial=True) == HELD  # has all that it declared
    made = snapshot([seen, replace(half, limit=21 * GIB)], 1.0, hidden={0: 16 * GIB}, partial=True)
    (device,) = made.devices
    assert invariants.shortage(made, device.key, seen.pod_uid) == GIB, "the checkers reckon the same"


def test_nothing_is_denied_where_all_is_free() -> None:
    """An over-user on an empty card harms nobody."""
    small = replace(GREEDY, used=10 * GIB)
    assert outcome(MEEK, greedy=small) == HELD
    assert outcome(Actor("n-1", 0, limit=CARD), greedy=small) == ACTED


def test_where_a_device_s_memory_is_unknown_nobody_is_short() -> None:
    """Of a device that nobody added up nothing is owed."""
    accused, *_ = cases(snapshot([GREEDY, MEEK], 1.0))
    assert shortage(accused, {}) == 0


def test_a_pod_s_limit_that_nobody_can_read_hides_none_of_its_containers() -> None:
    """A misspelt limit of the pod takes nothing away from what its container declares."""
    container = Actor("n-1", 2 * GIB, limit=20 * GIB)
    misspelt = replace(container, scope="pod", container="other", used=0, limit=None, problems=("what?",))
    assert outcome(container, misspelt) == ACTED


def test_two_shared_claims_are_owed_each() -> None:
    """Two pods hold one claim, two others another: 10 GiB and 10 GiB are owed, and 16 are free."""
    sharers = [
        Actor(f"{claim}{number}-1", GIB, limit=12 * GIB, scope="claim", claim=f"team/{claim}")
        for claim in "ab"
        for number in range(2)
    ]
    seen = replace(GREEDY, used=60 * GIB)
    assert outcome(*sharers, greedy=seen) == ACTED
    assert outcome(*sharers[:2], greedy=seen) == HELD
