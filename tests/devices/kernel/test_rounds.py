"""
From the kernel's files to the metrics: AMD's and Intel's GPUs through the exporter's own round, none of it replaced.

The pods, and what the kubelet handed to them, are said by the test; their processes, cgroups and GPUs are files.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from exporter.devices.kernel import KernelSource
from scraped import series
from sources.kernel import Node
from sources.rounds import Pods, Rounds, cgroup, uid

MIB, GIB = 2**20, 2**30
BUS = "0000:63:00.0"


@pytest.fixture
def pods() -> Pods:
    """No pods."""
    return Pods()


@pytest.fixture
async def rounds(node: Node, pods: Pods) -> AsyncIterator[Rounds]:
    """The exporter on this node."""
    made = Rounds(node, pods)
    yield made
    await made.close()


def mi210(node: Node, used: int) -> None:
    """An MI210 of 64 GiB, of which `used` bytes are in use."""
    node.card(BUS, figures={"mem_info_vram_total": 64 * GIB, "mem_info_vram_used": used, "gpu_busy_percent": 50})
    node.rocm_node(1, 41657, location_id=0x6300, domain=0, drm_render_minor=128, bank=64 * GIB)


def client(number: int, resident: int, *, shared: int = 0) -> str:
    """Write a client of the MI210."""
    return (
        f"drm-driver:\tamdgpu\ndrm-pdev:\t{BUS}\ndrm-client-id:\t{number}\n"
        f"drm-resident-vram:\t{resident}\ndrm-shared-vram:\t{shared}"
    )


async def test_amd_by_container(node: Node, pods: Pods, rounds: Rounds) -> None:
    """Two containers and a process of the host: bytes, declared limits, and accounts that close."""
    mi210(node, 12 * GIB)
    pods.handed = dict.fromkeys("ab", ("amd.com/gpu", (BUS,)))
    pods.asked = {"a": {"amd.com/gpu": "1"}, "b": {"amd.com/gpu": "1"}}
    pods.offered = {"amd.com/gpu": (BUS,)}
    for pid, name in ((100, "a"), (200, "b")):
        node.process(pid, cgroup=f"0::/{cgroup(name)}")
    node.process(300, cgroup="0::/user.slice")
    node.rocm(100, {41657: 4 * GIB}, queues=(41657,))
    node.rocm(200, {41657: 5 * GIB}, queues=(41657,))
    node.descriptor(300, 4, client(9, 2 * GIB))
    page = await rounds.page()
    assert series(page, "container_memory_used_bytes", "pod", "uuid") == {("a", BUS): 4 * GIB, ("b", BUS): 5 * GIB}
    assert series(page, "container_memory_limit_bytes", "pod", "uuid") == {("a", BUS): 64 * GIB, ("b", BUS): 64 * GIB}
    assert series(page, "container_allocated_replicas", "pod", "resource") == {
        ("a", "amd.com/gpu"): 1,
        ("b", "amd.com/gpu"): 1,
    }
    parts = {
        part: series(page, f"device_memory_{part}_bytes", "uuid") for part in ("attributed", "host", "unattributed")
    }
    assert parts == {"attributed": {(BUS,): 9 * GIB}, "host": {(BUS,): 2 * GIB}, "unattributed": {(BUS,): GIB}}
    assert series(page, "gpu_info", "uuid", "vendor", "pci_bus_id") == {(BUS, "amd", BUS): 1}
    assert series(page, "device_utilization_ratio", "uuid") == {(BUS,): 0.5}
    assert series(page, "container_sm_utilization_ratio", "pod") == {}, "ROCm's queues are unknown, not idle"


async def test_hamis_limit_meets_the_gpu(node: Node, pods: Pods, rounds: Rounds) -> None:
    """`amd.com/gpumem` is in MiB, and counts on the GPU that the kubelet handed out."""
    mi210(node, 12 * GIB)
    pods.handed = dict.fromkeys("ab", ("amd.com/gpu", (BUS,)))
    pods.asked = {
        "a": {"amd.com/gpu": "1", "amd.com/gpumem": "4096"},
        "b": {"amd.com/gpu": "1", "amd.com/gpumem": "8k"},
    }
    pods.offered = {"amd.com/gpu": (BUS,), "amd.com/gpumem": ("made-up",)}
    page = await rounds.page()
    assert series(page, "container_memory_limit_bytes", "pod", "uuid") == {("a", BUS): 4 * GIB, ("b", BUS): 8000 * MIB}


async def test_a_fork_adds_a_process_and_no_bytes(node: Node, pods: Pods, rounds: Rounds) -> None:
    """Row 22, on the page: two processes, the bytes of one client."""
    mi210(node, GIB)
    pods.handed = {"a": ("amd.com/gpu", (BUS,))}
    for pid in (4242, 4243):
        node.process(pid, cgroup=f"0::/{cgroup('a')}", start=pid)
        node.descriptor(pid, 10, client(99, 512 * MIB))
    page = await rounds.page()
    assert series(page, "container_processes", "pod") == {("a",): 2}
    assert series(page, "container_memory_used_bytes", "pod") == {("a",): 512 * MIB}


async def test_a_client_in_two_containers_is_surely_nobodys(node: Node, pods: Pods, rounds: Rounds) -> None:
    """Row 23, in the snapshot: the elder counts it; of what it holds none is held against it."""
    mi210(node, GIB)
    pods.handed = dict.fromkeys("ab", ("amd.com/gpu", (BUS,)))
    for pid, name in ((500, "a"), (400, "b")):
        node.process(pid, cgroup=f"0::/{cgroup(name)}", start=1000 - pid)
        node.descriptor(pid, 10, client(99, 512 * MIB))
    usages = {usage.subject.pod_uid: (usage.memory_used, usage.memory_sure) for usage in (await rounds.next()).usages}
    assert usages == {uid("a"): (512 * MIB, 0), uid("b"): (0, None)}


async def test_a_process_that_rocm_lists_and_proc_does_not(node: Node, pods: Pods, rounds: Rounds) -> None:
    """Row 42, on the page: its bytes are a ghost's, and gone in the next round."""
    mi210(node, GIB)
    node.rocm(777, {41657: GIB})
    assert series(await rounds.page(), "device_memory_ghost_bytes", "uuid") == {(BUS,): GIB}
    for file in (node.root / "sys/class/kfd/kfd/proc/777").iterdir():
        file.unlink()
    assert series(await rounds.page(), "device_memory_ghost_bytes", "uuid") == {(BUS,): 0}


