"""What each vendor's library says arrives in our units, on the right device, and nothing that it did not say."""

import os
from dataclasses import replace

import pytest

from exporter.devices import DevicesSample
from exporter.model import DeviceKey, GpuUuid, Memory
from libraries.fake import FakeDevice, FakePart, FakeProcess, GiB, MiB
from libraries.fixtures import Install, Open

NVML_LIKE = ("ixml", "ixml-v3", "efml", "mxsml", "xpuml", "hgml")
VENDORS = {"ixml": "iluvatar", "efml": "enflame", "mxsml": "metax", "xpuml": "kunlunxin", "hgml": "t-head"}
DIE = "E0F4EE64-802061B1-6A691492-89528485-104301E3"
DEVICE = FakeDevice(0, "GPU-3fd4ee8f", processes=(FakeProcess(4001, GiB), FakeProcess(4002, 3 * GiB)))


def held(sample: DevicesSample, place: int = 0) -> dict[int, int | None]:
    """Give pid to bytes of one device."""
    processes = sample.samples[place].processes
    assert processes is not None
    return {process.pid: process.memory for process in processes}


@pytest.mark.parametrize("variant", NVML_LIKE)
async def test_a_library_of_nvmls_shape_is_read(variant: str, install: Install, sources: Open) -> None:
    """
    Memory, its holders, how busy, power and temperature are read, of the right vendor.

    That is so also where fields stand at other places.
    """
    library = install(variant)
    busy = replace(DEVICE, busy=42, memory_busy=7, minor=5)
    library.write(
        busy, replace(busy, index=1, uuid="GPU-other", pci="0000:5e:00.0", processes=()), knobs={"power": 71_500}
    )

    sample = await sources(library).sample()

    first, second = sample.samples
    assert first.gpu.vendor == VENDORS[library.name]
    assert first.gpu.memory == Memory(32 * GiB, 24 * GiB)
    assert (first.gpu.utilization.busy, first.gpu.utilization.memory_controller) == (0.42, 0.07)
    assert (first.gpu.health.power_watts, first.gpu.health.temperature_celsius) == (71.5, 36.0)
    assert (first.gpu.pci_bus_id, first.gpu.driver_version) == ("0000:3b:00.0", "4.1.3")
    assert held(sample) == {4001: GiB, 4002: 3 * GiB}
    assert second.processes == ()  # asked, and no process is there
    assert sample.present == {first.gpu.uuid: 0, second.gpu.uuid: 1}
    assert (sample.faults, first.faults, second.faults) == ((), (), ())


async def test_a_device_without_a_uuid_is_named_by_its_place(install: Install, sources: Open) -> None:
    """Enflame's library of NVML's shape has no UUID: its place on the bus names it."""
    library = install("efml")
    library.write(DEVICE)

    assert (await sources(library).sample()).present == {GpuUuid("enflame-0000:3b:00.0"): 0}


async def test_enflames_older_half_names_a_device_where_both_mean_the_same(install: Install, sources: Open) -> None:
    """Its UUID is what the device plugin's ids are; where the two halves count differently, none is believed."""
    library = install("efml-uuid")
    two = (DEVICE, replace(DEVICE, index=1, uuid="GCU-2", pci="0000:5e:00.0", processes=()))
    library.write(*two)
    assert (await sources(library).sample()).present == {GpuUuid(DEVICE.uuid): 0, GpuUuid("GCU-2"): 1}

    library.write(*two, knobs={"reversed": 1})
    assert list((await sources(library).sample()).present) == ["enflame-0000:3b:00.0", "enflame-0000:5e:00.0"]

    library.write(*two, fail={"EfmlGetDevUuid": 1})
    answer = await sources(library).sample()
    assert (answer.samples, [fault.reason for fault in answer.faults]) == ((), ["driver_error"] * 2)


@pytest.mark.parametrize("variant", ["ixml-v3", "hgml"])
async def test_what_is_reserved_is_not_used(variant: str, install: Install, sources: Open) -> None:
    """Where the library reports what is reserved, that does not count as used."""
    library = install(variant)
    library.write(replace(DEVICE, reserved=GiB))

    (sample,) = (await sources(library).sample()).samples

    assert sample.gpu.memory == Memory(32 * GiB, 24 * GiB, GiB)


async def test_enflames_memory_is_not_read_in_nvmls_order(install: Install, sources: Open) -> None:
    """Row 55: free at 16, used at 24, reserved at 32; total = reserved + used + free."""
    library = install("efml")
    for version in (2, 0x02000028):
        library.write(replace(DEVICE, free=20 * GiB, used=11 * GiB, reserved=GiB), knobs={"memory_version": version})

        (sample,) = (await sources(library).sample()).samples

        assert sample.gpu.memory == Memory(32 * GiB, 20 * GiB, GiB)
        assert sample.gpu.memory.used == 11 * GiB


