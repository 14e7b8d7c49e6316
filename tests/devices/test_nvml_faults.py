"""What the driver's failures do: which GPU, which round, and when the daemon has to end."""

import gc
import threading
import tracemalloc
from dataclasses import replace
from itertools import pairwise

import pytest

from driver.node import FakeNode, FakeProcess, GiB, gpus, until
from exporter.devices import DeviceError, DriverAccessLostError, DriverReplacedError
from exporter.model import GpuUuid
from sources.nvml import Open, Program

TWO = gpus(2, processes=(FakeProcess(5, GiB),))
FIRST, SECOND = TWO
ONE, OTHER = GpuUuid(FIRST.uuid), GpuUuid(SECOND.uuid)
BOTH = {ONE: 0, OTHER: 1}

UNINITIALIZED, NO_PERMISSION, NOT_LOADED = 1, 4, 9
LOST, RESET_REQUIRED, OPERATING_SYSTEM, MISMATCH, GPU_NOT_FOUND, UNKNOWN = 15, 16, 17, 18, 28, 999


class Clock:
    """A clock that moves only when a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


# --- one GPU ----------------------------------------------------------------------------------------------------------


@pytest.mark.fault(28, 29)
@pytest.mark.parametrize("code", [LOST, RESET_REQUIRED])
async def test_one_lost_gpu_leaves_the_others_working(fake_node: FakeNode, nvml: Open, code: int) -> None:
    """A GPU off the bus is present without a sample, a fault names it, and the others are read as ever."""
    fake_node.write(TWO)
    source = await nvml()
    await source.sample()
    fake_node.fail("*", code, gpu=FIRST.uuid)

    sample = await source.sample()

    assert sample.present == BOTH
    assert [gpu.gpu.uuid for gpu in sample.samples] == [SECOND.uuid]
    assert [(fault.reason, fault.subject, fault.incomplete) for fault in sample.faults] == [
        ("gpu_lost", FIRST.uuid, True)
    ]

    fake_node.clear_switch("fail.*", gpu=FIRST.uuid)
    assert len((await source.sample()).samples) == 2


async def test_a_gpu_that_comes_back_in_another_slot_has_its_new_address(fake_node: FakeNode, nvml: Open) -> None:
    """A GPU that was unplugged keeps its UUID, and neither its PCI address nor its minor number."""
    fake_node.write(TWO)
    source = await nvml()
    await source.sample()
    fake_node.write([FIRST])
    await source.sample()
    fake_node.write([FIRST, replace(SECOND, pci="00000000:7F:00.0", minor=5)])

    samples = (await source.sample()).samples

    assert [(sample.gpu.uuid, sample.gpu.pci_bus_id, sample.gpu.minor) for sample in samples] == [
        (FIRST.uuid, FIRST.pci, 0),
        (SECOND.uuid, "00000000:7F:00.0", 5),
    ]


async def test_losses_of_a_gpu_leave_no_memory_behind(fake_node: FakeNode, nvml: Open) -> None:
    """After the first losses, forty more keep less than 16 KiB. Forty samples would take 120."""
    fake_node.write(TWO)
    source = await nvml()

    async def lost(times: int) -> int:
        for _ in range(times):
            fake_node.fail("*", LOST, gpu=FIRST.uuid)
            await source.sample()
            fake_node.clear_switch("fail.*", gpu=FIRST.uuid)
            await source.sample()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    await lost(30)  # what is known of processes fills in the first ones; not traced, they take a quarter of the time
    tracemalloc.start()
    try:
        before = await lost(10)
        assert await lost(40) - before < 16 << 10
    finally:
        tracemalloc.stop()


@pytest.mark.fault(29)
@pytest.mark.parametrize(
    "call", ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetPowerUsage"]
)
async def test_a_gpu_may_be_lost_at_any_call(fake_node: FakeNode, nvml: Open, call: str) -> None:
    """GPU_IS_LOST in the middle of a reading makes the whole reading void: half of it is from before."""
    fake_node.write(TWO)
    fake_node.fail(call, LOST, gpu=SECOND.uuid)

    sample = await (await nvml()).sample()

    assert [gpu.gpu.uuid for gpu in sample.samples] == [FIRST.uuid]
    assert [(fault.reason, fault.subject) for fault in sample.faults] == [("gpu_lost", SECOND.uuid)]


@pytest.mark.parametrize("text", [FIRST.name, FIRST.pci, FIRST.uuid], ids=["name", "bus id", "UUID"])
async def test_a_gpu_whose_texts_are_garbage_leaves_the_others_working(
    fake_node: FakeNode, nvml: Open, text: str
) -> None:
    """A failing VBIOS hands out bytes that are no UTF-8: a fault of this GPU, and the other is read as ever."""
    fake_node.write([FIRST, replace(SECOND, name="healthy")])
    state = fake_node.folder / "node"
    state.write_bytes(state.read_bytes().replace(text.encode(), b"\xff\xfe"))

    sample = await (await nvml()).sample()

    assert [gpu.gpu.uuid for gpu in sample.samples] == [SECOND.uuid]
    assert [(fault.reason, fault.incomplete) for fault in sample.faults] == [("driver_error", True)]
    assert r"no text: b'\xff\xfe'" in sample.faults[0].message


async def test_a_gpu_lost_from_the_start_is_told_by_its_index(fake_node: FakeNode, nvml: Open) -> None:
    """A GPU that never said its UUID cannot be present, but is not passed over in silence."""
    fake_node.write(TWO)
    fake_node.fail("*", LOST, gpu=SECOND.uuid)

    sample = await (await nvml()).sample()

    assert sample.present == {FIRST.uuid: 0}
    assert [(fault.reason, fault.subject) for fault in sample.faults] == [("gpu_lost", "index 1")]


async def test_a_gpu_that_we_may_not_open_is_skipped(fake_node: FakeNode, nvml: Open) -> None:
    """The driver counts GPUs of others, too: NO_PERMISSION skips one, says so, and leaves the round complete."""
    fake_node.write(TWO)
    fake_node.fail("nvmlDeviceGetHandleByIndex", NO_PERMISSION, gpu=FIRST.uuid)

    sample = await (await nvml()).sample()

    assert sample.present == {SECOND.uuid: 1}
    assert [gpu.gpu.index for gpu in sample.samples] == [1]
    assert [(fault.reason, fault.subject, fault.incomplete) for fault in sample.faults] == [
        ("no_permission", "index 0", False)
    ]


async def test_a_gpu_not_found_is_looked_for_again(fake_node: FakeNode, nvml: Open) -> None:
    """GPU_NOT_FOUND on a handle means that handles are stale: the GPUs are enumerated anew in the same round."""
    fake_node.write(TWO)
    source = await nvml()
    fake_node.fail("nvmlDeviceGetMemoryInfo", GPU_NOT_FOUND, gpu=FIRST.uuid, times=1)
    fake_node.reset_calls()

    sample = await source.sample()

    assert {gpu.gpu.uuid for gpu in sample.samples} == {FIRST.uuid, SECOND.uuid}
    assert sample.faults == ()
    assert fake_node.calls("nvmlDeviceGetCount") == 2


async def test_a_gpu_that_stays_unfound_is_a_fault(fake_node: FakeNode, nvml: Open) -> None:
    """A round looks for it again once; then a fault reports the GPU as not found, and the others are there."""
    fake_node.write(TWO)
    fake_node.fail("nvmlDeviceGetMemoryInfo", GPU_NOT_FOUND, gpu=FIRST.uuid)

    sample = await (await nvml()).sample()

    assert [gpu.gpu.uuid for gpu in sample.samples] == [SECOND.uuid]
    assert [(fault.reason, fault.subject) for fault in sample.faults] == [("gpu_not_found", FIRST.uuid)]


@pytest.mark.fault(30)
async def test_gpus_are_known_by_uuid_not_by_index(fake_node: FakeNode, nvml: Open) -> None:
    """The order of indices changes: each GPU keeps its own facts, and has its new index."""
    fake_node.write([replace(FIRST, name="A"), replace(SECOND, name="B")])
    source = await nvml()
    await source.sample()
    fake_node.write([replace(SECOND, name="B"), replace(FIRST, name="A")])

    sample = await source.sample()

    assert sample.present == {SECOND.uuid: 0, FIRST.uuid: 1}
    assert {gpu.gpu.uuid: (gpu.gpu.index, gpu.gpu.model) for gpu in sample.samples} == {
        FIRST.uuid: (1, "A"),
        SECOND.uuid: (0, "B"),
    }


async def test_a_gpu_that_was_taken_out_is_gone(fake_node: FakeNode, nvml: Open) -> None:
    """A GPU that the driver no longer counts is not present, and is no fault."""
    fake_node.write(TWO)
    source = await nvml()
    await source.sample()
    fake_node.write([SECOND])

    sample = await source.sample()

    assert sample.present == {SECOND.uuid: 0}
    assert sample.faults == ()


async def test_only_the_gpus_that_were_asked_for_are_read(fake_node: FakeNode, nvml: Open) -> None:
    """An early round re-reads some GPUs; the others are present, and are not stalled."""
    fake_node.write(TWO)
    source = await nvml()
    fake_node.reset_calls()

    sample = await source.sample({OTHER})

    assert sample.present == BOTH
    assert [gpu.gpu.uuid for gpu in sample.samples] == [SECOND.uuid]
    assert fake_node.calls("nvmlDeviceGetComputeRunningProcesses") == 1


# --- the driver -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [UNINITIALIZED, NOT_LOADED])
async def test_a_driver_that_is_gone_comes_back(fake_node: FakeNode, nvml: Open, code: int) -> None:
    """An unloaded driver costs its rounds; its GPUs stay known, and it is initialised again when it is back."""
    fake_node.write(TWO)
    source = await nvml()
    await source.sample()
    fake_node.fail("nvmlDeviceGetCount", code)

    gone = await source.sample()
    fake_node.clear_switch("fail.nvmlDeviceGetCount")
    fake_node.reset_calls()
    back = await source.sample()

    assert (gone.present, gone.samples) == (BOTH, ())
    assert [(fault.reason, fault.subject, fault.incomplete) for fault in gone.faults] == [("driver_gone", "", True)]
    assert len(back.samples) == 2
    assert back.faults == ()
    assert fake_node.calls("nvmlInitWithFlags") == 1


async def test_initialisation_is_tried_ever_less_often(fake_node: FakeNode, nvml: Open) -> None:
    """While the driver stays away each round has the fault, but the attempts thin out: 1, 2, 4 … 60 s apart."""
    fake_node.write(TWO)
    clock = Clock()
    source = await nvml(monotonic=clock)
    fake_node.fail("nvmlDeviceGetCount", NOT_LOADED, times=1)
    fake_node.fail("nvmlInit", NOT_LOADED)
    await source.sample()
    fake_node.reset_calls()

    attempts = []
    for _ in range(400):
        before = fake_node.calls("nvmlInitWithFlags")
        (fault,) = (await source.sample()).faults
        assert fault.reason == "driver_gone"
        if fake_node.calls("nvmlInitWithFlags") > before:
            attempts.append(clock.now - 1000)
        clock.now += 1

    assert [later - earlier for earlier, later in pairwise(attempts)][:8] == [
        1,
        2,
        4,
        8,
        16,
        32,
        60,
        60,
    ]


async def test_an_attempt_that_fails_leaves_the_driver_no_user(fake_node: FakeNode, nvml: Open) -> None:
    """NVML counts its users: an attempt that was let in and then refused leaves before the next one comes in."""
    fake_node.write(TWO)
    clock = Clock()
    source = await nvml(monotonic=clock)
    fake_node.fail("nvmlDeviceGetCount", NOT_LOADED, times=1)
    fake_node.fail("nvmlSystemGetDriverVersion", UNKNOWN)
    await source.sample()
    fake_node.reset_calls()

    for _ in range(2):
        assert [fault.reason for fault in (await source.sample()).faults] == ["access_lost"]
        clock.now += 100

    assert fake_node.calls("nvmlInitWithFlags") == fake_node.calls("nvmlShutdown") == 2


@pytest.mark.parametrize(("code", "kind"), [(UNKNOWN, DriverAccessLostError), (MISMATCH, DriverReplacedError)])
async def test_a_start_that_fails_leaves_the_driver_no_user(
    fake_node: FakeNode, nvml: Open, code: int, kind: type[DeviceError]
) -> None:
    """The same of the daemon's own start, which ends with that: a user of NVML that was killed has frozen a GPU."""
    fake_node.write(TWO)
    fake_node.fail("nvmlSystemGetDriverVersion", code)

    with pytest.raises(kind):
        await nvml()

    assert fake_node.calls("nvmlInitWithFlags") == fake_node.calls("nvmlShutdown") == 1