async def test_by_kfd_who_is_in_no_list_is_unknown(node: Node, pods: Pods) -> None:
    """
    Vulkan, OpenGL and VA-API are in no file of KFD's. A container that was handed the GPU and has no ROCm process may
    hold any of it, and so has no figure. A container with a ROCm process holds at least that process's memory.
    """
    mi210(node, 40 * GIB)
    pods.handed = dict.fromkeys("ab", ("amd.com/gpu", (BUS,)))
    node.process(100, cgroup=f"0::/{cgroup('a')}")
    node.descriptor(100, 5, client(1, 30 * GIB))
    node.process(200, cgroup=f"0::/{cgroup('b')}")
    node.rocm(200, {41657: 8 * GIB}, queues=(41657,))
    rounds = Rounds(node, pods, KernelSource(node.roots, name="kfd"))
    page = await rounds.page()
    assert series(page, "container_memory_used_bytes", "pod") == {("b",): 8 * GIB}
    assert series(page, "container_processes", "pod") == {("b",): 1}
    assert series(page, "device_memory_unattributed_bytes", "uuid") == {(BUS,): 32 * GIB}
    assert (await rounds.next()).faults == ()
    await rounds.close()


async def test_who_hides_a_process_is_unknown(
    node: Node, pods: Pods, rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A process with more descriptors than are looked at holds 30 GiB. Its container has no figure: the 2 GiB of its other
    process would be wrong. The other container has its own figure, and one that holds nothing has 0.
    """
    monkeypatch.setattr("exporter.devices.kernel.holders.MOST", 16)
    mi210(node, 40 * GIB)
    pods.handed = dict.fromkeys("abc", ("amd.com/gpu", (BUS,)))
    for pid, name, number in ((100, "a", 20), (101, "a", 1), (200, "b", 1), (300, "c", 0)):
        node.process(pid, cgroup=f"0::/{cgroup(name)}")
        for place in range(number):
            node.descriptor(pid, place, client(pid, 30 * GIB if number > 1 else 2 * GIB))
    page = await rounds.page()
    assert series(page, "container_memory_used_bytes", "pod") == {("b",): 2 * GIB, ("c",): 0}
    assert series(page, "container_processes", "pod") == {("b",): 1, ("c",): 0}
    for part in ("attributed", "unattributed"):
        assert series(page, f"device_memory_{part}_bytes", "uuid") == {}, part
    assert [(one.reason, one.incomplete) for one in (await rounds.next()).faults] == [("fdinfo_denied", False)]


async def test_what_the_driver_moves_out_is_time_lost(node: Node, pods: Pods, rounds: Rounds) -> None:
    """
    ROCm: for how long a container's queues were off the GPU, from when it was seen first.

    Time that was lost before does not count. A process that ends takes nothing back. Without ROCm there is no figure.
    """
    mi210(node, 3 * GIB)
    pods.handed = dict.fromkeys("ab", ("amd.com/gpu", (BUS,)))
    for pid in (100, 101):
        node.process(pid, cgroup=f"0::/{cgroup('a')}", start=pid)
        node.rocm(pid, {41657: GIB})
        node.evicted(pid, 41657, 7000)
    node.process(200, cgroup=f"0::/{cgroup('b')}")
    node.descriptor(200, 7, client(2, GIB))
    name = "container_queue_evicted_seconds_total"
    assert series(await rounds.page(), name, "pod") == {("a",): 0}
    node.evicted(100, 41657, 8500)
    node.evicted(101, 41657, 7250)
    assert series(await rounds.page(), name, "pod") == {("a",): 1.75}
    shutil.rmtree(node.root / "sys/class/kfd/kfd/proc/101")
    assert series(await rounds.page(), name, "pod") == {("a",): 1.75}


async def test_a_topology_that_may_not_be_read(
    node: Node, pods: Pods, rounds: Rounds, as_nobody: Callable[[], None]
) -> None:
    """
    Row 43, on the page: what ROCm's processes hold is unknown there, by container as by device.

    It is not unattributed: such memory was measured and belongs to no known process. Here the processes' memory was not
    measured, and the fault says why.
    """
    mi210(node, GIB)
    pods.handed = {"a": ("amd.com/gpu", (BUS,))}
    node.process(500, cgroup=f"0::/{cgroup('a')}")
    node.rocm(500, {41657: GIB})
    node.descriptor(500, 7, client(1, 76 * 1024))
    (node.root / "sys/class/kfd/kfd/topology/nodes/1/gpu_id").chmod(0)
    as_nobody()
    page = await rounds.page()
    assert series(page, "device_memory_used_bytes", "uuid") == {(BUS,): GIB}
    for name in ("container_memory_used_bytes", "device_memory_attributed_bytes", "device_memory_unattributed_bytes"):
        assert series(page, name, "uuid") == {}, name
    assert [fault.reason for fault in (await rounds.next()).faults] == ["kfd_denied"]


async def test_partitions_are_told_apart(node: Node, pods: Pods, rounds: Rounds) -> None:
    """The label `gpu_instance` is the number of the partition; figures of the whole GPU are the GPU's alone."""
    node.card(
        BUS,
        figures={"mem_info_vram_total": 192 * GIB, "mem_info_vram_used": 9 * GIB, "current_compute_partition": "DPX"},
    )
    node.xcp(0, 129)
    for partition in (0, 1):
        node.rocm_node(
            1 + partition, 10 + partition, location_id=0x6300 + partition, domain=0, drm_render_minor=128 + partition,
            bank=96 * GIB,
        )  # fmt: skip
    pods.handed = {"a": ("amd.com/dpx_nps1", ("amdgpu_xcp_0",))}
    pods.asked = {"a": {"amd.com/dpx_nps1": "1"}}
    pods.offered = {"amd.com/dpx_nps1": (BUS, "amdgpu_xcp_0")}
    node.process(100, cgroup=f"0::/{cgroup('a')}")
    node.rocm(100, {10: 0, 11: 7 * GIB}, queues=(11,))
    page = await rounds.page()
    assert series(page, "container_memory_used_bytes", "pod", "gpu_instance") == {("a", "1"): 7 * GIB}
    assert series(page, "container_memory_limit_bytes", "pod", "gpu_instance") == {("a", "1"): 96 * GIB}
    assert series(page, "device_memory_used_bytes", "gpu_instance") == {("0",): 0, ("1",): 7 * GIB}
    assert series(page, "gpu_memory_total_bytes", "uuid") == {(BUS,): 192 * GIB}
    assert series(page, "device_utilization_ratio", "gpu_instance") == {}
    assert series(page, "device_info", "gpu_instance", "profile", "sharing", "mig_uuid") == {
        ("0", "dpx", "mig", "renderD128"): 1,
        ("1", "dpx", "mig", "renderD129,amdgpu_xcp_0"): 1,
    }


def arc(node: Node) -> None:
    """A discrete GPU of Intel's, of 16 GiB."""
    node.card(BUS, driver="xe", number=1, figures={"tile0/physical_vram_size_bytes": 16 * GIB})


def xe(number: int, mib: int) -> str:
    """Write a client of it."""
    return (
        f"drm-driver:\txe\ndrm-pdev:\t{BUS}\ndrm-client-id:\t{number}\n"
        f"drm-resident-vram0:\t{mib} MiB\ndrm-shared-vram0:\t0"
    )


async def test_intel_by_container(node: Node, pods: Pods, rounds: Rounds) -> None:
    """Two shares of one GPU: what each container holds, and how the GPU is shared."""
    arc(node)
    pods.handed = {"a": ("gpu.intel.com/xe", ("card1-0",)), "b": ("gpu.intel.com/xe", ("card1-1",))}
    pods.offered = {"gpu.intel.com/xe": ("card1-0", "card1-1")}
    for pid, name, mib in ((100, "a", 64), (200, "b", 32)):
        node.process(pid, cgroup=f"0::/{cgroup(name)}")
        node.descriptor(pid, 7, xe(pid, mib))
    page = await rounds.page()
    assert series(page, "container_memory_used_bytes", "pod") == {("a",): 64 * MIB, ("b",): 32 * MIB}
    assert series(page, "device_info", "uuid", "sharing", "replicas") == {(BUS, "time-slicing", "2"): 1}
    assert series(page, "device_memory_used_bytes", "uuid") == {(BUS,): 96 * MIB}


async def test_without_the_right_to_look_nothing_is_zero(
    node: Node, pods: Pods, rounds: Rounds, as_nobody: Callable[[], None]
) -> None:
    """A container that was handed the GPU has no series of bytes, and the device none of use."""
    arc(node)
    (node.root / "proc/1/fd").chmod(0)
    pods.handed = {"a": ("gpu.intel.com/xe", ("card1-0",))}
    as_nobody()
    page = await rounds.page()
    for name in ("container_memory_used_bytes", "container_processes", "device_memory_used_bytes"):
        assert series(page, name, "uuid") == {}, name
    assert series(page, "gpu_up", "uuid") == {(BUS,): 1}
    assert series(page, "source_up", "source")[("devices",)] == 1


async def test_the_kernels_count_is_preferred(node: Node, pods: Pods, rounds: Rounds) -> None:
    """A container's cgroup has each buffer once: it counts in place of what the processes' clients add up to."""
    arc(node)
    pods.handed = {"a": ("gpu.intel.com/xe", ("card1-0",))}
    node.process(100, cgroup=f"0::/{cgroup('a')}")
    node.descriptor(100, 7, xe(1, 64))
    node.process(300, cgroup="0::/user.slice")
    node.descriptor(300, 7, xe(2, 16))
    node.cgroup("", {"capacity": f"drm/{BUS}/vram0 {16 * GIB}\n", "current": f"drm/{BUS}/vram0 {128 * MIB}\n"})
    node.cgroup(
        cgroup("a"),
        {
            "current": f"drm/{BUS}/vram0 {48 * MIB}\n",
            "max": f"drm/{BUS}/vram0 {GIB}\n",
            "peak": f"drm/{BUS}/vram0 {80 * MIB}\n",
        },
    )
    page = await rounds.page()
    assert series(page, "container_memory_used_bytes", "pod") == {("a",): 48 * MIB}
    assert series(page, "container_memory_peak_bytes", "pod") == {("a",): 80 * MIB}
    assert series(page, "container_memory_kernel_limit_bytes", "pod") == {("a",): GIB}
    parts = {
        part: series(page, f"device_memory_{part}_bytes", "uuid") for part in ("attributed", "host", "unattributed")
    }
    assert parts == {"attributed": {(BUS,): 48 * MIB}, "host": {(BUS,): 16 * MIB}, "unattributed": {(BUS,): 64 * MIB}}


async def test_the_kernels_count_needs_no_right_to_look(
    node: Node, pods: Pods, rounds: Rounds, as_nobody: Callable[[], None]
) -> None:
    """Processes are unknown, and so is their number; what the container holds is known all the same."""
    arc(node)
    (node.root / "proc/1/fd").chmod(0)
    pods.handed = dict.fromkeys("ab", ("gpu.intel.com/xe", ("card1-0",)))
    node.cgroup("", {"capacity": f"drm/{BUS}/vram0 {16 * GIB}\n", "current": f"drm/{BUS}/vram0 {128 * MIB}\n"})
    node.cgroup(cgroup("a"), {"current": f"drm/{BUS}/vram0 {48 * MIB}\n", "max": f"drm/{BUS}/vram0 max\n"})
    as_nobody()
    page = await rounds.page()
    assert series(page, "container_memory_used_bytes", "pod") == {("a",): 48 * MIB}
    assert series(page, "container_processes", "pod") == {}
    assert series(page, "container_memory_kernel_limit_bytes", "pod") == {}


async def test_engines_reach_the_container(node: Node, pods: Pods, rounds: Rounds) -> None:
    """A graphics client's engine time is its container's share of the GPU, from the second round on."""
    mi210(node, GIB)
    pods.handed = {"a": ("amd.com/gpu", (BUS,))}
    node.process(100, cgroup=f"0::/{cgroup('a')}")
    node.descriptor(100, 7, client(1, GIB) + "\ndrm-engine-gfx:\t0 ns")
    assert series(await rounds.page(), "container_sm_utilization_ratio", "pod") == {}
    node.fdinfo(100, 7, client(1, GIB) + f"\ndrm-engine-gfx:\t{10**15} ns")
    assert series(await rounds.page(), "container_sm_utilization_ratio", "pod") == {("a",): 1}


def test_rounds_leave_no_thread_waiting(tmp_path: Path) -> None:
    """The source ends within a second, also one that never read anything."""
    source = KernelSource(Node(tmp_path / "node").roots)
    asyncio.run(source.close())
