"""Health figures of the physical GPU: in base units, and absent where the GPU does not have them."""

import pytest

from driver.node import FakeNode, Variant, gpus
from exporter.devices.device_faults import DeviceFaults
from exporter.devices.errors import UnsupportedError
from exporter.devices.nvml.health import THROTTLES, read_health
from exporter.devices.nvml.library import Handle, Library
from exporter.model import GpuUuid, Health
from sources.nvml import Open, Probe, ReadOne


async def test_figures_are_in_base_units(fake_node: FakeNode, read_one: ReadOne) -> None:
    """Milliwatts, millijoules and megahertz become watts, joules and hertz."""
    fake_node.write(
        gpus(
            1,
            power_mw=301_500,
            energy_mj=1_234_500,
            temperature=66,
            clock_graphics=1980,
            clock_sm=1965,
            clock_memory=2619,
            clock_video=1545,
            ecc_corrected=3,
            ecc_uncorrected=1,
        )
    )

    health = (await read_one()).gpu.health

    assert (health.power_watts, health.energy_joules, health.temperature_celsius) == (301.5, 1234.5, 66)
    assert health.clocks_hertz == {"graphics": 1.98e9, "sm": 1.965e9, "memory": 2.619e9, "video": 1.545e9}
    assert health.ecc_errors == {"corrected": 3, "uncorrected": 1}


async def test_what_a_gpu_does_not_have_is_absent(fake_node: FakeNode, read_one: ReadOne) -> None:
    """No figure that the GPU lacks appears as 0, and lacking it is no fault."""
    lacking = dict.fromkeys(
        (
            *("power_mw", "energy_mj", "temperature", "throttle", "ecc_corrected", "ecc_uncorrected"),
            *("clock_graphics", "clock_sm", "clock_memory", "clock_video"),
        )
    )
    fake_node.write(gpus(1, **lacking, fields=()))

    gpu = await read_one()

    assert gpu.gpu.health == Health()
    assert gpu.faults == ()


async def test_one_figure_that_is_lacking_leaves_the_others(fake_node: FakeNode, read_one: ReadOne) -> None:
    """A GPU without video clock and without corrected errors still tells its other clocks and errors."""
    fake_node.write(gpus(1, clock_video=None, ecc_corrected=None, ecc_uncorrected=2))

    health = (await read_one()).gpu.health

    assert set(health.clocks_hertz) == {"graphics", "sm", "memory"}
    assert health.ecc_errors == {"uncorrected": 2}


async def test_a_figure_that_fails_is_told(fake_node: FakeNode, read_one: ReadOne) -> None:
    """A refused figure is absent, is named in a fault, and leaves the round complete: no limit depends on it."""
    fake_node.write(gpus(1))
    fake_node.fail("nvmlDeviceGetPowerUsage", 999)

    gpu = await read_one()

    assert gpu.gpu.health.power_watts is None
    assert gpu.gpu.health.temperature_celsius is not None
    (fault,) = gpu.faults
    assert (fault.reason, fault.incomplete) == ("figures_unread", False)
    assert "nvmlDeviceGetPowerUsage" in fault.message


@pytest.mark.parametrize(("name", "bit"), THROTTLES.items())
async def test_each_reason_for_low_clocks_has_its_name(
    fake_node: FakeNode, read_one: ReadOne, name: str, bit: int
) -> None:
    """A bit of the driver's mask is one reason; all the others are known to be off."""
    fake_node.write(gpus(1, throttle=bit))

    assert (await read_one()).gpu.health.throttled == {reason: reason == name for reason in THROTTLES}


async def test_an_idle_gpu_is_not_held_down(fake_node: FakeNode, read_one: ReadOne) -> None:
    """The driver's reason "gpu idle" is no throttling."""
    fake_node.write(gpus(1, throttle=0x01))

    assert (await read_one()).gpu.health.throttled == dict.fromkeys(THROTTLES, False)


def test_a_reason_that_a_gpu_cannot_tell_is_absent() -> None:
    """Of the reasons, only those count as off that this GPU would tell if they were on."""

    class TellsPowerOnly(Library):
        def clock_limits(self, _handle: Handle) -> int:
            return 0x04

        def _call(self, function: str, *_arguments: object, **_take: object) -> None:
            raise UnsupportedError(function, "Not Supported")

    faults = DeviceFaults("GPU 0", GpuUuid("GPU-1"))
    health = read_health(TellsPowerOnly(lambda _call: None), Handle(object()), 0x04 | 0x20, faults)

    assert health == Health(throttled={"sw_power_cap": True, "sw_thermal_slowdown": False})


def test_old_drivers_call_it_throttle_reasons(fake_node: FakeNode, probe: Probe) -> None:
    """Before R535 the same mask is had by another name."""
    fake_node.write(gpus(1, throttle=0x04))

    (gpu,) = probe(Variant.OLD).samples

    assert gpu.gpu.health.throttled is not None
    assert [name for name, on in gpu.gpu.health.throttled.items() if on] == ["sw_power_cap"]


async def test_a_gpu_says_who_it_is(fake_node: FakeNode, read_one: ReadOne) -> None:
    """Identity: UUID, index, model, PCI bus id and the version of the driver."""
    (card,) = gpus(1, name="NVIDIA H100 80GB HBM3")
    fake_node.write([card], driver="570.148.08")

    gpu = (await read_one()).gpu

    assert (gpu.uuid, gpu.index, gpu.vendor) == (card.uuid, 0, "nvidia")
    assert (gpu.model, gpu.pci_bus_id, gpu.driver_version) == ("NVIDIA H100 80GB HBM3", card.pci, "570.148.08")
    assert gpu.minor == card.minor


async def test_what_does_not_change_is_read_once(fake_node: FakeNode, nvml: Open) -> None:
    """Initialisation, the model, the bus id and the driver's version are not asked for in each round."""
    fake_node.write(gpus(2))
    source = await nvml()
    for _ in range(3):
        await source.sample()

    once = {name: fake_node.calls(name) for name in ("nvmlDeviceGetName", "nvmlDeviceGetPciInfo")}
    assert once == {"nvmlDeviceGetName": 2, "nvmlDeviceGetPciInfo": 2}
    assert fake_node.calls("nvmlSystemGetDriverVersion") == 1
    assert fake_node.calls("nvmlInitWithFlags") == 1
