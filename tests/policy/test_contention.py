"""
Promises of enforcer/policy/contention.py: the bytes that neighbours of an accused limit holder are certainly short of.

GREEDY with 70 of 80 GiB (limit 8) comes in, with neighbours of each kind. The shortage goes out, in GiB, and whether it
justifies an action.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from enforcer.policy.cases import cases
from enforcer.policy.contention import justified, needs, shortage
from enforcer.policy.entitlements import entitlements
from enforcer.policy.history import Ended
from enforcer.policy.limit_holders import Case
from exporter.model import ContainerKind, DeviceKey, PodUid
from policy.scenes import BEGIN, CARD, GIB, GREEDY, MEEK, Actor, gpu_uuid, snapshot

KEY = DeviceKey(gpu_uuid(0))
DELETED = {"terminating": True, "grace_seconds": 30.0}


def short(
    *others: Actor,
    greedy: Actor = GREEDY,
    deleted: Mapping[PodUid, float] | None = None,
    ended: Mapping[tuple[DeviceKey, PodUid], Ended] | None = None,
    with_pod: Collection[Actor] = (),
    **world: object,
) -> float:
    """The GiB that the neighbours of `greedy` are short of; 0 where that is nothing. `with_pod`: see `Usage`."""
    actors = [greedy, *others]
    seen = snapshot(actors, BEGIN, **world)  # type: ignore[arg-type]
    usages = (replace(one, with_pod=actor in with_pod) for actor, one in zip(actors, seen.usages, strict=True))
    seen = replace(seen, usages=tuple(usages))
    known = cases(seen)
    lacking = needs(known, seen, ended or {}, deleted or {}, BEGIN)
    return max(0, shortage(_of(greedy, known), lacking)) / GIB


def _sandboxed(*containers: Actor) -> list[Actor]:
    """Let a pod hold what its first container says; of which container that is, is not known."""
    whole = replace(containers[0], container="", limit=None)
    return [whole, *(replace(container, used=None) for container in containers)]


def _of(actor: Actor, known: tuple[Case, ...]) -> Case:
    return next(case for case in known if actor.pod_uid == case.limit.pod_uid)


@pytest.mark.parametrize(
    ("neighbour", "expected"),
    [
        (Actor("n-1", 2 * GIB, limit=10 * GIB), 0),  # needs 8, and 8 are free
        (Actor("n-1", 2 * GIB, limit=11 * GIB), 1),
        (Actor("n-1", 10 * GIB, limit=10 * GIB), 0),  # holds its limit
        (Actor("n-1", 10 * GIB, limit=9 * GIB), 0),  # is above its own limit: denied nothing
        (Actor("n-1", 2 * GIB, limit=None), 0),  # declares nothing, and there is no fair share
        (Actor("n-1", 0, limit=11 * GIB), 1),  # holds nothing yet
        (Actor("n-1", None, limit=11 * GIB), 1),  # unknown usage, but nothing is unexplained
        (Actor("n-1", 2 * GIB, limit=70 * GIB, scope="process"), 0),
        (Actor("n-1", 2 * GIB, limit=70 * GIB, report_only=("a hint",)), 0),
        (Actor("n-1", 2 * GIB, limit=None, problems=("what?",)), 0),
        (Actor("n-1", 2 * GIB, limit=70 * GIB, gpu=1), 0),
        (Actor("n-1", 2 * GIB, limit=70 * GIB, facts={"phase": "Succeeded"}), 0),
        (Actor("n-1", 2 * GIB, limit=11 * GIB, facts={"phase": "Pending"}), 1),
        (Actor("n-1", 2 * GIB, limit=70 * GIB, kind=ContainerKind.INIT), 0),  # has ended: the pod runs
        (Actor("n-1", 2 * GIB, limit=11 * GIB, kind=ContainerKind.INIT, facts={"phase": "Pending"}), 1),
        (Actor("n-1", 2 * GIB, limit=11 * GIB, kind=ContainerKind.SIDECAR), 1),
        (Actor("n-1", 2 * GIB, limit=11 * GIB, namespace="kube-system"), 1),  # a protected pod has needs, too
        (Actor("n-1", 2 * GIB, limit=11 * GIB, facts={"priority": None}), 1),
    ],
)
def test_which_needs_count(neighbour: Actor, expected: float) -> None:
    """A neighbour's need counts when it is declared, valid, on this device, and the neighbour lives."""
    assert short(neighbour, gpus=2) == expected


def test_alone_it_denies_nothing() -> None:
    """Without a neighbour there is no shortage, whatever is free."""
    assert short() == 0


