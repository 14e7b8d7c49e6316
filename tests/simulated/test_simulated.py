"""The simulated node: believable, the same in each run, and with accounts that close at each second."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.accounts.attribution import Names
from exporter.devices import DevicesSample, Identify
from exporter.limits.loading import builtin
from exporter.model import Attribution, GpuUuid, HostSample, Inventory, Sharing, Snapshot, Usage
from exporter.rounds.limits import Limiting
from exporter.rounds.sampler import Beat, Sampler
from exporter.simulated import SimulatedNode
from exporter.simulated.curves import Curve, curve, noise
from exporter.simulated.playing import processes
from exporter.simulated.scene import Place, device_key, scene
from pace import quick

GIB = 2**30
BEGINNING = 1_760_000_000.0
STEP = 4 if quick() else 1
EACH = range(60 if quick() else 481)
SECONDS = sorted({*EACH, *range(0, 481, STEP), 110, 150, 333, 343})
"""In these all that recurs comes at least once, and the notebook that grows comes twice. `make check` plays each second
of `EACH`, then each fourth, and four in which something rare is so."""


class Clock:
    """A clock that stands until the test sets it, in seconds after the beginning; no code may wait by it."""

    def __init__(self, seconds: float = 0) -> None:
        self.seconds = seconds

    def time(self) -> float:
        return BEGINNING + self.seconds

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        assert seconds < 0.01, "a round lets others run, and waits for nothing"


def node_at(seconds: float) -> SimulatedNode:
    return SimulatedNode(Clock(seconds).time, BEGINNING)


Answers = tuple[DevicesSample, HostSample, Inventory]


async def answers(seconds: float) -> Answers:
    """All that the three sources say at a time."""
    node = node_at(seconds)
    devices = await node.devices.sample()
    return devices, node.host.sample(listed(devices), want_living=True), node.inventory.inventory()


def listed(devices: DevicesSample) -> list[int]:
    """The pids of the driver's lists."""
    return [process.pid for sample in devices.samples for process in sample.processes or ()]


def played(times: Sequence[float]) -> list[tuple[Answers, Snapshot]]:
    """What the sources of a simulated node say at each time, and the snapshots of a sampler that runs on it."""
    clock = Clock()
    node = SimulatedNode(clock.time, BEGINNING)
    read, said = node.devices.sample, list[DevicesSample]()

    async def sample(only: Collection[GpuUuid] | None = None, identify: Identify | None = None) -> DevicesSample:
        said.append(await read(only, identify))
        return said[-1]

    node.devices.sample = sample  # type: ignore[method-assign, assignment]
    sampler = Sampler(
        node="gpu-a01",
        devices=node.devices,
        host=node.host,
        inventory=node.inventory,
        beat=Beat(),
        clock=clock,
        limiting=Limiting(builtin()),
    )

    async def play() -> list[tuple[Answers, Snapshot]]:
        found = []
        for time in times:
            clock.seconds = time
            snapshot = await sampler.round()
            host = node.host.sample(listed(said[-1]), want_living=True)
            found.append(((said[-1], host, node.inventory.inventory()), snapshot))
        return found

    return asyncio.run(play())


def rounds(times: Sequence[float]) -> list[Snapshot]:
    """The snapshots of a sampler that runs on the simulated node."""
    return [snapshot for _, snapshot in played(times)]


def usages(snapshot: Snapshot, pod: str) -> list[Usage]:
    return [usage for usage in snapshot.usages if snapshot.pods[usage.subject.pod_uid].name == pod]


def held(snapshot: Snapshot, pod: str) -> int:
    return sum(usage.memory_used or 0 for usage in usages(snapshot, pod))


@pytest.fixture(scope="module")
def whole() -> Mapping[int, tuple[Answers, Snapshot]]:
    """Eight minutes, a round at each of `SECONDS`."""
    return dict(zip(SECONDS, played(SECONDS), strict=True))


@pytest.fixture(scope="module")
def heard(whole: Mapping[int, tuple[Answers, Snapshot]]) -> Mapping[int, Answers]:
    """What the sources said in these rounds."""
    return {second: answers for second, (answers, _) in whole.items()}


