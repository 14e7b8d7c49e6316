"""The fake driver's devices, memory, health, init and events, seen through the real pynvml."""

from __future__ import annotations

from dataclasses import replace

import pytest

from driver.node import FakeNode, FakeProcess, GiB, MiB, Variant, gpus
from driver.probe import Handle, Probe

MEMORY_V2 = 0x02000028


def test_inventory_is_what_the_node_file_says(fake_node: FakeNode, nvml: Probe) -> None:
    """Index order, uuid, name, PCI address, minor number and versions come back as they were written."""
    fake_node.write(gpus(2, name="NVIDIA Test"), driver="580.65.06", cuda=13000)
    assert nvml.ask("nvmlDeviceGetCount") == 2
    handle = nvml.ask("nvmlDeviceGetHandleByIndex", 1)
    assert nvml.ask("nvmlDeviceGetUUID", handle) == fake_node.gpus[1].uuid
    assert nvml.ask("nvmlDeviceGetName", handle) == "NVIDIA Test"
    assert nvml.ask("nvmlDeviceGetIndex", handle) == 1
    assert nvml.ask("nvmlDeviceGetMinorNumber", handle) == 1
    pci = nvml.ask("nvmlDeviceGetPciInfo", handle)
    assert (pci["busId"], pci["busIdLegacy"]) == ("00000000:11:00.0", "0000:11:00.0")
    assert (pci["domain"], pci["bus"], pci["device"]) == (0, 0x11, 0)
    assert nvml.ask("nvmlDeviceGetHandleByPciBusId", b"0000:11:00.0") == handle
    assert nvml.device(fake_node.gpus[1].uuid) == handle
    assert nvml.ask("nvmlSystemGetDriverVersion") == "580.65.06"
    assert nvml.ask("nvmlSystemGetNVMLVersion") == "13.580.65.06"
    assert nvml.ask("nvmlSystemGetCudaDriverVersion") == nvml.ask("nvmlSystemGetCudaDriverVersion_v2") == 13000


def test_memory_versions_differ_in_reserved(fake_node: FakeNode, nvml: Probe) -> None:
    """v1 counts reserved inside used, v2 apart; a switch makes v2 do as v1 (the header and the change log disagree)."""
    fake_node.write(gpus(1, total=40 * GiB, reserved=600 * MiB, other=GiB))
    with_process = fake_node.spawn(f"alloc 0 {2 * GiB}")
    handle = nvml.device(fake_node.gpus[0].uuid)
    used, free = 3 * GiB, 37 * GiB - 600 * MiB
    v1 = nvml.ask("nvmlDeviceGetMemoryInfo", handle)
    v2 = nvml.ask("nvmlDeviceGetMemoryInfo", handle, MEMORY_V2)
    assert v1 == {"total": 40 * GiB, "free": free, "used": used + 600 * MiB}
    assert v2 == {"version": MEMORY_V2, "total": 40 * GiB, "reserved": 600 * MiB, "free": free, "used": used}
    fake_node.set_switch("reserved_in_used")
    assert nvml.ask("nvmlDeviceGetMemoryInfo", handle, MEMORY_V2)["used"] == used + 600 * MiB
    with_process.close()
    assert nvml.ask("nvmlDeviceGetMemoryInfo", handle)["used"] == GiB + 600 * MiB


def test_a_gpu_without_a_value_says_not_supported(fake_node: FakeNode, nvml: Probe) -> None:
    """A key that is left out is NOT_SUPPORTED, never zero (memory as on GB10, power as on vGPU)."""
    fake_node.write(gpus(1, total=None, power_mw=None, ecc_corrected=None))
    handle = nvml.device(fake_node.gpus[0].uuid)
    for question in (
        ("nvmlDeviceGetMemoryInfo", handle),
        ("nvmlDeviceGetPowerUsage", handle),
        ("nvmlDeviceGetTotalEccErrors", handle, 0, 0),
    ):
        assert nvml.code(*question) == 3
    assert nvml.ask("nvmlDeviceGetTotalEccErrors", handle, 1, 0) == 0


def test_health_is_what_the_node_file_says(fake_node: FakeNode, nvml: Probe) -> None:
    """Power, energy, temperature, clocks, throttling, ECC, modes: each number reaches its own function."""
    fake_node.write(gpus(1, power_mw=61_001, energy_mj=1 << 40, temperature=42, clock_graphics=1, clock_sm=2,
                         clock_memory=3, clock_video=4, throttle=0x44, ecc_corrected=7, ecc_uncorrected=8,
                         compute_mode=3, persistence=0))  # fmt: skip
    handle = nvml.device(fake_node.gpus[0].uuid)
    assert nvml.ask("nvmlDeviceGetPowerUsage", handle) == 61_001
    assert nvml.ask("nvmlDeviceGetTotalEnergyConsumption", handle) == 1 << 40
    assert nvml.ask("nvmlDeviceGetTemperature", handle, 0) == nvml.ask("nvmlDeviceGetTemperatureV", handle, 0) == 42
    assert [nvml.ask("nvmlDeviceGetClockInfo", handle, clock) for clock in range(4)] == [1, 2, 3, 4]
    assert nvml.ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle) == 0x44
    assert nvml.ask("nvmlDeviceGetCurrentClocksEventReasons", handle) == 0x44
    assert [nvml.ask("nvmlDeviceGetTotalEccErrors", handle, kind, 1) for kind in (0, 1)] == [7, 8]
    assert nvml.ask("nvmlDeviceGetMemoryErrorCounter", handle, 1, 0, 2) == 8
    assert nvml.ask("nvmlDeviceGetComputeMode", handle) == 3
    assert nvml.ask("nvmlDeviceGetPersistenceMode", handle) == 0
    assert nvml.code("nvmlGpmQueryDeviceSupport", handle) == 3