def test_a_pod_that_kubernetes_does_not_know_needs_nothing() -> None:
    """Its need is not certain."""
    assert short(Actor("n-1", 2 * GIB, limit=70 * GIB), strangers=["n-1"]) == 0


def test_its_own_containers_are_no_neighbours() -> None:
    """What another container of the same pod may still take is no shortage."""
    assert short(replace(GREEDY, container="sidecar", used=GIB, limit=40 * GIB)) == 0


def test_needs_of_several_add_up() -> None:
    """Three neighbours of which each alone would find room."""
    assert short(*[Actor(f"n{number}-1", GIB, limit=3 * GIB) for number in range(3)]) == 0  # need 6, and 7 are free
    assert short(*[Actor(f"n{number}-1", GIB, limit=4 * GIB) for number in range(3)]) == 2


def test_a_pod_s_limit_stands_for_its_containers() -> None:
    """Containers with limits below a pod's own limit: the pod's need counts once."""
    container = Actor("n-1", 2 * GIB, limit=6 * GIB)
    assert short(container, replace(container, scope="pod", container="other", used=0, limit=12 * GIB)) == 2


def test_a_pod_s_limit_that_cannot_be_used_hides_none_of_its_containers() -> None:
    """An invalid limit of the pod takes nothing away from what its container declares."""
    container = Actor("n-1", 2 * GIB, limit=20 * GIB)
    invalid = replace(container, scope="pod", container="other", used=0, limit=None, problems=("what?",))
    assert short(container, invalid) == 10


def test_a_crash_looping_neighbour_needs_its_limit_once() -> None:
    """Of two generations of one container, what both hold counts against the one limit."""
    old, new = Actor("n-1", 2 * GIB, limit=11 * GIB), Actor("n-1", GIB, limit=11 * GIB, generation=1)
    assert short(old, new) == 1  # needs 8, and 7 are free


def test_of_buffers_that_may_be_shared_a_neighbour_needs_the_least() -> None:
    """The high end of what a neighbour holds counts; the low end is what it would be accused with."""
    seen = snapshot([GREEDY, Actor("n-1", 6 * GIB, limit=11 * GIB)], BEGIN)
    usages = tuple(replace(each, memory_sure=0) if each.memory_used == 6 * GIB else each for each in seen.usages)
    seen = replace(seen, usages=usages)
    known = cases(seen)
    assert {case.limit.pod_uid: case.low for case in known}[Actor("n-1", 0).pod_uid] == 0
    assert shortage(_of(GREEDY, known), needs(known, seen, {}, {}, BEGIN)) == GIB  # needs 5, and 4 are free


def test_unexplained_bytes_count_once_against_all_unknown_neighbours() -> None:
    """Neighbours with unknown usage hold together at most what no known process explains."""
    seen = replace(GREEDY, used=60 * GIB)
    unknown = Actor("n-1", None, limit=20 * GIB)
    assert short(unknown, greedy=seen, hidden={0: 18 * GIB}) == 0  # needs 2 at least, and 2 are free
    assert short(unknown, greedy=seen, hidden={0: 15 * GIB}) == 0
    assert short(replace(unknown, limit=21 * GIB), greedy=seen, hidden={0: 15 * GIB}) == 1
    twice = [unknown, replace(unknown, pod="n-2")]
    assert short(*twice, greedy=seen, hidden={0: 15 * GIB}) == 40 - 15 - 5


def test_the_known_part_of_an_unknown_usage_counts() -> None:
    """A pod's limit of 20 GiB: one container holds 6, the usage of another is unknown, and nothing is unexplained."""
    holds = Actor("n-1", 6 * GIB, limit=20 * GIB, scope="pod")
    unknown = Actor("n-1", None, limit=None, container="other")
    assert short(holds, unknown) == 20 - 6 - 4


def test_neighbours_that_are_partly_listed_may_hold_what_is_unexplained_besides() -> None:
    """Where the lists do not show all, a neighbour is not short of what it may hold in another way."""
    half, seen = Actor("n-1", 2 * GIB, limit=20 * GIB), replace(GREEDY, used=60 * GIB)
    assert short(half, greedy=seen, hidden={0: 16 * GIB}) == 16
    assert short(half, greedy=seen, hidden={0: 16 * GIB}, partial=True) == 0
    assert short(replace(half, limit=21 * GIB), greedy=seen, hidden={0: 16 * GIB}, partial=True) == 1
    assert short(replace(half, used=20 * GIB), greedy=seen, partial=True) == 0