async def test_an_older_form_of_the_memory_call_is_good_enough(install: Install, sources: Open) -> None:
    """A version of the structure that the library does not take is passed over: then reserved counts as used."""
    library = install("hgml")
    library.write(replace(DEVICE, reserved=GiB), knobs={"memory_version": 7})

    (sample,) = (await sources(library).sample()).samples

    assert sample.gpu.memory == Memory(32 * GiB, 24 * GiB)
    assert sample.faults == ()


async def test_iluvatars_second_entry_is_read_where_it_stands(install: Install, sources: Open) -> None:
    """Row 52: 16 bytes an entry through the old call; 24, or 32 with protected memory, through the new one."""
    for variant, sizes in {"ixml": (16, 24, 32), "ixml-v3": (24, 32)}.items():
        library = install(variant)
        for size in sizes:
            library.write(DEVICE, knobs={"entry": size})
            assert held(await sources(library).sample()) == {4001: GiB, 4002: 3 * GiB}, (variant, size)


async def test_kunlunxins_number_on_the_host_is_believed_before_the_other(install: Install, sources: Open) -> None:
    """Row 56: the number in the initial namespace counts where there is one; the caller itself holds nothing."""
    library = install("xpuml")
    inside = (FakeProcess(7, GiB, host_pid=4001), FakeProcess(8, 2 * GiB, host_pid=4002))
    library.write(replace(DEVICE, processes=(*inside, FakeProcess(os.getpid(), 0))))

    sample = await sources(library).sample()

    assert held(sample) == {4001: GiB, 4002: 2 * GiB}
    assert sample.samples[0].pids_proven  # says the library


async def test_of_metaxs_older_list_only_the_place_of_this_gpu_counts(install: Install, sources: Open) -> None:
    """Row 54: a process that is on two GPUs has a place for each in one entry of 3144 bytes; they are not added."""
    library = install("mxsml-own")
    both = FakeProcess(4002, 3 * GiB)
    library.write(
        replace(DEVICE, processes=(FakeProcess(4001, GiB), both)),
        replace(DEVICE, index=1, uuid="GPU-other", pci="0000:5e:00.0", processes=(replace(both, memory=5 * GiB),)),
    )

    sample = await sources(library).sample()

    assert held(sample) == {4001: GiB, 4002: 3 * GiB}
    assert held(sample, 1) == {4002: 5 * GiB}
    assert not sample.samples[0].pids_proven
    assert [one.faults for one in sample.samples] == [(), ()]


async def test_a_list_grows_beyond_its_room(install: Install, sources: Open) -> None:
    """The library says how many there are, and is asked again with room for them."""
    for variant in ("hgml", "cndev"):
        library = install(variant)
        library.write(replace(DEVICE, processes=tuple(FakeProcess(pid, MiB) for pid in range(1, 601))))

        assert len(held(await sources(library).sample())) == 600


# --- Ascend ---


async def test_ascend_is_read(install: Install, sources: Open) -> None:
    """HBM in MiB, bytes by process on the host, named by its die; cards keep their numbers when one is missing."""
    library = install("dcmi")
    processes = (FakeProcess(4001, GiB), FakeProcess(4002, 3 * GiB))
    library.write(
        FakeDevice(0, DIE, "910B2", 64 * GiB, 60 * GiB, card=0, minor=4, busy=55, processes=processes),
        FakeDevice(1, DIE.replace("E0F4", "E281"), "910B2", 64 * GiB, 64 * GiB, card=3, minor=7, pci="0000:c1:00.0"),
        knobs={"mcus": 1},  # each card has something that is no NPU
    )

    sample = await sources(library).sample()

    first, second = sample.samples
    assert (first.gpu.uuid, first.gpu.vendor, first.gpu.model) == (DIE, "huawei", "Ascend 910B2")
    assert (first.gpu.minor, second.gpu.minor, second.gpu.pci_bus_id) == (4, 7, "0000:c1:00.0")
    assert first.gpu.memory == Memory(64 * GiB, 60 * GiB)
    assert (first.gpu.utilization.busy, first.gpu.health.power_watts) == (0.55, 101.3)
    assert held(sample) == {4001: GiB, 4002: 3 * GiB}
    assert first.pids_proven
    assert first.utilization is None  # of a process, Ascend never says
    assert sample.faults == first.faults == second.faults == ()