@pytest.mark.fault(30)
async def test_a_driver_that_was_replaced_ends_the_source(fake_node: FakeNode, nvml: Open) -> None:
    """After an upgrade under us only a new process can load the new library."""
    fake_node.write(TWO)
    source = await nvml()
    await source.sample()
    fake_node.fail("nvmlDeviceGetMemoryInfo", MISMATCH)

    with pytest.raises(DriverReplacedError, match="start the daemon anew"):
        await source.sample()
    with pytest.raises(DriverReplacedError):
        await source.memory({ONE})


@pytest.mark.parametrize("code", [OPERATING_SYSTEM, UNKNOWN])
async def test_lost_access_ends_the_source_when_it_persists(fake_node: FakeNode, nvml: Open, code: int) -> None:
    """All GPUs refuse in three full rounds, though they answered before: a new container gets its files back."""
    fake_node.write(TWO)
    source = await nvml()
    await source.sample()
    for card in TWO:
        fake_node.fail("*", code, gpu=card.uuid)

    for _ in range(2):
        sample = await source.sample()
        assert {(fault.reason, fault.subject) for fault in sample.faults} == {("access_lost", uuid) for uuid in BOTH}
        await source.sample({ONE})  # an early round is no evidence
    with pytest.raises(DriverAccessLostError, match="fix: restart the container"):
        await source.sample()


