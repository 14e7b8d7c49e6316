"""MIG: memory belongs to the GPU instance, and everything is asked of the MIG devices themselves."""

from dataclasses import replace

import pytest

from driver.node import FakeComputeInstance, FakeGpuInstance, FakeNode, FakeProcess, GiB, MiB, gpus
from exporter.devices.nvml.inventory import profile
from exporter.devices.nvml.library import Handle, Library
from exporter.model import DeviceKey, GpuUuid, Memory, Utilization
from sources.nvml import Open, ReadOne

ONE = FakeGpuInstance(1, 5 * GiB, (FakeComputeInstance("MIG-1", slot=0),))
SHARED = FakeGpuInstance(
    2,
    20 * GiB,
    (FakeComputeInstance("MIG-2a", slot=3, id=0), FakeComputeInstance("MIG-2b", slot=5, id=1)),
    profile="1c.3g.20gb",
    slices=3,
)
(CARD,) = gpus(1, mig="on", instances=(ONE, SHARED))
UUID = GpuUuid(CARD.uuid)


async def test_compute_instances_share_the_memory_of_their_gpu_instance(fake_node: FakeNode, read_one: ReadOne) -> None:
    """Two compute instances of one GPU instance are one device: its memory counts once."""
    fake_node.write([replace(CARD, processes=(FakeProcess(5, 4 * GiB, device="MIG-2b"),))])

    gpu = (await read_one()).gpu

    assert gpu.mig
    assert [(gi.id, gi.mig_uuids) for gi in gpu.instances] == [(1, ("MIG-1",)), (2, ("MIG-2a", "MIG-2b"))]
    assert [gi.memory for gi in gpu.instances] == [Memory(5 * GiB, 5 * GiB), Memory(20 * GiB, 16 * GiB)]
    assert [key for key, *_ in gpu.leaves()] == [DeviceKey(UUID, 1), DeviceKey(UUID, 2)]


async def test_processes_are_listed_by_gpu_instance(fake_node: FakeNode, read_one: ReadOne) -> None:
    """A process in two compute instances of one GPU instance is one entry there; in two GPU instances it is two."""
    fake_node.write(
        [
            replace(
                CARD,
                processes=(
                    FakeProcess(5, 1 * GiB, device="MIG-1"),
                    FakeProcess(5, 2 * GiB, device="MIG-2a"),
                    FakeProcess(5, 3 * GiB, device="MIG-2b"),
                ),
            )
        ]
    )

    processes = (await read_one()).processes

    assert processes is not None
    assert [(process.device.gpu_instance, process.pid, process.memory) for process in processes] == [
        (1, 5, 1 * GiB),
        (2, 5, 3 * GiB),
    ]


async def test_the_parent_is_not_asked_for_processes(fake_node: FakeNode, read_one: ReadOne) -> None:
    """The parent's lists need a capability that we do not ask for, and mix the instances: they are left alone."""
    fake_node.write([replace(CARD, processes=(FakeProcess(5, GiB, device="MIG-1"),))])
    fake_node.set_switch("mig_parent", "denied")

    gpu = await read_one()

    assert gpu.faults == ()
    assert gpu.processes is not None
    assert len(gpu.processes) == 1


@pytest.mark.parametrize("empty", [2, 6])
async def test_empty_slots_lie_between_full_ones(fake_node: FakeNode, read_one: ReadOne, empty: int) -> None:
    """An empty slot answers INVALID_ARGUMENT or NOT_FOUND; the slots behind it are looked at."""
    fake_node.write([CARD])
    fake_node.set_switch("mig_empty_slot", empty)

    gpu = await read_one()

    assert [gi.id for gi in gpu.gpu.instances] == [1, 2]
    assert gpu.faults == ()


async def test_a_profile_names_the_gpu_instance(fake_node: FakeNode, read_one: ReadOne) -> None:
    """The profile is that of the GPU instance, also where the MIG device is only a part of it (`1c.3g.20gb`)."""
    fake_node.write([CARD])

    assert [gi.profile for gi in (await read_one()).gpu.instances] == ["1g.5gb", "3g.20gb"]


def test_a_device_whose_name_has_no_profile_is_named_by_its_size() -> None:
    """Where the name does not tell, the profile is made of the compute slices and of the memory in GiB."""

    class Nameless(Library):
        def name(self, _handle: Handle) -> str:
            return "NVIDIA A30"

        def slices(self, _mig_device: Handle) -> tuple[int, int]:
            return 2, 11_968 * MiB

    assert profile(Nameless(lambda _call: None), Handle(object())) == "2g.12gb"


