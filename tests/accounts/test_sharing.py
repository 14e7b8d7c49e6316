"""Promises of exporter/accounts/sharing.py: which pods are on a device, whatever the kubelet handed out."""

from dataclasses import replace

import pytest

from builders import GIB, allocation, leaf, limit, pod, subject, usage
from exporter.accounts.sharing import only_reserves, pods_on, sharing_of
from exporter.model import Allocation, Inventory, Limit, Pod, Sharing, Usage

A, B = replace(pod("a"), phase="Running"), replace(pod("b", "team-b"), phase="Running")
HOLD = replace(pod("hold", "kai-resource-reservation"), phase="Running", reservation="kai")


def on_first(
    *pods: Pod, usages: tuple[Usage, ...] = (), limits: tuple[Limit, ...] = (), handed: tuple[Allocation, ...] = ()
) -> int:
    """Count the pods on the first GPU of a node that has these pods."""
    inventory = Inventory(pods={each.uid: each for each in pods}, allocations=handed)
    return pods_on(inventory, usages, limits).get(leaf(), 0)


def test_holding_using_and_declaring_each_count_and_one_pod_once() -> None:
    """Each of the three alone puts a pod on a device; a pod that does all three is one pod."""
    assert on_first(A, handed=(allocation(A, leaf()),)) == 1
    assert on_first(A, usages=(usage(A, leaf()),)) == 1
    assert on_first(A, limits=(limit(A, leaf(), GIB),)) == 1
    assert on_first(A, B, usages=(usage(A, leaf()), usage(B, leaf(1)))) == 1
    everything = {"handed": (allocation(A, leaf()),), "limits": (limit(A, leaf(), GIB),)}
    assert on_first(A, usages=(usage(A, leaf()), usage(subject(A, "two"), leaf())), **everything) == 1  # type: ignore[arg-type]
    assert on_first(A, B, usages=(usage(A, leaf()), usage(B, leaf()))) == 2


def test_an_unknown_use_counts() -> None:
    """Unknown is not zero: a pod whose memory cannot be read is there."""
    assert on_first(A, B, usages=(usage(A, leaf()), usage(B, leaf(), None))) == 2


def test_who_declares_nothing_is_not_there_by_an_empty_limit() -> None:
    """All GPUs by environment declare no amount: a monitor that runs nothing on a device does not share it."""
    assert on_first(A, B, usages=(usage(A, leaf()),), limits=(limit(B, leaf(), None),)) == 1
    assert on_first(A, B, usages=(usage(A, leaf()),), limits=(limit(B, leaf(), None, compute=0.5),)) == 2


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_an_ended_pod_counts_while_its_memory_is_there(phase: str) -> None:
    """Its memory is missing to the others until it is gone; what it declared or held is not."""
    ended = replace(B, phase=phase)
    left = (allocation(ended, leaf()),)
    assert on_first(A, ended, usages=(usage(A, leaf()), usage(ended, leaf())), handed=left) == 2
    assert on_first(A, ended, usages=(usage(A, leaf()), usage(ended, leaf(), 0)), handed=left) == 1
    assert on_first(A, ended, usages=(usage(A, leaf()), usage(ended, leaf(), None)), handed=left) == 1


def test_a_terminating_pod_counts_until_it_is_gone() -> None:
    """It may still allocate, with its memory and with none. A pod that is gone counts by its memory alone."""
    ending = replace(B, terminating=True)
    assert on_first(A, ending, usages=(usage(A, leaf()), usage(ending, leaf()))) == 2
    assert on_first(A, ending, usages=(usage(A, leaf()), usage(ending, leaf(), 0))) == 2
    assert on_first(A, usages=(usage(A, leaf()), usage(B, leaf()))) == 2
    assert on_first(A, usages=(usage(A, leaf()), usage(B, leaf(), 0))) == 1


def test_of_two_pods_of_one_name_the_kubelet_means_the_newest() -> None:
    """The old one ends and holds nothing any more: what the kubelet lists is the new one's."""
    old, new = replace(A, uid=pod("old").uid, terminating=True), replace(A, created_at=A.created_at + 60)
    assert on_first(old, new, handed=(allocation(new, leaf()),)) == 1


def test_a_reservation_pod_counts_as_soon_as_it_uses_the_device() -> None:
    """What it was handed and what it declares is for others. Memory or a process of its own is its own."""
    held = (allocation(HOLD, leaf()),)
    declares = (limit(HOLD, leaf(), 80 * GIB),)
    for quiet in (usage(HOLD, leaf(), 0), usage(HOLD, leaf(), None)):
        assert on_first(A, HOLD, usages=(usage(A, leaf()), quiet), handed=held, limits=declares) == 1
    for busy in (usage(HOLD, leaf(), GIB), usage(HOLD, leaf(), None, pids=[7])):
        assert on_first(A, HOLD, usages=(usage(A, leaf()), busy), handed=held, limits=declares) == 2
    assert only_reserves(HOLD, leaf(), frozenset())
    assert not only_reserves(HOLD, leaf(), frozenset({(HOLD.uid, leaf())}))
    assert not only_reserves(A, leaf(), frozenset())
    assert not only_reserves(None, leaf(), frozenset())


@pytest.mark.parametrize("handed_out", list(Sharing))
@pytest.mark.parametrize("pods", [0, 1, 2])
def test_only_whole_and_unknown_devices_become_shared(handed_out: Sharing, pods: int) -> None:
    """Replicas, MIG, MPS and claims stay what they are, however many pods are there; nothing else is exclusive."""
    alone = pods < 2 or handed_out not in {Sharing.EXCLUSIVE, Sharing.NONE}
    assert sharing_of(handed_out, pods) is (handed_out if alone else Sharing.SHARED)