@pytest.fixture(scope="module")
def film(whole: Mapping[int, tuple[Answers, Snapshot]]) -> Mapping[int, Snapshot]:
    """What the sampler made of it."""
    return {second: snapshot for second, (_, snapshot) in whole.items()}


def test_memory_adds_up_on_each_leaf_device_at_each_second(heard: Mapping[int, Answers]) -> None:
    """total = used + free + reserved with nothing below zero, and the process lists hold less than what is used."""
    for devices, _, _ in heard.values():
        for sample in devices.samples:
            assert sample.processes is not None
            for key, memory, _ in sample.gpu.leaves():
                assert memory is not None
                assert min(memory.free, memory.reserved) >= 0
                assert memory.total == memory.used + memory.free + memory.reserved
                assert sum(p.memory or 0 for p in sample.processes if p.device == key) < memory.used


def test_the_instances_of_a_mig_gpu_fill_it_no_further_than_it_is(heard: Mapping[int, Answers]) -> None:
    """What the instances use is what the GPU uses, and together they are no larger than it."""
    for devices, _, _ in heard.values():
        migs = [sample.gpu for sample in devices.samples if sample.gpu.mig]
        assert migs
        for found in migs:
            memories = [instance.memory for instance in found.instances if instance.memory is not None]
            assert len(memories) == len(found.instances)
            assert found.memory is not None
            assert sum(memory.total for memory in memories) <= found.memory.total - found.memory.reserved
            assert sum(memory.used for memory in memories) == found.memory.used


def test_each_listed_pid_has_an_answer_unless_it_is_meant_to_be_dead(heard: Mapping[int, Answers]) -> None:
    """The kernel knows every number that the driver prints, apart from the ghosts of the table."""
    ghosts = {row.pid for row in scene().ghosts}
    for devices, host, _ in heard.values():
        listed = [(p.device, p.pid) for sample in devices.samples for p in sample.processes or ()]
        assert len(listed) == len(set(listed))
        assert {pid for _, pid in listed} - ghosts == set(host.processes)
        assert not ghosts & set(host.processes)


def test_the_accounts_close_at_each_second(film: Mapping[int, Snapshot]) -> None:
    """Each round is complete, and on each device attributed + ghost + host + unattributed = used."""
    for snapshot in film.values():
        assert snapshot.complete, snapshot.faults
        assert len(snapshot.devices) == 11
        for device in snapshot.devices:
            account = device.account
            assert account.memory is not None
            parts = (account.attributed, account.ghost, account.host, account.unattributed)
            assert sum(part for part in parts if part is not None) == account.memory.used
            assert None not in parts
            assert account.clamped == 0


def test_every_process_finds_its_place(film: Mapping[int, Snapshot]) -> None:
    """There are processes of containers, of the host, ghosts and heirs, and none that cannot be explained."""
    seen = {place for snapshot in film.values() for place, count in snapshot.processes.items() if count}
    assert seen == {Attribution.CONTAINER, Attribution.INHERITED, Attribution.HOST, Attribution.GHOST}


def test_the_ghost_and_the_display_server_stay_apart_from_the_pods(film: Mapping[int, Snapshot]) -> None:
    """On GPU 7 the dead number's memory is a ghost's, the display server's is the host's, the canary's is its own."""
    for snapshot in film.values():
        (device,) = (device for device in snapshot.devices if device.key == device_key(7))
        assert device.account.ghost == round(5.2 * 512) * 2**21
        assert device.account.host is not None
        assert 0 < device.account.host < 2**26
        assert device.account.attributed == held(snapshot, "gpu-canary-gpu-a01") > 0


def test_a_notebook_passes_its_declared_limit_and_comes_back(film: Mapping[int, Snapshot]) -> None:
    """It is calm for half a minute, above 16 GiB within two, long enough for the default patience, then calm again."""
    (row,) = (row for row in scene().pods if row.name == "anna-notebook-0")
    assert dict(row.annotations) == {"nvidia.com/container.notebook.gpu-memory.limit": "16Gi"}
    regular = {second: snapshot for second, snapshot in film.items() if second % STEP == 0}
    over = [second for second, snapshot in regular.items() if held(snapshot, row.name) > 16 * GIB]
    first = [second for second in over if second < 240]
    assert 30 < first[0] < 90
    assert first == list(range(first[0], first[-1] + 1, STEP))
    assert len(first) * STEP > 15 + 120 + 15, "warn_after, grace, and some rounds"
    assert first[-1] < 239
    assert [second + 240 for second in first] == [second for second in over if 240 <= second < 480]