async def test_lost_access_to_the_process_lists_is_lost_access(fake_node: FakeNode, nvml: Open) -> None:
    """Memory may still be read through files that are open, while each list needs a new one."""
    fake_node.write(TWO)
    source = await nvml()
    await source.sample()
    fake_node.fail("nvmlDeviceGetComputeRunningProcesses", UNKNOWN)

    for _ in range(2):
        assert all(gpu.processes is None and gpu.gpu.memory for gpu in (await source.sample()).samples)
    with pytest.raises(DriverAccessLostError):
        await source.sample()


async def test_one_gpu_without_access_ends_nothing(fake_node: FakeNode, nvml: Open) -> None:
    """While one GPU answers, access is not lost."""
    fake_node.write(TWO)
    source = await nvml()
    await source.sample()
    fake_node.fail("*", UNKNOWN, gpu=FIRST.uuid)

    for _ in range(5):
        assert [gpu.gpu.uuid for gpu in (await source.sample()).samples] == [SECOND.uuid]


async def test_access_that_comes_back_starts_the_count_anew(fake_node: FakeNode, nvml: Open) -> None:
    """Two bad rounds, a good one, two bad ones: nothing persisted."""
    fake_node.write(TWO)
    source = await nvml()
    await source.sample()
    for _ in range(3):
        fake_node.fail("nvmlDeviceGetMemoryInfo", UNKNOWN)
        for _ in range(2):
            assert all(gpu.gpu.memory is None for gpu in (await source.sample()).samples)
        fake_node.clear_switch("fail.nvmlDeviceGetMemoryInfo")
        assert all(gpu.gpu.memory for gpu in (await source.sample()).samples)


