"""The processes that hold memory: three lists of several generations of the driver, as one."""

import tracemalloc
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.node import FakeNode, FakeProcess, GiB, Kind, MiB, Variant, gpus
from exporter.devices.nvml.processes import NOT_AVAILABLE, merge
from exporter.model import DeviceKey, GpuProcess, GpuUuid, ProcessKind
from sources.nvml import Open, Probe, ReadOne

COMPUTE, GRAPHICS, MPS = ProcessKind.COMPUTE, ProcessKind.GRAPHICS, ProcessKind.MPS
GPU = DeviceKey(GpuUuid("GPU-0"))

entries = st.tuples(
    st.sampled_from(ProcessKind),
    st.integers(1, 5),
    st.one_of(st.just(NOT_AVAILABLE), st.integers(0, 80 * GiB)),
)


def seen(processes: tuple[GpuProcess, ...] | None) -> dict[int, tuple[int | None, set[ProcessKind]]]:
    assert processes is not None
    return {process.pid: (process.memory, set(process.kinds)) for process in processes}


@pytest.mark.fault(32)
async def test_a_process_in_two_lists_counts_once(fake_node: FakeNode, read_one: ReadOne) -> None:
    """A process that uses CUDA and OpenGL is listed twice with its whole memory: it counts once, with both kinds."""
    fake_node.write(gpus(1))
    job = fake_node.spawn("alloc 0 2GiB compute+graphics")

    assert seen((await read_one()).processes) == {job.pid: (2 * GiB, {COMPUTE, GRAPHICS})}


async def test_the_mps_list_is_read(fake_node: FakeNode, read_one: ReadOne) -> None:
    """An MPS client that only the MPS list names is found."""
    fake_node.write(
        gpus(1, processes=(FakeProcess(71, GiB, (Kind.MPS,)), FakeProcess(72, GiB, (Kind.MPS, Kind.COMPUTE))))
    )

    assert seen((await read_one()).processes) == {71: (GiB, {MPS}), 72: (GiB, {MPS, COMPUTE})}


@pytest.mark.fault(26)
async def test_unknown_memory_is_not_zero(fake_node: FakeNode, read_one: ReadOne) -> None:
    """Memory that the driver calls not available is None, unless another list knows it."""
    fake_node.write(
        gpus(
            1,
            processes=(
                FakeProcess(81, None),
                FakeProcess(82, None),
                FakeProcess(82, 3 * GiB, (Kind.GRAPHICS,)),
                FakeProcess(83, 0),
            ),
        )
    )

    assert seen((await read_one()).processes) == {
        81: (None, {COMPUTE}),
        82: (3 * GiB, {COMPUTE, GRAPHICS}),
        83: (0, {COMPUTE}),
    }


async def test_entries_without_a_pid_are_no_processes(fake_node: FakeNode, read_one: ReadOne) -> None:
    """Jetson Orin answers SUCCESS with zeros: no process has the pid 0."""
    fake_node.write(gpus(1, processes=(FakeProcess(0, 0), FakeProcess(9, GiB))))

    assert seen((await read_one()).processes) == {9: (GiB, {COMPUTE})}


@pytest.mark.fault(32)
@given(st.lists(entries), st.randoms())
def test_merging_takes_the_maximum_whatever_the_order(
    listed: list[tuple[ProcessKind, int, int]], random: Random
) -> None:
    """For each pid the largest known value counts, and all kinds, in whatever order the lists come."""
    shuffled = list(listed)
    random.shuffle(shuffled)
    merged = merge(GPU, [(kind, [(pid, used)]) for kind, pid, used in listed])

    assert merged == merge(GPU, [(kind, [(pid, used)]) for kind, pid, used in shuffled])
    for process in merged:
        own = [(kind, used) for kind, pid, used in listed if pid == process.pid]
        assert process.memory == max((used for _, used in own if used != NOT_AVAILABLE), default=None)
        assert process.kinds == {kind for kind, _ in own}
    assert {process.pid for process in merged} == {pid for _, pid, _ in listed}
    sets = [process.kinds for process in merged]
    assert len(set(map(id, sets))) == len(set(sets)), "processes of the same kinds share one set"


