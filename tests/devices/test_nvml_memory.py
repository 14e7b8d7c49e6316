"""Device memory: used is total - free - reserved, whichever way the driver counts."""

import pytest

from driver.node import FakeNode, FakeProcess, GiB, MiB, Variant, gpus
from exporter.model import DeviceKey, GpuUuid, Memory
from sources.nvml import Open, Probe, ReadOne


@pytest.mark.parametrize("reserved_in_used", [False, True])
async def test_used_does_not_depend_on_how_the_driver_counts(
    fake_node: FakeNode, read_one: ReadOne, reserved_in_used: bool
) -> None:
    """Drivers differ in whether their own `used` includes what they reserve; ours never does."""
    fake_node.write(gpus(1, total=40 * GiB, reserved=600 * MiB, processes=(FakeProcess(5, 3 * GiB),)))
    if reserved_in_used:
        fake_node.set_switch("reserved_in_used")

    memory = (await read_one()).gpu.memory

    assert memory == Memory(total=40 * GiB, free=37 * GiB - 600 * MiB, reserved=600 * MiB)
    assert memory.used == 3 * GiB


def test_an_old_driver_does_not_tell_what_it_reserves(fake_node: FakeNode, probe: Probe) -> None:
    """Without version 2 of the call, what the driver reserves is part of used, and total - free still holds."""
    fake_node.write(gpus(1, total=16 * GiB, reserved=512 * MiB, processes=(FakeProcess(5, GiB),)))

    (gpu,) = probe(Variant.ANCIENT).samples

    assert gpu.gpu.memory == Memory(total=16 * GiB, free=15 * GiB - 512 * MiB, reserved=0)
    assert gpu.gpu.memory.used == GiB + 512 * MiB


async def test_a_driver_that_refuses_version_2_is_asked_for_version_1(fake_node: FakeNode, read_one: ReadOne) -> None:
    """A library that has the newer call but does not know our version of its structure is read by the older call."""
    fake_node.write(gpus(1, total=16 * GiB, reserved=GiB))
    fake_node.fail("nvmlDeviceGetMemoryInfo_v2", 25)

    assert (await read_one()).gpu.memory == Memory(total=16 * GiB, free=15 * GiB, reserved=0)


async def test_a_gpu_without_memory_of_its_own_has_none(fake_node: FakeNode, read_one: ReadOne) -> None:
    """GB10 has no framebuffer but the host's: its memory is unknown, its processes are not, and nothing is at fault."""
    fake_node.write(gpus(1, total=None, processes=(FakeProcess(5, GiB),)))

    gpu = await read_one()

    assert (gpu.gpu.memory, gpu.gpu.unified) == (None, True)
    assert gpu.processes is not None
    assert [process.memory for process in gpu.processes] == [GiB]
    assert gpu.faults == ()


async def test_memory_that_cannot_be_read_is_a_fault(fake_node: FakeNode, read_one: ReadOne) -> None:
    """A refusal makes memory unknown and the round incomplete; the processes are still listed."""
    fake_node.write(gpus(1, processes=(FakeProcess(5, GiB),)))
    fake_node.fail("nvmlDeviceGetMemoryInfo", 4)

    gpu = await read_one()

    assert (gpu.gpu.memory, gpu.gpu.unified) == (None, False)
    assert gpu.processes is not None
    assert [(fault.reason, fault.incomplete) for fault in gpu.faults] == [("no_permission", True)]


async def test_a_look_at_memory_asks_for_nothing_else(fake_node: FakeNode, nvml: Open) -> None:
    """Between rounds the memory of some GPUs is read without the lists, which stall applications."""
    cards = gpus(3, total=10 * GiB, processes=(FakeProcess(5, GiB),))
    fake_node.write(cards)
    source = await nvml()
    fake_node.reset_calls()
    asked = {GpuUuid(cards[0].uuid), GpuUuid(cards[2].uuid)}

    memory = await source.memory(asked)

    assert memory == {DeviceKey(uuid): Memory(10 * GiB, 9 * GiB) for uuid in asked}
    assert not [name for name in fake_node.all_calls() if "RunningProcesses" in name or "Utilization" in name]
    assert fake_node.calls("nvmlDeviceGetMemoryInfo") == 2


async def test_a_look_at_memory_leaves_out_what_does_not_answer(fake_node: FakeNode, nvml: Open) -> None:
    """A lost GPU is missing from the answer; the others are there."""
    cards = gpus(2)
    fake_node.write(cards)
    lost, well = (GpuUuid(card.uuid) for card in cards)
    source = await nvml()
    fake_node.fail("nvmlDeviceGetMemoryInfo", 15, gpu=lost)

    assert set(await source.memory({lost, well})) == {DeviceKey(well)}
