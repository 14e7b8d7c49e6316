"""Promises of exporter/accounts/queue_evictions.py: a counter that never falls and never counts twice."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import leaf
from exporter.accounts.attribution import Attributed, Names, Placed
from exporter.accounts.queue_evictions import KEPT, Evictions, advance
from exporter.model import (
    Attribution,
    Container,
    ContainerId,
    DeviceKey,
    Gpu,
    GpuProcess,
    GpuSample,
    GpuUuid,
    Pod,
    PodUid,
    ProcessKey,
    Subject,
    Usage,
)

DEVICE, OTHER = leaf(0), leaf(1)
MAIN, SIDE = ContainerId("a" * 64), ContainerId("b" * 64)
NOW = 5000.0
A, B = Subject(PodUid("a"), "main", MAIN), Subject(PodUid("b"), "main", SIDE)
PODS = {uid: Pod(uid, "team", f"pod-{uid}") for uid in (A.pod_uid, B.pod_uid)}


def names(*containers: Subject, pods: Mapping[PodUid, Pod] = PODS) -> Names:
    """Give what Kubernetes knows: these containers."""
    there = [Container(each.pod_uid, each.container, each.container_id) for each in containers]
    return Names(pods, {each.id: each for each in there if each.id})


NAMES = names(A, B)


def seconds(found: Evictions, known: Names = NAMES) -> dict[tuple[Subject, DeviceKey], float]:
    """Give what is exposed of containers that hold memory."""
    used = [Usage(who, device, 1) for who in (A, B) for device in (DEVICE, OTHER)]
    return {(each.subject, each.device): each.evicted for each in found.of(used, known) if each.evicted is not None}


def told(
    pid: int, seconds: float | None, subject: Subject | None = A, device: DeviceKey = DEVICE, began: int = 1000
) -> Placed:
    """Place a living process, with the time in which its queues were off the device by the driver's figures."""
    key = ProcessKey(pid, began + pid)
    return Placed(GpuProcess(device, pid, frozenset(), 1, evicted=seconds), Attribution.CONTAINER, subject, key)


def attributed(*placed: Placed, read: bool = True) -> Attributed:
    """Give a round; without `read` the lists could not be read."""
    sample = GpuSample(Gpu(GpuUuid("GPU-0"), 0, "a GPU"), 1.0, ())
    return Attributed(sample, placed if read else None)


def after(*rounds: Attributed, before: Evictions | None = None) -> Evictions:
    """Go through rounds, all in one moment."""
    found = before or Evictions()
    for each in rounds:
        found = advance(found, each, NAMES, NOW)
    return found


def test_only_what_happens_while_it_is_looked_at_counts() -> None:
    """A process that was off the device for an hour before we came has lost nothing yet."""
    assert seconds(after(attributed(told(1, 3600.0)))) == {(A, DEVICE): 0}
    assert seconds(after(attributed(told(1, 3600.0)), attributed(told(1, 3602.5)))) == {(A, DEVICE): 2.5}


def test_each_container_has_its_own_sum_on_each_device() -> None:
    """Processes of one container add up. Its neighbour's, and its own on another device, have sums of their own."""
    first = attributed(told(1, 1.0), told(2, 1.0), told(3, 1.0, B), told(1, 1.0, A, OTHER))
    second = attributed(told(1, 2.0), told(2, 4.0), told(3, 1.5, B), told(1, 9.0, A, OTHER))
    assert seconds(after(first, second)) == {(A, DEVICE): 4.0, (B, DEVICE): 0.5, (A, OTHER): 8.0}


def test_a_process_that_ends_takes_nothing_back() -> None:
    """Nor does one that comes under its number and began later."""
    found = after(attributed(told(1, 0.0)), attributed(told(1, 5.0)), attributed())
    assert seconds(found) == {(A, DEVICE): 5.0}
    assert seconds(after(attributed(told(1, 3.0, began=2000)), before=found)) == {(A, DEVICE): 5.0}


def test_what_cannot_be_told_adds_nothing() -> None:
    """Without the driver's figure, a known container or a list, no total begins, and none is lost."""
    assert seconds(after(attributed(told(1, None)), attributed(told(2, 3.0, None)))) == {}
    found = after(attributed(told(1, 1.0)), attributed(told(1, 2.0)))
    assert after(attributed(read=False), before=found) == found
    assert seconds(after(attributed(read=False), attributed(told(1, 2.5)), before=found)) == {(A, DEVICE): 1.5}


