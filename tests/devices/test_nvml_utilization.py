"""How busy: what the driver's coarse samples may be used for, and what not."""

import time
from dataclasses import replace
from typing import Any

import pytest

from driver.node import FakeNode, FakeProcess, FakeSample, GiB, gpus
from exporter.devices.nvml.library import Handle, Library
from exporter.devices.nvml.utilization import APART, ProcessRatios, read_process_utilization, summarize
from exporter.model import GpuSample, ProcessUtilization, Utilization
from sources.nvml import Open, ReadOne

SECOND = 1_000_000
BEFORE = 1_700_000_000 * SECOND
"""Microseconds: a moment long before the tests run, and after any cursor of 0."""


class Steps:
    """A clock that a test moves, or that goes on by itself whenever it is read."""

    def __init__(self, step: float = 0.0) -> None:
        self.now, self.step = 100.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def sms(utilization: tuple[ProcessUtilization, ...] | None) -> dict[int, float | None]:
    assert utilization is not None
    return {process.pid: process.sm for process in utilization}


async def test_percentages_become_ratios(fake_node: FakeNode, read_one: ReadOne) -> None:
    """Utilization of the device and of each process is given as ratios from 0 to 1."""
    fake_node.write(
        gpus(
            1,
            util_gpu=93,
            util_memory=41,
            util_encoder=5,
            util_decoder=0,
            samples=(FakeSample(7, 40, 30, 20, 10, BEFORE),),
        )
    )

    gpu = await read_one()

    assert gpu.gpu.utilization == Utilization(busy=0.93, memory_controller=0.41, encoder=0.05, decoder=0.0)
    assert gpu.utilization == (ProcessUtilization(7, sm=0.4, memory_controller=0.3, encoder=0.2, decoder=0.1),)


async def test_a_process_at_work_is_seen(fake_node: FakeNode, read_one: ReadOne) -> None:
    """The samples of a real process carry its pid."""
    fake_node.write(gpus(1))
    job = fake_node.spawn("alloc 0 1GiB compute", "set sm=40")

    assert sms((await read_one()).utilization) == {job.pid: 0.4}


async def test_nothing_found_means_idle(fake_node: FakeNode, read_one: ReadOne) -> None:
    """The driver's NOT_FOUND is the answer "no process did anything": an empty tuple, no fault."""
    fake_node.write(gpus(1, processes=(FakeProcess(5, GiB),)))
    fake_node.fail("nvmlDeviceGetProcessUtilization", 6)

    gpu = await read_one()

    assert gpu.utilization == ()
    assert gpu.faults == ()


def test_success_with_no_samples_means_idle() -> None:
    """Some drivers say SUCCESS and give nothing (pynvml raises on that): all processes were idle then, too."""

    class Quiet:
        def nvmlDeviceGetProcessUtilization(self, _handle: object, _array: object, count: Any, _since: object) -> int:  # noqa: N802
            count._obj.value = 0
            return 0

    library = Library(lambda _call: None)
    library._own = Quiet()  # type: ignore[assignment]

    assert read_process_utilization(library, Handle(object()), cursor=5, now=9) == ProcessRatios((), 0, 5)


async def test_a_driver_that_cannot_say_gives_none(fake_node: FakeNode, read_one: ReadOne) -> None:
    """NOT_SUPPORTED (vGPU guests, Tegra) is unknown, not idle; so are the device's own ratios."""
    fake_node.write(gpus(1, util_gpu=None, util_encoder=None, util_decoder=None))
    fake_node.fail("nvmlDeviceGetProcessUtilization", 3)

    gpu = await read_one()

    assert gpu.utilization is None
    assert gpu.gpu.utilization == Utilization()
    assert gpu.faults == ()


async def test_samples_that_fail_are_told(fake_node: FakeNode, read_one: ReadOne) -> None:
    """Another refusal makes utilization unknown and is a fault, but a gauge leaves the round complete."""
    fake_node.write(gpus(1))
    fake_node.fail("nvmlDeviceGetProcessUtilization", 999)

    gpu = await read_one()

    assert gpu.utilization is None
    assert [(fault.reason, fault.incomplete) for fault in gpu.faults] == [("figures_unread", False)]


async def test_impossible_samples_are_dropped_and_counted(fake_node: FakeNode, read_one: ReadOne) -> None:
    """
    Drivers claim more than 100 % now and then: such a figure counts for nothing but the counter.

    A process without a possible figure is unknown, not idle. The other figures of its samples count.
    """
    fake_node.write(
        gpus(
            1,
            samples=(
                FakeSample(1, sm=250, time_us=BEFORE),
                FakeSample(1, sm=20, time_us=BEFORE),
                FakeSample(2, sm=55, enc=101, time_us=BEFORE),
                FakeSample(3, sm=187, time_us=BEFORE),
            ),
        )
    )

    gpu = await read_one()

    assert gpu.utilization == (
        ProcessUtilization(1, sm=0.2, memory_controller=0.0, encoder=0.0, decoder=0.0),
        ProcessUtilization(2, sm=0.55, memory_controller=0.0, encoder=None, decoder=0.0),
        ProcessUtilization(3, sm=None, memory_controller=0.0, encoder=0.0, decoder=0.0),
    )
    assert gpu.dropped_utilization == 3