async def test_thirty_two_entries_may_be_a_list_that_was_cut(install: Install, sources: Open) -> None:
    """Row 50: the driver writes 32 entries whatever we ask; so many may hide a process, so no process is counted."""
    library = install("dcmi")
    for count, cut in ((31, False), (32, True), (40, True)):
        library.write(FakeDevice(0, DIE, processes=tuple(FakeProcess(pid, MiB) for pid in range(1, count + 1))))

        (sample,) = (await sources(library).sample()).samples

        assert (sample.processes is None) is cut
        assert [(fault.reason, fault.incomplete) for fault in sample.faults] == [("processes_cut", True)] * cut


async def test_a_busy_figure_of_ascend_that_is_none_is_unknown(install: Install, sources: Open) -> None:
    """While a profiler runs, the driver says 0xEF: that is no ratio."""
    library = install("dcmi")
    for percent, ratio in ((0xEF, None), (0xFFFFFFFF, None), (100, 1.0), (0, 0.0)):
        library.write(FakeDevice(0, DIE, busy=percent))

        assert (await sources(library).sample()).samples[0].gpu.utilization.busy == ratio


async def test_an_ascend_without_hbm_has_its_memory(install: Install, sources: Open) -> None:
    """A 310P has no HBM: size and available of version 3; a percentage alone (version 2) is no figure, and no 0."""
    library = install("dcmi")
    no_hbm = {"dcmi_get_device_hbm_info": -8255}
    library.write(FakeDevice(0, DIE, total=24 * GiB, free=20 * GiB), fail=no_hbm)
    assert (await sources(library).sample()).samples[0].gpu.memory == Memory(24 * GiB, 20 * GiB)

    library.write(FakeDevice(0, DIE), fail={**no_hbm, "dcmi_get_device_memory_info_v3": -8255})
    (sample,) = (await sources(library).sample()).samples
    assert sample.gpu.memory is None
    assert sample.faults == ()


@pytest.mark.parametrize(
    ("code", "incomplete"), [(-8255, False), (-8013, False), (-8012, True), (-8006, True), (-8017, True)]
)
async def test_only_two_codes_of_ascend_mean_never(
    code: int, incomplete: bool, install: Install, sources: Open
) -> None:
    """Not supported and not in a container are facts; not ready, timeout and upgrading are faults of this round."""
    library = install("dcmi")
    library.write(FakeDevice(0, DIE), fail={"dcmi_get_device_resource_info": code})

    (sample,) = (await sources(library).sample()).samples

    assert sample.processes is None
    assert [fault.incomplete for fault in sample.faults] == [incomplete]
    assert sample.gpu.memory is not None


async def test_the_parts_of_a_divided_ascend_are_the_leaf_devices(install: Install, sources: Open) -> None:
    """Each vNPU has its template and its memory; whose it is, and how busy the whole is, is not known, and not 0."""
    library = install("dcmi")
    parts = (FakePart(100, "vir04", 8 * GiB, 5 * GiB), FakePart(101, "vir02", 4 * GiB, 4 * GiB))
    library.write(FakeDevice(0, DIE, busy=80, processes=(FakeProcess(4001, GiB),), parts=parts))

    (sample,) = (await sources(library).sample()).samples

    assert [key.gpu_instance for key, _, _ in sample.gpu.leaves()] == [100, 101]
    assert [(one.profile, one.memory) for one in sample.gpu.instances] == [
        ("vir04", Memory(8 * GiB, 5 * GiB)),
        ("vir02", Memory(4 * GiB, 4 * GiB)),
    ]
    assert (sample.processes, sample.gpu.utilization.busy) == (None, None)
    assert await sources(library).memory({GpuUuid(DIE)}) == {
        DeviceKey(GpuUuid(DIE), 100): Memory(8 * GiB, 5 * GiB),
        DeviceKey(GpuUuid(DIE), 101): Memory(4 * GiB, 4 * GiB),
    }


async def test_a_divided_ascend_does_not_become_whole_by_a_fault(install: Install, sources: Open) -> None:
    """While the driver does not say how it is divided, it does not answer: its processes are not on the whole of it."""
    library = install("dcmi")
    device = FakeDevice(0, DIE, processes=(FakeProcess(4001, GiB),), parts=(FakePart(100, "vir04", 8 * GiB, 5 * GiB),))
    library.write(device)
    source = sources(library)
    before = await source.sample()
    library.write(device, fail={"dcmi_get_device_info": -8006})

    sample = await source.sample()

    assert (sample.present, sample.samples) == (before.present, ())
    assert [(fault.reason, fault.subject) for fault in sample.faults] == [("driver_error", DIE)]
    library.write(replace(device, parts=()))
    assert held(await source.sample()) == {4001: GiB}