def test_memory_of_ended_and_of_host_processes_is_explained() -> None:
    """Ten GiB are a dead process's or the host's: an unknown neighbour does not hold them."""
    unknown = Actor("n-1", None, limit=20 * GIB)
    seen = snapshot([replace(GREEDY, used=60 * GIB), unknown], BEGIN, hidden={0: 10 * GIB})
    (device,) = seen.devices
    for account in (replace(device.account, ghost=10 * GIB), replace(device.account, host=10 * GIB)):
        made = replace(seen, devices=(replace(device, account=account),))
        known = cases(made)
        assert shortage(_of(GREEDY, known), needs(known, made, {}, {}, BEGIN)) == 10 * GIB


@pytest.mark.parametrize(("limits", "expected"), [((12,), 2), ((8, 4), 2), ((4, 4), 0), ((12, 8), 10)])
def test_a_sandboxed_neighbour_needs_its_limits_less_what_the_pod_holds(limits: tuple[int, ...], expected: int) -> None:
    """Its processes have no container: the pod's 8 GiB count once against the limits of all its containers."""
    whole, *containers = _sandboxed(
        *(Actor("n-1", 8 * GIB, limit=limit * GIB, container=f"c-{limit}-{n}") for n, limit in enumerate(limits))
    )
    for parts in ((8,), (6, 2)):  # of several containers whose status lags there are as many usages
        held = [replace(whole, used=part * GIB) for part in parts]
        assert short(*held, *containers, with_pod=set(containers)) == expected


def test_a_pod_with_a_limit_of_its_own_and_one_of_its_claim_may_take_the_smaller() -> None:
    """The pod may hold 30 GiB, and 20 by its claim: it needs 18 besides its 2; with unknown usage 20 at most."""
    by_claim = Actor("n-1", 2 * GIB, limit=20 * GIB, scope="claim", claim="team/own")
    of_pod = replace(by_claim, container="other", used=0, limit=30 * GIB, scope="pod", claim="")
    assert short(by_claim, of_pod) == short(of_pod, by_claim) == 18 - 8
    assert short(replace(by_claim, limit=30 * GIB), replace(of_pod, limit=20 * GIB)) == 18 - 8
    unknown = replace(by_claim, used=None)
    assert short(unknown, of_pod) == 20 - 10
    assert short(unknown, of_pod, hidden={0: 8 * GIB}) == 20 - 8 - 2


def test_nothing_is_denied_while_enough_is_free() -> None:
    """A holder above its limit on an empty card denies nothing."""
    small = replace(GREEDY, used=10 * GIB)
    assert short(MEEK, greedy=small) == 0
    assert short(Actor("n-1", 0, limit=CARD), greedy=small) == 10


def test_where_a_device_s_memory_is_unknown_there_is_no_shortage() -> None:
    """A device that is missing from the needs denies nothing."""
    accused, *_ = cases(snapshot([GREEDY, MEEK], 1.0))
    assert shortage(accused, {}) == 0
    assert not justified(accused, CARD, {})


# --- claims ---


def sharers(claim: str, count: int, limit: int = 12) -> list[Actor]:
    """Pods that hold 1 GiB each by one claim."""
    return [
        Actor(f"{claim}{number}-1", GIB, limit=limit * GIB, scope="claim", claim=f"team/{claim}")
        for number in range(count)
    ]


def test_the_need_of_a_shared_claim_counts_once() -> None:
    """Two pods share one claim, two others another: each claim needs 10 GiB."""
    seen = replace(GREEDY, used=60 * GIB)
    assert short(*sharers("a", 2), *sharers("b", 2), greedy=seen) == 20 - 16
    assert short(*sharers("a", 2), greedy=seen) == 0


def test_a_shared_claim_stands_for_the_limits_of_its_pods() -> None:
    """A pod of the claim declares a limit of its container besides: that is no second need."""
    mine, other = sharers("a", 2, limit=30)
    besides = Actor(mine.pod, 0, limit=20 * GIB, container="side", claim="")
    assert short(mine, other, besides) == short(mine, other) == 28 - 8


def test_the_claim_that_the_accused_shares_is_no_neighbour() -> None:
    """What the accused pod itself may still take by a claim is no shortage."""
    mine = Actor(GREEDY.pod, 0, limit=60 * GIB, container="side", scope="claim", claim="team/a")
    other = Actor("n-1", GIB, limit=60 * GIB, scope="claim", claim="team/a")
    assert short(mine, other) == 0
    assert short(other, replace(other, pod="n-2")) == 58 - 8, "the same claim, without the accused"


