"""Promises of exporter/rounds and accounts/snapshot.py: one round, and its beat. Sources are faked at their seams."""

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest
import structlog

from exporter.accounts.snapshot import holders, make_snapshot
from exporter.devices import DeviceError, DevicesSample, Identify
from exporter.devices.thread import ThreadEndedError
from exporter.limits.loading import builtin
from exporter.metrics.exposition import STALE_AFTER
from exporter.model import (
    Allocation,
    Attribution,
    Container,
    ContainerId,
    DeclaredContainer,
    DeclaredPod,
    DeviceKey,
    Fault,
    Gpu,
    GpuInstance,
    GpuProcess,
    GpuSample,
    GpuUuid,
    HostProcess,
    HostSample,
    Inventory,
    Memory,
    Owner,
    Pod,
    PodUid,
    ProcessKey,
    ProcessKind,
    Sharing,
    Snapshot,
    Tolerance,
)
from exporter.rounds.latest import Latest
from exporter.rounds.limits import Limiting, Limits
from exporter.rounds.sampler import LISTS_APART, MOVED, Beat, Sampler
from pace import quick
from threadless import at_once

GIB = 2**30
POD, C = PodUid("11111111-1111-1111-1111-111111111111"), ContainerId("a" * 64)
ONE, TWO = GpuUuid("GPU-1"), GpuUuid("GPU-2")


class SteppedClock:
    """Time that passes only in `sleep`; a task that sleeps past `end` is cancelled."""

    def __init__(self, end: float) -> None:
        self.now = 0.0
        self.end = end

    def time(self) -> float:
        return 1_000_000.0 + self.now

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now > self.end:
            raise asyncio.CancelledError
        await asyncio.sleep(0)


@dataclass
class Node:
    """The world of these tests: device memory by GPU, one process per GPU, and what was asked when."""

    clock: SteppedClock
    held: dict[GpuUuid, int]
    inventory_: Inventory
    total: int = 10 * GIB
    name: str = "fake"
    evicted: float | None = None
    asked: list[tuple[float, frozenset[GpuUuid] | None]] = field(default_factory=list)
    looks: list[tuple[float, frozenset[GpuUuid]]] = field(default_factory=list)
    broken: Exception | None = None
    takes: float = 0.0
    lost: set[GpuUuid] = field(default_factory=set)
    away: tuple[Fault, ...] = ()

    def _memory(self, uuid: GpuUuid) -> Memory:
        return Memory(self.total, max(0, self.total - self.held[uuid]))

    async def sample(self, only: Collection[GpuUuid] | None = None, _identify: Identify | None = None) -> DevicesSample:
        self.asked.append((self.clock.now, None if only is None else frozenset(only)))
        self.clock.now += self.takes
        if self.broken:
            raise self.broken
        samples = [
            GpuSample(
                Gpu(uuid, index, "fake", memory=self._memory(uuid)),
                self.clock.time(),
                (
                    GpuProcess(
                        DeviceKey(uuid), 10 + index, frozenset({ProcessKind.COMPUTE}), held, evicted=self.evicted
                    ),
                ),
            )
            for index, (uuid, held) in enumerate(self.held.items())
            if (only is None or uuid in only) and uuid not in self.lost
        ]
        faults = tuple(Fault("devices", "gpu_lost", "gone", subject=uuid) for uuid in self.lost) + self.away
        return DevicesSample({uuid: i for i, uuid in enumerate(self.held)}, tuple(samples), faults)

    async def memory(self, only: Collection[GpuUuid]) -> Mapping[DeviceKey, Memory]:
        self.looks.append((self.clock.now, frozenset(only)))
        return {DeviceKey(uuid): self._memory(uuid) for uuid in only}

    async def close(self) -> None:
        """Nothing is held."""

    async def run(self) -> None:
        """Nothing is fetched."""

    def inventory(self, gpus: Sequence[Gpu]) -> Inventory:
        return self.inventory_


class Host:
    """All pids live in the one container."""

    def sample(self, pids: Collection[int], *, want_living: bool = False) -> HostSample:
        owner = Owner(((POD, C),))
        processes = {pid: HostProcess(ProcessKey(pid, 1), alive=True, owner=owner) for pid in pids}
        return HostSample(processes, living=frozenset({owner}) if want_living else None, pid_domain_proven=True)


