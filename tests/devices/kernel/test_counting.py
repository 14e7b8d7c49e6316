"""
What the kernel counts by cgroup, beside any source: NVIDIA's GPUs by a fake driver, the cgroups of a node of files.

NVIDIA's names of regions are those of driver 615.71.09 (see test_cgroups.py); no hardware was read.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from driver.node import FakeComputeInstance, FakeGpuInstance, FakeNode, FakeProcess, GiB, gpus
from exporter.devices import DeviceSource, DevicesSample
from exporter.devices.kernel import Counting, counts_memory
from exporter.model import DeviceKey, GpuUuid, Memory
from scraped import series
from sources.kernel import Node
from sources.nvml import Open
from sources.rounds import Pods, Rounds, cgroup, container

(CARD,) = gpus(1)
REGION = f"nvidia/{CARD.pci.lower()}/vidmem"
R615 = "615.71.09"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node whose kernel counts the GPU's 40 GiB, of which 30 are in use."""
    node = Node(tmp_path / "node")
    node.cgroup("", {"capacity": f"{REGION} {40 * GiB}\n", "current": f"{REGION} {30 * GiB}\n"})
    for pid, name in ((100, "a"), (200, "b")):
        node.process(pid, cgroup=f"0::/{cgroup(name)}")
    return node


def counts(node: Node, name: str, used: int, *, limit: int | None = None, peak: int | None = None) -> None:
    """Let the kernel count bytes of a pod's container."""
    files = {"current": used, "max": "max" if limit is None else limit, "peak": used if peak is None else peak}
    node.cgroup(cgroup(name), {file: f"{REGION} {size}\n" for file, size in files.items()})


def lists(*held: tuple[int, int]) -> tuple[FakeProcess, ...]:
    """Let the driver list processes with their bytes."""
    return tuple(FakeProcess(pid, size) for pid, size in held)


async def read(node: Node, source: DeviceSource, *, deadline: float = 5.0) -> DevicesSample:
    """Sample once, with the counts."""
    counting = Counting(source, node.roots.cgroup, deadline)
    sample = await counting.sample()
    await counting.close()
    return sample


async def test_an_nvidia_gpu_is_counted_as_any(fake_node: FakeNode, nvml: Open, node: Node) -> None:
    """
    The kernel's bytes, peak and limit are the container's, where the lists do not add up to more.

    A container without such a count keeps the driver's figure, and the accounts close.
    """
    fake_node.write([replace(CARD, other=9 * GiB, processes=lists((100, 12 * GiB), (200, 8 * GiB)))], driver=R615)
    counts(node, "a", 12 * GiB, limit=20 * GiB, peak=14 * GiB)
    pods = Pods(handed=dict.fromkeys("ab", ("nvidia.com/gpu", (CARD.uuid,))))
    rounds = Rounds(node, pods, await nvml())
    page = await rounds.page()
    await rounds.close()
    assert series(page, "container_memory_used_bytes", "pod") == {("a",): 12 * GiB, ("b",): 8 * GiB}
    assert series(page, "container_memory_peak_bytes", "pod") == {("a",): 14 * GiB, ("b",): 8 * GiB}
    assert series(page, "container_memory_kernel_limit_bytes", "pod") == {("a",): 20 * GiB}
    assert series(page, "container_processes", "pod") == {("a",): 1, ("b",): 1}
    used, attributed, rest = (
        series(page, f"device_memory_{part}_bytes", "gpu")["0",] for part in ("used", "attributed", "unattributed")
    )
    assert (used, attributed, rest) == (29 * GiB, 20 * GiB, 9 * GiB)


async def test_a_count_that_came_late_is_no_figure(fake_node: FakeNode, nvml: Open, node: Node) -> None:
    """
    The kernel does not count memory that a container held before its count began.

    The container's usage is what the driver lists, a fault reports it, and the round is complete.
    """
    fake_node.write([replace(CARD, other=GiB, processes=lists((100, 16 * GiB)))], driver=R615)
    counts(node, "a", 0)
    rounds = Rounds(node, Pods(handed={"a": ("nvidia.com/gpu", (CARD.uuid,))}), await nvml())
    snapshot = await rounds.next()
    await rounds.close()
    assert [(one.memory_used, one.memory_sure) for one in snapshot.usages] == [(16 * GiB, 0)]
    assert [(one.reason, one.subject) for one in snapshot.faults] == [("dmem_short", CARD.uuid)]
    assert snapshot.complete


