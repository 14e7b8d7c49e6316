"""Promises of exporter/accounts/integrals.py and device_reading.py: counters that add up, whatever happens."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import GIB, allocation, device, fault, gpu, gpu_uuid, leaf, memory, pod, snapshot, subject, usage
from exporter.accounts.integrals import KEPT, MOST, MOST_ENDED, Known, advance
from exporter.metrics.exposition import STALE_AFTER
from exporter.model import (
    HALVES,
    NANOSECONDS,
    Allocation,
    ContainerIntegral,
    Device,
    DeviceIntegral,
    DeviceKey,
    Fault,
    GpuInstance,
    GpuUuid,
    Memory,
    MemoryPart,
    Pod,
    Sharing,
    Usage,
)

INTERVAL = 5.0
POD = pod("trainer")
NAME = ("team-a", "trainer", "main")
BEGIN = 1_700_000_000.0


def plain(used: int = 0, *, ghost: int = 0, host: int = 0) -> Device:
    """GPU 0 of 80 GiB, on which containers hold what no other part says."""
    return device(gpu(0, memory=memory(used=used)), attributed=used - ghost - host, ghost=ghost, host=host)


@dataclass
class Node:
    """Rounds that a test makes up, on a clock of seconds; Unix time may be anything."""

    known: Known = field(default_factory=dict)
    unix: float = BEGIN

    def round(
        self,
        at: float,
        *devices: Device,
        usages: Iterable[Usage] = (),
        pods: Iterable[Pod] = (POD,),
        allocations: Iterable[Allocation] = (),
        asked: Collection[GpuUuid] | None = None,
        present: Mapping[GpuUuid, int] | None = None,
        read: Collection[GpuUuid] | None = None,
        by_time: bool = True,
        faults: Iterable[Fault] = (),
    ) -> None:
        began = snapshot(
            *(replace(one, sampled_at=self.unix + at) for one in devices),
            usages=usages,
            pods=pods,
            allocations=allocations,
            present={gpu_uuid(0): 0} if present is None else present,
            faults=faults,
            monotonic=at,
            taken_at=self.unix + at,
        )
        fresh = {one.key.uuid for one in devices} if read is None else read
        self.known = advance(
            self.known,
            replace(began, gpus_read=frozenset(fresh), by_time=by_time),
            asked=asked,
            interval=INTERVAL,
        )

    def sums(self, key: DeviceKey = leaf(0)) -> DeviceIntegral:
        return self.known[key].sums

    def container(self, name: tuple[str, str, str] = NAME) -> ContainerIntegral:
        return self.sums().containers[name]


def test_between_two_readings_memory_counts_as_their_mean() -> None:
    """A container that grows from 10 to 30 GiB in 4 s has 80 GiB-seconds: each reading stands for half of the time."""
    node = Node()
    node.round(0, plain(10 * GIB), usages=[usage(POD, leaf(), 10 * GIB)])
    assert node.container().memory_byte_seconds == 0
    node.round(4, plain(30 * GIB), usages=[usage(POD, leaf(), 30 * GIB)])
    assert node.container().memory_byte_seconds == 80 * GIB
    assert (node.sums().observed_seconds, node.sums().unknown_seconds) == (4, 0)


def test_a_change_that_began_a_round_counts_from_then_on() -> None:
    """
    A container gives back 20 GiB on a nearly full GPU: the round follows at once, so it held them until then.

    With the mean of both readings each such change would lose the half, and none would win it.
    """
    node = Node()
    node.round(0, plain(30 * GIB), usages=[usage(POD, leaf(), 30 * GIB)])
    node.round(4, plain(10 * GIB), usages=[usage(POD, leaf(), 10 * GIB)], asked={gpu_uuid(0)}, by_time=False)
    assert node.container().memory_byte_seconds == 4 * 30 * GIB
    node.round(6, plain(10 * GIB), usages=[usage(POD, leaf(), 10 * GIB)])
    assert node.container().memory_byte_seconds == (4 * 30 + 2 * 10) * GIB
    assert node.sums().memory_byte_seconds[MemoryPart.CONTAINERS] == node.container().memory_byte_seconds


def test_the_parts_of_a_device_add_up_to_its_capacity() -> None:
    """Each part of the memory has its own sum; together they are 80 GiB x 5 s, to the byte."""
    node = Node()
    node.round(0, plain(10 * GIB, ghost=GIB, host=2 * GIB), usages=[usage(POD, leaf(), 7 * GIB)])
    node.round(5, plain(10 * GIB, ghost=GIB, host=2 * GIB), usages=[usage(POD, leaf(), 7 * GIB)])
    assert node.sums().memory_byte_seconds == {
        MemoryPart.CONTAINERS: 35 * GIB,
        MemoryPart.GHOST: 5 * GIB,
        MemoryPart.HOST: 10 * GIB,
        MemoryPart.UNATTRIBUTED: 0,
        MemoryPart.RESERVED: 2.5 * GIB,
        MemoryPart.FREE: 347.5 * GIB,
        MemoryPart.UNKNOWN: 0,
    }
    assert sum(node.sums().memory.values()) == 80 * GIB * 5 * HALVES


def test_the_utilization_of_a_driver_describes_the_time_before_its_reading() -> None:
    """The later reading's figure counts for the whole time; a container without any figure has no sum, not 0."""
    other = pod("other")
    node, name = Node(), ("team-a", "other", "main")
    for at, ratio in ((0, 0.9), (4, 0.5), (8, 0.25)):
        usages = [usage(POD, leaf(), 0, sm=ratio), usage(other, leaf(), 0)]
        node.round(at, plain(), usages=usages, pods=(POD, other))
    assert node.container().sm == 4 * 0.5 + 4 * 0.25
    assert node.container(name).sm is None and node.container(name).memory == 0


