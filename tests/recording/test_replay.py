"""Promises of tape.py, player.py and replay.py of exporter/recording: what is replayed is what was."""

import asyncio
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from builders import gpu, leaf, memory
from exporter.config import Policy, tolerance_of
from exporter.devices import DeviceError, DevicesSample
from exporter.limits.loading import builtin
from exporter.model import (
    Fault,
    Gpu,
    GpuInstance,
    GpuSample,
    GpuUuid,
    HostProcess,
    HostSample,
    Inventory,
    Owner,
    ProcessKey,
    Snapshot,
    Utilization,
    XidErrors,
)
from exporter.recording import HostRead, RecordedRound, Writing
from exporter.recording.player import RecordedNode, Stage
from exporter.rounds.latest import Latest
from exporter.rounds.limits import Limiting
from exporter.rounds.sampler import Beat, Sampler
from exporter.simulated import SimulatedNode
from pace import quick
from recordings import BEGINNING, SteppedClock, assert_same, header, record, replayed

Film = tuple[Path, list[Snapshot]]
"""A recording, and the snapshots of then."""


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Film:
    """Five minutes of the simulated node; in `make check` 80 s, in which all that a test asks for comes once."""
    path = tmp_path_factory.mktemp("film") / "r.gz"
    clock = SteppedClock(80 if quick() else 300)
    return path, asyncio.run(record(path, SimulatedNode(clock.time, BEGINNING), clock))


async def test_a_replayed_round_equals_the_live_one(film: Film) -> None:
    """
    MIG, MPS, ghosts, zombies, pods that come and go, early rounds.

    Every field of every snapshot, peaks and limits as well as the number and the duration of the round.
    """
    path, live = film
    assert any(len(one.gpus_read) < len(one.gpus_present) for one in live), "no early round was tested"
    assert any(ratios.sm for one in live for _, _, ratios in one.gpus[2].leaves()), "no figure of GPM was tested"
    assert live[0].xid_errors != live[-1].xid_errors, "no XID was tested"
    assert live[0].pods.keys() - live[-1].pods.keys() and live[-1].pods.keys() - live[0].pods.keys(), "no pod came"
    assert any(one.limits for one in live) and any(one.processes["inherited"] for one in live)  # type: ignore[index]
    assert_same(await replayed(path), live)


async def test_a_round_that_failed_leaves_none(tmp_path: Path) -> None:
    """A bug in the middle of a round costs that round; the numbers of the others stay theirs."""
    clock = SteppedClock(20)
    node = SimulatedNode(clock.time, BEGINNING)
    inventory = node.inventory.inventory
    asked = iter(range(100))

    def broken(gpus: Collection[Gpu] = ()) -> Inventory:
        if next(asked) == 1:
            raise ZeroDivisionError("a bug")
        return inventory(())

    node.inventory.inventory = broken  # type: ignore[method-assign, assignment]
    live = await record(tmp_path / "r", node, clock)
    assert 2 not in [one.round for one in live] and len(live) > 2
    assert_same(await replayed(tmp_path / "r"), live)


# --- playing as a node ---


