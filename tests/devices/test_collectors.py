"""A collector that is off: its figures are missing, and the driver is not asked for them."""

import pytest

from driver.node import FakeNode, gpus, until
from exporter.devices.nvml.hardware import FIELDS, MEMORY_TEMPERATURE
from exporter.metrics import CATALOGUE, COLLECTED
from exporter.model import COLLECTORS, Collector, GpuSample, Hardware
from sources.nvml import Open

FUNCTIONS: dict[Collector, set[str]] = {
    Collector.UTILIZATION: {
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetEncoderUtilization",
        "nvmlDeviceGetDecoderUtilization",
    },
    Collector.PROCESS_UTILIZATION: {"nvmlDeviceGetProcessUtilization"},
    Collector.GPM: {"nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleGet"},
    Collector.POWER: {
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetTotalEnergyConsumption",
        "nvmlDeviceGetEnforcedPowerLimit",
        "nvmlDeviceGetPowerManagementDefaultLimit",
    },
    Collector.TEMPERATURE: {
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetTemperatureThreshold",
        f"nvmlDeviceGetFieldValues({MEMORY_TEMPERATURE.id})",
    },
    Collector.CLOCKS: {"nvmlDeviceGetClockInfo"},
    Collector.THROTTLING: {"nvmlDeviceGetCurrentClocksEventReasons"},
    Collector.ECC: {"nvmlDeviceGetTotalEccErrors"},
    Collector.HARDWARE: {
        "nvmlDeviceGetVbiosVersion",
        "nvmlDeviceGetRowRemapperHistogram",
        *(f"nvmlDeviceGetFieldValues({field.id})" for field in FIELDS),
    },
    Collector.XID: {"nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2"},
}
"""What NVML is asked for a collector, and for nothing else."""


@pytest.mark.parametrize("collector", Collector)
async def test_the_driver_is_asked_for_nothing_of_a_collector_that_is_off(
    fake_node: FakeNode, nvml: Open, collector: Collector
) -> None:
    """With a collector off, its functions are not called; those of the other collectors are."""
    fake_node.write(gpus(1, gpm=1))
    source = await nvml(events=True, off=frozenset({collector}))
    (gpu,) = (await source.sample()).samples
    everything = {name for names in FUNCTIONS.values() for name in names}
    wanted = everything - FUNCTIONS[collector]
    until(lambda: wanted <= fake_node.all_calls().keys(), "the calls of the other collectors", 10)
    assert fake_node.all_calls().keys() & everything == wanted
    assert gpu.faults == ()


async def test_memory_and_processes_are_read_with_all_collectors_off(fake_node: FakeNode, nvml: Open) -> None:
    """What limits are about needs no collector: the sample has both, no other figure, and no fault."""
    fake_node.write(gpus(1))
    sample = await (await nvml(events=True, off=frozenset(Collector))).sample()
    (gpu,) = sample.samples
    assert gpu.gpu.memory is not None and gpu.processes == ()
    assert gpu.gpu.hardware == Hardware()
    assert figures(gpu) == {"known": 0, "unknown": 11}
    assert (sample.faults, gpu.faults, sample.xid_errors) == ((), (), {})
    assert figures((await (await nvml()).sample()).samples[0])["unknown"] <= 2  # GPM and processes need two rounds


def figures(gpu: GpuSample) -> dict[str, int]:
    use, health = gpu.gpu.utilization, gpu.gpu.health
    asked = (
        *(use.busy, use.memory_controller, use.encoder, use.decoder),
        *(health.power_watts, health.energy_joules, health.temperature_celsius, health.throttled),
        *(health.clocks_hertz or None, health.ecc_errors or None, health.memory_temperature_celsius),
    )
    unknown = sum(figure is None for figure in asked)
    return {"known": len(asked) - unknown, "unknown": unknown}


def test_each_collector_has_its_families() -> None:
    """Each collector is described, and names families that are on the page; none is of two collectors."""
    families = {family.name for topic in CATALOGUE.values() for family in topic}
    named = [f"gpusteward_{name}" for names in COLLECTED.values() for name in names]
    assert COLLECTED.keys() == COLLECTORS.keys() == set(Collector)
    assert set(named) <= families and len(named) == len(set(named))