def inventory(sharing: Sharing = Sharing.TIME_SLICING) -> Inventory:
    """One pod with one container; GPU 1 is shared as `sharing` says, GPU 2 is exclusive."""
    return Inventory(
        pods={POD: Pod(POD, "team", "train")},
        containers=(Container(POD, "main", C),),
        sharing={DeviceKey(ONE): (sharing, 4), DeviceKey(TWO): (Sharing.EXCLUSIVE, 1)},
        known=True,
        live=True,
    )


def node(seconds: float, *, held: int, sharing: Sharing = Sharing.TIME_SLICING) -> Node:
    """A node of two GPUs that both hold `held` bytes."""
    return Node(SteppedClock(seconds), {ONE: held, TWO: held}, inventory(sharing))


STEADY = Beat(5.0, 0.5, jitter=0.0)


async def run(
    world: Node,
    beat: Beat = STEADY,
    *,
    limiting: Limiting | None = None,
    seed: int = 0,
    keep: Callable[[Snapshot], None] | None = None,
) -> Latest:
    """Run the beat until the clock ends."""
    latest = Latest()
    sampler = Sampler(
        node="n1",
        devices=world,
        host=Host(),
        inventory=world,
        beat=beat,
        clock=world.clock,
        limiting=limiting,
        keep=keep,
        random=Random(seed),
    )
    with pytest.raises(asyncio.CancelledError):
        await sampler.run(latest)
    return latest


async def test_a_round_an_interval() -> None:
    """A calm node is read once an interval, whole, and looked at never in between."""
    world = node(17.0, held=GIB)
    latest = await run(world)
    assert world.asked == [(0.0, None), (5.0, None), (10.0, None), (15.0, None)]
    assert world.looks == []
    assert latest.tally.rounds == 4
    assert latest.snapshot is not None and latest.snapshot.complete and latest.ready


class Middle(Random):
    """Each round comes after one interval."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


async def test_a_round_waits_for_an_expected_scrape_where_the_jitter_has_room() -> None:
    """It begins 1.2 intervals after the one before at the latest, and what an action asks for is read at once."""
    world = node(22.0, held=GIB)
    near = {5.0: 0.02, 10.02: 0.99, 16.01: 1.01, 21.01: 0.0}
    sampler = Sampler(
        node="n1",
        devices=world,
        host=Host(),
        inventory=world,
        beat=Beat(5.0, 0.5, jitter=0.2),
        clock=world.clock,
        random=Middle(),
        scrape=lambda now: near[round(now, 3)],
    )
    with pytest.raises(asyncio.CancelledError):
        await sampler.run(Latest())
    assert [at for at, _ in world.asked] == pytest.approx([0.0, 5.02, 11.01, 16.01, 21.01])
    world.clock.now = 5.0
    await sampler.fresh([ONE], Latest())
    assert world.asked[-1] == (5.0, frozenset({ONE}))


async def test_a_shorter_interval_counts_within_five_seconds() -> None:
    """After a reload at t = 16 s the next round does not wait for the rest of the old interval."""
    world = node(22.0, held=GIB)
    sampler = Sampler(
        node="n1", devices=world, host=Host(), inventory=world, beat=Beat(60.0, jitter=0.0), clock=world.clock
    )
    latest, sleep = Latest(), world.clock.sleep

    async def reloaded(seconds: float) -> None:
        if world.clock.now + seconds > 16.0:
            sampler.beat = Beat(5.0, jitter=0.0)
        await sleep(seconds)

    world.clock.sleep = reloaded  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        await sampler.run(latest)
    assert [at for at, _ in world.asked] == [0.0, pytest.approx(18.5, abs=2.5)]


async def test_between_the_parts_of_a_round_others_have_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits, the snapshot, and the decision: with many processes a scrape waits for one of them at most."""
    monkeypatch.setattr("exporter.rounds.sampler.MANY", 0)
    world, turns, parts = node(1.0, held=GIB), [0], {}

    async def others() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    def joined(**answers: Any) -> Snapshot:
        parts["snapshot"] = turns[0]
        return make_snapshot(**answers)

    def limits(*_: object) -> Limits:
        parts["limits"] = turns[0]
        return Limits()

    def decide(_: Snapshot) -> None:
        parts["decision"] = turns[0]

    limiting = Limiting(())
    monkeypatch.setattr(limiting, "limits", limits)
    monkeypatch.setattr("exporter.rounds.sampler.make_snapshot", joined)
    scraping = asyncio.ensure_future(others())
    await run(world, limiting=limiting, keep=decide)
    scraping.cancel()
    assert parts["limits"] < parts["snapshot"] < parts["decision"]