def test_one_of_four_replicas_is_a_quarter_of_the_device() -> None:
    """An hour with it counts 900 s; two resources of one container are counted apart, and never above the device."""
    shared = replace(plain(), sharing=Sharing.TIME_SLICING, replicas=4)
    node = Node()
    for at in range(0, 3601, 5):
        node.round(at, shared, allocations=[allocation(POD, leaf()), allocation(POD, leaf(), 9, resource="other/gpu")])
    assert node.container().allocated == {"nvidia.com/gpu": pytest.approx(900), "other/gpu": pytest.approx(3600)}
    assert node.container().memory is None, "handed out, and never seen"


def test_what_a_claim_hands_out_is_shared_evenly() -> None:
    """Containers that share a device by claims have 1 together, so that a sum over them is the time of the device."""
    other, node = pod("other"), Node()
    claimed = replace(plain(), sharing=Sharing.DRA)
    for at, pods in ((0, (POD,)), (5, (POD, other)), (10, (POD, other))):
        node.round(
            at, claimed, pods=pods, allocations=[allocation(who, leaf(), resource="gpu.nvidia.com") for who in pods]
        )
    seconds = [one.allocated["gpu.nvidia.com"] for one in node.sums().containers.values()]
    assert seconds == [3.75 + 2.5, 1.25 + 2.5] and sum(seconds) == node.sums().observed_seconds


def test_while_a_driver_does_not_answer_the_time_is_unknown_and_grows() -> None:
    """Nothing is counted over the outage, however short; in each of its rounds the unknown seconds move on."""
    node = Node()
    node.round(0, plain(GIB), usages=[usage(POD, leaf(), GIB)])
    node.round(5, plain(GIB), usages=[usage(POD, leaf(), GIB)])
    for at, unknown in ((10, 5), (15, 10), (20, 15)):
        node.round(at)
        assert node.sums().unknown_seconds == unknown
    node.round(24, plain(GIB), usages=[usage(POD, leaf(), GIB)])
    assert (node.sums().observed_seconds, node.sums().unknown_seconds) == (5, 19)
    assert node.container().memory_byte_seconds == 5 * GIB
    node.round(29, plain(GIB), usages=[usage(POD, leaf(), GIB)])
    assert node.container().memory_byte_seconds == 10 * GIB


