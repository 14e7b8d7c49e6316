"""
A source of devices, and beside it what the kernel counts of their memory by cgroup.

What comes in: a source (NVML, the kernel's files, a vendor's library, or several at once), and the cgroup root. What
goes out: its answers, with each container's bytes where the kernel counts them.

The rule: a GPU is found by its PCI address, whoever told of it. dmem knows the whole GPU alone, so of a divided one
(MIG, a compute partition) nothing is taken from it: the source's own word stays. The counts are read right before the
source is asked, in a thread of their own; without an answer the round is incomplete, and the source's word stays.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from exporter.devices import DeviceSource, DevicesSample
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
        unseen: PCI addresses of devices that the kernel counts where we may not look.
        fault: why nothing is known.

    """

    groups: tuple[Group, ...] = ()
    unseen: frozenset[str] = frozenset()
    fault: Fault | None = None


class Counting:
    """A `DeviceSource` made of another one and of the cgroup root at `cgroup`. `deadline`: seconds for one file."""

    def __init__(self, source: DeviceSource, cgroup: Path, deadline: float) -> None:
        self.name = source.name
        self.source = source
        self._cgroup = cgroup
        self._thread = DriverThread(deadline, "dmem")

    async def sample(self, only: Collection[GpuUuid] | None = None) -> DevicesSample:
        """Ask the source, and add the counts."""
        counts = await self._count()
        sample = await self.source.sample(only)
        return replace(
            sample,
            samples=tuple(counted(gpu, counts) for gpu in sample.samples),
            faults=sample.faults if counts.fault is None else (*sample.faults, counts.fault),
        )

    async def memory(self, only: Collection[GpuUuid]) -> Mapping[DeviceKey, Memory]:
        """Ask the source."""
        return await self.source.memory(only)

    async def close(self) -> None:
        """Let go of the source, and end the thread."""
        try:
            await self.source.close()
        finally:
            await self._thread.close()

    async def _count(self) -> Counts:
        try:
            return await self._thread.run(lambda: read(Tree(self._cgroup, self._thread.beat)))
        except DriverHungError as error:
            message = f"what the kernel counts by cgroup cannot be read: {error}"
            return Counts(fault=Fault("devices", "dmem_unread", message))


def counts_memory(cgroup: Path) -> bool:
    """Say whether this kernel may count device memory by cgroup: if the files are missing now, they stay so."""
    tree = Tree(cgroup, lambda _: None)
    return read_dmem(tree) is not None or bool(counted_here(tree))


def read(cgroups: Tree) -> Counts:
    """Read what the containers hold, or at least of which devices it is counted."""
    dmem = read_dmem(cgroups)
    return Counts(unseen=counted_here(cgroups)) if dmem is None else Counts(read_groups(cgroups, dmem))


def counted(sample: GpuSample, counts: Counts) -> GpuSample:
    """Add what the kernel counts of a GPU."""
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
        "tree is not to be seen here, so the driver's process lists are taken; mount it (the chart's hostCgroups: true)"
    )
    return Fault("devices", "dmem_unseen", message, gpu.uuid, incomplete=False)
