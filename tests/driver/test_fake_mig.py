"""The fake driver's MIG devices, seen through the real pynvml."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from driver.node import (
    FakeComputeInstance,
    FakeGpu,
    FakeGpuInstance,
    FakeNode,
    GiB,
    MiB,
    WorkloadError,
    gpus,
)
from driver.probe import Handle, Probe

COMPUTE = "nvmlDeviceGetComputeRunningProcesses"
NONE = 0xFFFFFFFF
HELD = ("nvmlDeviceGetMemoryInfo", COMPUTE, "nvmlDeviceGetGraphicsRunningProcesses")
"""The calls for a device's memory, and for the processes that hold it."""


def mig_uuid(number: int) -> str:
    return f"MIG-{number:08x}-0000-4000-8000-000000000000"


@pytest.fixture
def card(fake_node: FakeNode) -> FakeGpu:
    """GPU instance 1 with two compute instances in slots 0 and 2, instance 5 with one in slot 4."""
    shared = FakeGpuInstance(
        id=1,
        memory=20 * GiB,
        profile="3g.20gb",
        sms=42,
        slices=3,
        reserved=64 * MiB,
        computes=(
            FakeComputeInstance(mig_uuid(1), slot=0, id=0, sms=14, slices=1),
            FakeComputeInstance(mig_uuid(2), slot=2, id=1, sms=28, slices=2),
        ),
    )
    alone = FakeGpuInstance(id=5, memory=5 * GiB, computes=(FakeComputeInstance(mig_uuid(3), slot=4),))
    gpu = replace(gpus(1)[0], mig="on", instances=(shared, alone))
    fake_node.write([gpu])
    return gpu


def slots(nvml: Probe, parent: Handle) -> dict[int, Handle]:
    found = {}
    for slot in range(nvml.ask("nvmlDeviceGetMaxMigDeviceCount", parent)):
        if nvml.code("nvmlDeviceGetMigDeviceHandleByIndex", parent, slot) is None:
            found[slot] = nvml.ask("nvmlDeviceGetMigDeviceHandleByIndex", parent, slot)
    return found


def test_slots_have_holes(fake_node: FakeNode, nvml: Probe, card: FakeGpu) -> None:
    """Empty slots answer NOT_FOUND, or INVALID_ARGUMENT by switch, and devices come after them."""
    parent = nvml.device(card.uuid)
    assert nvml.ask("nvmlDeviceGetMigMode", parent) == [1, 1]
    assert list(slots(nvml, parent)) == [0, 2, 4]
    assert nvml.code("nvmlDeviceGetMigDeviceHandleByIndex", parent, 1) == 6
    fake_node.set_switch("mig_empty_slot", 2)
    assert nvml.code("nvmlDeviceGetMigDeviceHandleByIndex", parent, 1) == 2
    assert list(slots(nvml, parent)) == [0, 2, 4]


def test_a_mig_device_knows_who_it_is(fake_node: FakeNode, nvml: Probe, card: FakeGpu) -> None:
    """Uuid, ids, name, attributes and parent of a compute instance; the parent is none."""
    parent = nvml.device(card.uuid)
    mig = slots(nvml, parent)[2]
    assert nvml.ask("nvmlDeviceIsMigDeviceHandle", mig) and not nvml.ask("nvmlDeviceIsMigDeviceHandle", parent)
    assert nvml.ask("nvmlDeviceGetUUID", mig) == mig_uuid(2)
    assert (nvml.ask("nvmlDeviceGetGpuInstanceId", mig), nvml.ask("nvmlDeviceGetComputeInstanceId", mig)) == (1, 1)
    assert nvml.ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", mig) == parent
    assert nvml.ask("nvmlDeviceGetName", mig) == f"{card.name} MIG 3g.20gb"
    attributes = nvml.ask("nvmlDeviceGetAttributes", mig)
    assert attributes["multiprocessorCount"] == 28
    assert (attributes["gpuInstanceSliceCount"], attributes["computeInstanceSliceCount"]) == (3, 2)
    assert attributes["memorySizeMB"] == 20 * 1024
    assert nvml.device(mig_uuid(2)) == nvml.device(f"MIG-{card.uuid}/1/1") == mig
    assert nvml.code("nvmlDeviceGetGpuInstanceId", parent) == 2


