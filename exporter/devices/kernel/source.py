"""
The device source for AMD and Intel: the kernel's own files, read in a thread with a deadline.

What comes in: the sampler's questions. What goes out: answers within the deadline, whatever hangs.

The rule: files only. No vendor library is used, and no device is opened. A read may wait in the kernel (xe wakes a GPU
that sleeps), so one thread makes all of them. Nothing is cached, because GPUs come and go without notice. A driver that
hangs costs its rounds. A tenant whose file blocks the thread harms only its own pod: the thread stays there, and
another one goes on.
"""

import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from exporter.base.cgroup_owner import USUAL, PodCgroups
from exporter.devices import DevicesSample, Identify
from exporter.devices.kernel.assembling import Engines, Files, assemble
from exporter.devices.kernel.cards import Card, partition_names, read_cards
from exporter.devices.kernel.cgroups import Dmem, read_dmem
from exporter.devices.kernel.holders import Asking, scan
from exporter.devices.kernel.kfd import Kfd, read_kfd
from exporter.devices.kernel.tree import Tree
from exporter.devices.thread import DEADLINE, DriverHungError, DriverThread
from exporter.model import ALL_ON, Collector, DeviceKey, Fault, GpuUuid, Memory, Off

_LEFT = 32
"""Threads that may be blocked by tenants at a time. Each pod blocks one at most, and is then no longer read."""
_AMD = frozenset({"amdgpu"})
_ALL = frozenset({"amdgpu", "i915", "xe"})


@dataclass(frozen=True, slots=True)
class Roots:
    """The mount points of the node's files, and the cgroups of the kubelet."""

    sys: Path = Path("/sys")
    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")
    pods: PodCgroups = USUAL

    @classmethod
    def below(cls, host_root: Path, proc: Path, pods: PodCgroups = USUAL) -> "Roots":
        """
        Choose the host's folders where they are mounted below `host_root`, else our own.

        `proc` is the procfs that is read, `pods` are the cgroups of the kubelet.
        """
        sys, cgroup = host_root / "sys", host_root / "sys/fs/cgroup"
        own = cls()
        return cls(sys if (sys / "class").is_dir() else own.sys, proc, cgroup if cgroup.is_dir() else own.cgroup, pods)


@dataclass(slots=True)
class _ReadingThread:
    """The thread that reads, and the pod whose file it waits for right now."""

    thread: DriverThread
    asking: Asking


class KernelSource:
    """
    AMD's and Intel's GPUs of this node; one caller at a time.

    `name`: `kfd` reads only AMD's GPUs, by ROCm's files, without a privilege. `drm` reads AMD's and Intel's, and also
    the open files of processes, which needs CAP_SYS_PTRACE. `integrated`: GPUs that use the host's memory are listed,
    too. Collectors that are `off` are not read.
    """

    def __init__(
        self,
        roots: Roots,
        *,
        name: str = "drm",
        integrated: bool = True,
        deadline: float = DEADLINE,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        off: Off = ALL_ON,
    ) -> None:
        self.name = name
        self._roots = roots
        self._integrated = integrated
        self._deadline = deadline
        self._reader = self._new_reader()
        self._left: list[_ReadingThread] = []
        self._clock = clock
        self._monotonic = monotonic
        self._off = off
        self._engines: Engines = {}
        self._present: Mapping[GpuUuid, int] = {}

    async def vendors(self) -> frozenset[str]:
        """Name the vendors of the present GPUs. Raises DriverHungError."""
        reader = self._reader
        cards = await reader.thread.run(lambda: self._cards(self._sys(reader)))
        return frozenset(card.vendor for card in cards)

    async def sample(self, only: Collection[GpuUuid] | None = None, _identify: Identify | None = None) -> DevicesSample:
        """Read everything. `only` selects what is returned; all is read, because a process may hold several GPUs."""
        before, reader = self._engines, self._reader
        for free in [reading for reading in self._left if reading.asking.pod is None]:
            self._left.remove(free)
            await free.thread.close()
        stuck = frozenset(reading.asking.pod for reading in self._left if reading.asking.pod is not None)
        try:
            sample, self._engines = await reader.thread.run(lambda: self._read(before, reader, stuck))
        except DriverHungError as error:
            if reader.asking.pod is not None and len(self._left) < _LEFT:
                self._left.append(reader)
                self._reader = self._new_reader()
            fault = Fault("devices", "driver_hung", f"the kernel does not answer: {error}")
            return DevicesSample(self._present, faults=(fault,))
        except OSError as error:
            fault = Fault("devices", "kernel_unreadable", f"cannot read {error.filename}: {error.strerror}")
            return DevicesSample(self._present, faults=(fault,))
        self._present = sample.present
        if only is None:
            return sample
        return replace(sample, samples=tuple(device for device in sample.samples if device.gpu.uuid in only))

    async def memory(self, only: Collection[GpuUuid]) -> Mapping[DeviceKey, Memory]:
        """Read the driver's own memory figures of GPUs that are not divided."""
        reader = self._reader  # its beat is announced on its own thread; `sample` may replace it meanwhile
        try:
            cards = await reader.thread.run(lambda: self._cards(self._sys(reader)))
        except DriverHungError:
            return {}
        discrete = ((GpuUuid(card.pci), card) for card in cards if not card.integrated)
        return {DeviceKey(uuid): card.memory for uuid, card in discrete if uuid in only and card.memory is not None}

    async def close(self) -> None:
        """End the threads; those whose reads hang are left behind."""
        for reader in (self._reader, *self._left):
            await reader.thread.close()

    def _new_reader(self) -> _ReadingThread:
        return _ReadingThread(DriverThread(self._deadline, self.name), Asking())

    def _sys(self, reader: _ReadingThread) -> Tree:
        return Tree(self._roots.sys, reader.thread.beat)

    def _cards(self, sys: Tree, kfd: Kfd | None = None) -> tuple[Card, ...]:
        cards = read_cards(sys, (_AMD if self.name == "kfd" else _ALL).__contains__, self._off)
        if self._integrated:
            return cards
        nodes = (read_kfd(sys) if kfd is None else kfd).nodes.values()
        sharing = {node.pci for node in nodes if node.integrated}
        return tuple(card for card in cards if not card.integrated and card.pci not in sharing)

    def _read(self, before: Engines, reader: _ReadingThread, stuck: Collection[str]) -> tuple[DevicesSample, Engines]:
        sys, beat, asking = self._sys(reader), reader.thread.beat, reader.asking
        kfd = read_kfd(sys)
        files = Files(
            cards=self._cards(sys, kfd),
            kfd=kfd,
            scan=scan(self._roots.proc, beat, asking, stuck, cgroups=self._roots.pods) if self.name == "drm" else None,
            dmem=read_dmem(Tree(self._roots.cgroup, beat)) or Dmem(),
            partition_names=partition_names(sys),
            release=os.uname().release,
            busy=Collector.PROCESS_UTILIZATION not in self._off,
        )
        return assemble(files, before, at=self._monotonic(), now=self._clock())
