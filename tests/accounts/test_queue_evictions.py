"""Promises of exporter/accounts/queue_evictions.py: a counter that never falls and never counts twice."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import leaf
from exporter.accounts.attribution import Attributed, Placed
from exporter.accounts.queue_evictions import KEPT, Evictions, advance
from exporter.model import (
    Attribution,
    ContainerId,
    DeviceKey,
    Gpu,
    GpuProcess,
    GpuSample,
    GpuUuid,
    PodUid,
    ProcessKey,
    Subject,
)

DEVICE, OTHER = leaf(0), leaf(1)
MAIN, SIDE = ContainerId("a" * 64), ContainerId("b" * 64)
KNOWN = {MAIN, SIDE}
NOW = 5000.0
A, B = Subject(PodUid("a"), "main", MAIN), Subject(PodUid("b"), "main", SIDE)


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
        found = advance(found, each, KNOWN, NOW)
    return found


def test_only_what_happens_while_it_is_looked_at_counts() -> None:
    """A process that was off the device for an hour before we came has lost nothing yet."""
    assert after(attributed(told(1, 3600.0))).totals == {(A, DEVICE): 0}
    assert after(attributed(told(1, 3600.0)), attributed(told(1, 3602.5))).totals == {(A, DEVICE): 2.5}


def test_each_container_has_its_own_sum_on_each_device() -> None:
    """Processes of one container add up. Its neighbour's, and its own on another device, have sums of their own."""
    first = attributed(told(1, 1.0), told(2, 1.0), told(3, 1.0, B), told(1, 1.0, A, OTHER))
    second = attributed(told(1, 2.0), told(2, 4.0), told(3, 1.5, B), told(1, 9.0, A, OTHER))
    assert after(first, second).totals == {(A, DEVICE): 4.0, (B, DEVICE): 0.5, (A, OTHER): 8.0}


def test_a_process_that_ends_takes_nothing_back() -> None:
    """Nor does one that comes under its number and began later."""
    found = after(attributed(told(1, 0.0)), attributed(told(1, 5.0)), attributed())
    assert found.totals == {(A, DEVICE): 5.0}
    assert after(attributed(told(1, 3.0, began=2000)), before=found).totals == {(A, DEVICE): 5.0}


def test_what_cannot_be_told_adds_nothing() -> None:
    """Without the driver's figure, a known container or a list, no total begins, and none is lost."""
    assert after(attributed(told(1, None)), attributed(told(2, 3.0, None))).totals == {}
    found = after(attributed(told(1, 1.0)), attributed(told(1, 2.0)))
    assert after(attributed(read=False), before=found) == found
    assert after(attributed(read=False), attributed(told(1, 2.5)), before=found).totals == {(A, DEVICE): 1.5}


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
    assert advance(found, back, KNOWN, NOW + KEPT).totals == {(A, DEVICE): 20.0}
    found = advance(found, attributed(), KNOWN, NOW + KEPT + 1.0)
    assert found.readings == {}, "nothing grows"
    assert advance(found, back, KNOWN, NOW + KEPT + 1.0).totals == {(A, DEVICE): 10.0}


def test_names_that_lapse_set_no_counter_back() -> None:
    """Which containers exist is not known while names are not live: their sums stay, and go on."""
    found = after(attributed(told(1, 10.0)), attributed(told(1, 20.0)))
    found = advance(found, attributed(told(1, 25.0, None)), None, NOW)
    assert found.totals == {(A, DEVICE): 10.0}
    assert after(attributed(told(1, 30.0)), before=found).totals == {(A, DEVICE): 20.0}


def test_a_container_that_is_gone_is_forgotten() -> None:
    """So is a device: under its id another may come."""
    found = after(attributed(told(1, 1.0), told(3, 1.0, B)))
    assert advance(found, attributed(), {SIDE}, NOW).totals == {(B, DEVICE): 0.0}
    assert found.without({DEVICE}) == Evictions()
    assert found.without({OTHER}) == found


@given(st.lists(st.dictionaries(st.integers(1, 3), st.none() | st.floats(0, 1e6), max_size=3), max_size=8))
def test_a_counter_never_falls(rounds: list[Mapping[int, float | None]]) -> None:
    """A total never falls when the driver's figures go back, nor when processes come and go."""
    found, last = Evictions(), 0.0
    for number, each in enumerate(rounds):
        listed = attributed(*(told(pid, seconds) for pid, seconds in each.items()))
        found = advance(found, listed, KNOWN, NOW + number * KEPT / 2)
        total = found.totals.get((A, DEVICE), 0.0)
        assert total >= last
        last = total
