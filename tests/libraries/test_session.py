"""A library that hangs, is lost, comes late or is not there: the others go on, and it comes back by itself."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.devices import DeviceError
from exporter.devices import vendor_libs as package
from exporter.devices.open_nodes import OpenNodes
from exporter.devices.session import LibrarySource
from exporter.model import Collector, GpuUuid, Memory
from exporter.model.vendors import VENDOR
from libraries.fake import FakeDevice, FakeProcess, GiB
from libraries.fixtures import Install, Open

DEVICE = FakeDevice(0, "GPU-1", processes=(FakeProcess(4001, GiB),))
ONE = GpuUuid("GPU-1")
HANGING = {
    "hgml": "DeviceGetMemoryInfo_v2",
    "dcmi": "dcmi_get_device_hbm_info",
    "cndev": "cndevGetMemoryUsageV2",
    "mtml": "mtmlMemoryGetTotal",
}


@pytest.mark.parametrize("variant", HANGING)
async def test_a_hanging_call_is_a_fault_when_the_deadline_is_over(
    variant: str, install: Install, sources: Open
) -> None:
    """The round ends, its fault names the call, and devices that were known stay present; later it answers again."""
    library = install(variant)
    library.write(replace(DEVICE, uuid="1-2-3-4-5"))
    source = sources(library, deadline=0.2)
    present = await first(source)
    library.hang(HANGING[variant])

    async with asyncio.timeout(10):
        sample = await source.sample()

    assert (sample.present, sample.samples) == (present, ())
    (fault,) = sample.faults
    assert (fault.reason, fault.subject, fault.incomplete) == ("driver_hung", "", True)
    assert f"{HANGING[variant]} has not returned within" in fault.message
    assert await source.memory(present) == {}

    library.release()
    assert await first(source) == present


@pytest.mark.parametrize(
    ("variant", "collector", "function"),
    [
        ("hgml", Collector.POWER, "DeviceGetPowerUsage"),
        ("hgml", Collector.TEMPERATURE, "DeviceGetTemperature"),
        ("dcmi", Collector.POWER, "dcmi_get_device_power_info"),
        ("mtml", Collector.TEMPERATURE, "mtmlGpuGetTemperature"),
        ("rsmi", Collector.UTILIZATION, "rsmi_dev_busy_percent_get"),
    ],
)
async def test_a_call_that_hangs_is_avoided_without_its_collector(
    variant: str, collector: Collector, function: str, install: Install, sources: Open
) -> None:
    """With the collector off, the function is not called, and all else is read."""
    library = install(variant)
    library.write(replace(DEVICE, uuid="1-2-3-4-5"))
    library.hang(function)

    (sample,) = (await sources(library, off=frozenset({collector})).sample()).samples

    assert sample.gpu.memory is not None and not sample.faults


async def first(source: LibrarySource) -> dict[GpuUuid, int]:
    """Ask until it does not hang: the first start of a thread may take longer than these short deadlines."""
    async with asyncio.timeout(10):
        while True:
            sample = await source.sample()
            if not any(fault.reason == "driver_hung" for fault in sample.faults):
                return dict(sample.present)
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("variant", ["hgml", "mxsml", "cndev", "dcmi", "mtml", "rsmi"])
async def test_a_driver_that_goes_comes_back(variant: str, install: Install, sources: Open) -> None:
    """Without its driver the source says so and keeps whom it knew; with it, it resumes, and asks ever less often."""
    library = install(variant)
    device = replace(DEVICE, uuid="1-2-3-4-5")
    library.write(device)
    now = [0.0]
    source = sources(library, monotonic=lambda: now[0])
    present = (await source.sample()).present
    assert present
    library.unload_driver()

    for _ in range(3):
        sample = await source.sample()
        assert sample.present == present
        assert [fault.incomplete for fault in sample.faults] == [True]
        assert not sample.samples
    library.write(device)
    now[0] = 100.0
    async with asyncio.timeout(10):
        while (await source.sample()).faults:
            now[0] += 100.0

    assert (await source.sample()).present == present


async def test_a_library_whose_driver_is_not_loaded_yet_is_no_end(install: Install, sources: Open) -> None:
    """It is asked again after a second, then two, four, a minute at most; not in every round."""
    library = install("hgml")
    library.unload_driver()
    now = [0.0]
    source = sources(library, monotonic=lambda: now[0])
    assert [fault.reason for fault in (await source.sample()).faults] == ["library_gone"]
    library.write(DEVICE)

    assert [fault.reason for fault in (await source.sample()).faults] == ["library_gone"]  # not yet time
    now[0] = 1.0
    assert (await source.sample()).present == {ONE: 0}


async def test_a_lost_device_leaves_the_others(install: Install, sources: Open) -> None:
    """One device that fell off the bus is a fault of its own; the other one answers."""
    library = install("hgml")
    library.write(DEVICE, replace(DEVICE, index=1, uuid="GPU-2"))
    source = sources(library)
    before = (await source.sample()).present
    library.write(DEVICE, replace(DEVICE, index=1, uuid="GPU-2"), fail={"DeviceGetMemoryInfo_v2": 15})

    sample = await source.sample()

    assert sample.present == before
    assert [(fault.reason, fault.subject) for fault in sample.faults] == [("gpu_lost", "GPU-1"), ("gpu_lost", "GPU-2")]


async def test_chips_of_one_board_are_told_apart(install: Install, sources: Open) -> None:
    """Two devices of one serial number are two: their places on the bus are part of their names."""
    library = install("xpuml")
    library.write(DEVICE, replace(DEVICE, index=1, pci="0000:5e:00.0"))

    source = sources(library)

    sample = await source.sample()

    assert list(sample.present) == ["GPU-1-0000:3b:00.0", "GPU-1-0000:5e:00.0"]
    assert [one.gpu.index for one in sample.samples] == [0, 1]
    library.write(replace(DEVICE, pci="0000:5e:00.0"))
    assert list((await source.sample()).present) == ["GPU-1-0000:5e:00.0"]  # and keep their names


async def test_a_number_may_be_another_device_when_one_has_gone(install: Install, sources: Open) -> None:
    """Devices are named anew when there are more or fewer than before: the index of one that went is free."""
    library = install("hgml")
    library.write(DEVICE, replace(DEVICE, index=1, uuid="GPU-2"))
    source = sources(library)
    await source.sample()
    library.write(replace(DEVICE, uuid="GPU-2"))

    assert (await source.sample()).present == {GpuUuid("GPU-2"): 0}


async def test_a_handle_does_not_outlive_its_device(install: Install, sources: Open) -> None:
    """Where handles are kept (MTML), an index that names another device now is opened anew; the dead one is let be."""
    library = install("mtml")
    other = replace(DEVICE, index=1, uuid="GPU-2", free=GiB)
    library.write(DEVICE, other)
    source = sources(library)
    await source.sample()
    library.write(replace(other, index=0))

    sample = await source.sample()

    assert (sample.present, sample.faults) == ({GpuUuid("GPU-2"): 0}, ())
    assert [(one.gpu.uuid, one.gpu.memory) for one in sample.samples] == [("GPU-2", Memory(32 * GiB, GiB))]


async def test_chips_that_nothing_tells_apart_are_nobody(install: Install, sources: Open) -> None:
    """One serial number and no place on the bus: a fault, and no figure under a name that two could have."""
    library = install("xpuml")
    third = replace(DEVICE, index=2, uuid="GPU-3")
    library.write(DEVICE, replace(DEVICE, index=1), third, fail={"DeviceGetPciInfo": 3})
    source = sources(library)

    sample = await source.sample()

    assert sample.present == {GpuUuid("GPU-3"): 2}
    assert [one.gpu.uuid for one in sample.samples] == ["GPU-3"]
    (fault,) = sample.faults
    assert (fault.subject, fault.incomplete) == ("GPU-1", True)
    assert "XPU 0, 1: several have the name GPU-1" in fault.message
    library.write(DEVICE, replace(third, index=1), fail={"DeviceGetPciInfo": 3})
    assert list((await source.sample()).present) == ["GPU-3"], "which of the two it is nobody knows"
    library.write(DEVICE, replace(DEVICE, index=1), replace(DEVICE, index=2, pci="0000:5e:00.0"))
    assert list((await source.sample()).present) == ["GPU-1-0000:5e:00.0"], "a place that two have tells nobody apart"


async def test_only_who_is_asked_for_is_read(install: Install, sources: Open) -> None:
    """An early round reads the devices that moved; memory alone is there for looks in between."""
    library = install("mxsml")
    library.write(DEVICE, replace(DEVICE, index=1, uuid="GPU-2", free=GiB))
    source = sources(library)

    sample = await source.sample({GpuUuid("GPU-2")})

    assert [one.gpu.uuid for one in sample.samples] == ["GPU-2"]
    assert list(sample.present) == ["GPU-1", "GPU-2"]
    found = await source.memory({GpuUuid("GPU-2")})
    assert list(found.values()) == [Memory(32 * GiB, GiB)]


async def test_only_libraries_that_are_there_are_sources(tmp_path: Path) -> None:
    """A library that is not there is passed over, unless it was asked for by name: then the error says what to do."""
    arguments = {"clock": lambda: 0.0, "monotonic": lambda: 0.0, "host_root": tmp_path}
    assert await package.present(**arguments, wanted=None) == ()  # type: ignore[arg-type]
    assert await package.present(**arguments, wanted={"nvml", "drm"}) == ()  # type: ignore[arg-type]
    with pytest.raises(DeviceError, match=r"rsmi cannot be used: none of the kernel modules hycu, hydcu is loaded"):
        await package.present(**arguments, wanted={"rsmi"})  # type: ignore[arg-type]
    with pytest.raises(DeviceError, match=r"devices: dcmi cannot be used: .*libdcmi\.so.*mount its library"):
        await package.present(**arguments, wanted={"dcmi"})  # type: ignore[arg-type]


def test_of_every_vendor_it_is_said_what_is_never_told() -> None:
    """`check` names for each what is unknown by design, so that a user does not take its absence for a fault."""
    for name, library in package.LIBRARIES.items():
        reader = package.reader(library, lambda _: None, OpenNodes(Path("/proc"), Path("/dev"), library.nodes))
        assert reader.name == name
        assert library.libraries and library.nodes
        assert VENDOR[reader.vendor].unknown