async def test_each_sample_counts_in_one_round(fake_node: FakeNode, nvml: Open) -> None:
    """The cursor moves on: a sample of the last round is not averaged into the next one."""
    fake_node.write(gpus(1, samples=(FakeSample(1, sm=90, time_us=BEFORE),)))
    source = await nvml(monotonic=Steps(5.0))
    (first,) = (await source.sample()).samples
    fake_node.write(gpus(1, samples=(FakeSample(1, sm=90, time_us=BEFORE), FakeSample(1, sm=10, time_us=BEFORE + 1))))

    (second,) = (await source.sample()).samples
    (third,) = (await source.sample()).samples

    assert (sms(first.utilization), sms(second.utilization), sms(third.utilization)) == ({1: 0.9}, {1: 0.1}, {})


async def test_nothing_found_right_after_a_reading_keeps_its_figures(fake_node: FakeNode, nvml: Open) -> None:
    """The driver adds some samples a second. Until then no new one does not mean that the processes are idle."""
    clock = Steps()
    fake_node.write(gpus(1, samples=(FakeSample(1, sm=90, time_us=BEFORE), FakeSample(2, sm=300, time_us=BEFORE))))
    source = await nvml(monotonic=clock)
    found: list[GpuSample] = []
    for later in (0.0, APART / 4, APART / 2, APART / 4):
        clock.now += later
        found += (await source.sample()).samples

    *soon, idle = found
    assert [sms(sample.utilization) for sample in soon] == [{1: 0.9, 2: None}] * 3
    assert [sample.dropped_utilization for sample in found] == [1, 0, 0, 0], "no sample counts twice"
    assert sms(idle.utilization) == {}


async def test_a_new_sample_counts_at_once(fake_node: FakeNode, nvml: Open) -> None:
    """However soon it comes after a reading."""
    fake_node.write(gpus(1, samples=(FakeSample(1, sm=90, time_us=BEFORE),)))
    source = await nvml(monotonic=Steps())
    await source.sample()
    fake_node.write(gpus(1, samples=(FakeSample(1, sm=10, time_us=BEFORE + 1),)))

    (gpu,) = (await source.sample()).samples

    assert sms(gpu.utilization) == {1: 0.1}


async def test_each_gpu_has_its_own_cursor(fake_node: FakeNode, nvml: Open) -> None:
    """A later sample on one GPU does not hide an earlier one on another."""
    ahead, behind = gpus(2)
    fake_node.write([replace(ahead, samples=(FakeSample(1, sm=10, time_us=BEFORE + SECOND),)), behind])
    source = await nvml(monotonic=Steps(5.0))
    await source.sample()
    fake_node.write([ahead, replace(behind, samples=(FakeSample(2, sm=20, time_us=BEFORE),))])

    samples = (await source.sample()).samples

    assert [sms(sample.utilization) for sample in samples] == [{}, {2: 0.2}]


@pytest.mark.parametrize("odd", ["zero", "stale"])
async def test_samples_of_an_old_time_are_dropped(fake_node: FakeNode, nvml: Open, odd: str) -> None:
    """Timestamps of 0, or stuck in the past, occur: once the cursor is past them they say nothing about now."""
    fake_node.write(gpus(1, samples=(FakeSample(1, sm=10, time_us=BEFORE),)))
    source = await nvml(monotonic=Steps(5.0))
    await source.sample()
    fake_node.set_switch("util_timestamps", odd)
    fake_node.spawn("alloc 0 1GiB compute", "set sm=40")

    (gpu,) = (await source.sample()).samples

    assert sms(gpu.utilization) == {}


async def test_a_timestamp_from_the_future_does_not_silence_a_gpu(fake_node: FakeNode, nvml: Open) -> None:
    """One wild timestamp must not hide all samples until that time has come."""
    tomorrow = int(time.time() * SECOND) + 86_400 * SECOND
    fake_node.write(gpus(1, samples=(FakeSample(1, sm=10, time_us=tomorrow),)))
    moment = time.time() - 3600
    source = await nvml(clock=lambda: moment)
    await source.sample()
    fake_node.write(gpus(1, samples=(FakeSample(1, sm=20, age_us=60 * SECOND),)))

    (gpu,) = (await source.sample()).samples

    assert sms(gpu.utilization) == {1: 0.2}


def test_a_cursor_is_never_ahead_of_the_clock() -> None:
    """A clock that was set back takes the cursor with it."""

    class Clockwork:
        asked: int | None = None

        def process_samples(self, _handle: object, since: int) -> list[tuple[int, ...]]:
            self.asked = since
            return []

    library = Clockwork()
    reading = read_process_utilization(library, Handle(object()), cursor=500, now=300)  # type: ignore[arg-type]

    assert (library.asked, reading.cursor, reading.processes) == (300, 300, ())


def test_several_samples_of_a_pid_are_averaged() -> None:
    """A round sees several samples of one pid: the mean counts, for each engine by itself."""
    reading = summarize([(7, 11, 40, 10, 0, 0), (8, 12, 100, 0, 0, 0), (7, 13, 20, 30, 8, 0)], cursor=10)

    assert reading.processes == (
        ProcessUtilization(7, sm=0.3, memory_controller=0.2, encoder=0.04, decoder=0.0),
        ProcessUtilization(8, sm=1.0, memory_controller=0.0, encoder=0.0, decoder=0.0),
    )
    assert (reading.dropped, reading.cursor) == (0, 13)


async def test_more_samples_than_room_are_all_read(fake_node: FakeNode, read_one: ReadOne) -> None:
    """Samples of many processes outgrow the first array: none is lost."""
    fake_node.write(gpus(1, samples=tuple(FakeSample(pid, sm=1, time_us=BEFORE) for pid in range(1, 301))))

    assert sms((await read_one()).utilization) == dict.fromkeys(range(1, 301), 0.01)