def limited(world: Node, amount: str) -> Limiting:
    """Let the container declare a limit on each device; the answer reads it, without any tolerance."""
    declares = DeclaredPod(
        POD,
        "team",
        "train",
        annotations={"nvidia.com/container.main.gpu-memory.limit": amount},
        containers=(DeclaredContainer("main"),),
    )
    world.inventory_ = replace(world.inventory_, declared={POD: declares})
    return Limiting(builtin(), tolerance=Tolerance(0.0, 0, 0))


async def test_full_rounds_keep_no_fixed_rhythm() -> None:
    """Each full round begins 0.8 to 1.2 intervals after the one before, spread evenly, and one interval on average."""
    world = node(2_500.0 if quick() else 10_000.0, held=GIB)
    with at_once():
        await run(world, Beat(5.0, 0.5))
    gaps = [later - earlier for (earlier, _), (later, _) in pairwise(world.asked)]
    assert min(gaps) >= 4.0 and max(gaps) <= 6.0 + 0.01
    assert sum(gaps) / len(gaps) == pytest.approx(5.0, rel=0.01)
    for low, high in ((4.0, 4.5), (4.5, 5.0), (5.0, 5.5), (5.5, 6.0)):
        share = sum(low <= gap < high for gap in gaps) / len(gaps)
        assert share == pytest.approx(0.25, abs=0.05), (low, high)


async def test_rounds_that_take_longer_than_an_interval_keep_no_fixed_rhythm_either() -> None:
    """Each begins up to two fifths of the interval after the end of the one before, spread evenly, as others do."""
    world = node(4_000.0 if quick() else 8_000.0, held=GIB)
    world.takes = 8.0
    with at_once():
        await run(world, Beat(5.0, 0.5))
    gaps = [later - earlier for (earlier, _), (later, _) in pairwise(world.asked)]
    assert min(gaps) >= 8.0 and max(gaps) <= 10.0 + 0.01
    assert sum(gap < 9.0 for gap in gaps) / len(gaps) == pytest.approx(0.5, abs=0.05)


async def test_two_daemons_keep_different_rhythms() -> None:
    """The moments of the rounds come from the random source alone: another seed, other moments."""
    moments = []
    for seed in (1, 2, 1):
        world = node(100.0, held=GIB)
        await run(world, Beat(5.0, 0.5), seed=seed)
        moments.append([at for at, _ in world.asked])
    assert moments[0] == moments[2] != moments[1]


async def test_the_series_outlive_two_failed_rounds_at_the_longest_waits() -> None:
    """Three intervals without a snapshot withdraw the series; two waits of 1.2 intervals are shorter than that."""
    assert 2 * Beat().wait(1.0) < STALE_AFTER * Beat().interval


async def test_the_beat_is_renewed_while_nothing_is_due() -> None:
    """The heartbeat for /healthz never grows older than five seconds on an idle node with long intervals."""
    world = node(55.0, held=GIB)
    sampler = Sampler(node="n1", devices=world, host=Host(), inventory=world, beat=Beat(60.0), clock=world.clock)
    latest, sleep, ages = Latest(), world.clock.sleep, list[float]()

    async def aged(seconds: float) -> None:
        assert latest.beat is not None
        ages.append(world.clock.now + seconds - latest.beat)
        await sleep(seconds)

    world.clock.sleep = aged  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        await sampler.run(latest)
    assert len(ages) > 9 and max(ages) <= 5.0


async def test_nearly_full_shared_devices_are_looked_at_faster_and_exclusive_ones_are_not() -> None:
    """Without an excess only the shared GPU is looked at in between, at the fast interval, and only its memory."""
    world = node(4.9, held=int(9.5 * GIB))
    await run(world)
    assert [gpus for _, gpus in world.looks] == [frozenset({ONE})] * 9
    assert [at for at, _ in world.looks] == pytest.approx([0.5 * i for i in range(1, 10)], abs=0.01)
    assert len(world.asked) == 1, "nothing moved, so that no list was read"


async def test_exclusive_gpus_without_an_excess_are_not_looked_at() -> None:
    """A full GPU that one container owns concerns no neighbour."""
    world = node(4.9, held=int(9.5 * GIB), sharing=Sharing.EXCLUSIVE)
    await run(world)
    assert world.looks == []


