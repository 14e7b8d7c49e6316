"""
AMD's and Intel's GPUs, read from files by the daemon's own source.

The numbers of KFD's topology are those of an MI308X and an MI300X in the test data of ROCm/k8s-device-plugin. Those of
the Radeon of row 45 are from elementary/monitor#369. Those of dmem are from the kernel's documentation.
"""

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from exporter.devices import DevicesSample
from exporter.devices.kernel import Counting, KernelSource
from exporter.devices.kernel.holders import SECONDS, scan
from exporter.devices.open_files import Mounts
from exporter.devices.thread import DEADLINE
from exporter.model import Collector, DeviceKey, GpuSample, GpuUuid, Health, Memory, Utilization
from sources.kernel import ELSEWHERE, OPENED, Node

MIB, GIB = 2**20, 2**30
POD = "kubepods/burstable/pod11111111-1111-1111-1111-111111111111"
CONTAINER = f"0::/{POD}/{'a' * 64}"
OTHERS = f"0::/{POD.replace('1111', '2222')}/{'b' * 64}"


@dataclass
class Time:
    """Both clocks, as the test sets them."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Reader:
    """A source over a node of files, and the counts beside it; `read` is a round, a second after the one before."""

    node: Node
    name: str = "drm"
    time: Time = field(default_factory=Time)
    _source: Counting | None = None

    async def sample(self) -> DevicesSample:
        """Read everything."""
        self.time.now += 1.0
        if self._source is None:
            source = KernelSource(self.node.roots, name=self.name, clock=self.time, monotonic=self.time)
            self._source = Counting(source, self.node.roots.cgroup, DEADLINE)
        return await self._source.sample()

    async def close(self) -> None:
        """End the threads."""
        if self._source is not None:
            await self._source.close()

    async def one(self) -> GpuSample:
        """Read the only GPU."""
        (sample,) = (await self.sample()).samples
        return sample


@pytest.fixture
async def reader(node: Node) -> AsyncIterator[Reader]:
    """Reads by DRM and KFD."""
    reads = Reader(node)
    yield reads
    await reads.close()


@pytest.fixture
async def rocm(node: Node) -> AsyncIterator[Reader]:
    """Reads by KFD alone."""
    reads = Reader(node, "kfd")
    yield reads
    await reads.close()


def mi308x(node: Node, *, mode: str = "CPX") -> None:
    """Rows 34, 35 and 37: a CPU, two partitions of one GPU, and one of another."""
    node.card("0000:0a:00.0", minor=128, figures={"current_compute_partition": f"{mode}\n", **vram(192)})
    node.card("0000:80:00.0", minor=136, number=8, figures={"current_compute_partition": "SPX\n", **vram(192)})
    node.xcp(0, 129)
    node.xcp(9, 137)  # exists, though unused: KFD does not name it
    node.rocm_node(0, 0, simd_count=0, cpu_cores_count=96, drm_render_minor=0, location_id=0, domain=0)
    node.rocm_node(
        2, 24248, location_id=2560, domain=0, drm_render_minor=128, local_mem_size=0, bank=51539607552, simd_count=304
    )
    node.rocm_node(
        3,
        41657,
        location_id=2561,
        domain=0,
        drm_render_minor=129,
        local_mem_size=0,
        unique_id=598046273873802902,
        bank=51539607552,
        simd_count=304,
    )
    node.rocm_node(6, 22879, location_id=32768, domain=0, drm_render_minor=136, bank=206158430208, simd_count=1216)


def vram(total: int, used: int = 0) -> dict[str, str | int]:
    """Write amdgpu's figures of memory, in GiB."""
    return {"mem_info_vram_total": total * GIB, "mem_info_vram_used": used * GIB}


def mi210(node: Node, *, used: int = 0, gpus: int = 1) -> None:
    """One or more whole GPUs of 64 GiB, the first of which KFD calls 41657."""
    node.rocm_node(0, 0, cpu_cores_count=64, location_id=0, domain=0, drm_render_minor=0)
    for number in range(gpus):
        bus = 0x63 + number
        node.card(f"0000:{bus:02x}:00.0", number=number, minor=128 + number, figures=vram(64, used))
        node.rocm_node(
            1 + number, 41657 + number, location_id=bus << 8, domain=0, drm_render_minor=128 + number, bank=64 * GIB
        )


def amdgpu(number: int, mib: float, *more: str, pdev: str = "0000:63:00.0", shared: int = 0) -> str:
    """Write what amdgpu prints of a client."""
    size = int(mib * 1024)
    return "\n".join(
        [
            "drm-driver:\tamdgpu",
            f"drm-pdev:\t{pdev}",
            f"drm-client-id:\t{number}",
            f"drm-resident-vram:\t{size} KiB",
            f"drm-memory-vram:\t{size} KiB",
            f"drm-shared-vram:\t{shared} KiB" if shared else "drm-shared-vram:\t0",
            *more,
        ]
    )


def held(sample: GpuSample) -> Mapping[int, int | None]:
    """Name the bytes of each process."""
    assert sample.processes is not None
    return {process.pid: process.memory for process in sample.processes}


def reasons(sample: DevicesSample) -> set[tuple[str, str]]:
    """Return each fault's reason, and the device that it is about."""
    faults = [*sample.faults, *(fault for one in sample.samples for fault in one.faults)]
    return {(fault.reason, fault.subject) for fault in faults}


async def test_partitions_are_leaf_devices(node: Node, rocm: Reader) -> None:
    """Rows 34 to 37: location 2561 is partition 1 of 0000:0a:00.0; a CPU and unused render nodes are nothing."""
    mi308x(node)
    sample = await rocm.sample()
    divided, whole = (one.gpu for one in sample.samples)
    assert [key for key, _, _ in divided.leaves()] == [DeviceKey(divided.uuid, 0), DeviceKey(divided.uuid, 1)]
    assert (divided.uuid, divided.pci_bus_id, divided.mig) == ("0000:0a:00.0", "0000:0a:00.0", True)
    assert [instance.mig_uuids for instance in divided.instances] == [("renderD128",), ("renderD129", "amdgpu_xcp_0")]
    assert {instance.memory.total for instance in divided.instances if instance.memory} == {48 * GIB}
    assert [key for key, _, _ in whole.leaves()] == [DeviceKey(GpuUuid("0000:80:00.0"))]
    assert sample.present == {divided.uuid: 0, whole.uuid: 1}
    assert {gpu.vendor for gpu in (divided, whole)} == {"amd"}