def test_a_device_whose_memory_cannot_be_read_is_unknown() -> None:
    """The GPU answers, but not for its memory: that is no reading. A GPU without memory of its own needs none."""
    node = Node()
    node.round(0, plain(GIB))
    node.round(5, device(gpu(0)))
    assert (node.sums().observed_seconds, node.sums().unknown_seconds) == (0, 5)
    node, apu = Node(), device(replace(gpu(0), unified=True))
    for at in (0, 5):
        node.round(at, apu, usages=[usage(POD, leaf(), None, sm=0.5)])
    assert (node.sums().observed_seconds, dict(node.sums().memory)) == (5, {})
    assert node.container() == ContainerIntegral(None, 2.5)


def test_a_gap_is_unknown_and_as_long_as_a_stale_snapshot() -> None:
    """Up to three intervals between two readings count; after more, the node was asleep or starved."""
    assert MOST == STALE_AFTER
    for gap, observed in ((15.0, 15), (15.1, 0)):
        node = Node()
        node.round(0, plain(GIB))
        node.round(gap, plain(GIB))
        assert node.sums().observed_seconds == observed
        assert node.sums().observed_seconds + node.sums().unknown_seconds == gap


def test_an_early_round_counts_for_the_gpus_that_it_read() -> None:
    """The others keep their last reading, whose values the snapshot repeats; they are counted at their own time."""
    both = {gpu_uuid(0): 0, gpu_uuid(1): 1}
    one, two = plain(GIB), device(gpu(1, memory=memory(used=GIB)), attributed=GIB)
    node = Node()
    node.round(0, one, two, present=both)
    node.round(1, one, two, present=both, asked={gpu_uuid(1)}, read={gpu_uuid(1)})
    node.round(2, one, present=both, asked={gpu_uuid(1)}, read=())
    assert (node.sums().observed_seconds, node.sums().unknown_seconds) == (0, 0)
    assert (node.sums(leaf(1)).observed_seconds, node.sums(leaf(1)).unknown_seconds) == (1, 1)
    node.round(5, one, two, present=both)
    assert (node.sums().observed_seconds, node.sums(leaf(1)).unknown_seconds) == (5, 4)


def test_a_jump_of_the_clock_is_no_time() -> None:
    """Unix time jumps by an hour between two rounds, and within one: the sums count the seconds that passed."""
    node = Node()
    node.round(0, plain(GIB))
    node.unix += 3600
    node.round(5, plain(GIB))
    assert node.sums().observed_seconds == pytest.approx(5)
    for jump in (7200, -7200):
        late = snapshot(replace(plain(GIB), sampled_at=BEGIN + jump), monotonic=10, taken_at=BEGIN)
        read = replace(late, gpus_read=frozenset({gpu_uuid(0)}))
        after = advance(node.known, read, asked=None, interval=INTERVAL)
        assert 10 <= after[leaf()].sums.observed_seconds <= 10 + INTERVAL
        fine = replace(late, monotonic=20, taken_at=BEGIN, devices=(plain(GIB),), gpus_read=read.gpus_read)
        after = advance(after, fine, asked=None, interval=INTERVAL)
        assert after[leaf()].sums.observed_seconds == pytest.approx(20)


def test_a_container_that_restarts_goes_on() -> None:
    """Its next generation, and the next pod of its name, have the same labels; two at once are summed."""
    old, new = pod("trainer", uid="old"), pod("trainer", uid="new")
    node = Node()
    node.round(0, plain(GIB), usages=[usage(subject(old), leaf(), GIB, sm=0.8)], pods=[old])
    node.round(5, plain(GIB), usages=[usage(subject(old, generation=1), leaf(), GIB, sm=0.8)], pods=[old])
    both = [usage(old, leaf(), GIB, sm=0.8), usage(new, leaf(), 3 * GIB, sm=0.8)]
    node.round(10, plain(4 * GIB), usages=both, pods=[old, new])
    node.round(15, plain(3 * GIB), usages=[usage(new, leaf(), 3 * GIB, sm=0.4)], pods=[new])
    assert node.container().memory_byte_seconds == (5 + 12.5 + 17.5) * GIB
    assert node.container().sm == 5 * 0.8 + 5 * 1.0 + 5 * 0.4
    assert list(node.sums().containers) == [NAME]