async def test_a_gpu_with_an_excess_is_read_about_once_a_second_also_an_exclusive_one() -> None:
    """Above its limit on the exclusive GPU: that one is read at irregular moments, though nothing moves there."""
    world = node(200.0, held=GIB, sharing=Sharing.EXCLUSIVE)
    world.held[TWO] = 3 * GIB
    await run(world, Beat(5.0, 0.5), limiting=limited(world, "2Gi"))
    assert {gpus for _, gpus in world.asked} == {None, frozenset({TWO})}
    gaps = [later - earlier for (earlier, _), (later, gpus) in pairwise(world.asked) if gpus is not None]
    assert min(gaps) >= 0.5 - 0.001 and max(gaps) <= 1.5 + 0.1
    assert sum(gaps) / len(gaps) == pytest.approx(1.0, abs=0.1)
    assert world.looks == []


async def test_readings_stay_fast_for_a_minute_after_the_excess() -> None:
    """A holder that pauses is read as fast in the pause as in its excess: readings in step with it could be evaded."""
    world = node(200.0, held=GIB, sharing=Sharing.EXCLUSIVE)
    world.held[TWO] = 3 * GIB
    asked = world.sample

    async def giving_back(only: Collection[GpuUuid] | None = None, _identify: Identify | None = None) -> DevicesSample:
        if world.clock.now > 20.0:
            world.held[TWO] = GIB
        return await asked(only)

    world.sample = giving_back  # type: ignore[method-assign]
    await run(world, Beat(5.0, 0.5, jitter=0.0), limiting=limited(world, "2Gi"))
    early = [at for at, gpus in world.asked if gpus is not None]
    assert 78.0 < early[-1] < 82.0


async def test_a_round_says_whether_the_clock_asked_for_it() -> None:
    """Full rounds and readings of suspect GPUs are due by time; a round that movement began, or a caller, is not."""
    world = node(4.4, held=int(9.5 * GIB))
    original, seen = world.memory, list[Snapshot]()

    async def growing(only: Collection[GpuUuid]) -> Mapping[DeviceKey, Memory]:
        world.held[ONE] += MOVED
        return await original(only)

    world.memory = growing  # type: ignore[method-assign]
    await run(world, keep=seen.append)
    assert [snapshot.by_time for snapshot in seen] == [gpus is None for _, gpus in world.asked]
    assert not all(snapshot.by_time for snapshot in seen)


async def test_what_moved_is_read_early_but_lists_at_most_once_a_second() -> None:
    """A moved GPU begins a round of its own, the calm one keeps its reading."""
    world = node(4.4, held=int(9.5 * GIB))
    original = world.memory

    async def growing(only: Collection[GpuUuid]) -> Mapping[DeviceKey, Memory]:
        world.held[ONE] += MOVED
        return await original(only)

    world.memory = growing  # type: ignore[method-assign]
    latest = await run(world)
    early = [(at, gpus) for at, gpus in world.asked if gpus is not None]
    assert [gpus for _, gpus in early] == [frozenset({ONE})] * len(early) and len(early) >= 3
    times = [at for at, _ in world.asked]
    assert all(later - earlier >= LISTS_APART for earlier, later in pairwise(times))
    assert latest.snapshot is not None
    sampled = {device.key.uuid: device.sampled_at for device in latest.snapshot.devices}
    assert sampled[ONE] > sampled[TWO] == 1_000_000.0


async def test_small_movements_are_no_reason_to_read_lists() -> None:
    """Less than a page of the driver is noise."""
    world = node(4.4, held=int(9.5 * GIB))
    original = world.memory

    async def trembling(only: Collection[GpuUuid]) -> Mapping[DeviceKey, Memory]:
        world.held[ONE] = int(9.5 * GIB) + (MOVED - 1 if len(world.looks) % 2 else 0)
        return await original(only)

    world.memory = trembling  # type: ignore[method-assign]
    await run(world)
    assert len(world.asked) == 1


async def test_a_failed_round_is_counted_and_the_next_one_comes() -> None:
    """An exception of ours costs its round, never the daemon."""
    world = node(6.0, held=GIB)
    world.broken = ZeroDivisionError("a bug")
    latest = await run(world)
    assert (latest.tally.rounds, latest.tally.failures, latest.snapshot) == (2, 2, None)


async def test_a_round_for_a_caller_of_a_stopping_daemon_is_no_failure() -> None:
    """An action asks for a fresh reading while the daemon stops: it gets none, and no error is logged or counted."""
    world, latest = node(6.0, held=GIB), Latest()
    world.broken = ThreadEndedError()
    sampler = Sampler(node="n", devices=world, host=Host(), inventory=world, beat=Beat(), clock=world.clock)
    with structlog.testing.capture_logs() as lines:
        assert await sampler.fresh({ONE}, latest) is None
    assert (latest.tally.failures, lines) == (0, [])