# --- Cambricon ---


@pytest.mark.parametrize("version", [6, 5])
async def test_cambricon_is_read(version: int, install: Install, sources: Open) -> None:
    """Row 51: device memory in MiB, that of a process in KiB; named as its device plugin does; also in version 5."""
    library = install("cndev")
    processes = (FakeProcess(4001, 1024 * 1024, busy=30), FakeProcess(4002, 3 * GiB))
    library.write(
        FakeDevice(
            0, "00000000-0000-0000-0000-000012345678", "MLU590", 80 * GiB, 70 * GiB, busy=65, processes=processes
        ),
        knobs={"version": version},
    )

    sample = await sources(library).sample()

    (mlu,) = sample.samples
    assert (mlu.gpu.uuid, mlu.gpu.vendor) == ("MLU-00000000-0000-0000-0000-000012345678", "cambricon")
    assert mlu.gpu.model == "Cambricon MLU590"
    assert mlu.gpu.memory == Memory(80 * GiB, 70 * GiB)
    assert held(sample) == {4001: MiB, 4002: 3 * GiB}
    assert mlu.utilization is not None
    assert [(each.pid, each.sm) for each in mlu.utilization] == [(4001, 0.3), (4002, 0.0)]
    assert (mlu.gpu.utilization.busy, mlu.gpu.pci_bus_id, mlu.pids_proven) == (0.65, "0000:3b:00.0", True)
    assert sample.faults == mlu.faults == ()


# --- Moore Threads ---


async def test_moore_threads_has_device_totals_and_no_bytes_of_processes(install: Install, sources: Open) -> None:
    """Row 58: no symbol for a process's memory; without a node to look for, the processes are unknown, not absent."""
    library = install("mtml")
    library.write(FakeDevice(0, "a8bc-77", "MTT S5000", 80 * GiB, 60 * GiB, busy=12))

    (sample,) = (await sources(library).sample()).samples

    assert (sample.gpu.vendor, sample.gpu.model) == ("mthreads", "MTT S5000")
    assert sample.gpu.memory == Memory(80 * GiB, 60 * GiB)
    assert (sample.gpu.utilization.busy, sample.gpu.health.power_watts) == (0.12, 250.0)
    assert sample.processes is None
    assert sample.faults == ()  # it is said once, by `check`


# --- Hygon ---


async def test_hygon_is_read(install: Install, sources: Open) -> None:
    """Row 57: a process on one device has bytes; for a process on several, the bytes on each are unknown."""
    library = install("rsmi")
    first = FakeDevice(0, "2a4f00c1", "K100_AI", 64 * GiB, 50 * GiB, busy=33, processes=(FakeProcess(4001, 5 * GiB),))
    both = FakeProcess(4002, 3 * GiB)
    library.write(
        replace(first, processes=(*first.processes, both)),
        replace(first, index=1, uuid="none", pci="0000:5e:00.0", processes=(both,)),
    )

    sample = await sources(library).sample()

    one, other = sample.samples
    assert (one.gpu.uuid, one.gpu.vendor, one.gpu.model) == ("hygon-000000002a4f00c1", "hygon", "K100_AI")
    assert (other.gpu.uuid, other.gpu.pci_bus_id) == ("hygon-0000:5e:00.0", "0000:5e:00.0")
    assert one.gpu.memory == Memory(64 * GiB, 50 * GiB)
    assert (one.gpu.health.power_watts, one.gpu.health.temperature_celsius) == (112.0, 48.0)
    assert held(sample) == {4001: 5 * GiB, 4002: None}
    assert held(sample, 1) == {4002: None}
    assert one.pids_proven and one.gpu.utilization.busy == 0.33
    assert sample.faults == one.faults == other.faults == ()


async def test_of_hygon_who_has_ended_meanwhile_is_not_listed(install: Install, sources: Open) -> None:
    """A process that is in the list and on no device any more is left out, and that is no fault."""
    library = install("rsmi")
    library.write(FakeDevice(0, "1", processes=(FakeProcess(4001, GiB),)), fail={"rsmi_compute_process_gpus_get": 10})

    (sample,) = (await sources(library).sample()).samples

    assert (sample.processes, sample.faults) == ((), ())


async def test_of_hygon_without_devices_of_processes_nobody_is_known(install: Install, sources: Open) -> None:
    """A library that cannot say on which devices a process is does not make the devices free."""
    library = install("rsmi")
    library.write(FakeDevice(0, "1", processes=(FakeProcess(4001, GiB),)), fail={"rsmi_compute_process_gpus_get": 2})

    assert (await sources(library).sample()).samples[0].processes is None