@pytest.mark.parametrize(
    ("variant", "version"),
    [(Variant.MODERN, "_v3"), (Variant.ABI535, "_v2"), (Variant.OLD, "_v2"), (Variant.ANCIENT, "")],
)
def test_every_generation_of_the_lists_is_understood(
    fake_node: FakeNode, probe: Probe, variant: Variant, version: str
) -> None:
    """
    Each driver is asked in the newest version of the lists that it fills rightly.

    535.43 to 535.86 write 32 bytes for an entry of `_v3`, so that a reader of 24 bytes sees garbage from the second
    on: there it is `_v2`.
    """
    listed = {100 + number: number * GiB for number in range(1, 6)}
    fake_node.write(gpus(1, processes=tuple(FakeProcess(pid, size) for pid, size in listed.items())))

    sample = probe(variant)

    assert sample.faults == ()
    assert seen(sample.samples[0].processes) == {pid: (size, {COMPUTE}) for pid, size in listed.items()}
    for list_of_its_own in ("Compute", "Graphics", "MPSCompute"):
        asked = {name for name in fake_node.all_calls() if name.startswith(f"nvmlDeviceGet{list_of_its_own}Running")}
        assert asked == {f"nvmlDeviceGet{list_of_its_own}RunningProcesses{version}"}


async def test_a_list_costs_the_driver_one_call(fake_node: FakeNode, nvml: Open) -> None:
    """Each list is asked for once a round, not for its size and then for its data: each asking stalls applications."""
    fake_node.write(gpus(1, processes=tuple(FakeProcess(pid, MiB) for pid in range(1, 21))))
    source = await nvml()
    fake_node.reset_calls()

    await source.sample()

    assert fake_node.calls("nvmlDeviceGetComputeRunningProcesses") == 1


@pytest.mark.fault(27)
async def test_a_list_that_outgrows_its_room_is_read_whole(fake_node: FakeNode, nvml: Open) -> None:
    """More processes than there was room for: the list is asked for again with more, and later rounds remember it."""
    fake_node.write(gpus(1, processes=tuple(FakeProcess(pid, MiB) for pid in range(1, 201))))
    source = await nvml()

    (first,) = (await source.sample()).samples
    fake_node.reset_calls()
    await source.sample()

    assert first.processes is not None
    assert [process.pid for process in first.processes] == list(range(1, 201))
    assert fake_node.calls("nvmlDeviceGetComputeRunningProcesses") == 1


@pytest.mark.fault(27)
async def test_a_list_that_always_outgrows_its_room_is_a_fault(fake_node: FakeNode, nvml: Open) -> None:
    """INSUFFICIENT_SIZE is answered a bounded number of times, then the list is unknown and the round incomplete."""
    fake_node.write(gpus(1))
    fake_node.fail("nvmlDeviceGetComputeRunningProcesses", 7)

    (gpu,) = (await (await nvml()).sample()).samples

    assert gpu.processes is None
    assert [fault.incomplete for fault in gpu.faults] == [True]
    assert 1 < fake_node.calls("nvmlDeviceGetComputeRunningProcesses") < 10


@pytest.mark.fault(27)
@pytest.mark.parametrize("count", ["4294967295", "50000000", "50000000 told"])
async def test_a_count_that_cannot_be_is_refused_and_forgotten(fake_node: FakeNode, nvml: Open, count: str) -> None:
    """
    No memory is taken for it. The list is unknown, a fault says so, and the other GPU's lists are read.

    The next sane answer is read too.
    """
    fake_node.write(gpus(2, processes=(FakeProcess(7, GiB),)))
    mad, sane = (GpuUuid(gpu.uuid) for gpu in fake_node.gpus)
    source = await nvml()
    list_, samples = "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetProcessUtilization"
    for function in (list_, samples):
        fake_node.set_switch(f"count.{function}", count, gpu=mad)
    fake_node.reset_calls()
    tracemalloc.start()
    taken = {sample.gpu.uuid: sample for sample in (await source.sample()).samples}
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 32 * MiB
    assert (taken[mad].processes, taken[mad].utilization) == (None, None)
    refused = [fault for fault in taken[mad].faults if fault.incomplete]
    assert [(fault.subject, fault.reason) for fault in refused] == [(mad, "driver_error")]
    assert count.split(maxsplit=1)[0] in refused[0].message
    assert (seen(taken[sane].processes), taken[sane].faults) == ({7: (GiB, {COMPUTE})}, ())

    for function in (list_, samples):
        assert fake_node.calls(function) == 2, "one call for each GPU: what is refused is not asked for again"
        fake_node.clear_switch(f"count.{function}", gpu=mad)
    again = await source.sample()
    assert [seen(sample.processes) for sample in again.samples] == [{7: (GiB, {COMPUTE})}] * 2


