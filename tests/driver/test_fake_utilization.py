"""The fake driver's utilization, of devices and of processes, seen through the real pynvml."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from driver.node import FakeNode, FakeProcess, FakeSample, gpus, until
from driver.probe import Handle, Probe

UTILIZATION = "nvmlDeviceGetProcessUtilization"
DAY_US = 86_400_000_000


@pytest.fixture
def gpu(fake_node: FakeNode, nvml: Probe) -> Handle:
    """The handle of the only GPU of a node whose sampling beat is a day, so that no beat passes within a test."""
    fake_node.write(gpus(1), sample_period_us=DAY_US)
    return nvml.device(fake_node.gpus[0].uuid)


def test_an_idle_gpu_says_not_found(fake_node: FakeNode, nvml: Probe, gpu: Handle) -> None:
    """Nothing newer than the cursor is NOT_FOUND, with idle processes and without."""
    assert nvml.code(UTILIZATION, gpu, 0) == 6
    fake_node.spawn("alloc 0 1")
    assert nvml.code(UTILIZATION, gpu, 0) == 6


def test_busy_processes_have_samples_until_the_cursor(fake_node: FakeNode, nvml: Probe, gpu: Handle) -> None:
    """One sample a process with its own time, in microseconds; a cursor at the newest gives NOT_FOUND."""
    first = fake_node.spawn("alloc 0 1 compute sm=30 mem=10", "alloc 0 1 compute sm=5")
    second = fake_node.spawn("alloc 0 1 compute enc=20 dec=40")
    samples = {s["pid"]: s for s in nvml.ask(UTILIZATION, gpu, 0)}
    figures = {pid: (s["smUtil"], s["memUtil"], s["encUtil"], s["decUtil"]) for pid, s in samples.items()}
    assert figures == {first.pid: (35, 10, 0, 0), second.pid: (0, 0, 20, 40)}
    times = sorted(s["timeStamp"] for s in samples.values())
    assert times[0] < times[1] <= time.time() * 1e6
    assert len(nvml.ask(UTILIZATION, gpu, times[0])) == 1
    assert nvml.code(UTILIZATION, gpu, times[1]) == 6


def test_the_next_beat_brings_new_samples(fake_node: FakeNode, nvml: Probe) -> None:
    """A cursor in milliseconds is behind everything; one in microseconds waits for the next beat."""
    fake_node.write(gpus(1), sample_period_us=1000)
    gpu = nvml.device(fake_node.gpus[0].uuid)
    fake_node.spawn("alloc 0 1 compute sm=30")
    (sample,) = nvml.ask(UTILIZATION, gpu, 0)
    assert len(nvml.ask(UTILIZATION, gpu, sample["timeStamp"] // 1000)) == 1
    until(lambda: nvml.code(UTILIZATION, gpu, sample["timeStamp"]) is None, "the next beat")


def test_a_success_that_is_none(fake_node: FakeNode, nvml: Probe, gpu: Handle) -> None:
    """SUCCESS with zero entries at the size call: pynvml raises NVMLError with value 0."""
    fake_node.set_switch("util_empty_success")
    assert nvml.code(UTILIZATION, gpu, 0) == 0


def test_samples_that_grow_between_size_and_data(fake_node: FakeNode, nvml: Probe, gpu: Handle) -> None:
    """pynvml leaves no room for utilization: one sample more is INSUFFICIENT_SIZE."""
    fake_node.spawn("alloc 0 1 compute sm=30")
    fake_node.set_switch(f"growth.{UTILIZATION}", 1, times=1)
    assert nvml.code(UTILIZATION, gpu, 0) == 7
    assert len(nvml.ask(UTILIZATION, gpu, 0)) == 1


@pytest.mark.parametrize(("word", "stamp"), [("zero", 0), ("stale", 1_000_000)])
def test_odd_timestamps(fake_node: FakeNode, nvml: Probe, gpu: Handle, word: str, stamp: int) -> None:
    """Samples of time zero, or of 1970, come whatever the cursor says (nvtop#110)."""
    fake_node.spawn("alloc 0 1 compute sm=30")
    fake_node.set_switch("util_timestamps", word)
    (sample,) = nvml.ask(UTILIZATION, gpu, 10**18)
    assert sample["timeStamp"] == stamp


def test_figures_above_100_and_injected_samples(fake_node: FakeNode, nvml: Probe, gpu: Handle) -> None:
    """More than 100 % is passed on; an absolute time is given always, an age obeys the cursor."""
    samples = (FakeSample(7, sm=4_000, time_us=5), FakeSample(8, sm=20, age_us=1_000_000))
    fake_node.write([replace(fake_node.gpus[0], samples=samples)], sample_period_us=DAY_US)
    assert [(s["pid"], s["smUtil"]) for s in nvml.ask(UTILIZATION, gpu, 0)] == [(7, 4_000), (8, 20)]
    assert [s["pid"] for s in nvml.ask(UTILIZATION, gpu, 10**18)] == [7]


def test_device_rates_are_the_sum_or_what_was_written(fake_node: FakeNode, nvml: Probe, gpu: Handle) -> None:
    """auto: the sum of the processes, 100 at most; a number: that number; nothing: NOT_SUPPORTED."""
    job = fake_node.spawn("alloc 0 1 compute sm=30 mem=10 enc=7 dec=8")
    fake_node.spawn("alloc 0 1 compute sm=80")
    assert nvml.ask("nvmlDeviceGetUtilizationRates", gpu) == {"gpu": 100, "memory": 10}
    assert nvml.ask("nvmlDeviceGetEncoderUtilization", gpu)[0] == 7
    assert nvml.ask("nvmlDeviceGetDecoderUtilization", gpu)[0] == 8
    job.set(sm=0, mem=0)
    assert nvml.ask("nvmlDeviceGetUtilizationRates", gpu) == {"gpu": 80, "memory": 0}
    fake_node.write([replace(fake_node.gpus[0], util_gpu=3, util_encoder=None)])
    assert nvml.ask("nvmlDeviceGetUtilizationRates", gpu)["gpu"] == 3
    assert nvml.code("nvmlDeviceGetEncoderUtilization", gpu) == 3


def test_the_newer_call_has_all_engines(fake_node: FakeNode, nvml: Probe, gpu: Handle) -> None:
    """ProcessesUtilizationInfo: 40-byte entries with JPEG and OFA, the same cursor."""
    job = fake_node.spawn("alloc 0 1 compute sm=30 jpg=5 ofa=6")
    (sample,) = nvml.ask("nvmlDeviceGetProcessesUtilizationInfo", gpu, 0)
    assert (sample["pid"], sample["smUtil"], sample["jpgUtil"], sample["ofaUtil"]) == (job.pid, 30, 5, 6)
    assert nvml.code("nvmlDeviceGetProcessesUtilizationInfo", gpu, sample["timeStamp"]) == 6


def test_samples_name_processes_where_lists_name_threads(fake_node: FakeNode, nvml: Probe, gpu: Handle) -> None:
    """On thread-id drivers the two are in different number spaces; injected processes have samples too."""
    fake_node.write([replace(fake_node.gpus[0], processes=(FakeProcess(9, 1, sm=1),))], sample_period_us=DAY_US)
    job = fake_node.spawn()
    job.thread(0, 1)
    job.set(sm=30)
    fake_node.set_switch("thread_ids")
    assert {s["pid"] for s in nvml.ask(UTILIZATION, gpu, 0)} == {job.pid, 9}
    assert job.pid not in {e["pid"] for e in nvml.ask("nvmlDeviceGetComputeRunningProcesses", gpu)}
