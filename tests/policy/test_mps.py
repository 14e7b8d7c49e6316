"""
Which pods are MPS clients to the policy: three facts, of which each suffices, and none that a tenant can make alone.

What comes in: GREEDY, due in any case, and facts about MPS. What goes out: whether the eviction is held, and why.
"""

from dataclasses import replace

import pytest

from enforcer.policy.mps import DECLARED, LISTED, SHARED, clients
from enforcer.policy.vocabulary import Reason, Rung
from exporter.model import ProcessKey, Sharing
from policy.refusals import ENOUGH
from policy.scenes import GIB, GREEDY, MEEK, SHORT, Actor, Play, snapshot

CLIENT, NEIGHBOUR = replace(GREEDY, client=True), replace(MEEK, client=True)
KILLING = replace(SHORT, ladder=(Rung.NOTIFY, Rung.KILL))
HELD: tuple[list[str], str] = ([], Reason.MPS)


def outcome(play: Play, actor: Actor = GREEDY) -> tuple[list[str], str | None]:
    return play.actions, play.reason(actor)


@pytest.mark.parametrize(
    ("actors", "sharing", "fact"),
    [
        ((replace(GREEDY, declares_mps=True), MEEK), Sharing.NONE, DECLARED),
        ((GREEDY, MEEK), Sharing.MPS, SHARED),
        ((CLIENT, NEIGHBOUR), Sharing.TIME_SLICING, LISTED),
    ],
)
def test_each_fact_alone_holds_and_is_told(actors: tuple[Actor, ...], sharing: Sharing, fact: str) -> None:
    """The declaration, the node's label, the driver's list: held, with the fact as the detail; evicted where wanted."""
    play = Play(SHORT)
    play.steps(ENOUGH, *actors, sharing=sharing)
    assert outcome(play) == HELD
    assert [one.detail for one in play.verdicts[-1].standings if one.pod == GREEDY.pod] == [fact]
    play = Play(replace(SHORT, mps=Rung.EVICT))
    play.steps(ENOUGH, *actors, sharing=sharing)
    assert play.actions == ["evict team/greedy-1"]


@pytest.mark.parametrize(
    "actors",
    [
        (CLIENT, MEEK),
        (GREEDY, NEIGHBOUR),
        (CLIENT, replace(CLIENT, container="other", used=GIB, limit=None), MEEK),
        (CLIENT, MEEK, replace(NEIGHBOUR, gpu=1)),
        (GREEDY, NEIGHBOUR, replace(NEIGHBOUR, pod="third-1", used=GIB)),
    ],
    ids=["its own server", "a neighbour's server", "two clients of one pod", "a client on another GPU", "no client"],
)
def test_the_list_counts_beside_a_client_of_another_pod_on_the_same_device(actors: tuple[Actor, ...]) -> None:
    """A tenant that starts an MPS server of its own is evicted like any other."""
    play = Play(SHORT)
    play.steps(ENOUGH, *actors, gpus=2)
    assert play.actions == ["evict team/greedy-1"]


def test_a_share_of_mps_that_is_not_used_protects_nobody() -> None:
    """A pod that also asks for a share of MPS on another device, and uses nothing there, gains nothing by it."""
    idle = replace(GREEDY, container="idle", used=0, gpu=1, declares_mps=True)
    play = Play(SHORT)
    play.steps(ENOUGH, GREEDY, idle, MEEK, gpus=2)
    assert play.actions == ["evict team/greedy-1"]


def test_an_eviction_ends_all_containers_of_the_pod() -> None:
    """A container that shares by time is not evicted while its pod has an MPS client on another device."""
    other = replace(GREEDY, container="other", used=GIB, gpu=1, declares_mps=True)
    play = Play(SHORT)
    play.steps(ENOUGH, GREEDY, other, MEEK, gpus=2)
    assert outcome(play) == HELD


def test_a_kill_ends_one_container() -> None:
    """The same container is killed: the client beside it lives. The client itself is not."""
    client = replace(GREEDY, container="other", used=GIB, gpu=1, declares_mps=True)
    play = Play(KILLING)
    play.steps(ENOUGH, GREEDY, client, MEEK, gpus=2)
    assert play.actions == ["kill team/greedy-1"]
    play = Play(KILLING)
    play.steps(ENOUGH, replace(GREEDY, declares_mps=True), MEEK)
    assert outcome(play) == HELD


def test_what_is_declared_for_a_whole_pod_is_each_container_s() -> None:
    """A pod's share of MPS (ACK) makes a client of each of its containers that uses the device."""
    whole = replace(GREEDY, scope="pod", declares_mps=True)
    play = Play(KILLING)
    play.steps(ENOUGH, whole, MEEK)
    assert outcome(play, whole) == HELD


def test_a_process_without_memory_uses_the_device() -> None:
    """A container that holds nothing and runs nothing there is no client; one that runs a process is."""
    idle = replace(GREEDY, used=0, declares_mps=True)
    seen = snapshot([idle], 1.0)
    assert clients(seen) == {}
    one = frozenset({ProcessKey(1, 1)})
    running = replace(seen, usages=tuple(replace(usage, processes=one) for usage in seen.usages))
    assert clients(running) == {idle.pod_uid: {"main": DECLARED}}