def test_limits_of_each_kind_are_declared() -> None:
    """Notebooks by annotation, MIG instances and whole GPUs by the hardware, clients of MPS for each process."""
    (snapshot,) = rounds([100])
    assert {(limit.system, limit.scope) for limit in snapshot.limits} == {
        ("gpusteward", "container"),
        ("nvidia-mig", "instance"),
        ("nvidia-gpu", "container"),
        ("nvidia-mps", "process"),
    }
    assert not [problem for limit in snapshot.limits for problem in limit.problems]
    notebooks = {
        snapshot.pods[limit.pod_uid].name: limit.memory for limit in snapshot.limits if limit.system == "gpusteward"
    }
    assert notebooks == {
        f"{who}-notebook-0": size * GIB for who, size in {"anna": 16, "ben": 24, "chen": 24, "dora": 16}.items()
    }
    assert snapshot.memory_declared[device_key(3)] == 80 * GIB


def test_its_neighbours_keep_what_they_declared(film: Mapping[int, Snapshot]) -> None:
    """No other notebook passes its limit: there is one culprit on the device, and the device is nearly full then."""
    limits = {"ben-notebook-0": 24, "chen-notebook-0": 24, "dora-notebook-0": 16}
    for snapshot in film.values():
        for name, limit in limits.items():
            assert 0 < held(snapshot, name) <= limit * GIB
    fullest = [device.account.memory for device in film[150].devices if device.key == device_key(3)]
    assert fullest[0] is not None
    assert fullest[0].free < fullest[0].total / 10


def test_a_dead_parents_memory_stays_with_its_container(film: Mapping[int, Snapshot]) -> None:
    """The first process of the training dies after 40 s, its workers keep the memory: 6.4 GiB and more, all along."""
    for snapshot in film.values():
        assert held(snapshot, "segmentation-train-0") > 47 * GIB
    assert film[39].processes[Attribution.INHERITED] == 0
    assert film[41].processes[Attribution.INHERITED] == 1


def test_an_exporter_that_starts_late_finds_the_heir_too() -> None:
    """The exporter need not have seen the dead parent alive."""
    (late,) = rounds([300])
    assert late.processes[Attribution.INHERITED] == 1
    assert held(late, "segmentation-train-0") > 47 * GIB


def test_a_thread_id_leads_to_its_process(heard: Mapping[int, Answers], film: Mapping[int, Snapshot]) -> None:
    """The driver prints the thread 83992; the exporter names the process 83977, and finds its utilization."""
    listed = {process.pid for sample in heard[5][0].samples for process in sample.processes or ()}
    assert 83992 in listed
    assert 83977 not in listed
    busy = {process.pid for sample in heard[5][0].samples for process in sample.utilization or ()}
    assert 83977 in busy, "the statistics name processes even where the lists name threads"
    assert 83992 not in busy
    (usage,) = usages(film[5], "segmentation-train-0")
    assert 83977 in {key.pid for key in usage.processes}
    assert usage.sm is not None
    assert usage.sm > 0.4


def test_old_and_new_pod_of_one_name_meet(film: Mapping[int, Snapshot]) -> None:
    """While the old reranker terminates and still holds memory, its successor is there under the same name."""
    met = []
    for second, snapshot in film.items():
        pods = [pod for pod in snapshot.pods.values() if pod.name == "reranker-0"]
        assert 1 <= len(pods) <= 2
        if len(pods) == 2:
            old, new = sorted(pods, key=lambda pod: pod.created_at)
            assert (old.terminating, new.terminating) == (True, False)
            assert old.uid != new.uid
            assert [u.memory_used for u in snapshot.usages if u.subject.pod_uid == old.uid and u.memory_used]
            assert len([a for a in snapshot.allocations if a.pod == "reranker-0"]) == 1
            met.append(second)
    assert met[0] < 120
    assert len(met) * STEP > 20