async def test_a_driver_that_is_lost_for_good_ends_the_daemon() -> None:
    """What only a new process can cure rises to the top."""
    world = node(6.0, held=GIB)
    world.broken = DeviceError("driver replaced")
    sampler = Sampler(node="n", devices=world, host=Host(), inventory=world, beat=Beat(), clock=world.clock)
    with pytest.raises(DeviceError, match="driver replaced"):
        await sampler.run(Latest())


@pytest.mark.fault(28)
async def test_a_lost_gpu_leaves_the_other_and_is_still_counted() -> None:
    """It is present but has no figures; the round is incomplete and says why; the daemon is ready for the other."""
    world = node(1.0, held=GIB)
    world.lost = {ONE}
    latest = await run(world)
    assert latest.snapshot is not None and not latest.snapshot.complete and latest.ready
    assert set(latest.snapshot.gpus_present) == {ONE, TWO}
    assert [device.key.uuid for device in latest.snapshot.devices] == [TWO]
    assert latest.tally.incomplete == {"gpu_lost": 1}


@pytest.mark.fault(31)
async def test_accounts_that_do_not_close_make_the_round_incomplete() -> None:
    """When the driver contradicts itself the round says so, by device."""
    world = node(1.0, held=9 * GIB)
    world.total = 8 * GIB
    latest = await run(world)
    assert latest.snapshot is not None
    assert {fault.reason for fault in latest.snapshot.faults} == {"accounts_do_not_close"}
    assert not latest.snapshot.complete


async def test_the_snapshot_joins_what_the_sources_said() -> None:
    """Names, accounts, counts and sharing meet in one frozen value."""
    latest = await run(node(1.0, held=GIB))
    snapshot = latest.snapshot
    assert snapshot is not None
    assert snapshot.processes[Attribution.CONTAINER] == 2
    assert {usage.memory_used for usage in snapshot.usages} == {GIB}
    shared = snapshot.devices[0]
    assert (shared.sharing, shared.replicas, shared.containers) == (Sharing.TIME_SLICING, 4, 1)
    assert snapshot.sources_up == {"devices": True, "host": True, "names": True}


@pytest.mark.parametrize("created", [(1.0, 2.0), (2.0, 1.0)], ids=["old first", "clocks differ"])
def test_an_allocation_means_the_pod_that_is_not_terminating(created: tuple[float, float]) -> None:
    """The kubelet names pods, not UIDs: of two generations the living one holds the device."""
    old = Pod(PodUid("old"), "team", "db-0", created_at=created[0], terminating=True)
    new = Pod(PodUid("new"), "team", "db-0", created_at=created[1])
    known = Inventory(
        pods={old.uid: old, new.uid: new},
        containers=(Container(old.uid, "main", ContainerId("a" * 64)), Container(new.uid, "main", C)),
        allocations=(Allocation("team", "db-0", "main", "nvidia.com/gpu", DeviceKey(ONE)),),
    )
    assert {subject.pod_uid for subject in holders(known)[DeviceKey(ONE)]} == {new.uid}
    reordered = replace(known, pods={new.uid: new, old.uid: old})
    assert holders(reordered) == holders(known)


def sampler_of(world: Node) -> Sampler:
    """A sampler whose rounds the test asks for one by one."""
    return Sampler(node="n1", devices=world, host=Host(), inventory=world, beat=Beat(), clock=world.clock)


class Sandboxed(Host):
    """All pids live in the sandbox of the pod, which names no container."""

    def sample(self, pids: Collection[int], *, want_living: bool = False) -> HostSample:
        owner = Owner(((POD, None),))
        processes = {pid: HostProcess(ProcessKey(pid, 1), alive=True, owner=owner) for pid in pids}
        return replace(super().sample(pids), processes=processes)


@pytest.mark.fault(35)
async def test_a_sandboxed_pod_is_counted_once_on_its_device() -> None:
    """Its container was handed the GPU, and its memory has no container: nothing is known of it but that it is one."""
    world = node(1.0, held=GIB)
    handed = Allocation("team", "train", "main", "nvidia.com/gpu", DeviceKey(ONE))
    world.inventory_ = replace(world.inventory_, allocations=(handed,))
    sampler = Sampler(node="n1", devices=world, host=Sandboxed(), inventory=world, beat=Beat(), clock=world.clock)
    seen = await sampler.round({ONE})
    assert {usage.subject.container: usage.memory_used for usage in seen.usages} == {"": GIB, "main": None}
    assert [device.containers for device in seen.devices] == [1]