class HandClock:
    """Unix and monotonic time, apart from one another, set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        return 2e9 + self.now

    def monotonic(self) -> float:
        return 777.0 + self.now


def one_gpu(number: int, taken_at: float, *, used: int, only: frozenset[GpuUuid] | None = None) -> RecordedRound:
    whole = gpu(0, memory=memory(used=used))
    sample = GpuSample(whole, BEGINNING + taken_at, ())
    pods = SimulatedNode(lambda: BEGINNING, BEGINNING).inventory.inventory().pods
    return RecordedRound(
        number, BEGINNING + taken_at, taken_at, 0.1, only, {whole.uuid: 0}, (sample,), inventory=Inventory(pods=pods)
    )


def recording(path: Path, *given: RecordedRound) -> Path:
    with Writing(path, header()) as file:
        for one in given:
            file.add(one)
    return path


async def test_xids_and_gpm_play_too(tmp_path: Path) -> None:
    """
    What was heard and counted comes with its round, also in a round of some GPUs; figures of instances are there.

    An XID is as old as it was then.
    """
    instance = GpuInstance(3, "1g.10gb", ("MIG-a",), utilization=Utilization(sm=0.4))
    whole = replace(gpu(0, memory=memory()), mig=True, instances=(instance,))
    heard = {whole.uuid: {31: XidErrors(2, BEGINNING - 5, 3), 79: XidErrors()}}
    one = replace(one_gpu(1, 0, used=1), samples=(GpuSample(whole, BEGINNING, ()),), xid_errors=heard)
    clock = HandClock()
    node = RecordedNode(recording(tmp_path / "r", one), clock.time, clock.monotonic)
    answer = await node.sample()
    assert answer.xid_errors == {whole.uuid: {31: XidErrors(2, clock.time() - 5, 3), 79: XidErrors()}}
    assert answer.xid_errors == (await node.sample({whole.uuid})).xid_errors
    assert [ratios.sm for _, _, ratios in answer.samples[0].gpu.leaves()] == [0.4]
    await node.close()


async def test_it_plays_in_its_own_rhythm_and_begins_anew(tmp_path: Path) -> None:
    """What was said after seven seconds is said after seven seconds; after the last round's time comes the first."""
    path = recording(
        tmp_path / "r",
        one_gpu(1, 0, used=1),
        one_gpu(2, 5, used=2),
        one_gpu(3, 7, used=3, only=frozenset({gpu().uuid})),
    )
    clock = HandClock()
    node = RecordedNode(path, clock.time, clock.monotonic)
    seen = []
    for clock.now in (100, 104.9, 105, 106.9, 107, 111.9, 112.0, 117.0, 10_000, 10_005):
        (sample,) = (await node.sample()).samples
        assert sample.gpu.memory is not None
        seen.append(sample.gpu.memory.used)
        assert sample.sampled_at == clock.time(), "nothing is stale"
        assert await node.memory({gpu().uuid}) == {leaf(): sample.gpu.memory}
    assert seen == [1, 1, 2, 2, 3, 3, 1, 2, 3, 1], "a machine that slept goes on at the end, and begins anew from there"
    await node.close()


async def test_ages_are_those_of_then(tmp_path: Path) -> None:
    """A pod that was an hour old is an hour old."""
    recorded = one_gpu(1, 0, used=1)
    node = RecordedNode(recording(tmp_path / "r", recorded), HandClock().time, HandClock().monotonic)
    await node.sample()
    found = node.inventory.inventory()
    for uid, pod in recorded.inventory.pods.items():
        assert 2e9 - found.pods[uid].created_at == pytest.approx(BEGINNING - pod.created_at)
    assert node.inventory.inventory() is found, "what did not change is not made anew each round"
    await node.close()


async def test_nobody_takes_it_for_the_node_of_now(tmp_path: Path) -> None:
    """Each round carries a fault that names file, node and time, and stays complete."""
    path = recording(tmp_path / "r", one_gpu(1, 0, used=1))
    clock = SteppedClock(12)
    node = RecordedNode(path, clock.time, clock.monotonic)
    latest = Latest()
    with pytest.raises(asyncio.CancelledError):
        await Sampler(
            node=node.node, devices=node, host=node.host, inventory=node.inventory, beat=Beat(), clock=clock
        ).run(latest)
    assert latest.snapshot is not None
    (told,) = (fault for fault in latest.snapshot.faults if fault.reason == "recording")
    assert str(path) in told.message and "recorded on n from 2025-10-09T" in told.message and not told.incomplete
    assert latest.snapshot.node == "n"
    await node.close()


async def test_what_cannot_be_played_ends_the_daemon(tmp_path: Path) -> None:
    """No file, a file without a round, a line that is none: DeviceError with the place."""
    clock = HandClock()

    def node(path: Path) -> RecordedNode:
        return RecordedNode(path, clock.time, clock.monotonic)

    with pytest.raises(DeviceError, match="no such file"):
        node(tmp_path / "missing")
    with pytest.raises(DeviceError, match="has no complete round"):
        node(recording(tmp_path / "empty"))
    path = recording(tmp_path / "r", one_gpu(1, 0, used=1), one_gpu(2, 5, used=2))
    path.write_bytes(path.read_bytes() + b"{}\n")
    playing = node(path)
    await playing.sample()
    clock.now = 60
    with pytest.raises(DeviceError, match=r"r:\d+: expected a round"):
        await playing.sample()
    await playing.close()