async def test_engines_say_nothing_of_partitions(node: Node, reader: Reader) -> None:
    """A process may be on several of them under one number: how busy it keeps each is not reported."""
    mi308x(node)
    node.process(500, cgroup=CONTAINER)
    node.rocm(500, {41657: GIB, 24248: GIB})
    divided, whole = (await reader.sample()).samples
    assert [process.device.gpu_instance for process in divided.processes or ()] == [0, 1]
    assert (divided.utilization, whole.utilization) == (None, ())


async def test_memory_of_the_host_is_no_memory_of_the_gpu(node: Node, rocm: Reader) -> None:
    """A node of KFD's may have banks of other kinds: those of the frame buffer count, visible to the CPU or not."""
    node.card("0000:0a:00.0", figures={"current_compute_partition": "DPX\n", **vram(192)})
    node.rocm_node(1, 10, location_id=0x0A01, domain=0, drm_render_minor=128, bank=48 * GIB)
    for bank, kind in enumerate((2, 0, 4), 1):
        file = f"sys/class/kfd/kfd/topology/nodes/1/mem_banks/{bank}/properties"
        node.write(file, f"heap_type {kind}\nsize_in_bytes {16 * GIB}\n")
    (instance,) = (await rocm.one()).gpu.instances
    assert instance.memory is not None and instance.memory.total == 64 * GIB


async def test_what_is_no_file_is_no_device(node: Node, reader: Reader) -> None:
    """A socket, a pipe, an epoll: whatever their record says, they are passed over, and so are thousands of them."""
    mi210(node)
    node.process(4242, cgroup=CONTAINER)
    for number, name in enumerate(("socket:[5]", "pipe:[6]", "anon_inode:[eventpoll]")):
        node.descriptor(4242, number, amdgpu(number, 1), name=name)
    assert held(await reader.one()) == {}


async def test_a_partition_that_we_see_alone_is_still_a_partition(node: Node, rocm: Reader) -> None:
    """Row 36: location 1284 is partition 4 of 0000:05:00.0, whatever became of its siblings."""
    node.card("0000:05:00.0", minor=128, figures=vram(192))
    node.rocm_node(5, 5000, location_id=1284, domain=0, drm_render_minor=132, bank=24 * GIB)
    gpu = (await rocm.one()).gpu
    assert [key.gpu_instance for key, _, _ in gpu.leaves()] == [4]


async def test_a_divided_gpu_without_partitions_is_incomplete(node: Node, rocm: Reader) -> None:
    """The GPU says CPX, and KFD names no partition of it: its processes are unknown, and nothing is counted twice."""
    node.card("0000:05:00.0", figures={"current_compute_partition": "CPX\n", **vram(192)})
    sample = await rocm.sample()
    (one,) = sample.samples
    assert (one.gpu.leaves(), one.processes) == ((), None)
    assert ("partitions_unread", "0000:05:00.0") in reasons(sample)


async def test_a_file_of_bytes_is_no_proof_of_use(node: Node, rocm: Reader) -> None:
    """Rows 38 and 39: a process uses a GPU where it holds bytes or has a queue; zeros stand for all others."""
    mi308x(node)
    node.rocm(1168514, {41657: 17179869184, 24248: 0}, queues=(41657,))
    node.rocm(1075718, {41657: 0, 24248: 0, 22879: 0})
    node.rocm(1075719, {41657: 0, 24248: 0}, queues=(24248,))
    sample = await rocm.sample()
    found = {(p.device.gpu_instance, p.pid): p.memory for one in sample.samples for p in one.processes or ()}
    assert found == {(1, 1168514): 17179869184, (0, 1075719): 0}


async def test_gpus_that_a_process_may_not_open_have_no_file(node: Node, rocm: Reader) -> None:
    """Row 40: one of four GPUs: the three others know nothing of it, and nothing is wrong."""
    mi210(node, gpus=4)
    node.rocm(500, {41658: 5 * GIB})
    sample = await rocm.sample()
    assert [held(one) for one in sample.samples] == [{}, {500: 5 * GIB}, {}, {}]
    assert reasons(sample) == set()


async def test_rocm_and_drm_are_mostly_the_same_buffers(node: Node, reader: Reader) -> None:
    """Row 41: the larger of both, never their sum."""
    mi210(node)
    node.process(4242, cgroup=CONTAINER)
    node.rocm(4242, {41657: 4 * GIB}, queues=(41657,))
    node.descriptor(4242, 5, amdgpu(9, 4 * 1024 + 76 / 1024))
    assert held(await reader.one()) == {4242: 4 * GIB + 76 * 1024}


async def test_rocm_alone_is_what_it_is(node: Node, reader: Reader) -> None:
    """A ROCm process whose client shows 76 KiB holds what KFD says, all of it surely its own."""
    mi210(node)
    node.process(4242, cgroup=CONTAINER)
    node.rocm(4242, {41657: 4 * GIB})
    node.descriptor(4242, 5, amdgpu(9, 76 / 1024, shared=76))
    (process,) = (await reader.one()).processes or ()
    assert (process.memory, process.memory_sure) == (4 * GIB, None)


async def test_a_process_that_is_gone_from_proc(node: Node, reader: Reader) -> None:
    """Row 42: KFD still lists it: it is reported by its number, so its bytes become ghost memory."""
    mi210(node)
    node.rocm(777, {41657: GIB})
    assert held(await reader.one()) == {777: GIB}