def test_jobs_come_and_go_under_new_names(film: Mapping[int, Snapshot]) -> None:
    """Each run of the embedding job is a pod of its own name, warms up, and leaves nothing behind."""
    names = {pod.name for snapshot in film.values() for pod in snapshot.pods.values() if pod.workload == "embed-docs"}
    assert len(names) >= 3
    used = [
        device.account.attributed or 0 for s in film.values() for device in s.devices if device.key == device_key(2, 10)
    ]
    assert max(used) > 7 * GIB
    assert min(used) == 0


def test_a_static_pod_is_found_by_its_hash(heard: Mapping[int, Answers]) -> None:
    """Its cgroup does not carry its UID, and it is named nevertheless."""
    _, host, inventory = heard[10]
    (pod,) = (pod for pod in inventory.pods.values() if pod.config_hash)
    owners = [found.owner for found in host.processes.values() if found.owner and found.owner.pairs]
    (owner,) = (owner for owner in owners if owner.pairs[0][0] == pod.config_hash)
    assert pod.uid not in {uid for uid, _ in owner.pairs}
    subject = Names.of(inventory).subject(owner)
    assert not isinstance(subject, Attribution)
    assert (subject.pod_uid, subject.container) == (pod.uid, "canary")


def test_the_node_has_something_of_everything(heard: Mapping[int, Answers], film: Mapping[int, Snapshot]) -> None:
    """All ways of sharing, and a dozen pods or more of many kinds and namespaces, some with several containers."""
    snapshot = film[100]
    assert {device.sharing for device in snapshot.devices} == {
        Sharing.EXCLUSIVE, Sharing.TIME_SLICING, Sharing.MPS, Sharing.MIG,
    }  # fmt: skip
    assert len(snapshot.pods) > 12
    assert len({pod.namespace for pod in snapshot.pods.values()}) >= 5
    kinds = {pod.workload_kind for pod in snapshot.pods.values()}
    assert {"Deployment", "StatefulSet", "Job", "Notebook", "PyTorchJob", "DaemonSet", ""} <= kinds
    assert {usage.device for usage in usages(snapshot, "llama-sft-worker-0")} == {device_key(0), device_key(1)}
    assert {u.subject.container for u in usages(snapshot, "traffic-cam-6d5f9c7b84-h2v9q")} == {"detector", "tracker"}
    assert {(allocation.resource, allocation.replicas) for allocation in snapshot.allocations} == {
        ("nvidia.com/gpu", 1),
        ("nvidia.com/gpu.shared", 1),
        ("nvidia.com/gpu.shared", 2),
        ("nvidia.com/mig-1g.10gb", 1),
        ("nvidia.com/mig-2g.20gb", 1),
        ("nvidia.com/mig-3g.40gb", 1),
    }
    for device, (_, replicas) in heard[100][2].sharing.items():
        assert sum(a.replicas for a in snapshot.allocations if a.device == device) <= replicas


def test_an_allocated_gpu_can_be_idle(film: Mapping[int, Snapshot]) -> None:
    """Nothing runs on GPU 6, and its holder is known to hold nothing."""
    for snapshot in film.values():
        (usage,) = (usage for usage in snapshot.usages if usage.device == device_key(6))
        assert usage.memory_used == 0
        (device,) = (device for device in snapshot.devices if device.key == device_key(6))
        assert device.utilization.busy == 0


@pytest.mark.fault(67)
def test_managed_memory_is_unattributed(film: Mapping[int, Snapshot]) -> None:
    """On GPU 5 up to 3.2 GiB come and go that no process list shows."""
    rest = [d.account.unattributed or 0 for s in film.values() for d in s.devices if d.key == device_key(5)]
    assert min(rest) < 64 * 2**20
    assert max(rest) > 3 * GIB