def test_the_sums_of_an_ended_container_stay_for_five_minutes() -> None:
    """The last scrape sees its last value; a while later the series is gone, and one of the name begins anew."""
    node = Node()
    node.round(0, plain(GIB), usages=[usage(POD, leaf(), GIB)])
    node.round(4, plain(), usages=[])
    for at in range(8, 305, 4):
        node.round(at, plain())
    assert node.container().memory_byte_seconds == 2 * GIB
    node.round(308, plain())
    assert not node.sums().containers
    node.round(312, plain(GIB), usages=[usage(POD, leaf(), GIB)])
    assert node.container().memory_byte_seconds == 2 * GIB, "for half of the time before its first reading"


def test_pods_that_come_and_go_do_not_fill_the_page() -> None:
    """A job that starts anew each round leaves so many series, the newest, and what is kept stays flat."""
    node = Node()
    sizes = []
    for number in range(2 * MOST_ENDED):
        now = pod(f"job-{number}")
        node.round(number, plain(GIB), usages=[usage(now, leaf(), GIB)], pods=[now])
        sizes.append(len(node.sums().containers) + len(node.known[leaf()].ended))
    assert max(sizes) == sizes[-1] == 2 * MOST_ENDED + 1
    assert ("team-a", f"job-{MOST_ENDED}", "main") in node.sums().containers


def mig(*instances: tuple[int, str], used: int = GIB) -> list[Device]:
    """GPU 0 divided into instances of 10 GiB, each an id and a UUID."""
    size = memory(10 * GIB, used, 0)
    split = gpu(0, instances=tuple(GpuInstance(number, "1g.10gb", (uuid,), size) for number, uuid in instances))
    return [device(split, number, attributed=used) for number, _ in instances]


def test_a_mig_instance_that_is_made_anew_is_another_device() -> None:
    """Between the last reading of the old one and the first of the new one the time is unknown; the series go on."""
    node = Node()
    node.round(0, *mig((7, "MIG-a")))
    node.round(5, *mig((7, "MIG-a")))
    node.round(10, *mig((7, "MIG-b")))
    node.round(15, *mig((7, "MIG-b")))
    sums = node.sums(leaf(0, 7))
    assert (sums.observed_seconds, sums.unknown_seconds) == (10, 5)
    assert sums.memory_byte_seconds[MemoryPart.UNATTRIBUTED] + sums.memory_byte_seconds[MemoryPart.UNKNOWN] == 10 * GIB


