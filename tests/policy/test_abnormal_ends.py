"""
Promises of enforcer/policy/abnormal_ends.py: which neighbours ended abnormally on a nearly full device.

Rounds with GREEDY (70 of 80 GiB) and a neighbour come in. What the neighbour is still in need of goes out, in GiB.
"""

from dataclasses import replace

import pytest

from enforcer.policy.abnormal_ends import Table, ended, lived, still_short
from enforcer.policy.cases import cases
from enforcer.policy.entitlements import entitlements
from enforcer.policy.history import Lives
from enforcer.policy.vocabulary import Trigger
from exporter.model import Memory
from policy.scenes import BEGIN, GIB, GREEDY, UNHURRIED, WALL, Actor, Play, snapshot

NEIGHBOUR = Actor("n-1", 8 * GIB, limit=16 * GIB)
"""With GREEDY it fills the card to 97 %."""
FAILED = replace(NEIGHBOUR, used=0, limit=None, facts={"phase": "Failed"})
WAITING = replace(NEIGHBOUR, used=0, limit=None, generation=1)
"""It came back, and its limit is not placed on the device yet."""


class Rounds:
    """The table, carried from round to round as `decide` does it."""

    def __init__(self) -> None:
        self.now = BEGIN
        self.lives = Lives()
        self.table: Table = {}

    def step(self, *actors: Actor, after: float = 5.0, **world: object) -> float:
        """Let a round pass; the GiB that neighbours which ended abnormally are in need of."""
        self.now += after
        seen = snapshot(actors, self.now, **world)  # type: ignore[arg-type]
        entitled = entitlements(cases(seen), seen)
        self.table = ended(self.table, self.lives, seen, self.now)
        self.lives = lived(self.lives, entitled, seen)
        return sum(amount for _, _, amount in still_short(self.table, entitled, seen, self.now)) / GIB


@pytest.mark.parametrize("after", [FAILED, WAITING], ids=["failed", "came back"])
def test_a_neighbour_that_ended_abnormally_counts_for_ten_minutes(after: Actor) -> None:
    """Its phase is Failed, or its container is in a new generation: it needs its limit, and no longer than that."""
    rounds = Rounds()
    assert rounds.step(GREEDY, NEIGHBOUR) == 0
    assert rounds.step(GREEDY, after) == 16
    assert rounds.step(GREEDY, after, after=599.0) == 16
    assert rounds.step(GREEDY, after, after=1.0) == 0
    assert rounds.table == {}


def test_it_counts_when_it_is_gone_altogether() -> None:
    """A controller removes the failed pod; what the pod was short of is not forgotten."""
    rounds = Rounds()
    rounds.step(GREEDY, NEIGHBOUR)
    rounds.step(GREEDY, FAILED)
    assert rounds.step(GREEDY) == 16


def test_a_device_that_was_not_nearly_full_denied_nothing() -> None:
    """The neighbour crashes on a card that is half empty: that has another cause."""
    rounds, small = Rounds(), replace(GREEDY, used=30 * GIB)
    rounds.step(small, NEIGHBOUR)
    assert rounds.step(small, FAILED) == 0


def test_the_device_may_have_become_full_only_now() -> None:
    """Between two rounds another container took the memory, and the neighbour failed."""
    rounds = Rounds()
    rounds.step(replace(GREEDY, used=30 * GIB), NEIGHBOUR)
    assert rounds.step(replace(GREEDY, used=79 * GIB), FAILED) == 16


@pytest.mark.parametrize(
    "after",
    [
        replace(FAILED, facts={"phase": "Succeeded"}),
        replace(FAILED, facts={"phase": "Failed", "terminating": True}),  # was deleted, and ended by SIGTERM
        replace(WAITING, facts={"terminating": True}),
        replace(NEIGHBOUR, used=None),
    ],
    ids=["succeeded", "deleted", "deleted and back", "lives"],
)
def test_other_ends_are_not_abnormal(after: Actor) -> None:
    """A pod that succeeds, is deleted or lives on is short of nothing by this rule."""
    rounds = Rounds()
    rounds.step(GREEDY, NEIGHBOUR)
    assert rounds.step(GREEDY, after) == 0


@pytest.mark.parametrize(
    "facts", [{"phase": "Succeeded"}, {"terminating": True}], ids=["succeeded at last", "was deleted"]
)
def test_a_pod_that_came_back_and_ends_otherwise_needs_nothing_any_more(facts: dict[str, object]) -> None:
    """What the crash was counted for is over with the pod's success or deletion."""
    rounds = Rounds()
    rounds.step(GREEDY, NEIGHBOUR)
    assert rounds.step(GREEDY, WAITING) == 16
    assert rounds.step(GREEDY, replace(WAITING, facts=facts)) == 0
    assert rounds.table == {}