@pytest.mark.parametrize(
    "missing",
    [
        pytest.param(attributed(), id="not listed"),
        pytest.param(attributed(told(1, 30.0, None)), id="without a name"),
        pytest.param(attributed(told(1, None)), id="without the figure"),
        pytest.param(attributed(read=False), id="lists unread"),
    ],
)
def test_a_process_that_a_round_misses_loses_nothing(missing: Attributed) -> None:
    """What it lost meanwhile counts when it is back, within a minute; later it is as one that is seen first."""
    found = after(attributed(told(1, 10.0)), attributed(told(1, 20.0)), missing)
    back = attributed(told(1, 30.0))
    assert seconds(advance(found, back, NAMES, NOW + KEPT)) == {(A, DEVICE): 20.0}
    found = advance(found, attributed(), NAMES, NOW + KEPT + 1.0)
    assert found.readings == {}, "nothing grows"
    assert seconds(advance(found, back, NAMES, NOW + KEPT + 1.0)) == {(A, DEVICE): 10.0}


def test_names_that_lapse_set_no_counter_back() -> None:
    """Which containers exist is not known while names are not live: their sums stay, and go on."""
    found = after(attributed(told(1, 10.0)), attributed(told(1, 20.0)))
    found = advance(found, attributed(told(1, 25.0, None)), NAMES, NOW, live=False)
    assert seconds(found) == {(A, DEVICE): 10.0}
    assert seconds(after(attributed(told(1, 30.0)), before=found)) == {(A, DEVICE): 20.0}


@pytest.mark.parametrize("pod", [A.pod_uid, PodUid("another")])
def test_the_next_one_of_a_name_continues_its_count(pod: PodUid) -> None:
    """The old generation of a container, or of a pod, still holds memory while the next one runs; then it is gone."""
    new = Subject(pod, "main", ContainerId("c" * 64))
    renewed = {**PODS, pod: Pod(pod, "team", "pod-a")}
    found = after(attributed(told(1, 0.0)), attributed(told(1, 100.0)))
    exposed = []
    for known, *listed in (
        (names(A, new, pods=renewed), told(1, 100.0), told(2, 0.0, new)),
        (names(A, new, pods=renewed), told(1, 105.0), told(2, 20.0, new)),
        (names(new, pods=renewed), told(2, 20.0, new)),
        (names(new, pods=renewed), told(2, 30.0, new)),
    ):
        found = advance(found, attributed(*listed), known, NOW)
        (usage,) = found.of([Usage(new, DEVICE, 1)], known)
        exposed.append(usage.evicted)
    assert exposed == [100.0, 125.0, 125.0, 135.0]


def test_a_pod_that_is_made_anew_keeps_its_count_while_its_image_is_pulled() -> None:
    """The new pod of the name is known at once, and its container has no id for minutes."""
    new = Subject(PodUid("another"), "main", None)
    renewed = {new.pod_uid: Pod(new.pod_uid, "team", "pod-a")}
    found = after(attributed(told(1, 0.0)), attributed(told(1, 100.0)))
    known = names(new, pods=renewed)
    (usage,) = advance(found, attributed(), known, NOW).of([Usage(new, DEVICE, 1)], known)
    assert usage.evicted == 100.0


def test_a_pod_that_is_gone_is_forgotten() -> None:
    """So is a device: under its id another may come."""
    found = after(attributed(told(1, 1.0), told(3, 1.0, B)))
    pods = {B.pod_uid: PODS[B.pod_uid]}
    assert [holder for holder, _ in advance(found, attributed(), names(B, pods=pods), NOW).totals] == [
        ("team", "pod-b", "main")
    ]
    assert found.without({DEVICE}) == Evictions()
    assert found.without({OTHER}) == found


@given(st.lists(st.dictionaries(st.integers(1, 3), st.none() | st.floats(0, 1e6), max_size=3), max_size=8))
def test_a_counter_never_falls(rounds: list[Mapping[int, float | None]]) -> None:
    """A total never falls when the driver's figures go back, nor when processes come and go."""
    found, last = Evictions(), 0.0
    for number, each in enumerate(rounds):
        listed = attributed(*(told(pid, seconds) for pid, seconds in each.items()))
        found = advance(found, listed, NAMES, NOW + number * KEPT / 2)
        total = seconds(found).get((A, DEVICE), 0.0)
        assert total >= last
        last = total