async def test_a_lapse_of_the_names_sets_no_counter_back() -> None:
    """While names are not live no container counts as gone: its counter goes on when its name is back."""
    world = node(1.0, held=GIB)
    named, away = world.inventory_, replace(world.inventory_, pods={}, containers=(), live=False)
    sampler, told = sampler_of(world), []
    for seconds, inventory_ in ((10.0, named), (20.0, named), (25.0, away), (30.0, named)):
        world.evicted, world.inventory_ = seconds, inventory_
        told.append({usage.evicted for usage in (await sampler.round()).usages if usage.subject.container})
    assert told == [{0.0}, {10.0}, set(), {20.0}]
    world.inventory_ = replace(away, live=True)
    await sampler.round()
    world.inventory_ = named
    assert {usage.evicted for usage in (await sampler.round()).usages} == {0.0}, "gone, by live names"


async def test_an_early_round_keeps_the_faults_of_what_it_did_not_read() -> None:
    """A round is not complete because it asked less: the other GPU's fault stands until that GPU is read again."""
    world = node(1.0, held=GIB)
    sampler = sampler_of(world)
    world.lost = {TWO}
    full = await sampler.round()
    early = await sampler.round({ONE})
    assert not full.complete and not early.complete
    assert [fault.subject for fault in early.faults] == [TWO]
    assert full.gpus_read == early.gpus_read == {ONE}
    world.lost = set()
    assert (await sampler.round({TWO})).complete, "read again, and well"


async def test_a_source_that_is_away_is_away_in_early_rounds_too() -> None:
    """An early round asks the GPUs of one source: that says nothing of the other one."""
    world = node(1.0, held=GIB)
    sampler = sampler_of(world)
    world.away = (Fault("dcmi", "driver_hung", "no answer"),)
    full = await sampler.round()
    world.away = ()
    early = await sampler.round({ONE})
    assert full.sources_up["devices"] is early.sources_up["devices"] is False
    assert (await sampler.round()).sources_up["devices"] is True


async def test_a_gpu_that_is_lost_in_an_early_round_has_no_figures() -> None:
    """What was asked and did not answer is gone from the snapshot at once; the other keeps its reading."""
    world = node(1.0, held=GIB)
    sampler = sampler_of(world)
    await sampler.round()
    world.lost = {ONE}
    early = await sampler.round({ONE})
    assert [device.key.uuid for device in early.devices] == [TWO]
    assert [fault.subject for fault in early.faults] == [ONE]
    assert early.gpus_read == frozenset()


async def test_a_lost_gpu_leaves_with_the_next_full_round() -> None:
    """A full round shows what answered in it, and nothing of before."""
    world = node(1.0, held=GIB)
    sampler = sampler_of(world)
    await sampler.round()
    world.lost = {ONE}
    assert [device.key.uuid for device in (await sampler.round()).devices] == [TWO]


async def test_a_full_round_that_fails_half_way_leaves_the_last_reading() -> None:
    """An exception of ours in the midst of a round does not leave half of a node to the next early one."""
    world = node(1.0, held=GIB)
    sampler = sampler_of(world)
    await sampler.round()
    world.inventory_ = None  # type: ignore[assignment]
    with pytest.raises(AttributeError):
        await sampler.round()
    world.inventory_ = inventory()
    assert len((await sampler.round({ONE})).devices) == 2


@pytest.mark.fault(30)
async def test_peaks_end_with_the_instance_whose_number_is_used_again() -> None:
    """MIG set up anew gives old numbers to new instances: the new one starts with no peak of the old."""
    world = node(1.0, held=GIB)
    sampler = sampler_of(world)
    sizes = {"MIG-old": 5 * GIB, "MIG-new": GIB}

    async def mig(only: Collection[GpuUuid] | None = None, _identify: Identify | None = None) -> DevicesSample:
        instance = GpuInstance(1, "2g.20gb", (uuid,), Memory(20 * GIB, 20 * GIB - sizes[uuid]))
        process = GpuProcess(DeviceKey(ONE, 1), 10, frozenset({ProcessKind.COMPUTE}), sizes[uuid])
        return DevicesSample({ONE: 0}, (GpuSample(Gpu(ONE, 0, "x", mig=True, instances=(instance,)), 0.0, (process,)),))

    world.sample = mig  # type: ignore[method-assign]
    uuid = "MIG-old"
    assert [usage.memory_peak for usage in (await sampler.round()).usages] == [5 * GIB]
    uuid = "MIG-new"
    assert [usage.memory_peak for usage in (await sampler.round()).usages] == [GIB]


