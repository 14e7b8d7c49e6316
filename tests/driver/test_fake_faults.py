"""The fake driver's misbehaviour, and its counters, seen through the real pynvml."""

from __future__ import annotations

import time

import pytest

from driver.node import FakeComputeInstance, FakeGpuInstance, FakeNode, GiB, gpus, until
from driver.probe import Handle, Probe

COMPUTE = "nvmlDeviceGetComputeRunningProcesses"
MEMORY = "nvmlDeviceGetMemoryInfo"


@pytest.fixture
def pair(fake_node: FakeNode, nvml: Probe) -> list[Handle]:
    """The handles of a node's two GPUs."""
    fake_node.write(gpus(2))
    return [nvml.device(gpu.uuid) for gpu in fake_node.gpus]


@pytest.mark.parametrize("code", [1, 4, 15, 16, 17, 28, 999])
def test_any_function_fails_with_any_code(fake_node: FakeNode, nvml: Probe, pair: list[Handle], code: int) -> None:
    """GPU lost, reset required, no rights, blocked by the system, unknown: on one GPU, while the other answers."""
    fake_node.fail(MEMORY, code, gpu=fake_node.gpus[0].uuid)
    assert nvml.code(MEMORY, pair[0]) == code
    assert nvml.code(MEMORY, pair[1]) is None
    fake_node.clear_switch(f"fail.{MEMORY}", gpu=fake_node.gpus[0].uuid)
    assert nvml.code(MEMORY, pair[0]) is None


def test_a_lost_gpu_fails_everywhere(fake_node: FakeNode, nvml: Probe, pair: list[Handle]) -> None:
    """`fail.*` on a GPU: its handles, its functions and its MIG devices; the count and the other GPU stay."""
    fake_node.fail("*", 15, gpu=fake_node.gpus[0].uuid)
    assert nvml.code("nvmlDeviceGetHandleByIndex", 0) == 15
    assert nvml.code("nvmlDeviceGetUUID", pair[0]) == 15
    assert nvml.ask("nvmlDeviceGetCount") == 2
    assert nvml.code("nvmlDeviceGetHandleByIndex", 1) is None
    assert nvml.code("nvmlDeviceGetUUID", pair[1]) is None


def test_a_gpu_we_may_not_open_is_counted(fake_node: FakeNode, nvml: Probe, pair: list[Handle]) -> None:
    """GetCount includes it, its index answers NO_PERMISSION."""
    fake_node.fail("nvmlDeviceGetHandleByIndex", 4, gpu=fake_node.gpus[1].uuid)
    assert nvml.ask("nvmlDeviceGetCount") == 2
    assert nvml.code("nvmlDeviceGetHandleByIndex", 1) == 4


@pytest.mark.parametrize("code", [9, 18])
def test_init_fails(fake_node: FakeNode, nvml: Probe, code: int) -> None:
    """DRIVER_NOT_LOADED, and LIB_RM_VERSION_MISMATCH after an upgrade under us; `fail.*` leaves init alone."""
    fake_node.write(gpus(1))
    fake_node.fail("nvmlInit", code)
    assert nvml.code("nvmlInit") == code
    fake_node.clear_switch("fail.nvmlInit")
    fake_node.fail("*", 1)
    assert nvml.code("nvmlInit") is None
    assert nvml.code("nvmlDeviceGetCount") == 1


def test_a_failure_can_wear_off(fake_node: FakeNode, nvml: Probe, pair: list[Handle]) -> None:
    """`times=2`: twice, and then not again."""
    fake_node.fail(MEMORY, 999, times=2)
    assert [nvml.code(MEMORY, pair[0]) for _ in range(3)] == [999, 999, None]
    assert not fake_node.switched(f"fail.{MEMORY}")