async def test_instances_keep_the_drivers_word(fake_node: FakeNode, nvml: Open, node: Node) -> None:
    """dmem has the whole GPU only: under MIG nothing of it is taken, whatever stands there."""
    instance = FakeGpuInstance(1, 20 * GiB, (FakeComputeInstance("MIG-1", slot=0),))
    split = replace(CARD, mig="on", instances=(instance,), processes=(FakeProcess(100, 3 * GiB, device="MIG-1"),))
    fake_node.write([split], driver=R615)
    counts(node, "a", 12 * GiB, limit=GiB)
    (sample,) = (await read(node, await nvml())).samples
    assert sample.cgroups == ()
    assert [(one.device, one.memory) for one in sample.processes or ()] == [(DeviceKey(GpuUuid(CARD.uuid), 1), 3 * GiB)]


async def test_a_gpu_that_is_not_registered(fake_node: FakeNode, nvml: Open, node: Node) -> None:
    """Of two GPUs the kernel counts one: for the other's containers there are only the driver's lists."""
    fake_node.write(gpus(2), driver=R615)
    counts(node, "a", 12 * GiB)
    first, second = (await read(node, await nvml())).samples
    assert [one.used for one in first.cgroups] == [12 * GiB]
    assert [one.owner.pairs[-1][1] for one in first.cgroups] == [container("a")]
    assert second.cgroups == ()


async def test_what_is_counted_out_of_our_sight_is_said(fake_node: FakeNode, nvml: Open, node: Node) -> None:
    """
    Our own cgroup has the files, and the host's tree is not mounted: the lists are taken, and a fault says the remedy.

    Not of a GPU in MIG mode, of which nothing would be taken either. The round is complete.
    """
    (node.roots.cgroup / "dmem.capacity").unlink()
    one, other = gpus(2)
    fake_node.write([one, replace(other, mig="on")], driver=R615)
    node.cgroup("", {"current": f"{REGION} 0\n{REGION.replace(one.pci, other.pci)} 0\n"})
    sample = await read(node, await nvml())
    (fault,) = [fault for each in sample.samples for fault in each.faults]
    assert (fault.reason, fault.subject, fault.incomplete) == ("dmem_unseen", one.uuid, False)
    assert "hostCgroups" in fault.message
    assert counts_memory(node.roots.cgroup)


async def test_a_count_that_hangs_costs_the_round(fake_node: FakeNode, nvml: Open, node: Node) -> None:
    """The driver's answer stands, and the round is incomplete: nothing follows from figures of another kind."""
    fake_node.write([CARD], driver=R615)
    folder = node.roots.cgroup / cgroup("a")
    folder.mkdir(parents=True)
    os.mkfifo(folder / "dmem.current")
    sample = await read(node, await nvml(), deadline=0.1)
    os.close(os.open(folder / "dmem.current", os.O_RDWR))  # waits for no reader, and lets one go on
    assert [(fault.reason, fault.incomplete) for fault in sample.faults] == [("dmem_unread", True)]
    assert "dmem.current" in sample.faults[0].message
    assert [one.cgroups for one in sample.samples] == [()]


async def test_all_else_is_the_sources(fake_node: FakeNode, nvml: Open, node: Node) -> None:
    """Its name, the GPUs present, and the look between two rounds are the source's; an early round asks only some."""
    fake_node.write(gpus(2), driver=R615)
    source = await nvml()
    counting = Counting(source, node.roots.cgroup, 5.0)
    only = {GpuUuid(CARD.uuid)}
    early, whole = await counting.sample(only), await source.sample()
    assert counting.name == "nvml"
    assert (early.present, [one.gpu.uuid for one in early.samples]) == (whole.present, [CARD.uuid])
    assert await counting.memory(only) == {DeviceKey(GpuUuid(CARD.uuid)): Memory(40 * GiB, 40 * GiB)}
    await counting.close()


@pytest.mark.parametrize(
    ("files", "may"),
    [({}, False), ({"capacity": ""}, True), ({"current": f"{REGION} 0\n"}, True), ({"current": ""}, False)],
)
def test_whether_this_kernel_counts(tmp_path: Path, files: Mapping[str, str], may: bool) -> None:
    """Its root says so, or our own cgroup; most kernels have neither, and are asked no more."""
    node = Node(tmp_path / "other")
    node.cgroup("", files)
    assert counts_memory(node.roots.cgroup) is may
