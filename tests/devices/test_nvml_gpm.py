"""GPM: the share of SMs in use between two rounds, of a GPU or a MIG GPU instance; unknown is absent, never 0."""

from dataclasses import replace

import pytest

from driver.node import FakeComputeInstance, FakeGpu, FakeGpuInstance, FakeNode, FakeProcess, GiB, Variant, gpus
from exporter.devices import DevicesSample
from exporter.devices.nvml import NvmlSource
from exporter.devices.nvml.gpm import LONGEST
from sources.nvml import Answered, Open, Probe

ALLOC, FREE = "nvmlGpmSampleAlloc", "nvmlGpmSampleFree"


class Steps:
    """A clock for the distance of samples that only a test moves; the fake driver has its own, which is slower."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def hopper(count: int = 1, **changes: object) -> list[FakeGpu]:
    return gpus(count, FakeGpu(name="NVIDIA H100 80GB HBM3", gpm=1), **changes)


def mig() -> FakeGpu:
    """A Hopper GPU with two instances, of which the first has two compute instances."""
    instances = (
        FakeGpuInstance(
            1,
            20 * GiB,
            (FakeComputeInstance("MIG-a", slot=0), FakeComputeInstance("MIG-b", slot=1, id=1)),
            profile="2g.20gb",
        ),
        FakeGpuInstance(9, 10 * GiB, (FakeComputeInstance("MIG-c", slot=4),), profile="1g.10gb"),
    )
    processes = (
        FakeProcess(11, GiB, sm=30, device="MIG-a"),
        FakeProcess(12, GiB, sm=15, device="MIG-b"),
        FakeProcess(13, GiB, sm=80, device="MIG-c"),
    )
    return hopper(mig="on", instances=instances, processes=processes)[0]


def sms(sample: DevicesSample) -> list[float | None]:
    """The figures of all devices."""
    return [ratios.sm for gpu in sample.samples for _, _, ratios in gpu.gpu.leaves()]


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture(autouse=True)
def samples_may_be_close(fake_node: FakeNode) -> None:
    """The tests' clock says how far samples are apart; the fake driver does not look."""
    fake_node.set_switch("gpm_apart", 0)


async def after(source: NvmlSource, steps: Steps, seconds: float = 5.0) -> DevicesSample:
    steps.now += seconds
    return await source.sample()


async def test_the_second_round_has_the_figure(fake_node: FakeNode, nvml: Open, steps: Steps) -> None:
    """A figure lies between two samples: unknown in the first round, then what the GPU's counters say."""
    fake_node.write(hopper(processes=(FakeProcess(5, GiB, sm=42),)))
    source = await nvml(monotonic=steps)

    first, second = await source.sample(), await after(source, steps)

    assert (sms(first), sms(second)) == ([None], [0.42])
    assert first.faults == second.faults == first.samples[0].faults == second.samples[0].faults == ()


async def test_an_idle_gpu_has_zero(fake_node: FakeNode, nvml: Open, steps: Steps) -> None:
    """Zero that was measured is zero."""
    fake_node.write(hopper())
    source = await nvml(monotonic=steps)
    await source.sample()

    assert sms(await after(source, steps)) == [0.0]


async def test_each_mig_instance_has_its_own_figure(fake_node: FakeNode, nvml: Open, steps: Steps) -> None:
    """Under MIG the figure is the instance's, with all its compute instances; the GPU as a whole has none."""
    fake_node.write([mig()])
    source = await nvml(monotonic=steps)
    await source.sample()

    sample = await after(source, steps)

    assert sms(sample) == [0.45, 0.8]
    assert sample.samples[0].gpu.utilization.sm is None
    assert fake_node.calls("nvmlGpmSampleGet") == 0


@pytest.mark.parametrize("gpm", [None, 0])
async def test_before_hopper_there_is_none(fake_node: FakeNode, nvml: Open, steps: Steps, gpm: int | None) -> None:
    """A GPU without GPM has no figure and no fault, whichever way the driver says so, and is asked once."""
    fake_node.write(gpus(1, gpm=gpm))
    source = await nvml(monotonic=steps)
    await source.sample()

    sample = await after(source, steps)

    assert sms(sample) == [None]
    assert sample.samples[0].faults == ()
    assert (fake_node.calls("nvmlGpmQueryDeviceSupport"), fake_node.calls(ALLOC)) == (1, 0)