def test_one_version_can_fail_alone(fake_node: FakeNode, nvml: Probe, pair: list[Handle]) -> None:
    """A name with its version means that version; a name without means all of them."""
    fake_node.fail(f"{COMPUTE}_v3", 13)
    assert nvml.code(f"{COMPUTE}_v3", pair[0]) == 13
    assert nvml.code(f"{COMPUTE}_v2", pair[0]) is None
    fake_node.fail(COMPUTE, 3)
    assert nvml.code(f"{COMPUTE}_v2", pair[0]) == 3


def test_a_call_that_hangs_hangs_until_it_is_let_go(fake_node: FakeNode, nvml: Probe, pair: list[Handle]) -> None:
    """The call is in the driver (it was counted) and does not come back; then it does, with the state of then."""
    fake_node.hang(COMPUTE)
    answer = nvml.asking(COMPUTE, pair[0])
    until(lambda: fake_node.calls(COMPUTE) == 1, "the call to be made")
    assert not answer.done()
    job = fake_node.spawn(f"alloc 0 {GiB}")
    assert not answer.done()
    fake_node.clear_switch(f"hang.{COMPUTE}")
    assert [entry["pid"] for entry in answer.result(timeout=10)] == [job.pid]


def test_a_call_that_is_slow_takes_its_time(fake_node: FakeNode, nvml: Probe, pair: list[Handle]) -> None:
    """At least the milliseconds that were asked for (more is the machine's business)."""
    fake_node.slow(MEMORY, 50, gpu=fake_node.gpus[0].uuid)
    start = time.monotonic()
    nvml.ask(MEMORY, pair[0])
    assert time.monotonic() - start >= 0.05


def test_costs_make_lists_expensive(fake_node: FakeNode, nvml: Probe, pair: list[Handle]) -> None:
    """With the measured costs a size call alone takes 4.5 ms, so ten lists take at least 45."""
    fake_node.set_switch("costs")
    start = time.monotonic()
    for _ in range(10):
        assert nvml.ask(COMPUTE, pair[0]) == []
    assert time.monotonic() - start >= 0.045


def test_calls_are_counted_across_processes(fake_node: FakeNode, nvml: Probe, pair: list[Handle]) -> None:
    """By version and over all versions; a reset counts from zero although the file is mapped."""
    fake_node.spawn("alloc 0 1")
    fake_node.reset_calls()
    assert fake_node.all_calls() == {}
    nvml.ask(COMPUTE, pair[0])
    nvml.ask(f"{COMPUTE}_v2", pair[1])
    assert fake_node.calls(f"{COMPUTE}_v3") == 2  # size, then data
    assert fake_node.calls(f"{COMPUTE}_v2") == 1  # no process there: the size says it all
    assert fake_node.calls(COMPUTE) == 3
    assert fake_node.calls(MEMORY) == 0
    nvml.ask("nvmlInit")
    assert fake_node.calls("nvmlInit") == 1


def test_a_gpus_fault_is_its_mig_devices_fault_too(fake_node: FakeNode, nvml: Probe) -> None:
    """A switch on the GPU reaches its MIG devices; one on a MIG device stays there."""
    computes = (FakeComputeInstance("MIG-a", slot=0), FakeComputeInstance("MIG-b", slot=1, id=1))
    fake_node.write(gpus(1, mig="on", instances=(FakeGpuInstance(1, GiB, computes),)))
    first, second = nvml.device("MIG-a"), nvml.device("MIG-b")
    fake_node.fail(MEMORY, 999, gpu="MIG-a")
    assert (nvml.code(MEMORY, first), nvml.code(MEMORY, second)) == (999, None)
    fake_node.fail(MEMORY, 15, gpu=fake_node.gpus[0].uuid)
    assert nvml.code(MEMORY, second) == 15


def test_error_strings(fake_node: FakeNode, nvml: Probe) -> None:
    """The words of the real library; what it does not know is an unknown error."""
    fake_node.write(gpus(1))
    assert nvml.ask("nvmlErrorString", 15) == "GPU is lost"
    assert nvml.ask("nvmlErrorString", 4_000) == "Unknown Error"