async def test_a_topology_that_may_not_be_read(node: Node, rocm: Reader, as_nobody: Callable[[], None]) -> None:
    """Row 43: it is unknown which GPU KFD means: a fault gives the reason. The processes are unknown, not absent."""
    mi210(node, used=3)
    node.rocm(500, {41657: GIB})
    (node.root / "sys/class/kfd/kfd/topology/nodes/1/gpu_id").chmod(0)
    as_nobody()
    sample = await rocm.sample()
    (one,) = sample.samples
    assert one.processes is None
    assert one.gpu.memory == Memory(64 * GIB, 61 * GIB)
    assert {reason for reason, _ in reasons(sample)} == {"kfd_denied", "processes_unknown"}


async def test_a_rocm_process_on_a_gpu_that_kfd_does_not_name(node: Node, reader: Reader) -> None:
    """Its client is on a GPU that the topology lacks: what it holds there is unknown, not its client's 76 KiB."""
    mi210(node, used=3)
    node.card("0000:70:00.0", number=4, minor=140, figures=vram(64))
    node.process(500, cgroup=CONTAINER)
    node.rocm(500, {999: GIB})
    node.descriptor(500, 3, amdgpu(9, 76 / 1024, pdev="0000:70:00.0"))
    first, second = (await reader.sample()).samples
    assert (held(first), held(second)) == ({}, {500: None})


async def test_further_contexts_of_a_process_add_up(node: Node, rocm: Reader) -> None:
    """Row 44: newer kernels have a folder for each."""
    node.card("0000:63:00.0", figures=vram(64))
    node.rocm_node(1, 1, location_id=0x6300, domain=0, drm_render_minor=128, bank=64 * GIB)
    node.rocm(500, {1: 10})
    node.rocm(500, {1: 20}, context="context_0")
    assert held(await rocm.one()) == {500: 30}


async def test_figures_of_a_radeon(node: Node, rocm: Reader) -> None:
    """Row 45, and hwmon: bytes as they are, microwatts, millidegrees, percent."""
    node.card(
        "0000:03:00.0",
        figures={
            "mem_info_vram_total": 8573157376,
            "mem_info_vram_used": 6812925952,
            "gpu_busy_percent": "37\n",
            "mem_busy_percent": "12\n",
            "product_name": "AMD Instinct MI210\n",
            "hwmon/hwmon5/power1_average": "141000000\n",
            "hwmon/hwmon5/temp1_input": "48000\n",
            "hwmon/hwmon5/freq1_input": "1700000000\n",
            "hwmon/hwmon5/freq1_label": "sclk\n",
            "hwmon/hwmon5/freq2_input": "1600000000\n",
            "hwmon/hwmon5/freq2_label": "mclk\n",
        },
    )
    gpu = (await rocm.one()).gpu
    assert gpu.memory is not None
    assert (gpu.memory.total, gpu.memory.used) == (8573157376, 6812925952)
    assert gpu.utilization == Utilization(busy=0.37, memory_controller=0.12)
    assert gpu.model == "AMD Instinct MI210"
    assert gpu.health == Health(141.0, None, 48.0, {"graphics": 1.7e9, "memory": 1.6e9})


@pytest.mark.parametrize("collector", [*Collector, None])
async def test_the_files_of_a_collector_that_is_off_are_not_read(node: Node, collector: Collector | None) -> None:
    """Its figures are unknown, all others are known."""
    files = {
        Collector.UTILIZATION: {"gpu_busy_percent": "37\n"},
        Collector.POWER: {"hwmon/hwmon5/power1_average": "141000000\n", "hwmon/hwmon5/energy1_input": "9000000\n"},
        Collector.TEMPERATURE: {"hwmon/hwmon5/temp1_input": "48000\n"},
        Collector.CLOCKS: {"hwmon/hwmon5/freq1_input": "1700000000\n", "hwmon/hwmon5/freq1_label": "sclk\n"},
    }
    figures = dict(vram(8, 2))
    for some in files.values():
        figures.update(some)
    node.card("0000:03:00.0", figures=figures)
    off = frozenset({collector} if collector else ())
    source = KernelSource(node.roots, name="kfd", off=off)
    try:
        ((gpu,), faults) = (sample := await source.sample()).samples, sample.faults
    finally:
        await source.close()
    health = gpu.gpu.health
    known = {
        Collector.UTILIZATION: gpu.gpu.utilization.busy is not None,
        Collector.POWER: (health.power_watts, health.energy_joules) == (141.0, 9.0),
        Collector.TEMPERATURE: health.temperature_celsius == 48.0,
        Collector.CLOCKS: health.clocks_hertz == {"graphics": 1.7e9},
    }
    assert known == {one: one is not collector for one in files}
    assert gpu.gpu.memory is not None and not faults


@pytest.mark.parametrize("name", ["mem_info_vram_total", "mem_info_vram_used", "gpu_busy_percent"])
async def test_a_figure_that_is_not_there(node: Node, rocm: Reader, name: str) -> None:
    """Row 46: unknown, and the others stay; a folder in its place cannot be read either."""
    figures: dict[str, str | int] = {**vram(8, 2), "gpu_busy_percent": "3\n", "mem_busy_percent": "4\n"}
    del figures[name]
    node.card("0000:03:00.0", figures=figures)
    (node.root / f"sys/devices/pci0000:00/0000:03:00.0/{name}").mkdir()  # EISDIR
    gpu = (await rocm.one()).gpu
    assert gpu.utilization.memory_controller == 0.04
    assert (gpu.memory is None, gpu.utilization.busy) == (("vram" in name), None if "busy" in name else 0.03)


async def test_a_denied_descriptor_leaves_rocms_bytes(
    node: Node, reader: Reader, as_nobody: Callable[[], None]
) -> None:
    """Row 31: memory comes from KFD, utilization is unknown, and a fault says that a process could not be looked at."""
    mi210(node)
    node.process(4242, cgroup=CONTAINER)
    node.rocm(4242, {41657: GIB})
    (node.root / "proc/4242/fd").chmod(0)
    as_nobody()
    sample = await reader.sample()
    (one,) = sample.samples
    assert held(one) == {4242: GIB}
    assert one.utilization is not None and one.utilization[0].sm is None
    assert reasons(sample) == {("fdinfo_denied", "")}