def test_the_way_from_a_mig_device_to_its_profile(fake_node: FakeNode, nvml: Probe, card: FakeGpu) -> None:
    """As NVIDIA's container toolkit goes it: the instances by their ids, what they are, the profiles of these ids."""
    parent = nvml.device(card.uuid)
    if os.geteuid():
        assert nvml.code("nvmlDeviceGetGpuInstanceById", parent, 1) == 4, "it is for root, says nvml.h"
        return
    gi = nvml.ask("nvmlDeviceGetGpuInstanceById", parent, 1)
    ci = nvml.ask("nvmlGpuInstanceGetComputeInstanceById", gi, 1)
    told = nvml.ask("nvmlGpuInstanceGetInfo", gi)
    assert (told["device"], told["id"], told["profileId"]) == (parent, 1, 9)
    part = nvml.ask("nvmlComputeInstanceGetInfo", ci)
    assert (part["device"], part["gpuInstance"], part["id"], part["profileId"]) == (parent, gi, 1, 1)
    profile = nvml.ask("nvmlDeviceGetGpuInstanceProfileInfo", parent, 2, 1)
    assert (profile["id"], profile["sliceCount"]) == (9, 3)
    profile = nvml.ask("nvmlGpuInstanceGetComputeInstanceProfileInfo", gi, 1, 0, 1)
    assert (profile["id"], profile["sliceCount"]) == (1, 2)
    assert nvml.code("nvmlDeviceGetGpuInstanceById", parent, 2) == 6
    assert nvml.code("nvmlGpuInstanceGetComputeInstanceById", gi, 2) == 6
    assert nvml.code("nvmlDeviceGetGpuInstanceProfileInfo", parent, 7, 1) == 3
    assert nvml.code("nvmlDeviceGetGpuInstanceProfileInfo", parent, 18, 1) == 2
    assert nvml.code("nvmlGpuInstanceGetComputeInstanceProfileInfo", gi, 3, 0, 1) == 3, "four slices of three"
    fake_node.write([replace(card, mig="off", instances=())])
    assert nvml.code("nvmlDeviceGetGpuInstanceById", parent, 1) == 3


def test_compute_instances_share_their_pool(fake_node: FakeNode, nvml: Probe, card: FakeGpu) -> None:
    """MemoryInfo on two CIs of one GI is the same pool; the other GI has its own; the parent has the sum."""
    fake_node.spawn(f"alloc {mig_uuid(1)} {GiB}")
    fake_node.spawn(f"alloc {mig_uuid(2)} {2 * GiB}")
    fake_node.spawn(f"alloc {mig_uuid(3)} {4 * GiB}")
    memory = [nvml.ask("nvmlDeviceGetMemoryInfo", nvml.device(mig_uuid(n)), 0x02000028) for n in (1, 2, 3)]
    assert memory[0] == memory[1]
    assert (memory[0]["total"], memory[0]["used"], memory[0]["reserved"]) == (20 * GiB, 3 * GiB, 64 * MiB)
    assert (memory[2]["total"], memory[2]["used"]) == (5 * GiB, 4 * GiB)
    assert nvml.ask("nvmlDeviceGetMemoryInfo", nvml.device(card.uuid))["used"] == 7 * GiB


def test_a_mig_device_lists_its_own(fake_node: FakeNode, nvml: Probe, card: FakeGpu) -> None:
    """Each CI lists its own processes with both ids; without MIG the ids are 2^32-1."""
    job = fake_node.spawn(f"alloc {mig_uuid(2)} {GiB}")
    (entry,) = nvml.ask(COMPUTE, nvml.device(mig_uuid(2)))
    assert entry == {"pid": job.pid, "usedGpuMemory": GiB, "gpuInstanceId": 1, "computeInstanceId": 1}
    assert nvml.ask(COMPUTE, nvml.device(mig_uuid(1))) == []
    fake_node.write([replace(card, mig="off", instances=())])
    plain = fake_node.spawn("alloc 0 1")
    (entry,) = nvml.ask(COMPUTE, nvml.device(card.uuid))
    assert entry == {"pid": plain.pid, "usedGpuMemory": 1, "gpuInstanceId": NONE, "computeInstanceId": NONE}


def test_the_parent_sums_or_refuses(fake_node: FakeNode, nvml: Probe, card: FakeGpu) -> None:
    """A process in two instances is one entry with one pair of ids and the sum; or NO_PERMISSION by switch."""
    job = fake_node.spawn(f"alloc {mig_uuid(1)} {GiB}", f"alloc {mig_uuid(3)} {2 * GiB}")
    parent = nvml.device(card.uuid)
    (entry,) = nvml.ask(COMPUTE, parent)
    assert (entry["pid"], entry["usedGpuMemory"]) == (job.pid, 3 * GiB)
    assert (entry["gpuInstanceId"], entry["computeInstanceId"]) in ((1, 0), (5, 0))
    fake_node.set_switch("mig_parent", "denied")
    assert nvml.code(COMPUTE, parent) == 4
    assert len(nvml.ask(COMPUTE, nvml.device(mig_uuid(3)))) == 1