def test_a_claim_of_which_one_pod_is_left_still_has_its_need() -> None:
    """One of two pods of a claim has ended; the other may still take what the claim has left."""
    mine, other = sharers("a", 2, limit=30)
    gone = replace(mine, used=0, facts={"phase": "Succeeded"})
    assert short(gone, other) == 29 - 9
    assert short(gone, replace(other, facts={"phase": "Succeeded"})) == 0


# --- pods that are being deleted ---


def test_memory_of_deleted_pods_counts_as_free_for_a_while() -> None:
    """A deleted pod holds 6 GiB, and needs nothing: these are free until its grace of 30 s and a minute are over."""
    going = Actor("going-1", 6 * GIB, limit=70 * GIB, facts=DELETED)
    waits = Actor("n-1", 0, limit=10 * GIB)
    assert short(waits, going) == 0, "first seen now"
    assert short(waits, going, deleted={going.pod_uid: BEGIN - 30 - 60 + 1}) == 0
    assert short(waits, going, deleted={going.pod_uid: BEGIN - 30 - 60}) == 6


def test_an_hour_of_grace_hides_a_shortage_for_ten_minutes() -> None:
    """A tenant that wants a long grace keeps its neighbours waiting for ten minutes and no longer."""
    going = Actor("going-1", 6 * GIB, facts={**DELETED, "grace_seconds": 3600.0})
    waits = Actor("n-1", 0, limit=10 * GIB)
    assert short(waits, going, deleted={going.pod_uid: BEGIN - 600 + 1}) == 0
    assert short(waits, going, deleted={going.pod_uid: BEGIN - 600}) == 6


def test_a_deleted_pod_with_unknown_usage_may_hold_all_that_is_unexplained() -> None:
    """Six GiB are unexplained, and may be the deleted pod's: they count as free, once."""
    going = Actor("going-1", None, facts=DELETED)
    waits = Actor("n-1", 0, limit=10 * GIB)
    assert short(waits, hidden={0: 6 * GIB}) == 6
    assert short(waits, going, hidden={0: 6 * GIB}) == 0
    unknown = Actor("n-2", None, limit=10 * GIB)
    assert short(waits, going, unknown, hidden={0: 6 * GIB}) == 20 - 10


def test_a_deleted_pod_that_is_partly_listed_may_hold_what_is_unexplained_besides() -> None:
    """It holds 2 GiB that are listed, and perhaps the 6 that are not; a pod that stays frees nothing."""
    going, waits = Actor("going-1", 2 * GIB, facts=DELETED), Actor("n-1", 10 * GIB, limit=20 * GIB)
    seen, hidden = replace(GREEDY, used=60 * GIB), {0: 6 * GIB}
    stays = replace(going, facts={}, limit=None)
    assert short(waits, going, greedy=seen, hidden=hidden, partial=True) == 10 - 2 - 2 - 6
    assert short(waits, stays, greedy=seen, hidden=hidden, partial=True) == 10 - 2 - 6
    assert short(waits, going, greedy=seen, hidden=hidden) == 10 - 2 - 2
    gone = {(KEY, PodUid("gone")): Ended(40 * GIB, BEGIN + 1)}
    assert short(going, greedy=seen, hidden=hidden, partial=True, ended=gone) == 40 - 12 - 2 - 6


def test_a_deleted_sandboxed_pod_frees_what_it_holds_and_no_more() -> None:
    """It is known what the whole pod holds: a tenant whose sandboxes end one by one hides no shortage by them."""
    going, waits = (
        _sandboxed(Actor("going-1", GIB, limit=4 * GIB, facts=DELETED)),
        Actor("n-1", 2 * GIB, limit=14 * GIB),
    )
    seen, hidden = replace(GREEDY, used=60 * GIB), {0: 12 * GIB}
    assert short(waits, *going, greedy=seen, hidden=hidden, with_pod={going[1]}) == 12 - 5 - 1


# --- neighbours that ended abnormally ---


def test_a_neighbour_that_ended_abnormally_counts_while_it_is_away() -> None:
    """It is gone from the snapshot, and needs what it was entitled to; nothing after its time is over."""
    uid = PodUid("uid-team-gone-1")
    entry = Ended(16 * GIB, BEGIN + 1, ("team", "Deployment", "gone"))
    assert short(ended={(KEY, uid): entry}) == 6
    assert short(ended={(KEY, uid): replace(entry, until=BEGIN)}) == 0
    assert short(ended={(KEY, GREEDY.pod_uid): entry}) == 0, "the accused is no neighbour of itself"
    assert short(ended={(DeviceKey(gpu_uuid(1)), uid): entry}) == 0