@pytest.mark.parametrize(
    ("function", "told"),
    [("nvmlDeviceGetCount", "the NVIDIA driver does not answer"), ("nvmlDeviceGetMaxMigDeviceCount", "GPU 0: its MIG")],
)
async def test_gpus_and_slots_that_cannot_be_are_not_asked_for_one_by_one(
    fake_node: FakeNode, nvml: Open, function: str, told: str
) -> None:
    """Four billion of them would keep the driver's thread for good: one fault says so, and the next round is sane."""
    fake_node.write(gpus(1, mig="on"))
    source = await nvml()
    fake_node.set_switch(f"count.{function}", 0xFFFFFFFF)
    fake_node.reset_calls()

    sample = await source.sample()

    (fault,) = [*sample.faults, *(fault for gpu in sample.samples for fault in gpu.faults)]
    assert fault.incomplete and told in fault.message and "4294967295" in fault.message
    assert fake_node.calls("nvmlDeviceGetHandleByIndex") + fake_node.calls("nvmlDeviceGetMigDeviceHandleByIndex") < 3
    fake_node.clear_switch(f"count.{function}")
    assert (await source.sample()).faults == ()


async def test_a_missing_graphics_or_mps_list_is_empty(fake_node: FakeNode, read_one: ReadOne) -> None:
    """A GPU without graphics list and without MPS list has no process there, and that is no fault."""
    fake_node.write(gpus(1, processes=(FakeProcess(5, GiB),)))
    fake_node.fail("nvmlDeviceGetGraphicsRunningProcesses", 3)
    fake_node.fail("nvmlDeviceGetMPSComputeRunningProcesses", 13)

    gpu = await read_one()

    assert seen(gpu.processes) == {5: (GiB, {COMPUTE})}
    assert gpu.faults == ()


async def test_without_compute_list_nobody_knows_who_is_there(fake_node: FakeNode, read_one: ReadOne) -> None:
    """Without compute list, processes are unknown, not none; that will not change, so the round is complete."""
    fake_node.write(gpus(1))
    fake_node.fail("nvmlDeviceGetComputeRunningProcesses", 3)

    gpu = await read_one()

    assert gpu.processes is None
    assert [(fault.reason, fault.incomplete) for fault in gpu.faults] == [("unsupported", False)]


@pytest.mark.fault(27)
@pytest.mark.parametrize("failing", ["Compute", "Graphics", "MPSCompute"])
async def test_half_a_list_is_no_list(fake_node: FakeNode, read_one: ReadOne, failing: str) -> None:
    """When one of the lists fails, the GPU's processes are unknown and a fault says so; its memory is reported."""
    fake_node.write(gpus(1, other=7 * GiB, processes=(FakeProcess(5, GiB, (Kind.COMPUTE, Kind.GRAPHICS)),)))
    fake_node.fail(f"nvmlDeviceGet{failing}RunningProcesses", 10)

    gpu = await read_one()

    assert gpu.processes is None
    assert gpu.gpu.memory is not None
    assert gpu.gpu.memory.used == 8 * GiB
    (fault,) = gpu.faults
    assert (fault.incomplete, fault.subject) == (True, gpu.gpu.uuid)
    assert f"nvmlDeviceGet{failing}RunningProcesses" in fault.message