def test_there_is_no_utilization_under_mig(fake_node: FakeNode, nvml: Probe, card: FakeGpu) -> None:
    """NOT_SUPPORTED on the parent and on the MIG devices, whatever runs there; health is the parent's only."""
    fake_node.spawn(f"alloc {mig_uuid(1)} 1 compute sm=50")
    parent, mig = nvml.device(card.uuid), nvml.device(mig_uuid(1))
    for question in (
        ("nvmlDeviceGetUtilizationRates", parent),
        ("nvmlDeviceGetUtilizationRates", mig),
        ("nvmlDeviceGetProcessUtilization", parent, 0),
        ("nvmlDeviceGetProcessUtilization", mig, 0),
        ("nvmlDeviceGetEncoderUtilization", mig),
        ("nvmlDeviceGetPowerUsage", mig),
    ):
        assert nvml.code(*question) == 3, question
    assert nvml.ask("nvmlDeviceGetPowerUsage", parent) == card.power_mw


def test_reconfiguration_reuses_ids_and_handles(fake_node: FakeNode, nvml: Probe, card: FakeGpu) -> None:
    """After a reconfiguration the old handle is whatever is in the slot now, with the same ids and another uuid."""
    mig = nvml.device(mig_uuid(1))
    (shared, alone) = card.instances
    renewed = replace(shared, computes=(FakeComputeInstance(mig_uuid(9), slot=0),))
    fake_node.write([replace(card, instances=(renewed, alone))])
    assert nvml.ask("nvmlDeviceGetUUID", mig) == mig_uuid(9)
    assert nvml.ask("nvmlDeviceGetGpuInstanceId", mig) == shared.id
    assert nvml.code("nvmlDeviceGetHandleByUUID", mig_uuid(1).encode()) == 6
    fake_node.write([replace(card, instances=(alone,))])
    assert nvml.code("nvmlDeviceGetUUID", mig) == 6


def test_mig_modes(fake_node: FakeNode, nvml: Probe) -> None:
    """Without MIG: NOT_SUPPORTED and no slots. Off with a change pending: (0, 1)."""
    none, pending = gpus(2)
    none, pending = replace(none, mig="unsupported"), replace(pending, mig="off", mig_pending="on")
    fake_node.write([none, pending])
    assert nvml.code("nvmlDeviceGetMigMode", nvml.device(none.uuid)) == 3
    assert nvml.ask("nvmlDeviceGetMaxMigDeviceCount", nvml.device(none.uuid)) == 0
    assert nvml.ask("nvmlDeviceGetMigMode", nvml.device(pending.uuid)) == [0, 1]
    assert slots(nvml, nvml.device(pending.uuid)) == {}


def test_an_instance_is_full_when_its_pool_is(fake_node: FakeNode, nvml: Probe, card: FakeGpu) -> None:
    """Out of memory counts the pool of the GPU instance, reserved included, over both of its compute instances."""
    job = fake_node.spawn(f"alloc {mig_uuid(1)} {19 * GiB}")
    other = fake_node.spawn()
    with pytest.raises(WorkloadError, match="out of memory"):
        other.alloc(mig_uuid(2), GiB)
    assert other.alloc(mig_uuid(2), GiB - 64 * MiB).total == GiB - 64 * MiB
    with pytest.raises(WorkloadError, match="MIG is on"):
        job.alloc(0, 1)


@pytest.mark.parametrize(
    ("device", "told"), [(None, ()), ("nvidia-cap7", ()), ("nvidia-cap12", (1,)), ("nvidia-cap2", (1, 3))]
)
def test_a_guarded_gpu_tells_who_can_open_the_device(
    fake_node: FakeNode, nvml: Probe, tmp_path: Path, card: FakeGpu, *, device: str | None, told: tuple[int, ...]
) -> None:
    """
    Without mig/monitor, NO_PERMISSION answers for memory and lists, of one instance and of all. All else is answered.

    A process that can open an instance's own device gets that instance's answers. Of gpu0/gi1/access it is the twelfth.
    """
    (plain,) = gpus(2)[1:]
    fake_node.write([card, plain])
    fake_node.set_switch("mig_monitor", 2)
    (tmp_path / "nvidia-caps").mkdir()
    if device:
        (tmp_path / "nvidia-caps" / device).touch()
    with nvml.variable("FAKE_NVML_CAPABILITIES", tmp_path / "nvidia-caps"):
        for number in (1, 3):
            expected = None if number in told else 4
            assert {nvml.code(question, nvml.device(mig_uuid(number))) for question in HELD} == {expected}
        expected = None if device == "nvidia-cap2" else 4
        assert {nvml.code(question, nvml.device(card.uuid)) for question in HELD} == {expected}
        assert {nvml.code(question, nvml.device(plain.uuid)) for question in HELD} == {None}
        assert nvml.ask("nvmlDeviceGetGpuInstanceId", nvml.device(mig_uuid(3))) == 5
        assert nvml.ask("nvmlDeviceGetPowerUsage", nvml.device(card.uuid)) == card.power_mw