# --- what an action would help ---


@pytest.mark.parametrize(("excess", "expected"), [(10, True), (5, True), (4.9, False), (0, False)])
def test_excesses_that_explain_less_than_half_of_the_shortage_justify_nothing(excess: float, *, expected: bool) -> None:
    """Neighbours are short of 10 GiB: all excesses together must come to 5."""
    seen = snapshot([GREEDY, Actor("n-1", 0, limit=20 * GIB)], BEGIN)
    known = cases(seen)
    lacking = needs(known, seen, {}, {}, BEGIN)
    assert shortage(_of(GREEDY, known), lacking) == 10 * GIB
    assert justified(_of(GREEDY, known), int(excess * GIB), lacking) is expected


def test_a_small_excess_is_spared_beside_much_ghost_memory() -> None:
    """68 GiB belong to processes that have ended; the pod that is 0.3 GiB over would give back next to nothing."""
    slight = replace(GREEDY, used=int(8.3 * GIB))
    seen = snapshot([slight, Actor("n-1", 0, limit=20 * GIB)], BEGIN, hidden={0: 68 * GIB})
    known = cases(seen)
    lacking = needs(known, seen, {}, {}, BEGIN)
    assert shortage(_of(slight, known), lacking) > 10 * GIB
    assert not justified(_of(slight, known), slight.used - 8 * GIB, lacking)  # type: ignore[operator]


def test_without_a_shortage_no_excess_justifies_anything() -> None:
    """The neighbour finds room for all that it needs."""
    seen = snapshot([GREEDY, Actor("n-1", 0, limit=10 * GIB)], BEGIN)
    known = cases(seen)
    assert not justified(_of(GREEDY, known), 62 * GIB, needs(known, seen, {}, {}, BEGIN))


def test_a_shortage_of_nothing_justifies_nothing() -> None:
    """What the neighbour may still take is free to the byte."""
    seen = snapshot([GREEDY, Actor("n-1", 2 * GIB, limit=10 * GIB)], BEGIN)
    known = cases(seen)
    lacking = needs(known, seen, {}, {}, BEGIN)
    assert shortage(_of(GREEDY, known), lacking) == 0
    assert not justified(_of(GREEDY, known), CARD, lacking)


def test_a_device_whose_memory_is_unknown_says_nothing_of_anybody() -> None:
    """Pods that stay, that end and that have ended there neither need memory nor free any."""
    going = Actor("going-1", 6 * GIB, gpu=1, facts=DELETED)
    blind = (going, replace(going, container="b", used=None), Actor("n-1", GIB, limit=10 * GIB, gpu=1))
    seen = snapshot([GREEDY, *blind], BEGIN, gpus=2)
    first, second = seen.devices
    seen = replace(seen, devices=(first, replace(second, account=replace(second.account, memory=None))))
    gone = {(second.key, PodUid("gone")): Ended(GIB, BEGIN + 1)}
    assert list(needs(cases(seen), seen, gone, {}, BEGIN)) == [KEY]


def test_of_two_containers_the_unknown_one_takes_nothing_from_the_known_one() -> None:
    """One is owed 14 GiB for certain; what is unexplained may be the other's only."""
    known = Actor("n-1", 6 * GIB, limit=20 * GIB)
    unknown = replace(known, container="other", used=None)
    seen = replace(GREEDY, used=40 * GIB)
    assert short(known, unknown, greedy=seen, hidden={0: 30 * GIB}) == 14 - 4


def test_a_pod_whose_first_container_is_over_its_limit_is_over() -> None:
    """The other container is within its own; at its limit to the byte it is not over."""
    first = Actor("n-1", 9 * GIB, limit=8 * GIB)
    for actors, over in (
        ((first, replace(first, container="second", used=GIB)), True),
        ((replace(first, container="second"), replace(first, used=GIB)), True),
        ((replace(first, used=8 * GIB), replace(first, container="second", used=GIB)), False),
    ):
        seen = snapshot(actors, BEGIN)
        assert [each.over for each in entitlements(cases(seen), seen).values()] == [over]


def test_an_init_container_that_has_ended_makes_no_owner() -> None:
    """A pod without another limit is not known to need anything."""
    seen = snapshot([Actor("n-1", 0, kind=ContainerKind.INIT)], BEGIN)
    assert entitlements(cases(seen), seen) == {}