async def test_a_slow_driver_does_not_stop_the_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls below their deadlines that add up to minutes are the driver's trouble: the scheduler goes on living."""
    monkeypatch.setattr("exporter.rounds.sampler.HEARTBEAT", 0.01)
    world = node(100.0, held=GIB)
    latest = Latest()
    original, release = world.sample, asyncio.Event()

    async def slow(only: Collection[GpuUuid] | None = None, _identify: Identify | None = None) -> DevicesSample:
        await release.wait()
        return await original(only)

    world.sample = slow  # type: ignore[method-assign]
    asking = asyncio.ensure_future(sampler_of(world).round(latest=latest))
    for now in (77.0, 99.0):
        world.clock.now = now
        while latest.beat != now:
            await asyncio.sleep(0.01)
    release.set()
    assert (await asking).complete
    world.clock.now = 111.0
    await asyncio.sleep(0.05)  # a timer that was left behind would have been due before this one
    assert latest.beat == 99.0, "a scheduler that hangs elsewhere is found"


async def test_the_kernel_is_asked_beside_the_event_loop() -> None:
    """Thousands of small files are read for a round; a scrape does not wait for them."""
    world = node(1.0, held=GIB)
    threads = set()

    class Watched(Host):
        def sample(self, pids: Collection[int], *, want_living: bool = False) -> HostSample:
            threads.add(threading.get_ident())
            return super().sample(pids, want_living=want_living)

    sampler = Sampler(node="n", devices=world, host=Watched(), inventory=world, beat=Beat(), clock=world.clock)
    snapshot = await sampler.round()
    assert snapshot.usages and threads and threading.get_ident() not in threads


async def test_processes_that_the_device_source_identified_are_not_read_again() -> None:
    """The source is given the kernel's side, and its answer is the round's; no thread is woken for it."""
    world, host = node(1.0, held=GIB), Host()
    original, asked = world.sample, list[frozenset[int]]()

    class Once(Host):
        def sample(self, pids: Collection[int], *, want_living: bool = False) -> HostSample:
            asked.append(frozenset(pids))
            return host.sample(pids, want_living=want_living)

    async def identifying(only: Collection[GpuUuid] | None = None, _identify: Identify | None = None) -> DevicesSample:
        answer = await original(only)
        assert _identify is not None
        return replace(answer, host=_identify(answer.pids))

    world.sample = identifying  # type: ignore[method-assign]
    sampler = Sampler(node="n", devices=world, host=Once(), inventory=world, beat=Beat(), clock=world.clock)
    snapshot = await sampler.round()
    assert [usage.memory_used for usage in snapshot.usages] == [GIB, GIB]
    assert asked == [frozenset({10, 11})]


async def test_the_living_are_counted_once_a_round_however_many_dead_numbers_there_are() -> None:
    """All of /proc is read at most once a round, for all GPUs together."""
    world = node(1.0, held=GIB)
    scans = []

    class Dying(Host):
        dead = False

        def sample(self, pids: Collection[int], *, want_living: bool = False) -> HostSample:
            if want_living:
                scans.append(self.dead)
            found = super().sample(pids, want_living=want_living)
            return replace(found, processes={}) if self.dead else found

    host = Dying()
    sampler = Sampler(node="n", devices=world, host=host, inventory=world, beat=Beat(), clock=world.clock)
    await sampler.round()
    host.dead = True
    snapshot = await sampler.round()
    assert snapshot.processes[Attribution.INHERITED] == 2
    assert scans == [True]


async def test_the_counters_of_an_early_round_count_what_it_read() -> None:
    """What was kept from before is not counted a second time."""
    world = node(1.0, held=GIB)
    original = world.sample

    async def dropping(only: Collection[GpuUuid] | None = None, _identify: Identify | None = None) -> DevicesSample:
        answer = await original(only)
        return replace(answer, samples=tuple(replace(one, dropped_utilization=1) for one in answer.samples))

    world.sample = dropping  # type: ignore[method-assign]
    sampler = sampler_of(world)
    assert [(await sampler.round(only)).utilization_dropped for only in (None, {ONE}, None)] == [2, 1, 2]


