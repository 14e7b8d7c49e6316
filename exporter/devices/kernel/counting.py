"""
Adds the kernel's counts of device memory by cgroup to the readings of a device source.

What comes in: a source (NVML, the kernel's files, a vendor's library, or several at once), and the cgroup root. What
goes out: its answers, with each container's bytes where the kernel counts them.

The rule: a GPU is matched by its PCI address, whichever source reported it. dmem counts whole GPUs only. For a divided
GPU (MIG, a compute partition) the source's own figures are kept. The counts are read directly before the source, in a
thread of their own. If that fails, the round is incomplete, and the source's figures are kept.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from exporter.base.cgroup_owner import USUAL, PodCgroups
from exporter.devices import DeviceSource, DevicesSample, Identify
from exporter.devices.kernel.cgroups import Group, counted_here, read_dmem, read_groups
from exporter.devices.kernel.dmem import address
from exporter.devices.kernel.tree import Tree
from exporter.devices.thread import DriverHungError, DriverThread
from exporter.model import CgroupMemory, DeviceKey, Fault, Gpu, GpuSample, GpuUuid, Memory


@dataclass(frozen=True, slots=True)
class Counts:
    """
    One reading.

    Attributes:
        groups: the containers' cgroups.
        unseen: PCI addresses of devices that the kernel counts in cgroups that we cannot see.
        fault: why nothing is known.

    """

    groups: tuple[Group, ...] = ()
    unseen: frozenset[str] = frozenset()
    fault: Fault | None = None


class Counting:
    """
    A `DeviceSource` that joins another one with the cgroup root at `cgroup`.

    `pods` are the cgroups of the kubelet. `deadline`: seconds for one file.
    """

    def __init__(self, source: DeviceSource, cgroup: Path, deadline: float, pods: PodCgroups = USUAL) -> None:
        self.name = source.name
        self.source = source
        self._cgroup = cgroup
        self._pods = pods
        self._thread = DriverThread(deadline, "dmem")

    async def sample(self, only: Collection[GpuUuid] | None = None, identify: Identify | None = None) -> DevicesSample:
        """Ask the source, and add the counts."""
        counts = await self._count()
        sample = await self.source.sample(only, identify)
        return replace(
            sample,
            samples=tuple(counted(gpu, counts) for gpu in sample.samples),
            faults=sample.faults if counts.fault is None else (*sample.faults, counts.fault),
        )

    async def memory(self, only: Collection[GpuUuid]) -> Mapping[DeviceKey, Memory]:
        """Ask the source."""
        return await self.source.memory(only)

    async def close(self) -> None:
        """Release the source, and end the thread."""
        try:
            await self.source.close()
        finally:
            await self._thread.close()

    async def _count(self) -> Counts:
        try:
            return await self._thread.run(lambda: read(Tree(self._cgroup, self._thread.beat), self._pods))
        except DriverHungError as error:
            message = f"the kernel's counts by cgroup cannot be read: {error}"
            return Counts(fault=Fault("devices", "dmem_unread", message))


def counts_memory(cgroup: Path) -> bool:
    """Say whether this kernel may count device memory by cgroup. Files that are missing now stay missing."""
    tree = Tree(cgroup, lambda _: None)
    return read_dmem(tree) is not None or bool(counted_here(tree))


def read(cgroups: Tree, pods: PodCgroups = USUAL) -> Counts:
    """Read the containers' counts, or at least the devices that are counted."""
    dmem = read_dmem(cgroups)
    return Counts(unseen=counted_here(cgroups)) if dmem is None else Counts(read_groups(cgroups, dmem, pods))


def counted(sample: GpuSample, counts: Counts) -> GpuSample:
    """Add the kernel's counts to a GPU's sample."""
    gpu, pci = sample.gpu, address(sample.gpu.pci_bus_id)
    if gpu.mig or not pci:
        return sample
    if pci in counts.unseen:
        return replace(sample, faults=(*sample.faults, _unseen(gpu)))
    key = DeviceKey(gpu.uuid)
    return replace(
        sample,
        cgroups=tuple(
            CgroupMemory(group.owner, key, used, group.limit.get(pci), group.peak.get(pci))
            for group in counts.groups
            if (used := group.used.get(pci)) is not None
        ),
    )


def _unseen(gpu: Gpu) -> Fault:
    message = (
        f"GPU {gpu.index} ({gpu.pci_bus_id}): the kernel counts its memory by cgroup (dmem), and the host's cgroup "
        "tree is not visible here. The driver's process lists are used. Mount the tree (the chart's hostCgroups: true)"
    )
    return Fault("devices", "dmem_unseen", message, gpu.uuid, incomplete=False)