def test_utilization_is_the_sum_of_what_the_processes_do(heard: Mapping[int, Answers]) -> None:
    """All ratios lie between 0 and 1, and a device is as busy as its processes together; under MIG nothing is known."""
    for second, (devices, _, _) in heard.items():
        loads: dict[Place, float] = {}
        for process in processes(second):
            loads[process.row.device] = loads.get(process.row.device, 0) + process.load
        assert max(loads.values()) <= 1
        for sample in devices.samples:
            if sample.gpu.mig:
                assert sample.utilization is None
                assert sample.gpu.utilization.busy is None
                continue
            assert sample.utilization is not None
            assert sample.gpu.utilization.busy == pytest.approx(sum(p.sm or 0 for p in sample.utilization), abs=0.001)
            assert (sample.gpu.utilization.sm is None) == ("A100" in sample.gpu.model)
            for ratios in sample.utilization:
                four = ratios.sm, ratios.memory_controller, ratios.encoder, ratios.decoder
                assert all(one is not None and 0 <= one <= 1 for one in four)


def test_power_heat_and_clocks_follow_the_load(film: Mapping[int, Snapshot]) -> None:
    """Energy never falls, and is what the power adds up to; nothing jumps, and nothing leaves what the model can do."""
    for index, row in enumerate(scene().gpus):
        health = [film[second].gpus[index].health for second in EACH]
        watts = [h.power_watts or 0 for h in health]
        joules = [h.energy_joules or 0 for h in health]
        degrees = [h.temperature_celsius or 0 for h in health]
        assert all(later - earlier >= row.model.idle_watts - 0.01 for earlier, later in pairwise(joules))
        assert joules[-1] - joules[0] == pytest.approx(sum(watts[1:]), rel=1e-6)
        assert all(row.model.idle_watts - 0.01 <= w <= row.model.max_watts for w in watts)
        assert max(abs(later - earlier) for earlier, later in pairwise(degrees)) <= 2
        assert 25 < min(degrees) <= max(degrees) < 92
        assert all(row.model.idle_mhz * 1e6 <= h.clocks_hertz["sm"] <= row.model.boost_mhz * 1e6 for h in health)
    assert film[100].gpus[6].health.clocks_hertz["sm"] == 210e6, "an idle GPU sleeps"
    assert film[100].gpus[0].health.clocks_hertz["sm"] > 1500e6


def test_xids_come_now_and_then(film: Mapping[int, Snapshot]) -> None:
    """A notebook's mistake, and one inside a MIG instance; counters never fall, and nothing came before its time."""
    counts = [
        {(uuid, code): one.count for uuid, of in s.xid_errors.items() for code, one in of.items()}
        for s in film.values()
    ]
    for before, after in pairwise(counts):
        assert all(after[key] >= count for key, count in before.items())
    assert sum(counts[0].values()) == 0
    last = film[max(film)].xid_errors
    assert last[device_key(3).uuid][31].count == 2
    assert (last[device_key(2).uuid][43].count, last[device_key(2).uuid][43].gpu_instance) == (1, 9)
    for second, snapshot in film.items():
        times = [one.last_at for of in snapshot.xid_errors.values() for one in of.values() if one.last_at is not None]
        assert all(BEGINNING < time <= BEGINNING + second for time in times)


def test_gpus_throttle_now_and_then(film: Mapping[int, Snapshot]) -> None:
    """The power limit is met and left again, one GPU gets too hot at times, and an idle one is never held down."""

    def share(index: int, reason: str) -> float:
        return sum((s.gpus[index].health.throttled or {})[reason] for s in film.values()) / len(film)

    assert 0.1 < share(0, "sw_power_cap") < 0.9
    assert 0 < share(1, "sw_thermal_slowdown") < 0.9
    assert share(0, "sw_thermal_slowdown") == 0
    assert share(6, "sw_power_cap") == 0


async def test_the_same_time_brings_the_same_answers() -> None:
    """Two nodes agree, in whatever order they are asked, to the last byte."""
    clock = Clock()
    node = SimulatedNode(clock.time, BEGINNING)
    for second in (500.25, 3, 240, 0, 77.7, 3):
        clock.seconds = second
        devices, host, inventory = await answers(second)
        assert await node.devices.sample() == devices
        assert node.inventory.inventory() == inventory
        assert node.host.sample(host.processes, want_living=True) == host


