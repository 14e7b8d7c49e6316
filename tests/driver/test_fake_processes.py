"""The fake driver's process lists through the real pynvml: which process is listed, where, and under which number."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from driver.namespaces import in_new_namespace
from driver.node import FakeNode, FakeProcess, GiB, Kind, MiB, Variant, Workload, gpus, until
from driver.probe import Handle, Probe, Refused

COMPUTE = "nvmlDeviceGetComputeRunningProcesses"
GRAPHICS = "nvmlDeviceGetGraphicsRunningProcesses"
MPS = "nvmlDeviceGetMPSComputeRunningProcesses"
DETAIL_VERSION = 0x1000018
INITIAL_NAMESPACE = "pid:[4026531836]"


@pytest.fixture
def gpu(fake_node: FakeNode, nvml: Probe) -> Handle:
    """The handle of the only GPU of a node."""
    fake_node.write(gpus(1))
    return nvml.device(fake_node.gpus[0].uuid)


def listed(nvml: Probe, gpu: Handle, function: str = COMPUTE) -> dict[int, int | None]:
    entries = nvml.ask(function, gpu)
    assert len({entry["pid"] for entry in entries}) == len(entries)
    return {entry["pid"]: entry["usedGpuMemory"] for entry in entries}


def used(nvml: Probe, gpu: Handle) -> int:
    bytes_used: int = nvml.ask("nvmlDeviceGetMemoryInfo", gpu)["used"]
    return bytes_used


def test_a_process_is_in_each_list_of_its_kinds_with_all_its_memory(
    fake_node: FakeNode, nvml: Probe, gpu: Handle
) -> None:
    """C+G and M+C processes are listed twice, each time whole: adding the lists would count double."""
    both = fake_node.spawn(f"alloc 0 {GiB} compute", f"alloc 0 {MiB} graphics")
    client = fake_node.spawn(f"alloc 0 {GiB} mps+compute")
    assert listed(nvml, gpu) == {both.pid: GiB + MiB, client.pid: GiB}
    assert listed(nvml, gpu, GRAPHICS) == {both.pid: GiB + MiB}
    assert listed(nvml, gpu, MPS) == {client.pid: GiB}
    assert used(nvml, gpu) == 2 * GiB + MiB


def test_an_empty_list_is_empty(fake_node: FakeNode, nvml: Probe, gpu: Handle) -> None:
    """No process: SUCCESS at the size call, an empty list."""
    assert nvml.ask(COMPUTE, gpu) == nvml.ask(GRAPHICS, gpu) == nvml.ask(MPS, gpu) == []


def test_all_versions_list_the_same(fake_node: FakeNode, probes: dict[Variant, Probe]) -> None:
    """16-byte entries of v1, 24-byte entries of v2 and v3, 32-byte entries of the detail list: one truth."""
    fake_node.write(gpus(1))
    jobs = [fake_node.spawn(f"alloc 0 {size}") for size in (GiB, MiB, 0)]
    truth = {job.pid: size for job, size in zip(jobs, (GiB, MiB, 0), strict=True)}
    for variant, function in (
        (Variant.ANCIENT, "v1:compute"),
        (Variant.OLD, f"{COMPUTE}_v2"),
        (Variant.ABI535, f"{COMPUTE}_v2"),
        (Variant.MODERN, f"{COMPUTE}_v3"),
    ):
        nvml = probes[variant]
        assert listed(nvml, nvml.device(fake_node.gpus[0].uuid), function) == truth, variant
    nvml = probes[Variant.MODERN]
    details = nvml.ask("nvmlDeviceGetRunningProcessDetailList", nvml.device(fake_node.gpus[0].uuid), DETAIL_VERSION, 3)
    assert {entry["pid"]: entry["usedGpuMemory"] for entry in details} == truth


def test_535_lists_garbage_through_v3(fake_node: FakeNode, probes: dict[Variant, Probe]) -> None:
    """The ABI break: read with 24-byte entries, the first is right and the second is not (nvitop#75)."""
    gpu = replace(gpus(1)[0], processes=tuple(FakeProcess(pid, GiB) for pid in (11, 12, 13)))
    fake_node.write([gpu])
    nvml = probes[Variant.ABI535]
    entries = nvml.ask(f"{COMPUTE}_v3", nvml.device(gpu.uuid))
    assert (entries[0]["pid"], entries[0]["usedGpuMemory"]) == (11, GiB)
    assert entries[1]["pid"] not in (11, 12, 13)


def test_without_v3_pynvml_raises_what_is_no_nvml_error(fake_node: FakeNode, probes: dict[Variant, Probe]) -> None:
    """On an old library the plain name raises NVMLLibraryMismatchError, which is no NVMLError."""
    fake_node.write(gpus(1))
    nvml = probes[Variant.OLD]
    with pytest.raises(Refused, match="NVMLLibraryMismatchError") as refused:
        nvml.ask(COMPUTE, nvml.device(fake_node.gpus[0].uuid))
    assert refused.value.code is None


def test_memory_that_the_driver_does_not_tell_is_none(fake_node: FakeNode, nvml: Probe, gpu: Handle) -> None:
    """2^64-1 becomes None in pynvml, by switch for all processes or injected for one."""
    job = fake_node.spawn(f"alloc 0 {GiB}")
    fake_node.set_switch("memory_unavailable")
    assert listed(nvml, gpu) == {job.pid: None}
    fake_node.clear_switch("memory_unavailable")
    fake_node.write([replace(fake_node.gpus[0], processes=(FakeProcess(4711, None),))])
    assert listed(nvml, gpu) == {job.pid: GiB, 4711: None}


def test_garbage_is_listed_as_it_was_injected(fake_node: FakeNode, nvml: Probe, gpu: Handle) -> None:
    """Pid 0, numbers that never were, and duplicates stay as they are."""
    garbage = (FakeProcess(0, 1), FakeProcess(4_000_000_000, 2), FakeProcess(7, 3), FakeProcess(7, 3))
    fake_node.write([replace(fake_node.gpus[0], processes=garbage)])
    entries = nvml.ask(COMPUTE, gpu)
    assert [(e["pid"], e["usedGpuMemory"]) for e in entries] == [(0, 1), (4_000_000_000, 2), (7, 3), (7, 3)]


def test_a_list_that_grows_between_size_and_data(fake_node: FakeNode, nvml: Probe, gpu: Handle) -> None:
    """pynvml leaves room for 2n+5, none in the detail list: up to there a longer list, beyond INSUFFICIENT_SIZE."""
    fake_node.spawn("alloc 0 1")
    fake_node.set_switch(f"growth.{COMPUTE}", 6)
    assert len(nvml.ask(COMPUTE, gpu)) == 7
    fake_node.set_switch(f"growth.{COMPUTE}", 7, times=1)
    assert nvml.code(COMPUTE, gpu) == 7
    assert len(nvml.ask(COMPUTE, gpu)) == 1
    fake_node.set_switch("growth.nvmlDeviceGetRunningProcessDetailList", 1)
    assert nvml.code("nvmlDeviceGetRunningProcessDetailList", gpu, DETAIL_VERSION, 0) == 7


def test_a_count_has_nothing_to_do_with_what_is_there(fake_node: FakeNode, nvml: Probe, gpu: Handle) -> None:
    """A list counts what the switch says and brings nothing, or says that it brought as much; so do GPUs and slots."""
    fake_node.spawn("alloc 0 1")
    fake_node.set_switch(f"count.{COMPUTE}", 3)
    assert nvml.code(COMPUTE, gpu) == 7
    fake_node.set_switch(f"count.{COMPUTE}", "3 told")
    assert [entry["pid"] for entry in nvml.ask(COMPUTE, gpu)] == []
    fake_node.set_switch("count.nvmlDeviceGetCount", 4000000000)
    assert nvml.ask("nvmlDeviceGetCount") == 4000000000
    fake_node.set_switch("count.nvmlDeviceGetMaxMigDeviceCount", 99)
    assert nvml.ask("nvmlDeviceGetMaxMigDeviceCount", gpu) == 99


def test_a_thread_id_driver_lists_the_thread(fake_node: FakeNode, nvml: Probe, gpu: Handle) -> None:
    """On drivers with the bug two threads of a process are two entries; else one with the sum."""
    job = fake_node.spawn(f"alloc 0 {GiB}")
    says = job.thread(0, MiB)
    leader, thread = says.tids
    assert leader == job.pid != thread
    assert listed(nvml, gpu) == {job.pid: GiB + MiB}
    fake_node.set_switch("thread_ids")
    assert listed(nvml, gpu) == {job.pid: GiB, thread: MiB}
    assert f"Tgid:\t{job.pid}\n" in Path(f"/proc/{thread}/status").read_text()


def test_memory_of_a_dead_owner_stays_while_a_child_holds_it(fake_node: FakeNode, nvml: Probe, gpu: Handle) -> None:
    """Fork, then the parent dies: memory stays charged, to a number that is no process any more."""
    job = fake_node.spawn(f"alloc 0 {GiB}")
    owner, says = job.pid, job.fork("exit")
    job.wait()
    assert says.pid != owner
    assert not Path(f"/proc/{owner}").exists()
    assert used(nvml, gpu) == GiB
    assert listed(nvml, gpu) == ({owner: GiB} if str(Path("/proc/self/ns/pid").readlink()) == INITIAL_NAMESPACE else {})
    os.kill(says.pid, 9)
    until(lambda: used(nvml, gpu) == 0, "the memory to be given back")
    assert listed(nvml, gpu) == {}


def test_a_zombie_owner_is_listed_while_its_child_holds(fake_node: FakeNode, nvml: Probe, gpu: Handle) -> None:
    """An owner that its parent did not reap is listed, and /proc says Z."""
    job = fake_node.spawn()
    says = job.ghost(0, GiB, reaped=False)
    (owner,) = says.processes
    assert "State:\tZ" in Path(f"/proc/{owner}/status").read_text()
    assert listed(nvml, gpu) == {owner: GiB}


def test_a_process_whose_first_thread_ended_is_listed(fake_node: FakeNode, nvml: Probe, gpu: Handle) -> None:
    """The leader is a zombie, the process lives and holds: the number in the list is the leader's."""
    job = fake_node.spawn(f"alloc 0 {GiB}")
    job.zombie()
    assert "State:\tZ" in Path(f"/proc/{job.pid}/status").read_text()
    assert listed(nvml, gpu) == {job.pid: GiB}
    assert job.alloc(0, MiB).total == GiB + MiB
    assert listed(nvml, gpu) == {job.pid: GiB + MiB}


def test_killed_means_given_back(fake_node: FakeNode, nvml: Probe, gpu: Handle) -> None:
    """SIGKILL frees everything without an act of the process, and the files that it leaves are no memory."""
    job = fake_node.spawn(f"alloc 0 {GiB}")
    job.kill()
    assert job.wait() == -9
    assert (used(nvml, gpu), listed(nvml, gpu)) == (0, {})
    assert list((fake_node.folder / "alloc").glob("[!.]*"))


def test_an_owner_in_another_namespace_has_our_number(fake_node: FakeNode, nvml: Probe, gpu: Handle) -> None:
    """The kernel translates: a container's PID 1 is listed under the number that it has for us, thread ids too."""
    job = fake_node.spawn(f"alloc 0 {GiB}", prefix=in_new_namespace("--mount-proc"))
    says = job.thread(0, MiB)
    assert says.pid == 1
    ((ours, size),) = listed(nvml, gpu).items()
    assert size == GiB + MiB
    status = Path(f"/proc/{ours}/status").read_text()
    assert f"NSpid:\t{ours}\t1\n" in status
    fake_node.set_switch("thread_ids")
    numbers = set(listed(nvml, gpu))
    assert ours in numbers and len(numbers) == 2
    (thread,) = numbers - {ours}
    assert f"NSpid:\t{thread}\t{says.tids[1]}\n" in Path(f"/proc/{thread}/status").read_text()


READER = """
import pynvml as p
p.nvmlInit()
handle = p.nvmlDeviceGetHandleByIndex(0)
print(len(p.nvmlDeviceGetComputeRunningProcesses(handle)), p.nvmlDeviceGetMemoryInfo(handle).used)
"""


def test_a_reader_in_another_namespace_sees_a_short_list(fake_node: FakeNode, gpu: Handle) -> None:
    """Without hostPID a modern driver leaves out processes that we cannot see; device memory is complete."""
    fake_node.spawn(f"alloc 0 {GiB}")
    done = subprocess.run(
        [*in_new_namespace("--mount-proc"), sys.executable, "-c", READER],
        env={**os.environ, **fake_node.environment()},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["0", str(GiB)]


def test_hundreds_of_locks_elsewhere_hide_nobody(fake_node: FakeNode, nvml: Probe, gpu: Handle) -> None:
    """/proc/locks is read in pieces while others come and go: the list is complete each time all the same."""
    job = fake_node.spawn(f"children 40 0 {MiB}")
    churn: list[Workload] = [fake_node.spawn("alloc 0 1", wait=False) for _ in range(20)]
    truth = set(job.says().processes)
    for _ in range(20):
        assert truth <= set(listed(nvml, gpu))
    for other in churn:
        other.ready()
    assert len(listed(nvml, gpu)) == 60


def test_allocating_on_two_gpus_is_listed_on_both(fake_node: FakeNode, nvml: Probe) -> None:
    """Each GPU lists what is held on it, no more; `graphics` alone is on no compute list."""
    fake_node.write(gpus(2))
    job = fake_node.spawn(f"alloc 0 {GiB}")
    job.alloc(1, MiB, Kind.GRAPHICS)
    first, second = (nvml.device(gpu.uuid) for gpu in fake_node.gpus)
    assert listed(nvml, first) == {job.pid: GiB}
    assert listed(nvml, second) == {}
    assert listed(nvml, second, GRAPHICS) == {job.pid: MiB}