async def test_without_the_right_to_look_intels_processes_are_unknown(
    node: Node, reader: Reader, as_nobody: Callable[[], None]
) -> None:
    """They are unknown, not absent; one fault reports it, and the round stays complete."""
    node.card("0000:03:00.0", driver="xe")
    (node.root / "proc/1/fd").chmod(0)
    as_nobody()
    sample = await reader.sample()
    (one,) = sample.samples
    assert (one.processes, one.utilization, one.gpu.memory) == (None, None, None)
    assert reasons(sample) == {("fdinfo_denied", "")}
    assert not any(fault.incomplete for fault in sample.faults)


async def test_a_sum_that_overlooked_somebody_is_no_figure_of_use(
    node: Node, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process has too many descriptors: the processes seen are reported, an Intel GPU's used memory is not."""
    monkeypatch.setattr("exporter.devices.kernel.holders.MOST", 10)
    node.card("0000:03:00.0", driver="xe", figures={"tile0/physical_vram_size_bytes": 24 * GIB})
    for pid, number in ((4242, 9), (4243, 2)):
        node.process(pid, cgroup=CONTAINER)
        for place in range(number):
            text = f"drm-driver:\txe\ndrm-client-id:\t{pid}\ndrm-pdev:\t0000:03:00.0\ndrm-resident-vram0:\t1 MiB"
            node.descriptor(pid, place, text)
    one = await reader.one()
    assert (held(one), one.gpu.memory) == ({4243: MIB}, None)


async def test_who_opens_a_million_files_hides_nobody_else(
    node: Node, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes with most descriptors are looked at last; a process that is left out is reported as not seen."""
    monkeypatch.setattr("exporter.devices.kernel.holders.MOST", 10)
    mi210(node)
    for pid, number in ((4242, 9), (4243, 2)):
        node.process(pid, cgroup=CONTAINER)
        for place in range(number):
            node.descriptor(pid, place, amdgpu(pid, 1))
    sample = await reader.sample()
    (one,) = sample.samples
    assert held(one) == {4243: MIB}
    assert [owner.pairs[0][1] for owner in one.unseen] == ["a" * 64]
    (fault,) = sample.faults
    assert fault.reason == "fdinfo_denied" and "4242" in fault.message


async def test_many_small_processes_hide_nobody_else(
    node: Node, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The pod with most descriptors is looked at last: its small processes do not use up what others need.

    Nor does it help to have them in containers of its own. The host's own processes are a pod like any.
    """
    monkeypatch.setattr("exporter.devices.kernel.holders.MOST", 12)
    mi210(node)
    for number, pid in enumerate(range(4242, 4249)):
        node.process(pid, cgroup=f"0::/{POD}/{str(number) * 64}" if number < 4 else CONTAINER)
        for place in range(2):
            node.descriptor(pid, place, amdgpu(pid, 1))
    node.process(5000, cgroup=OTHERS)
    node.process(300, cgroup="0::/user.slice")
    for place in range(3):
        node.descriptor(5000, place, amdgpu(5000, 100))
        node.descriptor(300, place, amdgpu(300, 10))
    (one,) = (await reader.sample()).samples
    assert held(one) == {300: 10 * MIB, **dict.fromkeys((4242, 4243, 4244), MIB), 5000: 100 * MIB}
    assert "b" * 64 not in {owner.pairs[0][1] for owner in one.unseen}
    assert len(one.unseen) == 2, "its containers that were not looked at"


async def test_who_has_more_than_all_may_have_is_not_even_counted(
    node: Node, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million names take a second to list: of such a pod no further process is."""
    monkeypatch.setattr("exporter.devices.kernel.holders.MOST", 3)
    mi210(node)
    for pid, cgroup in ((4242, CONTAINER), (4243, f"0::/{POD}/{'c' * 64}")):
        node.process(pid, cgroup=cgroup)
        for place in range(4):
            node.descriptor(pid, place, amdgpu(pid, 1))
    order = [name for name in os.listdir(node.root / "proc") if name in {"4242", "4243"}]  # noqa: PTH208
    second = order[-1]  # it is not there to be listed
    (node.root / f"proc/{second}/fd").rename(node.root / f"proc/{second}/moved")
    (one,) = (await reader.sample()).samples
    assert (held(one), len(one.unseen)) == ({}, 2)


async def test_the_hosts_own_processes_are_no_containers(
    node: Node, reader: Reader, as_nobody: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Process 1 may not be looked at in a container that AppArmor confines: what it holds is at most unattributed.

    On a healthy node there is no lasting fault, where the driver itself reports what is used.
    """
    monkeypatch.setattr("exporter.devices.kernel.holders._privileged", lambda: True)
    mi210(node, used=3)
    (node.root / "proc/1/fd").chmod(0)
    as_nobody()
    sample = await reader.sample()
    (one,) = sample.samples
    assert (one.processes, one.unseen, one.partial) == ((), (), False)
    assert reasons(sample) == set()


async def test_whose_cgroup_cannot_be_read_either_may_be_anybody(
    node: Node, reader: Reader, as_nobody: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """hidepid: neither descriptors nor cgroup can be read; a fault says so, and no container is known to be without."""
    monkeypatch.setattr("exporter.devices.kernel.holders._privileged", lambda: True)
    mi210(node, used=3)
    node.process(4242, cgroup=CONTAINER)
    for name in ("fd", "cgroup"):
        (node.root / f"proc/4242/{name}").chmod(0)
    as_nobody()
    sample = await reader.sample()
    assert [owner.contradictory for owner in sample.samples[0].unseen] == [True]
    assert reasons(sample) == {("fdinfo_denied", "")}


class Stat:
    """`os.stat` of what processes have open: it notes the paths that it is asked for, and blocks on the path `kept`."""

    def __init__(self, kept: str = "") -> None:
        self.asked: list[str] = []
        self.answers = threading.Event()
        self._kept = kept
        self._stat = os.stat

    def __call__(self, path: str | Path, **more: bool) -> os.stat_result:
        if "/fd/" in str(path):
            self.asked.append(str(path).rpartition("/proc/")[2])
            if self._kept and self.asked[-1] == self._kept:
                self.answers.wait()
        return self._stat(path, **more)


def refuse(monkeypatch: pytest.MonkeyPatch, call: str, ending: str, number: int) -> None:
    """Let a call of the system end in an error for the files whose names end so."""
    before = getattr(os, call)

    def refused(path: str | Path, *args: object, **more: object) -> object:
        if str(path).endswith(ending):
            raise OSError(number, os.strerror(number), str(path))
        return before(path, *args, **more)

    monkeypatch.setattr(os, call, refused)


async def test_a_path_that_is_too_long_hides_nothing(
    node: Node, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A file is open below more than 4096 bytes of folders: its name cannot be read (ENAMETOOLONG), all else can.

    The file may be a DRM node as well: what its driver says counts.
    """
    mi210(node)
    node.process(4242, cgroup=CONTAINER)
    for number in (3, 4, 5):
        node.descriptor(4242, number, "" if number == 3 else amdgpu(number, 1))
    for number in (3, 4):
        refuse(monkeypatch, "readlink", f"/4242/fd/{number}", errno.ENAMETOOLONG)
    sample = await reader.sample()
    assert held(sample.samples[0]) == {4242: 2 * MIB}
    assert (reasons(sample), sample.samples[0].unseen) == (set(), ())


@pytest.mark.parametrize("refused", [("listdir", "/4242/fd"), ("readlink", "/4242/fd/5")], ids=["list", "read"])
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM, errno.EIO])
async def test_who_cannot_be_read_is_not_gone(
    node: Node, reader: Reader, monkeypatch: pytest.MonkeyPatch, refused: tuple[str, str], number: int
) -> None:
    """Only ENOENT and ESRCH say that a process ended; a process that cannot be read may hold anything."""
    mi210(node)
    for pid, cgroup in ((4242, CONTAINER), (5000, OTHERS)):
        node.process(pid, cgroup=cgroup)
        node.descriptor(pid, 5, amdgpu(pid, 1))
    refuse(monkeypatch, *refused, number)
    sample = await reader.sample()
    (one,) = sample.samples
    assert held(one) == {5000: MIB}
    assert [owner.pairs[0][1] for owner in one.unseen] == ["a" * 64]
    assert reasons(sample) == {("fdinfo_denied", "")}


async def test_who_cannot_say_when_it_began_is_not_gone(node: Node, reader: Reader) -> None:
    """Its descriptors can be read and its `stat` cannot: what it holds is unknown, not nothing."""
    mi210(node)
    node.process(4242, cgroup=CONTAINER)
    node.descriptor(4242, 5, amdgpu(9, 1))
    (node.root / "proc/4242/stat").unlink()
    (node.root / "proc/4242/stat").mkdir()
    (one,) = (await reader.sample()).samples
    assert (held(one), len(one.unseen)) == ({}, 1)


@pytest.mark.parametrize("v1", [False, True])
async def test_whose_first_thread_ended_is_seen_by_another(node: Node, reader: Reader, v1: bool) -> None:
    """`/proc/<pid>/fd` of a zombie is empty, on cgroup v1 it is in `/`; its other threads hold what it held."""
    mi210(node)
    node.process(4242, cgroup=CONTAINER)
    node.descriptor(4242, 5, amdgpu(9, 1))
    node.leader_ends(4242, 4250, v1=v1)
    sample = await reader.sample()
    assert held(sample.samples[0]) == {4242: MIB}
    (descriptor,) = scan(node.roots.proc, lambda _: None).descriptors
    assert descriptor.holder.owner is not None and descriptor.holder.owner.pairs[0][1] == "a" * 64


async def test_whose_threads_come_and_go_is_unseen(node: Node, reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that end as fast as they are looked at hold something all the same."""
    mi210(node)
    node.process(4242, cgroup=CONTAINER)
    node.leader_ends(4242, 4250)
    refuse(monkeypatch, "listdir", "/task/4250/fd", errno.ENOENT)
    (one,) = (await reader.sample()).samples
    assert len(one.unseen) == 1


def test_whose_thread_ends_while_it_is_read_is_unseen(node: Node) -> None:
    """Its descriptors are gone with it, and another thread has them still."""
    node.process(4242, cgroup=CONTAINER)
    node.descriptor(4242, 5, amdgpu(9, 1))
    node.leader_ends(4242, 4250)
    threads = node.root / "proc/4242/task"

    def beat(call: str) -> None:
        if call.endswith("/task/4250/fdinfo/5"):
            (threads / "4250").rename(threads / "4251")

    looked = scan(node.roots.proc, beat)
    assert (looked.descriptors, set(looked.unseen)) == ((), {4242})


async def test_what_is_too_long_to_read_hides_its_process_alone(node: Node, reader: Reader) -> None:
    """The locks on a file are printed before what its driver says: thousands of them are not read to the end."""
    mi210(node)
    locks = "lock:\t1: POSIX  ADVISORY  WRITE 4242 00:05:287 0 0\n" * 2000
    node.process(4242, cgroup=CONTAINER)
    node.descriptor(4242, 5, locks + amdgpu(9, 1))
    node.process(5000, cgroup=OTHERS)
    node.descriptor(5000, 5, locks[: len(locks) // 10] + amdgpu(10, 1))
    (one,) = (await reader.sample()).samples
    assert held(one) == {5000: MIB}
    assert [owner.pairs[0][1] for owner in one.unseen] == ["a" * 64]


def test_who_takes_all_the_time_hides_nobody_else(node: Node) -> None:
    """Each of two pods has half of the seconds: one whose few descriptors take longer is left out, the other is not."""
    for pid, cgroup, number in ((4242, CONTAINER, 3), (4243, CONTAINER, 1), (5000, OTHERS, 5)):
        node.process(pid, cgroup=cgroup)
        for place in range(number):
            node.descriptor(pid, place, amdgpu(100 * pid + place, 1))
    time = Time()

    def beat(call: str) -> None:
        time.now += SECONDS / 4 + 0.1 if "/4242/fdinfo" in call else 0.0

    looked = scan(node.roots.proc, beat, clock=time)
    assert set(looked.unseen) == {4242}
    assert [one.holder.pid for one in looked.descriptors] == [4243, *[5000] * 5]


@pytest.mark.parametrize(("flags", "seen"), [(OPENED, 1), (os.O_PATH | os.O_CLOEXEC, 0)])
def test_a_name_that_was_opened_holds_nothing(node: Node, flags: int, seen: int) -> None:
    """O_PATH asks no driver and needs no right to the device: no process makes its container unknown by it."""
    (node.root / "renderD128").symlink_to("/dev/null")  # a node, which not only root can make
    node.process(4242, cgroup=CONTAINER)
    node.descriptor(4242, 6, "", name=str(node.root / "renderD128"), flags=flags)
    assert len(scan(node.roots.proc, lambda _: None).descriptors) == seen


def test_mounts_are_read_to_a_bound(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant may have a hundred thousand: the first of them count, and a line that was cut does not."""
    first = "26 25 0:5 / /dev rw - tmpfs tmpfs rw\n"
    node.write("proc/1/mountinfo", f"{first}27 25 0:6 / /mnt rw - xfs /dev/sda rw\n")
    monkeypatch.setattr("exporter.devices.open_files._MOST", len(first) + len("27 25 0:6 / /mnt rw - xfs /dev"))
    told: list[str] = []
    mounts = Mounts(node.roots.proc, told.append)
    assert mounts.may_be_node(f"{node.roots.proc}/1", "mnt_id:\t26\n")
    assert not mounts.may_be_node(f"{node.roots.proc}/1", "mnt_id:\t27\n")
    assert told == [f"reading {node.roots.proc}/1/mountinfo"]


@pytest.mark.parametrize("mount", [ELSEWHERE, 99])
async def test_a_file_elsewhere_is_not_asked_what_it_is(
    node: Node, reader: Reader, monkeypatch: pytest.MonkeyPatch, mount: int
) -> None:
    """
    A tenant names a file on its network file system as DRM's nodes are named: no question is put to that file system.

    Nor to one that is not among the process's mounts. What a DRM driver knows is a client all the same, on the GPU
    whose address the driver prints.
    """
    mi210(node)
    node.process(4242, cgroup=CONTAINER)
    node.descriptor(4242, 3, "", name="/dev/dri/renderD128")
    node.descriptor(4242, 4, "", name="/data - mine/renderD128", mount=mount)
    node.descriptor(4242, 5, amdgpu(9, 1), mount=mount)
    stat = Stat()
    monkeypatch.setattr(os, "stat", stat)
    assert held(await reader.one()) == {4242: MIB}
    assert stat.asked == ["4242/fd/3"]


async def test_whose_file_keeps_us_waiting_costs_himself(
    node: Node, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A file that is exchanged at the last moment for one on a dead file system costs one round.

    From then on the other pods are reported, and nothing is known of that process's pod, until the file answers.
    """
    mi210(node)
    for pid, cgroup in ((4242, CONTAINER), (4243, CONTAINER), (5000, OTHERS)):
        node.process(pid, cgroup=cgroup)
        node.descriptor(pid, 5, amdgpu(pid, 1))
    stat = Stat("4242/fd/5")
    monkeypatch.setattr(os, "stat", stat)
    source = KernelSource(node.roots, deadline=0.5, clock=reader.time, monotonic=reader.time)
    (fault,) = (await source.sample()).faults
    assert fault.reason == "driver_hung" and "4242/fd/5" in fault.message
    for _ in range(2):
        sample = await source.sample()
        (one,) = sample.samples
        assert held(one) == {5000: MIB}
        assert [owner.pairs[0][1] for owner in one.unseen] == ["a" * 64]
        assert reasons(sample) == {("fdinfo_denied", "")}
    stat.answers.set()
    async with asyncio.timeout(30):
        while (sample := await source.sample()).faults:
            pass
    assert held(sample.samples[0]) == {4242: MIB, 4243: MIB, 5000: MIB}
    await source.close()


async def test_whose_file_keeps_us_waiting_costs_his_pod_also_when_he_is_gone(
    node: Node, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends while its file still keeps the thread: the next one of its pod does not take the next thread."""
    mi210(node)
    for pid, cgroup in ((4242, CONTAINER), (5000, OTHERS)):
        node.process(pid, cgroup=cgroup)
        node.descriptor(pid, 5, amdgpu(pid, 1))
    stat = Stat("4242/fd/5")
    monkeypatch.setattr(os, "stat", stat)
    source = KernelSource(node.roots, deadline=0.5, clock=reader.time, monotonic=reader.time)
    await source.sample()
    (node.root / "proc/4242").rename(node.root / "proc/4243")
    (one,) = (await source.sample()).samples
    assert held(one) == {5000: MIB}
    assert [owner.pairs[0][1] for owner in one.unseen] == ["a" * 64]
    stat.answers.set()
    await source.close()


async def test_which_partition_a_node_elsewhere_is_of_nobody_knows(node: Node, reader: Reader) -> None:
    """All partitions print the address of their GPU: what the process holds is unknown of each, and 0 of none."""
    mi308x(node)
    node.process(4242, cgroup=CONTAINER)
    node.descriptor(4242, 5, amdgpu(9, 1, pdev="0000:0a:00.0"), mount=ELSEWHERE)
    divided, whole = (await reader.sample()).samples
    assert [(one.device.gpu_instance, one.memory) for one in divided.processes or ()] == [(0, None), (1, None)]
    assert whole.processes == ()


async def test_a_process_that_ends_under_our_eyes(node: Node, reader: Reader) -> None:
    """Row 32: a descriptor without its record, a process without its status: no entry, no fault."""
    mi210(node)
    node.process(4242, cgroup=CONTAINER)
    (node.root / "proc/4242/fd/7").symlink_to("/dev/dri/renderD128")
    node.process(4243, cgroup=CONTAINER)
    node.descriptor(4243, 3, amdgpu(5, 1))
    (node.root / "proc/4243/stat").unlink()
    sample = await reader.sample()
    assert held(sample.samples[0]) == {}
    assert reasons(sample) == set()


async def test_an_old_amdgpu_that_skips_a_reading(node: Node, reader: Reader) -> None:
    """Row 20: its engines go on where they were when it speaks again: 1.5 s of two."""
    mi210(node)
    node.process(4242, cgroup=CONTAINER)
    node.descriptor(4242, 5, amdgpu(9, 76 / 1024, "drm-engine-gfx:\t1000000000 ns"))
    assert held(await reader.one()) == {4242: 76 * 1024}
    node.fdinfo(4242, 5, "")
    await reader.one()
    node.fdinfo(4242, 5, amdgpu(9, 76 / 1024, "drm-engine-gfx:\t2500000000 ns"))
    (one,) = (await reader.one()).utilization or ()
    assert one.sm == 0.75


async def test_busy_by_engines(node: Node, reader: Reader) -> None:
    """Two clients of one process, half a second of each second together; the video engines apart."""
    mi210(node)
    node.process(4242, cgroup=CONTAINER)

    async def after(gfx: float, compute: float, enc: float) -> tuple[float | None, float | None, float | None]:
        times = {"gfx": gfx, "compute": compute, "enc": enc}
        lines = {name: f"drm-engine-{name}:\t{int(time * 1e9)} ns" for name, time in times.items()}
        node.descriptor(4242, 5, amdgpu(9, 1, lines["gfx"], lines["enc"]))
        node.descriptor(4242, 6, amdgpu(10, 1, lines["compute"]))
        (one,) = (await reader.one()).utilization or ()
        return one.sm, one.encoder, one.decoder

    assert await after(1.0, 2.0, 3.0) == (None, None, None)
    assert await after(1.25, 2.25, 3.125) == (0.5, 0.125, None)


async def test_a_rocm_process_is_never_idle(node: Node, reader: Reader) -> None:
    """Its queues are its own: what the engines say of it is not how busy it is."""
    mi210(node)
    node.process(4242, cgroup=CONTAINER)
    node.rocm(4242, {41657: GIB}, queues=(41657,))
    node.descriptor(4242, 5, amdgpu(9, 1, "drm-engine-gfx:\t5 ns"))
    await reader.one()
    (one,) = (await reader.one()).utilization or ()
    assert one.sm is None


async def test_a_reused_number_begins_anew(node: Node, reader: Reader) -> None:
    """Row 33: another client under the same process number has no first ratio."""
    mi210(node)
    node.process(4242, cgroup=CONTAINER)
    node.descriptor(4242, 5, amdgpu(9, 1, "drm-engine-gfx:\t5000000000 ns"))
    await reader.one()
    node.process(4242, cgroup=CONTAINER, start=9000)
    node.fdinfo(4242, 5, amdgpu(10, 1, "drm-engine-gfx:\t6000000000 ns"))
    (one,) = (await reader.one()).utilization or ()
    assert one.sm is None


async def test_an_xe_device_counts_in_cycles_and_tiles(node: Node, reader: Reader) -> None:
    """Its memory is that of its tiles; used is the sum of its processes, each of which is known."""
    node.card(
        "0000:03:00.0",
        driver="xe",
        figures={"tile0/physical_vram_size_bytes": 24 * GIB, "tile1/physical_vram_size_bytes": 24 * GIB},
    )
    node.process(4242, cgroup=CONTAINER)

    def text(cycles: int, passed: int) -> str:
        return (
            "drm-driver:\txe\ndrm-client-id:\t3\ndrm-pdev:\t0000:03:00.0\n"
            "drm-shared-vram0:\t16 MiB\ndrm-resident-vram0:\t24 MiB\ndrm-resident-vram1:\t8 MiB\ndrm-shared-vram1:\t0\n"
            f"drm-cycles-ccs:\t{cycles}\ndrm-total-cycles-ccs:\t{passed}\ndrm-engine-capacity-ccs:\t4"
        )

    node.descriptor(4242, 5, text(0, 0))
    one = await reader.one()
    assert one.gpu.memory == Memory(48 * GIB, 48 * GIB - 32 * MIB)
    assert [(p.memory, p.memory_sure) for p in one.processes or ()] == [(32 * MIB, 16 * MIB)]
    assert one.gpu.vendor == "intel"
    node.fdinfo(4242, 5, text(2 * 10**9, 10**9))
    (busy,) = (await reader.one()).utilization or ()
    assert busy.sm == 0.5


async def test_intels_memory_is_unknown_while_one_process_is(node: Node, reader: Reader) -> None:
    """The sum of what is known is no figure of use."""
    node.card("0000:03:00.0", driver="xe", figures={"tile0/physical_vram_size_bytes": 24 * GIB})
    node.process(4242, cgroup=CONTAINER)
    node.descriptor(4242, 5, "drm-driver:\txe\ndrm-client-id:\t3\ndrm-pdev:\t0000:03:00.0\ndrm-resident-vram0:\t1 GiB")
    sample = await reader.sample()
    (one,) = sample.samples
    assert (held(one), one.gpu.memory) == ({4242: None}, None)
    assert reasons(sample) == {("fdinfo_unclear", "0000:03:00.0")}


async def test_an_integrated_gpu_has_no_memory(node: Node, reader: Reader) -> None:
    """It uses the host's: its holders are known, and how much memory each holds is unknown."""
    node.card("0000:00:02.0", driver="i915")
    node.process(4242, cgroup=CONTAINER)
    node.descriptor(
        4242, 5, "drm-driver:\ti915\ndrm-pdev:\t0000:00:02.0\ndrm-client-id:\t5\ndrm-resident-system0:\t6044 KiB"
    )
    one = await reader.one()
    assert (one.gpu.memory, one.gpu.unified, held(one)) == (None, True, {4242: None})


async def test_a_discrete_gpu_in_a_virtual_machine(node: Node, reader: Reader) -> None:
    """It may be where integrated ones are; its tiles have memory."""
    node.card("0000:00:02.0", driver="xe", figures={"tile0/physical_vram_size_bytes": 16 * GIB})
    gpu = (await reader.one()).gpu
    assert (gpu.unified, gpu.memory) == (False, Memory(16 * GIB, 16 * GIB))


async def test_an_apu_is_told_by_its_cpu_cores(node: Node, rocm: Reader) -> None:
    """KFD's node has CPU cores and a GPU: its carve-out of memory is no capacity."""
    node.card("0000:c5:00.0", figures={"mem_info_vram_total": 512 * MIB, "mem_info_vram_used": 100 * MIB})
    node.rocm_node(1, 77, location_id=0xC500, domain=0, drm_render_minor=128, cpu_cores_count=16, bank=512 * MIB)
    node.rocm(500, {77: GIB})
    one = await rocm.one()
    assert (one.gpu.memory, one.gpu.unified, held(one)) == (None, True, {500: None})


DMEM = {
    "capacity": "drm/0000:03:00.0/vram0 8514437120\ndrm/0000:03:00.0/stolen 67108864\n",
    "current": "drm/0000:03:00.0/vram0 20000000\ndrm/0000:03:00.0/stolen 8650752\n",
}


async def test_the_kernels_own_count_by_cgroup(node: Node, reader: Reader) -> None:
    """Row 47: used, limit and peak of a container's cgroup; `stolen` stands apart, and `max` is no limit."""
    node.card("0000:03:00.0", driver="xe")
    node.cgroup("", DMEM)
    node.cgroup(
        f"{POD}/{'a' * 64}",
        {
            "current": "drm/0000:03:00.0/vram0 12550144\ndrm/0000:03:00.0/stolen 8650752\n",
            "max": "drm/0000:03:00.0/vram0 1073741824\ndrm/0000:03:00.0/stolen max\n",
            "peak": "drm/0000:03:00.0/vram0 13000000\n",
        },
    )
    node.cgroup(
        f"{POD}/{'c' * 64}", {"current": "drm/0000:03:00.0/vram0 4096\n", "max": "drm/0000:03:00.0/vram0 max\n"}
    )
    one = await reader.one()
    limited, free = one.cgroups
    assert (limited.used, limited.limit, limited.peak) == (12550144, GIB, 13000000)
    assert (free.used, free.limit, free.peak) == (4096, None, None)
    assert limited.owner.pairs[0][1] == "a" * 64
    assert one.gpu.memory == Memory(8514437120, 8514437120 - 20000000)


async def test_a_cgroup_says_nothing_of_partitions(node: Node, reader: Reader) -> None:
    """Row 48: amdgpu's region is the whole GPU's."""
    mi308x(node)
    node.cgroup("", {"capacity": "drm/0000:0a:00.0/vram 206158430208\n", "current": "drm/0000:0a:00.0/vram 0\n"})
    node.cgroup(f"{POD}/{'a' * 64}", {"current": "drm/0000:0a:00.0/vram 0\n"})
    assert [one.cgroups for one in (await reader.sample()).samples] == [(), ()]


async def test_a_leaf_without_the_controller(node: Node, reader: Reader) -> None:
    """Row 49: nothing is known of the container; the device's use comes from the root cgroup."""
    node.card("0000:03:00.0", driver="xe")
    node.cgroup("", DMEM)
    (node.root / f"sys/fs/cgroup/{POD}/{'a' * 64}").mkdir(parents=True)
    one = await reader.one()
    assert one.cgroups == ()
    assert one.gpu.memory is not None and one.gpu.memory.used == 20000000


async def test_other_drivers_are_not_ours(node: Node, reader: Reader) -> None:
    """A server's BMC (ast) and a GPU of NVIDIA's are left to the sources that can read them."""
    node.card("0000:02:00.0", driver="ast", number=0, minor=128)
    node.card("0000:03:00.0", driver="nvidia", number=1, minor=129)
    assert await reader.sample() == DevicesSample()


async def test_by_kfd_alone_intel_is_left_out(node: Node, rocm: Reader) -> None:
    """KFD could not say which processes hold it."""
    node.card("0000:03:00.0", driver="xe")
    assert (await rocm.sample()).samples == ()


async def test_memory_alone(node: Node, reader: Reader) -> None:
    """The look between two rounds reads what amdgpu tells of a whole GPU."""
    mi210(node, used=3, gpus=2)
    await reader.sample()
    assert reader._source is not None
    (wanted,) = [uuid for uuid in (await reader.sample()).present if uuid.startswith("0000:64")]
    assert await reader._source.memory({wanted}) == {DeviceKey(wanted): Memory(64 * GIB, 61 * GIB)}


async def test_a_file_that_never_answers(node: Node, rocm: Reader) -> None:
    """A read that hangs costs its rounds, with a fault that names the file; the GPUs stay counted."""
    mi210(node)
    source = KernelSource(node.roots, name="kfd", deadline=0.1, clock=rocm.time, monotonic=rocm.time)
    before = await source.sample()
    figure = node.root / "sys/devices/pci0000:00/0000:63:00.0/gpu_busy_percent"
    os.mkfifo(figure)
    sample = await source.sample()
    assert (sample.present, sample.samples) == (before.present, ())
    assert [fault.reason for fault in sample.faults] == ["driver_hung"]
    assert "gpu_busy_percent" in sample.faults[0].message
    with figure.open("wb"):
        pass
    await source.close()