def test_gpus_come_and_go_at_run_time(fake_node: FakeNode, nvml: Probe) -> None:
    """A GPU that fell off answers GPU_IS_LOST through its old handle; a new one is there at once; indices move."""
    first, second, third = gpus(3)
    fake_node.write([first, second])
    handle = nvml.device(first.uuid)
    fake_node.write([second, third])
    assert nvml.code("nvmlDeviceGetMemoryInfo", handle) == 15
    assert nvml.code("nvmlDeviceGetHandleByUUID", first.uuid.encode()) == 6
    assert nvml.ask("nvmlDeviceGetIndex", nvml.device(second.uuid)) == 0
    assert nvml.ask("nvmlDeviceGetIndex", nvml.device(third.uuid)) == 1


def test_editing_the_node_in_place_is_seen_at_once(fake_node: FakeNode, nvml: Probe) -> None:
    """A hundred replacements in a row, each is seen by the next call: no stale picture through a cache."""
    handle = None
    for total in range(GiB, GiB + 100):
        fake_node.write(gpus(1, total=total))
        handle = handle or nvml.device(fake_node.gpus[0].uuid)
        assert nvml.ask("nvmlDeviceGetMemoryInfo", handle)["total"] == total


def test_a_handle_that_was_never_given_is_an_invalid_argument(fake_node: FakeNode, nvml: Probe) -> None:
    """Garbage instead of a handle: INVALID_ARGUMENT, no crash."""
    fake_node.write(gpus(1))
    assert nvml.code("nvmlDeviceGetUUID", Handle(0x1234, "c_nvmlDevice_t")) == 2
    assert nvml.code("nvmlDeviceGetHandleByIndex", 1) == 2


def test_without_a_driver_init_says_so(fake_node: FakeNode, nvml: Probe) -> None:
    """No driver: init answers DRIVER_NOT_LOADED. Gone while we run: UNINITIALIZED. Back again: all is well."""
    assert nvml.code("nvmlDeviceGetCount") == 9
    fake_node.write(gpus(1))
    assert nvml.ask("nvmlDeviceGetCount") == 1
    fake_node.unload_driver()
    assert nvml.code("nvmlDeviceGetCount") == 1
    fake_node.write(gpus(1))
    assert nvml.ask("nvmlDeviceGetCount") == 1


def test_init_and_shutdown_are_counted_in_pairs(fake_node: FakeNode, nvml: Probe) -> None:
    """After as many shutdowns as inits everything is UNINITIALIZED, and one more shutdown is too."""
    fake_node.write(gpus(1))
    assert nvml.ask("nvmlDeviceGetCount") == 1
    while (code := nvml.code("nvmlShutdown")) is None:
        pass
    assert code == 1
    assert nvml.code("nvmlDeviceGetCount") == 1
    nvml.ask("nvmlInit")
    assert nvml.ask("nvmlDeviceGetCount") == 1


def test_an_xid_reaches_the_set_that_registered_its_gpu(fake_node: FakeNode, nvml: Probe) -> None:
    """Events come in order, for registered GPUs and types only; then the wait times out with TIMEOUT."""
    first, second = gpus(2)
    fake_node.write([first, second])
    events = nvml.ask("nvmlEventSetCreate")
    handle = nvml.device(first.uuid)
    nvml.ask("nvmlDeviceRegisterEvents", handle, 0x8, events)
    fake_node.inject_mig_change(first.uuid)
    fake_node.inject_xid(second.uuid, 79)
    fake_node.inject_xid(first.uuid, 43)
    event = nvml.ask("nvmlEventSetWait_v2", events, 1000)
    assert (event["device"], event["eventType"], event["eventData"]) == (handle, 8, 43)
    assert nvml.code("nvmlEventSetWait_v2", events, 10) == 10
    nvml.ask("nvmlEventSetFree", events)
    assert nvml.ask("nvmlDeviceGetSupportedEventTypes", handle) == 0x108


@pytest.mark.parametrize(
    ("variant", "present", "absent"),
    [
        (Variant.MODERN, "nvmlDeviceGetRunningProcessDetailList", "nvmlDeviceSetMemoryLimits_v2"),
        (Variant.MODERN, "nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetMemoryLimits_v2"),
        (Variant.ABI535, "nvmlDeviceGetConfComputeMemSizeInfo", "nvmlDeviceSetMemoryLimits_v1"),
        (Variant.ABI535, "nvmlDeviceGetConfComputeMemSizeInfo", "nvmlDeviceGetRunningProcessDetailList"),
        (Variant.OLD, "nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses_v3"),
        (Variant.OLD, "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetConfComputeMemSizeInfo"),
        (Variant.ANCIENT, "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2"),
    ],
)
def test_what_a_variant_lacks_is_not_in_the_library(
    fake_node: FakeNode, probes: dict[Variant, Probe], variant: Variant, present: str, absent: str
) -> None:
    """Symbols are really there or really not: the daemon tells the 535 ABI break by their presence."""
    fake_node.write(gpus(1))
    assert probes[variant].ask(f"has:{present}")
    assert not probes[variant].ask(f"has:{absent}")


def test_charged_or_not_is_the_tests_choice(fake_node: FakeNode, nvml: Probe) -> None:
    """Injected processes count in device memory unless they are not `charged`; unknown bytes count nowhere."""
    (gpu,) = gpus(1)
    injected = (FakeProcess(1, GiB), FakeProcess(2, GiB, charged=False), FakeProcess(3, None))
    fake_node.write([replace(gpu, processes=injected)])
    assert nvml.ask("nvmlDeviceGetMemoryInfo", nvml.device(gpu.uuid))["used"] == GiB