def test_memory_that_the_driver_reserves_counts_as_full() -> None:
    """87.5 % are used and 5 % reserved: the next allocation may fail."""
    seen = snapshot([replace(GREEDY, used=62 * GIB), NEIGHBOUR], BEGIN)
    (device,) = seen.devices
    assert lived(Lives(), entitlements(cases(seen), seen), seen).full == frozenset()
    memory = replace(device.account.memory, free=6 * GIB, reserved=4 * GIB)  # type: ignore[type-var]
    seen = replace(seen, devices=(replace(device, account=replace(device.account, memory=memory)),))
    assert lived(Lives(), entitlements(cases(seen), seen), seen).full == {device.key}


def test_a_shared_claim_is_no_pod_that_could_end() -> None:
    """Two pods share a claim: what the claim has left counts with the pod that stays."""
    sharers = [replace(NEIGHBOUR, pod=f"n-{i}", used=GIB, scope="claim", claim="team/a") for i in range(2)]
    seen = snapshot([GREEDY, *sharers], BEGIN)
    assert {uid for _, uid in lived(Lives(), entitlements(cases(seen), seen), seen).entitled} <= seen.pods.keys()
    of_pod = replace(NEIGHBOUR, pod="m-1", limit=4 * GIB, scope="pod")  # above its limit, not above its claim's
    by_claim = replace(of_pod, container="other", used=0, limit=40 * GIB, scope="claim", claim="team/own")
    seen = snapshot([of_pod, by_claim], BEGIN)
    assert lived(Lives(), entitlements(cases(seen), seen), seen).entitled == {}
    within = snapshot([replace(of_pod, limit=9 * GIB), by_claim], BEGIN)
    assert list(lived(Lives(), entitlements(cases(within), within), within).entitled.values()) == [9 * GIB]


def test_a_neighbour_that_was_above_its_own_limit_was_denied_nothing() -> None:
    """Its container was killed for an excess of its own, and came back."""
    rounds = Rounds()
    rounds.step(GREEDY, replace(NEIGHBOUR, limit=7 * GIB))
    assert rounds.step(GREEDY, WAITING) == 0


def test_what_it_holds_now_is_no_need() -> None:
    """The container came back and holds 3 GiB; its limit is not placed yet."""
    rounds = Rounds()
    rounds.step(GREEDY, NEIGHBOUR)
    assert rounds.step(GREEDY, replace(WAITING, used=3 * GIB)) == 13


def test_a_pod_whose_limit_is_on_the_device_again_speaks_for_itself() -> None:
    """Its own case says what it may still take: it does not count twice."""
    rounds = Rounds()
    rounds.step(GREEDY, NEIGHBOUR)
    rounds.step(GREEDY, WAITING)
    assert rounds.step(GREEDY, replace(NEIGHBOUR, generation=1)) == 0


def test_a_later_pod_of_the_workload_takes_its_place() -> None:
    """A Job makes a new pod, which has a limit on the device; a sibling that was there before replaces nothing."""
    rounds = Rounds()
    sibling = Actor("n-2", GIB, limit=GIB)
    rounds.step(GREEDY, NEIGHBOUR, sibling)
    assert rounds.step(GREEDY, FAILED, sibling) == 16
    anew = Actor("n-3", 0, limit=16 * GIB, facts={"created_at": WALL + rounds.now - BEGIN})
    assert rounds.step(GREEDY, FAILED, sibling, anew) == 0
    assert rounds.step(GREEDY, FAILED, sibling, replace(anew, namespace="other")) == 16


def test_a_workload_that_fails_again_and_again_counts_once() -> None:
    """Three pods of a Job fail one after the other: the Job needs what one of them needed."""
    rounds = Rounds()
    for number in range(3):
        name = f"n-{number}"
        rounds.step(GREEDY, replace(NEIGHBOUR, pod=name))
        assert rounds.step(GREEDY, replace(FAILED, pod=name)) == 16
    assert len(rounds.table) == 3


def test_needs_of_different_workloads_add_up() -> None:
    """Two neighbours of different workloads fail at the same time."""
    rounds = Rounds()
    other = replace(NEIGHBOUR, pod="m-1", used=GIB, limit=4 * GIB)
    rounds.step(GREEDY, NEIGHBOUR, other)
    assert rounds.step(GREEDY, FAILED, replace(other, used=0, limit=None, facts={"phase": "Failed"})) == 20


def test_names_that_are_not_live_say_nothing() -> None:
    """While the API server is away nothing is noted; with its return the change is seen."""
    rounds = Rounds()
    rounds.step(GREEDY, NEIGHBOUR)
    assert rounds.step(GREEDY, FAILED, live=False) == 0
    assert rounds.step(GREEDY, FAILED) == 16