async def test_the_simulated_node_recorded_plays_as_itself(film: Film) -> None:
    """A daemon on a recording says of each moment what was said then, whatever its own interval: no GPU is missing."""
    path, live = film
    again = SteppedClock(70 if quick() else 100)  # early rounds begin after 66 s
    live = [one for one in live if one.monotonic <= again.end]
    node = RecordedNode(path, again.time, again.monotonic)
    seen: list[Snapshot] = []
    with pytest.raises(asyncio.CancelledError):
        await Sampler(
            node="n",
            devices=node,
            host=node.host,
            inventory=node.inventory,
            beat=Beat(1.3, 1.3),
            clock=again,
            limiting=Limiting(builtin(), tolerance=tolerance_of(Policy())),
            keep=seen.append,
        ).run(Latest())
    known = [device for one in live for device in one.devices]
    used = {key: {one.account.memory for one in known if one.key == key} for key in {one.key for one in known}}
    assert len(seen) > len(live) / 2
    for snapshot in seen:
        assert snapshot.complete and {device.key for device in snapshot.devices} == used.keys()
        assert all(device.account.memory in used[device.key] for device in snapshot.devices)
        assert not snapshot.processes.get("unreadable")  # type: ignore[call-overload]
    await node.close()


# --- questions that were not asked in the recording ---


def process(pid: int, start: int = 1) -> HostProcess:
    return HostProcess(ProcessKey(pid, start), alive=True, owner=Owner())


def test_a_later_version_may_ask_differently(tmp_path: Path) -> None:
    """One question about all pids is answered from the two that were asked. A hidden or gone process stays so."""
    fault = Fault("host", "processes_unreadable", "hidden")
    reads = (
        HostRead(frozenset({1, 2, 3}), HostSample({1: process(1)}, frozenset({2}), None, True, (fault,))),
        HostRead(frozenset({1, 4}), HostSample({1: process(1, 9), 4: process(4)}, pid_domain_proven=True)),
        HostRead(frozenset(), HostSample(living=frozenset({Owner()}), pid_domain_proven=True), want_living=True),
    )
    stage = Stage()
    stage.set(RecordedRound(1, 0, 0, 0, hosts=reads))
    host = stage.host
    assert host.sample({1, 2, 3}) == reads[0].sample and host.sample({1, 4}) == reads[1].sample
    assert host.sample((), want_living=True) == reads[2].sample
    assert host.sample({4, 3, 2, 8}) == HostSample({4: process(4)}, frozenset({2}), None, True, (fault,))
    assert host.sample({4}, want_living=True).living == frozenset({Owner()})


def test_an_early_round_replaces_what_was_asked_before() -> None:
    """However often the same is asked, the kernel's answer is the newest one; of others the older ones stay."""
    stage = Stage()
    before, other = HostRead(frozenset({1}), HostSample({1: process(1)})), HostRead(frozenset({2}), HostSample())
    after = replace(before, sample=HostSample({1: process(1, 9)}))
    stage.set(RecordedRound(1, 0, 0, 0, hosts=(before, other)))
    stage.set(RecordedRound(2, 1, 1, 0, only=frozenset({gpu().uuid}), hosts=(after,)))
    assert [stage.host.sample({1}) for _ in range(3)] == [after.sample] * 3
    assert stage.host.sample({2}) is other.sample


def test_nothing_recorded_is_nothing_known() -> None:
    """Before the first round, and of a round without an answer of the kernel, nothing is proven."""
    stage = Stage()
    assert not stage.host.sample({1}).pid_domain_proven
    assert asyncio.run(stage.sample()) == DevicesSample() and stage.inventory.inventory() == Inventory()