async def test_access_that_never_was_is_not_lost(fake_node: FakeNode, nvml: Open) -> None:
    """Where no GPU ever answered, ending would only begin a loop of restarts: the faults stay."""
    fake_node.write(TWO)
    fake_node.fail("nvmlDeviceGetComputeRunningProcesses", UNKNOWN)
    source = await nvml()

    for _ in range(5):
        assert {fault.reason for gpu in (await source.sample()).samples for fault in gpu.faults} == {"access_lost"}


async def test_access_lost_at_initialisation_counts(fake_node: FakeNode, nvml: Open) -> None:
    """A driver that went away and answers "Unknown Error" to each initialisation has locked us out."""
    fake_node.write(TWO)
    source = await nvml()
    await source.sample()
    fake_node.fail("nvmlDeviceGetCount", UNINITIALIZED, times=1)
    fake_node.fail("nvmlInit", UNKNOWN)
    await source.sample()

    for _ in range(2):
        assert [(fault.reason, fault.subject) for fault in (await source.sample()).faults] == [("access_lost", "")]
    with pytest.raises(DriverAccessLostError):
        await source.sample()


# --- at the start -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind", "advice"),
    [
        (NOT_LOADED, DeviceError, "modprobe nvidia"),
        (UNKNOWN, DriverAccessLostError, "/dev/nvidiactl"),
        (OPERATING_SYSTEM, DriverAccessLostError, "/dev/nvidiactl"),
        (NO_PERMISSION, DeviceError, "/dev/nvidiactl"),
        (MISMATCH, DriverReplacedError, "reload the kernel modules"),
        (20, DeviceError, "nvidia-smi"),
    ],
)
async def test_a_driver_that_cannot_be_used_says_what_to_do(
    fake_node: FakeNode, nvml: Open, code: int, kind: type[DeviceError], advice: str
) -> None:
    """At the start a failure ends the daemon, with advice that an operator can follow."""
    fake_node.write(TWO)
    fake_node.fail("nvmlInit", code)

    with pytest.raises(DeviceError, match=advice) as caught:
        await nvml()
    assert type(caught.value) is kind
    until(lambda: "nvml" not in {thread.name for thread in threading.enumerate()}, "the driver thread to end")


def test_a_node_without_the_library_says_what_to_do(program: Program) -> None:
    """No libnvidia-ml.so.1: the message says where it should come from."""
    done = program(
        """
import asyncio
from exporter.devices import DeviceError
from exporter.devices.nvml import NvmlSource
try:
    asyncio.run(NvmlSource.open())
except DeviceError as error:
    print(error)
""",
        environment={},
    )

    assert "libnvidia-ml.so.1" in done.stdout or "NVML Shared Library Not Found" in done.stdout, done.stderr
    assert "runtimeClassName: nvidia" in done.stdout


async def test_a_node_without_gpus_is_a_node_without_gpus(fake_node: FakeNode, nvml: Open) -> None:
    """A driver that counts no GPU (all given to virtual machines) answers: nothing is present, nothing is at fault."""
    fake_node.write([])

    sample = await (await nvml()).sample()

    assert (sample.present, sample.samples, sample.faults) == ({}, (), ())