def test_a_restart_is_noticed_when_the_present_id_was_unknown_for_a_round() -> None:
    """Between two generations the kubelet names no container: the last known id is remembered."""
    rounds = Rounds()
    rounds.step(GREEDY, NEIGHBOUR)
    seen = snapshot([GREEDY, NEIGHBOUR], rounds.now + 5)
    seen = replace(seen, containers=tuple(replace(each, id=None) for each in seen.containers))
    entitled = entitlements(cases(seen), seen)
    rounds.table = ended(rounds.table, rounds.lives, seen, rounds.now + 5)
    rounds.lives = lived(rounds.lives, entitled, seen)
    assert rounds.table == {}
    assert rounds.step(GREEDY, WAITING, after=10.0) == 16


def test_the_first_round_knows_of_no_end() -> None:
    """A daemon that starts beside a failed pod does not know how the pod failed."""
    assert Rounds().step(GREEDY, FAILED) == 0


def test_a_failed_pod_that_its_controller_deletes_still_counts() -> None:
    """The deletion follows the failure, and is not its cause."""
    rounds = Rounds()
    rounds.step(GREEDY, NEIGHBOUR)
    rounds.step(GREEDY, FAILED)
    assert rounds.step(GREEDY, replace(FAILED, facts={"phase": "Failed", "terminating": True})) == 16


def test_a_neighbour_that_is_removed_at_once_was_denied_nothing_that_is_known() -> None:
    """It is gone in the next round: nothing says how it ended."""
    rounds = Rounds()
    rounds.step(GREEDY, NEIGHBOUR)
    assert rounds.step(GREEDY) == 0


@pytest.mark.parametrize(("older", "expected"), [(59.0, 0), (61.0, 16)])
def test_a_pod_that_was_made_a_minute_before_the_failure_was_seen_takes_its_place(older: float, expected: int) -> None:
    """The failure was seen some time after it came about; a pod that is older than a minute is a sibling."""
    rounds = Rounds()
    rounds.step(GREEDY, NEIGHBOUR)
    seen_at = WALL + rounds.now + 5 - BEGIN
    other = Actor("n-2", GIB, limit=GIB, facts={"created_at": seen_at - older})
    assert rounds.step(GREEDY, FAILED, other) == expected


def test_a_container_of_a_pod_that_is_gone_is_forgotten() -> None:
    """What is remembered is bounded by the pods that exist."""
    rounds = Rounds()
    other = replace(NEIGHBOUR, pod="m-1", used=GIB)
    rounds.step(GREEDY, NEIGHBOUR, other)
    rounds.step(GREEDY, other)
    rounds.step(GREEDY, other)
    assert NEIGHBOUR.pod_uid not in {uid for uid, _ in rounds.lives.generations}
    assert other.pod_uid in {uid for uid, _ in rounds.lives.generations}


def test_a_claim_of_a_pod_that_kubernetes_does_not_know_is_no_error() -> None:
    """One of two pods of a claim is not known: another workload's failed pod counts all the same."""
    rounds = Rounds()
    sharers = [Actor(f"c-{i}", 0, limit=GIB, scope="claim", claim="team/a") for i in range(2)]
    rounds.step(GREEDY, NEIGHBOUR, *sharers)
    assert rounds.step(GREEDY, FAILED, *sharers, strangers=["c-0"]) == 16


@pytest.mark.parametrize("total", [None, 0])
def test_a_device_whose_size_is_unknown_is_never_full(total: int | None) -> None:
    """Nothing is known to have been denied there."""
    seen = snapshot([GREEDY, NEIGHBOUR], BEGIN)
    (device,) = seen.devices
    memory = None if total is None else Memory(total, free=0)
    seen = replace(seen, devices=(replace(device, account=replace(device.account, memory=memory)),))
    assert lived(Lives(), {}, seen).full == frozenset()


def test_a_container_that_is_the_same_after_a_round_without_its_id_did_not_come_back() -> None:
    """What the kubelet does not name for a round is no other generation."""
    rounds = Rounds()
    rounds.step(GREEDY, NEIGHBOUR)
    seen = snapshot([GREEDY, NEIGHBOUR], rounds.now)
    unnamed = replace(seen, containers=tuple(replace(each, id=None) for each in seen.containers))
    rounds.lives = lived(rounds.lives, entitlements(cases(unnamed), unnamed), unnamed)
    rounds.step(GREEDY, NEIGHBOUR)
    assert rounds.table == {}


@pytest.mark.parametrize(("trigger", "noted"), [(Trigger.CONTENDED, True), (Trigger.LIMIT, False)])
def test_a_neighbour_that_ended_abnormally_justifies_an_action(trigger: Trigger, *, noted: bool) -> None:
    """The neighbour holds nothing any more, and GREEDY is acted on for its sake. The trigger `limit` asks for none."""
    play = Play(replace(UNHURRIED, trigger=trigger))
    play.steps(10, GREEDY, NEIGHBOUR)
    assert play.until_action(GREEDY, FAILED).pod == GREEDY.pod
    assert bool(play.history.ended) is noted