@pytest.mark.fault(30)
async def test_instances_are_read_anew_in_each_round(fake_node: FakeNode, nvml: Open) -> None:
    """MIG may be set up anew at any time, and ids and handles are reused: the UUIDs tell the generations apart."""
    fake_node.write([CARD])
    source = await nvml()
    (before,) = (await source.sample()).samples
    fake_node.write(
        [
            replace(
                CARD,
                instances=(
                    replace(ONE, memory=10 * GiB, profile="1g.10gb", computes=(FakeComputeInstance("MIG-9", slot=0),)),
                ),
            )
        ]
    )

    (after,) = (await source.sample()).samples

    assert [gi.mig_uuids for gi in before.gpu.instances] == [("MIG-1",), ("MIG-2a", "MIG-2b")]
    assert [(gi.id, gi.profile, gi.mig_uuids, gi.memory) for gi in after.gpu.instances] == [
        (1, "1g.10gb", ("MIG-9",), Memory(10 * GiB, 10 * GiB))
    ]


async def test_mig_off_makes_the_gpu_a_leaf_again(fake_node: FakeNode, nvml: Open) -> None:
    """Only the present mode counts, not the pending one."""
    fake_node.write([replace(CARD, mig_pending="off")])
    source = await nvml()
    (on,) = (await source.sample()).samples
    fake_node.write([replace(CARD, mig="off", mig_pending="on", instances=())])
    (off,) = (await source.sample()).samples

    assert (on.gpu.mig, off.gpu.mig) == (True, False)
    assert [key for key, *_ in off.gpu.leaves()] == [DeviceKey(UUID)]


async def test_nothing_is_known_of_utilization_under_mig(fake_node: FakeNode, read_one: ReadOne) -> None:
    """With MIG on, utilization is unknown, of the devices and of the processes: never 0 %."""
    fake_node.write([replace(CARD, processes=(FakeProcess(5, GiB, device="MIG-1", sm=50),))])

    gpu = await read_one()

    assert gpu.utilization is None
    assert gpu.gpu.utilization == Utilization()
    assert {gi.utilization for gi in gpu.gpu.instances} == {Utilization()}


async def test_the_whole_card_is_still_measured(fake_node: FakeNode, read_one: ReadOne) -> None:
    """The physical GPU keeps its memory and its health figures under MIG."""
    fake_node.write([CARD])

    gpu = (await read_one()).gpu

    assert gpu.memory is not None
    assert gpu.memory.total == 40 * GiB
    assert gpu.health.power_watts == 61


async def test_a_gpu_without_instances_has_no_leaves(fake_node: FakeNode, read_one: ReadOne) -> None:
    """MIG on and nothing created yet: no devices, no processes, no fault."""
    fake_node.write([replace(CARD, instances=())])

    gpu = await read_one()

    assert (gpu.gpu.leaves(), gpu.processes, gpu.faults) == ((), (), ())


async def test_instances_that_cannot_be_listed_hide_nobody(fake_node: FakeNode, read_one: ReadOne) -> None:
    """MIG devices that may not be opened (vGPU hosts refuse them) make the processes unknown, and a fault says so."""
    fake_node.write([CARD])
    fake_node.fail("nvmlDeviceGetMigDeviceHandleByIndex", 4)

    gpu = await read_one()

    assert gpu.processes is None
    assert [(fault.reason, fault.incomplete) for fault in gpu.faults] == [("no_permission", True)]


async def test_one_instance_that_fails_leaves_the_memory_of_the_others(fake_node: FakeNode, read_one: ReadOne) -> None:
    """An instance whose lists fail makes the GPU's processes unknown; memory of all instances is reported."""
    fake_node.write([CARD])
    fake_node.fail("nvmlDeviceGetComputeRunningProcesses", 999, gpu="MIG-2b")

    gpu = await read_one()

    assert gpu.processes is None
    assert all(gi.memory for gi in gpu.gpu.instances)
    assert len(gpu.faults) == 1


async def test_instances_that_are_not_told_are_one_fault(fake_node: FakeNode, read_one: ReadOne) -> None:
    """Without the capability mig/monitor no instance has numbers, and one fault says what to do; the GPU is read."""
    fake_node.write([replace(CARD, processes=(FakeProcess(5, GiB, device="MIG-1"),))])
    for function in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetComputeRunningProcesses"):
        fake_node.fail(function, 4, gpu=CARD.uuid)

    gpu = await read_one()

    assert (gpu.processes, gpu.gpu.memory) == (None, None)
    assert [(one.id, one.memory) for one in gpu.gpu.instances] == [(1, None), (2, None)]
    assert gpu.gpu.health.power_watts == 61
    (refused,) = (fault for fault in gpu.faults if fault.incomplete)
    assert (refused.reason, refused.subject) == ("no_permission", CARD.uuid)
    assert "mig/monitor" in refused.message and "nvml.mig" in refused.message


async def test_a_look_at_memory_names_the_instances(fake_node: FakeNode, nvml: Open) -> None:
    """Between rounds, too, memory is that of the GPU instances."""
    fake_node.write([CARD])
    source = await nvml()

    assert await source.memory({UUID}) == {
        DeviceKey(UUID, 1): Memory(5 * GiB, 5 * GiB),
        DeviceKey(UUID, 2): Memory(20 * GiB, 20 * GiB),
    }
