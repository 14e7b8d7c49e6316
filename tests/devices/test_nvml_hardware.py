"""The condition of the hardware: what it says, how seldom it is read, and that nothing missing is asked for twice."""

from collections import Counter
from dataclasses import replace

import pytest

from driver.gpus import A100_FIELDS, ALL_LINKS, fields_of
from driver.node import FakeComputeInstance, FakeField, FakeGpu, FakeGpuInstance, FakeNode, GiB, Variant, gpus
from exporter.devices.nvml import NvmlSource
from exporter.devices.nvml.hardware import ACTIONS, FIELDS, SELDOM
from exporter.model import Gpu, GpuSample, Hardware
from sources.nvml import Open, Probe, ReadOne

READING = "nvmlDeviceGetFieldValues"
INTERVAL = 5.0
LOST, UNKNOWN, INVALID_ARGUMENT = 15, 999, 2
DOUBLE, UNSIGNED_LONG_LONG = 0, 3

LACKING = FakeGpu(
    fields=(),
    banks=None,
    vbios=None,
    power_limit_mw=None,
    power_default_mw=None,
    limit_shutdown=None,
    limit_slowdown=None,
    limit_memory_max=None,
    limit_gpu_max=None,
)


class Clock:
    """A monotonic clock that moves only when a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def one(source: NvmlSource) -> GpuSample:
    (gpu,) = (await source.sample()).samples
    return gpu


def with_fields(*changed: FakeField) -> tuple[FakeField, ...]:
    """The fields of an A100, some of them changed."""
    ids = {field.id for field in changed}
    return (*(field for field in A100_FIELDS if field.id not in ids), *changed)


async def test_each_figure_has_its_name_and_its_unit(fake_node: FakeNode, read_one: ReadOne) -> None:
    """Watts and degrees, flags as yes or no, counts by kind, and the name of what the GPU needs."""
    told = {82: 71, 94: 12, 142: 3, 143: 5, 144: 1, 145: 0, 38: 1, 45: 2, 52: 4, 59: 8, 160: 16, 230: 1}
    fake_node.write(gpus(1, fields=fields_of(told), power_limit_mw=350_500, banks=(630, 8, 1, 0, 1)))

    gpu = (await read_one()).gpu

    assert gpu.health.memory_temperature_celsius == 71
    assert gpu.hardware == Hardware(
        vbios_version="92.00.19.00.13",
        power_limit_watts=350.5,
        power_default_limit_watts=400,
        temperature_thresholds_celsius={"shutdown": 92, "slowdown": 89, "memory_max": 95, "gpu_max": 85},
        remapped_rows={"correctable": 3, "uncorrectable": 5},
        row_remap_pending=True,
        row_remap_failure=False,
        row_remap_banks={"max": 630, "high": 8, "partial": 1, "low": 0, "none": 1},
        recovery_action="gpu_reset",
        nvlink_errors={"crc_flit": 1, "crc_data": 2, "replay": 4, "recovery": 8, "ecc_data": 16},
        pcie_replays=12,
    )


async def test_before_ampere_pages_are_retired(fake_node: FakeNode, read_one: ReadOne) -> None:
    """A GPU that retires pages has no remapped rows: the one is counted, and the other absent, not 0."""
    fake_node.write(gpus(1, LACKING, fields=fields_of({29: 7, 30: 2, 31: 1})))

    hardware = (await read_one()).gpu.hardware

    assert (hardware.retired_pages, hardware.page_retirement_pending) == ({"single_bit": 7, "double_bit": 2}, True)
    assert (hardware.remapped_rows, hardware.row_remap_failure, hardware.row_remap_pending) == ({}, None, None)


async def test_nvlink_5_counts_other_errors_for_all_links(fake_node: FakeNode, read_one: ReadOne) -> None:
    """The counters of Blackwell are asked for with the scope that adds up all links; those of one link are not read."""
    of_all = {208: 1, 211: 2, 212: 3, 214: 4, 215: 5, 219: 6, 221: 7}
    fields = (FakeField(221, 99), *(FakeField(number, count, scope=ALL_LINKS) for number, count in of_all.items()))
    fake_node.write(gpus(1, fields=fields))

    assert (await read_one()).gpu.hardware.nvlink_errors == {
        "receive": 1,
        "link_integrity": 2,
        "transmit_discard": 3,
        "link_recovery_failed": 4,
        "link_recovery": 5,
        "effective": 6,
        "symbol": 7,
    }


@pytest.mark.parametrize(("number", "name"), [*ACTIONS.items(), (99, "99")])
async def test_each_recovery_action_has_its_name(
    fake_node: FakeNode, read_one: ReadOne, number: int, name: str
) -> None:
    """An action that a later driver adds keeps its number: it is never taken for "none"."""
    fake_node.write(gpus(1, fields=fields_of({230: number})))
    assert (await read_one()).gpu.hardware.recovery_action == name


@pytest.mark.parametrize("kind", [DOUBLE, UNSIGNED_LONG_LONG])
async def test_the_type_of_a_value_is_the_drivers_choice(fake_node: FakeNode, read_one: ReadOne, kind: int) -> None:
    """R545 calls a memory temperature a double and writes an integer; counters may be wide."""
    fake_node.write(gpus(1, fields=(FakeField(82, 38, type=kind), FakeField(94, 7, type=kind))))

    gpu = (await read_one()).gpu

    assert (gpu.health.memory_temperature_celsius, gpu.hardware.pcie_replays) == (38, 7)


# --- what is missing --------------------------------------------------------------------------------------------------


async def test_what_a_gpu_does_not_have_is_asked_for_once(fake_node: FakeNode, nvml: Open) -> None:
    """Ten minutes of rounds on a GPU that has none of it: each question once, no figure, no fault."""
    fake_node.write(gpus(1, LACKING))
    clock = Clock()
    source = await nvml(monotonic=clock)
    for _ in range(120):
        gpu = await one(source)
        assert (gpu.gpu.hardware, gpu.gpu.health.memory_temperature_celsius, gpu.faults) == (Hardware(), None, ())
        clock.now += INTERVAL

    asked = Counter({field.id: fake_node.calls(f"{READING}({field.id})") for field in FIELDS})
    assert set(asked.values()) == {1}
    assert fake_node.calls(f"{READING}(82)") == 1
    assert fake_node.calls(READING) == 2
    once = ("EnforcedPowerLimit", "PowerManagementDefaultLimit", "VbiosVersion", "RowRemapperHistogram")
    assert {name: fake_node.calls(f"nvmlDeviceGet{name}") for name in once} == dict.fromkeys(once, 1)
    assert fake_node.calls("nvmlDeviceGetTemperatureThreshold") == 4


async def test_a_field_that_an_old_driver_does_not_know_is_no_fault(fake_node: FakeNode, nvml: Open) -> None:
    """Its number is an invalid argument to that driver: absent, and not asked for again."""
    fake_node.write(gpus(1, fields=with_fields(FakeField(230, result=INVALID_ARGUMENT))))
    clock = Clock()
    source = await nvml(monotonic=clock)
    for _ in range(3):
        gpu = await one(source)
        assert (gpu.gpu.hardware.recovery_action, gpu.faults) == (None, ())
        assert gpu.gpu.hardware.row_remap_failure is False
        clock.now += SELDOM

    assert fake_node.calls(f"{READING}(230)") == 1


@pytest.mark.parametrize("variant", [Variant.ABI535, Variant.OLD, Variant.ANCIENT])
def test_older_libraries_are_read_without_a_fault(fake_node: FakeNode, probe: Probe, variant: Variant) -> None:
    """A library without a call has no such figure; the others are there."""
    fake_node.write(gpus(1, mig="unsupported"))

    (gpu,) = probe(variant).samples

    assert gpu.faults == ()
    assert gpu.gpu.hardware.power_limit_watts == 400
    assert bool(gpu.gpu.hardware.row_remap_banks) is (variant is not Variant.ANCIENT)


@pytest.mark.parametrize(
    "field",
    [
        FakeField(94, result=UNKNOWN),
        FakeField(94, silent=True),
        FakeField(94, 5, type=77),
        FakeField(82, result=UNKNOWN),
        FakeField(82, silent=True),
        FakeField(82, 2**31 - 1),
    ],
    ids=str,
)
async def test_a_field_without_an_answer_is_no_zero(fake_node: FakeNode, read_one: ReadOne, field: FakeField) -> None:
    """A field that failed, was not written, or is impossible is absent, with one fault. Its neighbours are read."""
    fake_node.write(gpus(1, fields=with_fields(field)))

    gpu = await read_one()

    (fault,) = gpu.faults
    assert (fault.reason, fault.incomplete) == ("figures_unread", False)
    assert f"{READING}({field.id})" in fault.message
    figures = {82: gpu.gpu.health.memory_temperature_celsius, 94: gpu.gpu.hardware.pcie_replays}
    assert figures.pop(field.id) is None
    assert None not in figures.values()
    assert gpu.gpu.hardware.remapped_rows == {"correctable": 0, "uncorrectable": 0}


async def test_a_refused_reading_is_a_fault_until_the_next_one(fake_node: FakeNode, nvml: Open) -> None:
    """A minute without the figures, with a fault in each round and without further calls; then they are back."""
    fake_node.write(gpus(1))
    clock = Clock()
    fake_node.fail("nvmlDeviceGetRowRemapperHistogram", UNKNOWN)
    source = await nvml(monotonic=clock)
    assert "nvmlDeviceGetRowRemapperHistogram" in (await one(source)).faults[0].message
    fake_node.clear_switch("fail.nvmlDeviceGetRowRemapperHistogram")

    clock.now += SELDOM - 1
    gpu = await one(source)
    assert (len(gpu.faults), gpu.gpu.hardware.row_remap_banks) == (1, {})
    assert gpu.gpu.hardware.pcie_replays == 0

    clock.now += 1
    gpu = await one(source)
    assert (gpu.faults, gpu.gpu.hardware.row_remap_banks["max"]) == ((), 640)
    assert fake_node.calls("nvmlDeviceGetRowRemapperHistogram") == 2


# --- what it costs ----------------------------------------------------------------------------------------------------


async def test_a_round_costs_one_call_more_and_each_minute_three(fake_node: FakeNode, nvml: Open) -> None:
    """
    The cost per GPU, counted by the driver: before these figures, and with them.

    A round: the memory's temperature. Each minute: all fields, the spare rows and the power limit. Once: the VBIOS, the
    default power limit and four thresholds.
    """
    fake_node.write(gpus(1))
    clock = Clock()
    source = await nvml(monotonic=clock)

    async def cost() -> Counter[str]:
        before = fake_node.all_calls()
        await source.sample()
        after = Counter({name: count for name, count in fake_node.all_calls().items() if "(" not in name})
        return after - Counter(before)

    first = await cost()
    clock.now += INTERVAL
    usual = await cost()
    clock.now += SELDOM - INTERVAL
    due = await cost()

    assert usual[READING] == 1
    assert usual.total() == CALLS_BEFORE + 1
    assert due - usual == Counter(
        {READING: 1, "nvmlDeviceGetRowRemapperHistogram": 1, "nvmlDeviceGetEnforcedPowerLimit": 1}
    )
    constant = {
        "nvmlDeviceGetVbiosVersion": 1,
        "nvmlDeviceGetPowerManagementDefaultLimit": 1,
        "nvmlDeviceGetTemperatureThreshold": 4,
    }
    assert {name: first[name] for name in constant} == constant
    assert not due.keys() & constant.keys()


CALLS_BEFORE = 22
"""Calls of a round on the fake A100 with one GPU and no process, before the condition of the hardware was read."""


# --- a GPU that changes -----------------------------------------------------------------------------------------------


async def test_mig_instances_hide_the_rows_and_show_them_again(fake_node: FakeNode, nvml: Open) -> None:
    """With instances the driver does not report remapped rows. Once they are gone, it is asked again at once."""
    (card,) = gpus(1)
    instances = (FakeGpuInstance(1, 5 * GiB, (FakeComputeInstance("MIG-1", 0),)),)
    hidden = tuple(field for field in A100_FIELDS if field.id not in (142, 143, 144, 145))
    divided = replace(card, mig="on", instances=instances, fields=hidden, banks=None)
    clock = Clock()

    async def rows(now: FakeGpu) -> tuple[bool, Gpu]:
        fake_node.write([now])
        gpu = await one(source)
        assert gpu.faults == ()
        return bool(gpu.gpu.hardware.remapped_rows), gpu.gpu

    fake_node.write([card])
    source = await nvml(monotonic=clock)
    assert (await rows(card))[0]
    there, gpu = await rows(divided)
    assert (there, gpu.hardware.row_remap_banks, gpu.hardware.recovery_action) == (False, {}, "none")
    assert (await rows(replace(card, mig="on")))[0]
    assert (await rows(card))[0]


@pytest.mark.parametrize("function", ["*", "nvmlDeviceGetPowerUsage"])
async def test_a_gpu_that_was_lost_is_asked_for_everything_again(
    fake_node: FakeNode, nvml: Open, function: str
) -> None:
    """After a reset the mode of ECC may be another, and so what the GPU has; its VBIOS too."""
    (card,) = gpus(1, LACKING, vbios="1.0")
    fake_node.write([card])
    clock = Clock()
    source = await nvml(monotonic=clock)
    assert (await one(source)).gpu.hardware.row_remap_failure is None

    fake_node.fail(function, LOST, gpu=card.uuid)
    assert (await source.sample()).samples == ()
    fake_node.clear_switch(f"fail.{function}", gpu=card.uuid)
    fake_node.write([replace(card, fields=A100_FIELDS, vbios="2.0")])

    hardware = (await one(source)).gpu.hardware
    assert (hardware.row_remap_failure, hardware.vbios_version) == (False, "2.0")