def test_time_moves_what_is_seen(heard: Mapping[int, Answers]) -> None:
    """The node breathes: within ten seconds some memory has moved, by whole pages of the driver."""
    for second in (0, 100, 333):
        before, after = (
            {(p.device, p.pid): p.memory or 0 for s in heard[second + later][0].samples for p in s.processes or ()}
            for later in (0, 10)
        )
        moved = {entry: after[entry] - before[entry] for entry in before if entry in after}
        assert sum(change != 0 for change in moved.values()) >= 5
        assert all(change % 2**21 == 0 for change in moved.values())


async def test_some_gpus_can_be_asked_for() -> None:
    """`only` brings those GPUs and the count of all; a look at memory says the same as a full reading."""
    node = node_at(61)
    some = await node.devices.sample([device_key(2).uuid, device_key(3).uuid])
    everything = await node.devices.sample()
    assert [sample.gpu.index for sample in some.samples] == [2, 3]
    assert some.present == everything.present
    assert list(some.samples) == [sample for sample in everything.samples if sample.gpu.index in {2, 3}]
    memory = await node.devices.memory([device_key(2).uuid, device_key(3).uuid])
    assert dict(memory) == {key: m for sample in some.samples for key, m, _ in sample.gpu.leaves()}
    assert len(memory) == 5
    await node.devices.close()


def test_the_host_answers_what_it_was_asked() -> None:
    """Pids without a process are missing, and the living are counted only on demand."""
    host = node_at(5).host.sample([83992, 999_999])
    assert set(host.processes) == {83992}
    assert host.living is None
    assert host.pid_domain_proven


def test_the_load_of_a_pod_that_is_made_anew_ends_with_it() -> None:
    """Then the energy of all generations is one periodic curve; the sum of the loads depends on that."""
    for row in scene().pods:
        for process in (process for container in row.containers for process in container.processes):
            load, memory = curve(process.load), curve(process.memory)
            if row.life is not None:
                assert load.points[0][1] == load.points[-1][1] == 0
                assert load.points[-1][0] <= row.life.deleted
            for one in (load, memory):
                assert one.points[0][0] == 0
                assert list(one.points) == sorted(one.points)
                assert one.period is None or one.points[-1][0] <= one.period


POINTS = st.lists(st.tuples(st.integers(1, 100), st.floats(0, 50)), max_size=6, unique_by=lambda point: point[0]).map(
    lambda points: ((0.0, 1.0), *sorted((float(time), value) for time, value in points))
)


@given(POINTS, st.one_of(st.none(), st.just(100.0)), st.integers(-250, 250), st.integers(0, 250))
def test_the_integral_is_the_area(
    points: tuple[tuple[float, float], ...], period: float | None, begin: int, length: int
) -> None:
    """Points lie on whole seconds, so that strips of a second, cut at their middle, give the area exactly."""
    curve = Curve(points, period)
    area = sum(curve.at(second + 0.5) for second in range(begin, begin + length))
    assert curve.integral(begin + length) - curve.integral(begin) == pytest.approx(area, abs=1e-6)


def test_noise_is_spread_evenly() -> None:
    """Hashes of neighbouring seconds have nothing in common: their mean is near a half, and they fill the range."""
    values = [noise("x", second) for second in range(1000)]
    assert 0.45 < sum(values) / 1000 < 0.55
    assert min(values) < 0.02
    assert 0.98 < max(values) < 1


def test_pods_and_namespaces_tell_what_a_policy_asks_for() -> None:
    """Each pod has a phase, its class's priority and the kind of its controller; each namespace of theirs is known."""
    found = node_at(600.0).inventory.inventory()
    assert {pod.namespace for pod in found.pods.values()} == set(found.namespaces)
    assert all(pod.phase in {"Running", "Pending"} and pod.priority is not None for pod in found.pods.values())
    priorities = {pod.priority_class: pod.priority for pod in found.pods.values()}
    assert priorities["system-node-critical"] == 2_000_001_000 and priorities[""] == 0
    assert len(set(priorities.values())) == len(priorities), "a class that the simulation does not know would be 0"
    kinds = {pod.workload_kind: pod.controller_kind for pod in found.pods.values()}
    assert kinds["Deployment"] == "ReplicaSet" and kinds["StatefulSet"] == "StatefulSet"
    assert any(pod.annotations for pod in found.pods.values())