async def test_limits_are_in_each_snapshot() -> None:
    """What a pod declares is placed on the devices where it is found, in full rounds and in early ones."""
    world = node(1.0, held=GIB)
    limiting = limited(world, "2Gi")
    sampler = Sampler(
        node="n1",
        devices=world,
        host=Host(),
        inventory=world,
        beat=Beat(),
        clock=world.clock,
        limiting=limiting,
    )
    for snapshot in [await sampler.round(), await sampler.round(only={ONE})]:
        assert {(limit.container, limit.device.uuid, limit.memory) for limit in snapshot.limits} == {
            ("main", ONE, 2 * GIB),
            ("main", TWO, 2 * GIB),
        }
        assert snapshot.memory_declared == {DeviceKey(ONE): 2 * GIB, DeviceKey(TWO): 2 * GIB}


async def test_instances_that_could_not_be_listed_stay_devices_of_the_limits() -> None:
    """One failed listing of MIG instances resolves no pod anew. An answer without an instance does."""
    world = node(1.0, held=GIB)
    limiting = limited(world, "2Gi")
    original = world.sample
    one = GpuInstance(1, "1g.10gb", ("MIG-1",), Memory(10 * GIB, 9 * GIB))

    async def divided(only: Collection[GpuUuid] | None = None, _identify: Identify | None = None) -> DevicesSample:
        answer, (instances, listed) = await original(only), next(answers)
        gpus = (replace(sample.gpu, mig=True, instances=instances) for sample in answer.samples)
        samples = zip(answer.samples, gpus, strict=True)
        return replace(answer, samples=tuple(replace(each, gpu=gpu, processes=listed) for each, gpu in samples))

    divisions: list[tuple[tuple[GpuInstance, ...], tuple[GpuProcess, ...] | None]] = [((one,), ()), ((), None)] * 2
    divisions += [((), ()), ((one,), ())]
    answers = iter(divisions)

    world.sample = divided  # type: ignore[method-assign]
    sampler = Sampler(
        node="n1", devices=world, host=Host(), inventory=world, beat=Beat(), clock=world.clock, limiting=limiting
    )
    found = []
    for _ in divisions:
        await sampler.round()
        found.append(limiting.resolution(POD))
    assert found[0] is not None
    assert [later is found[0] for later in found] == [True, True, True, True, True, False]


async def test_each_snapshot_has_the_sums_over_time() -> None:
    """A container of 1 GiB has 1 GiB-second each second; the time of a lost GPU is unknown from its last reading on."""
    world, seen = node(31.0, held=GIB), list[Snapshot]()
    asked = world.sample

    async def losing(only: Collection[GpuUuid] | None = None, _identify: Identify | None = None) -> DevicesSample:
        world.lost = {TWO} if 12.0 < world.clock.now < 22.0 else set()
        return await asked(only)

    world.sample = losing  # type: ignore[method-assign]
    await run(world, keep=seen.append)
    sums = seen[-1].integrals[DeviceKey(ONE)]
    assert sums.observed_seconds == pytest.approx(30, abs=0.1) and sums.unknown == 0
    held = sums.containers["team", "train", "main"].memory_byte_seconds
    assert held == pytest.approx(30 * GIB, rel=0.01)
    lost = seen[-1].integrals[DeviceKey(TWO)]
    assert [lost.observed_seconds, lost.unknown_seconds] == pytest.approx([15, 15], abs=0.1)
    grown = [round(snapshot.integrals[DeviceKey(TWO)].unknown_seconds) for snapshot in seen]
    assert grown == [0, 0, 0, 5, 10, 15, 15]


async def test_a_failed_round_is_no_time_that_was_lost() -> None:
    """Its reading is dropped: the next one goes on from the reading before."""
    world, seen, failed = node(16.0, held=GIB), list[Snapshot](), []
    names = world.inventory

    def failing(gpus: Sequence[Gpu]) -> Inventory:
        if 4.0 < world.clock.now < 6.0:
            failed.append(world.clock.now)
            raise ZeroDivisionError("a bug")
        return names(gpus)

    world.inventory = failing  # type: ignore[method-assign]
    await run(world, keep=seen.append)
    sums = seen[-1].integrals[DeviceKey(ONE)]
    assert failed and len(seen) == 3
    assert sums.observed_seconds == pytest.approx(15, abs=0.1) and sums.unknown == 0