def test_a_library_without_gpm_is_no_fault(fake_node: FakeNode, probe: Probe) -> None:
    """Drivers before R525 have no such functions."""
    fake_node.write(hopper())

    sample = probe(Variant.OLD)

    assert sms(sample) == [None]
    assert sample.samples[0].faults == ()


@pytest.mark.parametrize("function", ["nvmlGpmQueryDeviceSupport", ALLOC, "nvmlGpmSampleGet", "nvmlGpmMetricsGet"])
async def test_a_refusal_is_told_and_means_unknown(
    fake_node: FakeNode, nvml: Open, steps: Steps, function: str
) -> None:
    """
    NO_PERMISSION (DCGM#214) and the like: the figure is missing, a fault says so, and the round is complete.

    When the driver answers again, the figure is there again.
    """
    fake_node.write(hopper(processes=(FakeProcess(5, GiB, sm=42),)))
    source = await nvml(monotonic=steps)
    fake_node.fail(function, 4)
    await source.sample()

    refused = await after(source, steps)
    fake_node.clear_switch(f"fail.{function}")
    await after(source, steps)
    again = await after(source, steps)

    (fault,) = refused.samples[0].faults
    assert (fault.reason, fault.incomplete) == ("figures_unread", False)
    assert function in fault.message
    assert (sms(refused), sms(again)) == ([None], [0.42])
    assert again.samples[0].faults == ()


async def test_a_metric_has_a_return_code_of_its_own(fake_node: FakeNode, nvml: Open, steps: Steps) -> None:
    """A call that succeeds may have a metric that failed: "unsupported" is no fault, another code is one."""
    fake_node.write(hopper(processes=(FakeProcess(5, GiB, sm=42),)))
    source = await nvml(monotonic=steps)
    await source.sample()
    fake_node.set_switch("gpm_metric", 3)
    unsupported = await after(source, steps)
    fake_node.set_switch("gpm_metric", 999)
    refused = await after(source, steps)

    assert sms(unsupported) == sms(refused) == [None]
    assert unsupported.samples[0].faults == ()
    assert [fault.reason for fault in refused.samples[0].faults] == ["figures_unread"]


@pytest.mark.parametrize("claimed", ["250", "-3", "nan", "inf"])
async def test_an_impossible_figure_is_none(fake_node: FakeNode, nvml: Open, steps: Steps, claimed: str) -> None:
    """A driver that claims nonsense has not answered."""
    fake_node.write(hopper())
    fake_node.set_switch("gpm_sm", claimed)
    source = await nvml(monotonic=steps)
    await source.sample()

    sample = await after(source, steps)

    assert sms(sample) == [None]
    assert "impossible" in sample.samples[0].faults[0].message


async def test_a_figure_is_never_above_one(fake_node: FakeNode, nvml: Open, steps: Steps) -> None:
    """What rounding adds to 100 % is cut."""
    fake_node.write(hopper())
    fake_node.set_switch("gpm_sm", "100.2")
    source = await nvml(monotonic=steps)
    await source.sample()

    assert sms(await after(source, steps)) == [1.0]


async def test_samples_that_are_too_close_are_not_compared(fake_node: FakeNode, nvml: Open, steps: Steps) -> None:
    """An early round within NVML's 100 ms keeps the last figure, and asks nothing."""
    fake_node.write(hopper())
    fake_node.set_switch("gpm_sm", "40")
    source = await nvml(monotonic=steps)
    await source.sample()
    await after(source, steps)
    fake_node.set_switch("gpm_sm", "90")
    fake_node.reset_calls()

    early = await after(source, steps, 0.05)
    later = await after(source, steps)

    assert (sms(early), sms(later)) == ([0.4], [0.9])
    assert fake_node.calls("nvmlGpmSampleGet") == 1


async def test_a_long_gap_begins_anew(fake_node: FakeNode, nvml: Open, steps: Steps) -> None:
    """The average over a long silence says nothing about now."""
    fake_node.write(hopper())
    source = await nvml(monotonic=steps)
    await source.sample()

    gap = await after(source, steps, LONGEST + 1)

    assert (sms(gap), sms(await after(source, steps))) == ([None], [0.0])


