"""Promises of exporter/accounts/shares.py: which part of a device a container was handed, by the kubelet or by KAI."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import GIB, allocation, device, gpu, leaf, limit, memory, pod, snapshot
from exporter.accounts.shares import Shares, handed_on, shares
from exporter.model import Limit, Pod, Sharing

HOLD = replace(pod("hold", "kai-resource-reservation"), phase="Running", reservation="kai")
A, B = replace(pod("a"), phase="Running"), replace(pod("b", "team-b"), phase="Running")
RESERVED = ("kai-resource-reservation", "hold", "main")
WHOLE = device(gpu(0, memory=memory(total=80 * GIB)))


def handed(*limits: Limit, pods: tuple[Pod, ...] = (HOLD, A, B)) -> Shares:
    """Return the shares of the GPU that the kubelet handed to the reservation pod."""
    allocations = (allocation(HOLD, leaf()),)
    now = snapshot(WHOLE, pods=pods, allocations=allocations, limits=limits)
    return handed_on(now, WHOLE, shares(WHOLE, allocations))


def of(found: Shares) -> dict[tuple[str, str, str], float]:
    """The shares of the only resource."""
    return {holder: share["nvidia.com/gpu"] for holder, share in found.items()}


def test_pods_on_a_reserved_gpu_have_their_fractions() -> None:
    """KAI: a quarter and a half, by what the pods declared; the reservation pod keeps the quarter that is left."""
    found = handed(limit(A, leaf(), 20 * GIB, system="kai"), limit(B, leaf(), 40 * GIB, system="kai"))
    assert of(found) == {("team-a", "a", "main"): 0.25, ("team-b", "b", "main"): 0.5, RESERVED: 0.25}


def test_a_reserved_gpu_without_pods_is_the_reservation_pods() -> None:
    """Between two jobs the reservation pod has all of it, so the idle time stays visible."""
    assert of(handed()) == {RESERVED: 1.0}


@pytest.mark.parametrize(
    "other",
    [
        limit(A, leaf(), 20 * GIB, system="gpusteward"),
        limit(A, leaf(1), 20 * GIB, system="kai"),
        limit(A, leaf(), 20 * GIB, system="kai", container=""),
        limit(A, leaf(), None, system="kai"),
    ],
    ids=["another system", "another GPU", "a whole pod", "no amount"],
)
def test_only_what_that_system_gives_counts(other: Limit) -> None:
    """What is declared in other words, or of another GPU, takes nothing from the reservation."""
    assert of(handed(other)) == {RESERVED: 1.0}


def test_an_ended_pod_has_no_part() -> None:
    """Its fraction is the reservation pod's again, while the pod still exists."""
    ended = replace(A, phase="Succeeded")
    assert of(handed(limit(ended, leaf(), 20 * GIB, system="kai"), pods=(HOLD, ended))) == {RESERVED: 1.0}


def test_a_pod_that_imitates_a_reservation_takes_nothing() -> None:
    """Without the mark of a reservation pod, the allocation counts: the pod has the whole GPU."""
    found = handed(limit(A, leaf(), 20 * GIB, system="kai"), pods=(replace(HOLD, reservation=""), A))
    assert of(found) == {RESERVED: 1.0}


def test_a_gpu_in_replicas_is_not_touched() -> None:
    """A device plugin's replicas are the kubelet's own fractions."""
    sliced = replace(WHOLE, sharing=Sharing.TIME_SLICING, replicas=4)
    allocations = (allocation(A, leaf()), allocation(B, leaf(), 2))
    now = snapshot(sliced, pods=(A, B), allocations=allocations)
    assert of(handed_on(now, sliced, shares(sliced, allocations))) == {
        ("team-a", "a", "main"): 0.25,
        ("team-b", "b", "main"): 0.5,
    }


@given(st.lists(st.integers(0, 200 * GIB), max_size=6))
def test_a_gpu_is_handed_out_once(declared: list[int]) -> None:
    """Whatever is declared, the shares add up to one GPU, and none is below zero."""
    pods = tuple(replace(pod(f"p{number}"), phase="Running") for number in range(len(declared)))
    limits = [limit(who, leaf(), amount, system="kai") for who, amount in zip(pods, declared, strict=True)]
    found = of(handed(*limits, pods=(HOLD, *pods)))
    assert sum(found.values()) == pytest.approx(1.0) and min(found.values()) >= 0