def test_an_instance_that_was_removed_has_no_time() -> None:
    """It is unknown until the round that misses it; then its sums stand still, and go after five minutes."""
    node = Node()
    node.round(0, *mig((7, "MIG-a"), (8, "MIG-b")))
    node.round(5, *mig((8, "MIG-b")))
    node.round(10, *mig((8, "MIG-b")))
    assert node.sums(leaf(0, 7)).unknown_seconds == 5
    node.round(15, *mig((7, "MIG-c"), (8, "MIG-b")))
    node.round(20, *mig((7, "MIG-c"), (8, "MIG-b")))
    assert (node.sums(leaf(0, 7)).observed_seconds, node.sums(leaf(0, 7)).unknown_seconds) == (5, 5)
    for at in range(25, 25 + KEPT // NANOSECONDS + 10, 5):
        node.round(at, *mig((8, "MIG-b")))
    assert set(node.known) == {leaf(0, 8)}


def test_instances_that_cannot_be_listed_are_unknown_and_without_a_fault_they_are_gone() -> None:
    """A GPU that answers "no instance" has none; one whose instances could not be listed says so in a fault."""
    for faults, unknown in ([fault("call_failed", gpu_uuid(0))], 10), ([], 5):
        node = Node()
        node.round(0, *mig((7, "MIG-a")))
        for at in (5, 10):
            began = snapshot(present={gpu_uuid(0): 0}, faults=faults, monotonic=at, taken_at=BEGIN + at)
            answer = replace(began, gpus=(replace(gpu(0), mig=True),), gpus_read=frozenset({gpu_uuid(0)}))
            node.known = advance(node.known, answer, asked=None, interval=INTERVAL)
        assert node.sums(leaf(0, 7)).unknown_seconds == unknown


def test_a_gpu_that_the_driver_does_not_count_any_more_has_no_time() -> None:
    """Taken out of the node, it is not unknown: its sums stand still, and go after five minutes."""
    node = Node()
    node.round(0, plain(GIB))
    for at in (5, 10, 15):
        node.round(at, present={})
    assert node.sums().unknown_seconds == 5
    for at in range(20, 320, 5):
        node.round(at, present={})
    assert not node.known


def test_accounts_that_do_not_close_are_unknown_memory() -> None:
    """The lists contradict the device: all its used memory is unknown, and no container is charged any of it."""
    wrong = plain(10 * GIB)
    wrong = replace(wrong, account=replace(wrong.account, closes=False, unattributed=None))
    node = Node()
    for at in (0, 5):
        node.round(at, wrong, usages=[usage(POD, leaf(), 30 * GIB)])
    assert node.sums().memory_byte_seconds[MemoryPart.UNKNOWN] == 50 * GIB
    assert NAME not in node.sums().containers


def test_a_container_with_an_unknown_process_leaves_its_neighbours_counted() -> None:
    """Its own memory is unknown, not 0, and its neighbour's is counted as ever."""
    other = pod("other")
    partly = device(gpu(0, memory=memory(used=10 * GIB)), attributed=None, ghost=GIB, host=0)
    node = Node()
    for at in (0, 5):
        usages = [usage(POD, leaf(), 4 * GIB), usage(other, leaf(), None, sm=0.5)]
        node.round(at, partly, usages=usages, pods=(POD, other))
    sums = node.sums().memory_byte_seconds
    assert (sums[MemoryPart.CONTAINERS], sums[MemoryPart.GHOST], sums[MemoryPart.UNKNOWN]) == (
        20 * GIB,
        5 * GIB,
        25 * GIB,
    )
    assert node.sums().containers["team-a", "other", "main"] == ContainerIntegral(None, 2.5)


# Whatever happens ----------------------------------------------------------------------------------------------------

WHOLE = st.integers(0, 12 * GIB)
PART = st.none() | WHOLE
SHARE = st.none() | st.floats(0, 1)
FEW, MOSTLY = st.integers(1, 4), st.integers(0, 4)
FREE, USED = st.integers(0, 10 * GIB), st.integers(0, 11 * GIB)
YES = st.booleans()
READABLE = st.sampled_from([True, True, True, False])
UUIDS = st.sampled_from(["MIG-a", "MIG-b"])
"""Made once: to make a strategy takes longer than to draw from it, and a step draws thirty times."""
NAMES = ("a", "b", "c")
BOTH = {gpu_uuid(0): 0, gpu_uuid(1): 1}


@st.composite
def any_device(draw: st.DrawFn, index: int, instance: int | None) -> tuple[Device, list[Usage]]:
    """A device of 10 GiB with any figures: known or not, fitting together or not."""
    reading = Memory(10 * GIB, draw(FREE), draw(USED))
    its_memory = reading if draw(READABLE) else None
    whole = gpu(index, memory=its_memory)
    if instance is not None:
        uuid = draw(UUIDS)
        whole = gpu(index, instances=(GpuInstance(instance, "1g.10gb", (uuid,), its_memory),))
    held = {name: draw(PART) for name in NAMES if draw(YES)}
    made = device(whole, instance)
    account = replace(
        made.account,
        attributed=draw(PART),
        ghost=draw(PART),
        host=draw(PART),
        unattributed=draw(PART),
        closes=draw(YES) or draw(YES),
    )
    usages = [usage(pod(name), leaf(index, instance), size, sm=draw(SHARE)) for name, size in held.items()]
    return replace(made, account=account, replicas=draw(FEW)), usages


@dataclass(frozen=True)
class Step:
    """A round: when, who was asked, what answered, what the clock did."""

    passed: float
    took: float
    jump: float
    by_time: bool
    asked: frozenset[GpuUuid] | None
    present: Mapping[GpuUuid, int]
    answers: tuple[tuple[Device, list[Usage]], ...]
    allocations: tuple[Allocation, ...]


DEVICES = {(index, instance): any_device(index, instance) for index, instance in ((0, None), (1, None), (1, 3))}
INSTANCE = st.sampled_from([None, 3])
ASKED = st.sampled_from([None, None, frozenset({gpu_uuid(0)}), frozenset({gpu_uuid(1)})])
PRESENT = st.sampled_from([BOTH, BOTH, BOTH, {gpu_uuid(0): 0}])
PASSED = st.sampled_from([0.001, 1.0, 4.3, 5.9, 14.0, 40.0, 400.0])
TOOK = st.sampled_from([0.0, 0.25])
JUMP = st.sampled_from([0.0, 0.0, -3600.0, 3600.0])


@st.composite
def any_step(draw: st.DrawFn) -> Step:
    asked = draw(ASKED)
    present = draw(PRESENT)
    answers = []
    for uuid, index in BOTH.items():
        if uuid in present and (asked is None or uuid in asked) and draw(MOSTLY):
            instance = draw(INSTANCE) if index else None
            answers.append(draw(DEVICES[index, instance]))
    allocations = [allocation(pod(name), one.key, draw(FEW)) for one, _ in answers for name in NAMES if draw(YES)]
    return Step(
        draw(PASSED),
        draw(TOOK),
        draw(JUMP),
        draw(YES),
        asked,
        present,
        tuple(answers),
        tuple(allocations),
    )


STEPS = st.lists(any_step(), max_size=25)


def playing(steps: Iterable[Step]) -> Iterator[tuple[Step, Known, Known]]:
    """Play the rounds: each step, with the sums before and after it."""
    known: Known = {}
    now, unix = 1_000.0, BEGIN
    for step in steps:
        now, unix = now + step.passed, unix + step.passed + step.jump
        devices = [replace(one, sampled_at=unix + step.took / 2) for one, _ in step.answers]
        made = replace(
            snapshot(
                *devices,
                usages=[one for _, usages in step.answers for one in usages],
                pods=[pod(name) for name in NAMES],
                allocations=step.allocations,
                present=step.present,
                monotonic=now,
                taken_at=unix,
            ),
            gpus_read=frozenset(one.key.uuid for one in devices),
            by_time=step.by_time,
        )
        before = known
        known = advance(before, made, asked=step.asked, interval=INTERVAL)
        yield step, before, known
        now += step.took


@given(STEPS)
def test_the_sums_close_exactly_whatever_happens(steps: list[Step]) -> None:
    """Parts are capacity x observed time; containers are their part; time is observed or unknown; no sum ever falls."""
    empty = DeviceIntegral()
    began: dict[DeviceKey, int] = {}
    for _, before, after in playing(steps):
        for key, tracked in after.items():
            sums, old = tracked.sums, before[key].sums if key in before else empty
            assert sum(sums.memory.values()) == 2 * 10 * GIB * sums.observed
            grown = {
                name: (one.memory or 0) - ((old.containers[name].memory or 0) if name in old.containers else 0)
                for name, one in sums.containers.items()
            }
            part = MemoryPart.CONTAINERS
            assert sum(grown.values()) == sums.memory.get(part, 0) - old.memory.get(part, 0)
            assert all(amount >= old.memory.get(part, 0) for part, amount in sums.memory.items())
            assert sums.observed >= old.observed and sums.unknown >= old.unknown
            if key not in before:
                began[key] = tracked.counted
            elif before[key].gone is not None:  # it had no time while it was gone
                began[key] += tracked.counted - before[key].counted
            assert sums.observed + sums.unknown == tracked.counted - began[key]
            assert all(amount >= 0 for amount in grown.values())
            for name, one in sums.containers.items():
                was = old.containers.get(name, ContainerIntegral())
                assert (one.sm or 0) >= (was.sm or 0) and (one.sm or 0) <= sums.observed_seconds + 1e-6
                assert all(seconds >= was.allocated.get(resource, 0) for resource, seconds in one.allocated.items())


@given(STEPS)
def test_time_is_counted_to_the_last_round_that_asked(steps: list[Step]) -> None:
    """A device that is there is counted until now by each round that asked for it: no moment is left out."""
    now = 1_000.0
    for step, before, after in playing(steps):
        now += step.passed
        read = {one.key for one, _ in step.answers if one.account.memory is not None}
        for key, tracked in after.items():
            if step.asked is not None and key.uuid not in step.asked:
                assert tracked is before[key]
            elif tracked.gone is None:
                expected = now + (step.took / 2 if key in read else 0)
                assert tracked.counted / NANOSECONDS == pytest.approx(expected, abs=1e-5)
        now += step.took