async def test_a_reused_instance_id_is_somebody_else(fake_node: FakeNode, nvml: Open, steps: Steps) -> None:
    """Ids of instances are reused at once: the samples of the old one are freed, and never compared with the new."""
    before = mig()
    fake_node.write([before])
    source = await nvml(monotonic=steps)
    await source.sample()
    other = replace(before.instances[1], computes=(FakeComputeInstance("MIG-other", slot=4),))
    fake_node.write([replace(before, instances=(before.instances[0], other))])

    new = await after(source, steps)

    assert sms(new) == [0.45, None]
    assert sms(await after(source, steps)) == [0.45, 0.0]
    assert (fake_node.calls(ALLOC), fake_node.calls(FREE)) == (6, 2)


async def test_what_was_allocated_is_freed(fake_node: FakeNode, nvml: Open, steps: Steps) -> None:
    """There are two samples per device, however many rounds; all are freed before the library is shut down."""
    fake_node.write([*hopper(), replace(mig(), uuid="GPU-mig")])
    source = await nvml(monotonic=steps)
    for _ in range(5):
        await after(source, steps)
    assert (fake_node.calls(ALLOC), fake_node.calls(FREE)) == (6, 0)

    await source.close()

    assert fake_node.calls(FREE) == 6


async def test_a_driver_that_comes_back_begins_anew(
    fake_node: FakeNode, nvml: Open, answered: Answered, steps: Steps
) -> None:
    """Samples of an initialisation end with it: the first round after a reload has no figure, the next one has."""
    fake_node.write(hopper(processes=(FakeProcess(5, GiB, sm=42),)))
    source = await nvml(monotonic=steps)
    await source.sample()
    fake_node.unload_driver()
    await after(source, steps)
    fake_node.write(hopper(processes=(FakeProcess(5, GiB, sm=42),)))

    first = await after(source, steps, 61.0)

    assert (sms(first), sms(await after(source, steps))) == ([None], [0.42])
    assert fake_node.calls(ALLOC) == 2 + fake_node.calls(FREE)


async def test_a_call_that_hangs_costs_rounds_and_no_more(
    fake_node: FakeNode, nvml: Open, answered: Answered, steps: Steps
) -> None:
    """GPM is asked on the driver thread, under its deadline; when the call returns, the figures go on."""
    fake_node.write(hopper(processes=(FakeProcess(5, GiB, sm=42),)))
    source = await nvml(monotonic=steps, deadline=0.2)
    await answered(source)
    fake_node.hang("nvmlGpmSampleGet")

    hung = await after(source, steps)
    fake_node.clear_switch("hang.nvmlGpmSampleGet")
    await answered(source)
    steps.now += 5.0

    assert [fault.reason for fault in hung.faults] == ["driver_hung"]
    assert sms(await answered(source)) == [0.42]


async def test_a_lost_gpu_is_lost_in_gpm_too(fake_node: FakeNode, nvml: Open, steps: Steps) -> None:
    """GPU_IS_LOST is about the GPU, whichever call says it; the other one has its figure."""
    one, other = hopper(2)
    fake_node.write([one, other])
    source = await nvml(monotonic=steps)
    await source.sample()
    fake_node.fail("nvmlGpmSampleGet", 15, gpu=one.uuid)

    sample = await after(source, steps)

    assert [gpu.gpu.uuid for gpu in sample.samples] == [other.uuid]
    assert sms(sample) == [0.0]
    assert [fault.reason for fault in sample.faults] == ["gpu_lost"]


@pytest.mark.parametrize("how", ["lost", "removed"])
async def test_a_gpu_that_comes_back_begins_anew(fake_node: FakeNode, nvml: Open, steps: Steps, how: str) -> None:
    """No figure compares counters from before the loss with those after it, also where it lasts a moment."""
    one, other = hopper(2, processes=(FakeProcess(5, GiB, sm=42),))
    fake_node.write([one, other])
    source = await nvml(monotonic=steps)
    await source.sample()
    await after(source, steps)
    if how == "removed":
        fake_node.write([one])
        await after(source, steps)
        fake_node.write([one, other])
    else:
        fake_node.fail("*", 15, gpu=other.uuid)
        await after(source, steps)
        fake_node.clear_switch("fail.*", gpu=other.uuid)

    first, second = await after(source, steps), await after(source, steps)

    assert (sms(first), sms(second)) == ([0.42, None], [0.42, 0.42])
    assert fake_node.calls(ALLOC) == 4 + fake_node.calls(FREE)
