"""
Joins the readings of the kernel's files into samples.

What comes in: cards, ROCm's nodes and processes, DRM's descriptors, dmem's root, and the engine times kept so far. What
goes out: a `GpuSample` for each GPU, and the engine times to keep.

The rule: ROCm's memory of a process and its DRM client are mostly the same buffers. So the larger count is taken, never
the sum. A divided GPU has its partitions as devices. Its load and power are then known for the whole GPU, and unknown
for a partition. If the kernel does not report the used memory of a device, it is the sum over its processes. That needs
each process to be known. A process that could not be read may hold memory of any GPU. So may a process without ROCm
while descriptors are not read.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from exporter.devices import DevicesSample
from exporter.devices.kernel.cards import Card
from exporter.devices.kernel.cgroups import Dmem
from exporter.devices.kernel.clients import ClientKey, Held
from exporter.devices.kernel.devices import KernelDevice, devices_of, held_by_device
from exporter.devices.kernel.engines import DECODERS, ENCODERS, SHADERS, EngineTimes, advance_all, of_class
from exporter.devices.kernel.holders import Scan
from exporter.devices.kernel.kfd import Kfd
from exporter.devices.kernel.sums import known_sum
from exporter.model import (
    DeviceKey,
    Fault,
    Gpu,
    GpuInstance,
    GpuProcess,
    GpuSample,
    GpuUuid,
    Memory,
    Owner,
    ProcessKind,
    ProcessUtilization,
)

KEPT = 60.0
"""Seconds for which engine times of an unseen client are kept: an old amdgpu omits a client from some readings."""


@dataclass(frozen=True, slots=True)
class Files:
    """One reading of all files. `scan` is None where descriptors are not read."""

    cards: tuple[Card, ...]
    kfd: Kfd
    scan: Scan | None
    dmem: Dmem
    partition_names: Mapping[int, str]
    release: str
    """The kernel's version. It counts as the driver's version if the driver has none of its own."""
    busy: bool = True
    """Whether the processes' shares of the engines are wanted."""


Engines = Mapping[ClientKey, Mapping[str, EngineTimes]]
"""The engine times kept of each client."""
EnginesNow = dict[ClientKey, Mapping[str, EngineTimes]]
"""The same, while a round adds to it."""


def assemble(files: Files, before: Engines, *, at: float, now: float) -> tuple[DevicesSample, Engines]:
    """Make the samples. `at` is monotonic seconds, `now` Unix time."""
    devices = {card.pci: devices_of(card, files.kfd) for card in files.cards}
    held = held_by_device(files.scan, devices)
    engines: EnginesNow = {
        key: kept for key, kept in before.items() if any(at - reading.at <= KEPT for reading in kept.values())
    }
    numbers: dict[str, int] = {}
    present, samples = {}, []
    for card in files.cards:
        index = numbers[card.vendor] = numbers.get(card.vendor, -1) + 1
        present[GpuUuid(card.pci)] = index
        samples.append(_Gpu(files, card, devices[card.pci], held).sample(index, engines, at=at, now=now))
    return DevicesSample(present, tuple(samples), tuple(_faults(files))), engines


@dataclass(frozen=True, slots=True)
class _Gpu:
    """One GPU, as the files describe it."""

    files: Files
    card: Card
    devices: tuple[KernelDevice, ...]
    held: Mapping[DeviceKey, Mapping[int, Held]]

    @property
    def divided(self) -> bool:
        return any(device.key.gpu_instance is not None for device in self.devices) or not self.devices

    @property
    def unified(self) -> bool:
        return self.card.integrated or any(device.node.integrated for device in self.devices if device.node)

    def sample(self, index: int, engines: EnginesNow, *, at: float, now: float) -> GpuSample:
        """Make the sample, and put the engine times to keep into `engines`."""
        processes, utilization = [], []
        for device in self.devices:
            on_device = self._processes(device)
            processes += on_device
            if self.files.busy:
                utilization += [self._busy(device, process.pid, engines, at) for process in on_device]
        listed = tuple(processes) if self._listed() else None
        memory = self._memory(None if self.divided else listed)
        return GpuSample(
            gpu=Gpu(
                uuid=GpuUuid(self.card.pci),
                index=index,
                model=self.card.model,
                vendor=self.card.vendor,
                pci_bus_id=self.card.pci,
                driver_version=self.card.driver_version or self.files.release,
                mig=self.divided,
                memory=memory,
                utilization=self.card.utilization,
                health=self.card.health,
                instances=tuple(self._instances(listed)) if self.divided else (),
                minor=self.card.number,
                unified=self.unified,
                names=() if self.divided else self.card.names,
            ),
            sampled_at=now,
            processes=listed,
            utilization=tuple(utilization) if self._reports_busy(listed) else None,
            faults=tuple(self._faults()),
            partial=listed is not None and not self._looked(),
            unseen=_in_containers(self.files.scan) if self._looked() else (),
        )

    def _reports_busy(self, listed: Collection[GpuProcess] | None) -> bool:
        return self.files.busy and listed is not None and self.files.scan is not None and not self.divided

    def _listed(self) -> bool:
        """Say whether the processes are known: by their descriptors, or (ROCm) by KFD, if it knows the GPU."""
        if self._looked():
            return True
        return bool(self.devices) and all(device.node is not None for device in self.devices)

    def _looked(self) -> bool:
        return self.files.scan is not None and self.files.scan.allowed

    def _complete(self) -> bool:
        """Say whether no process was missed, so that the sum over the processes is all memory in use."""
        return self.files.scan is not None and not self.files.scan.unseen

    def _rocm(self, device: KernelDevice) -> Mapping[int, int | None]:
        kfd = self.files.kfd
        if self.card.vendor != "amd":
            return {}
        if device.node is not None:
            return kfd.held.get(device.node.gpu_id, {})
        # KFD does not say which GPU these processes hold: it may be this one.
        nameless = {pid for gpu_id, pids in kfd.held.items() if gpu_id not in kfd.nodes for pid in pids}
        return dict.fromkeys(nameless & self.held.get(device.key, {}).keys())

    def _processes(self, device: KernelDevice) -> list[GpuProcess]:
        rocm, drm = self._rocm(device), self.held.get(device.key, {})
        evicted = self.files.kfd.evicted.get(device.node.gpu_id, {}) if device.node else {}
        processes = []
        for pid in sorted(rocm.keys() | drm.keys()):
            kinds = frozenset({ProcessKind.COMPUTE}) if pid in rocm else frozenset[ProcessKind]()
            memory, sure = (drm[pid].memory, drm[pid].memory_sure) if pid in drm else (None, None)
            if pid in rocm:
                size = rocm[pid]
                # For a ROCm process the DRM client's count is too low, so without KFD's count the memory is unknown.
                memory, sure = (None, None) if size is None else (max(size, memory or 0), max(size, sure or 0))
            if self.unified:
                memory = sure = None
            surely = None if sure == memory else sure
            processes.append(GpuProcess(device.key, pid, kinds, memory, surely, evicted.get(pid)))
        return processes

    def _busy(self, device: KernelDevice, pid: int, engines: EnginesNow, at: float) -> ProcessUtilization:
        held = self.held.get(device.key, {}).get(pid)
        if held is None or held.blind:
            return ProcessUtilization(pid, None, None, None, None)
        ratios = []
        for key, client in held.clients.items():
            client_ratios, kept = advance_all(engines.get(key, {}), client.engines, at)
            engines[key] = kept
            ratios.append(client_ratios)
        # ROCm submits its work to the GPU past the kernel, so the engine times of its processes are incomplete.
        shaders = None if pid in self._rocm(device) else _together(ratios, SHADERS)
        return ProcessUtilization(pid, shaders, None, _together(ratios, ENCODERS), _together(ratios, DECODERS))

    def _memory(self, processes: Collection[GpuProcess] | None) -> Memory | None:
        if self.unified:
            return None
        if self.card.memory is not None:
            return self.card.memory
        dmem, pci = self.files.dmem, self.card.pci
        capacity, used = dmem.capacity.get(pci, self.card.capacity), dmem.used.get(pci)
        if used is None and self._complete():
            used = _all(processes)
        return None if capacity is None or used is None else Memory(capacity, max(0, capacity - used))

    def _instances(self, processes: Collection[GpuProcess] | None) -> Iterator[GpuInstance]:
        for device in self.devices:
            node, number = device.node, device.key.gpu_instance
            if node is None or number is None:
                continue
            counted = processes if self._complete() or self.files.scan is None else None
            mine = None if counted is None else [process for process in counted if process.device == device.key]
            used, total = _all(mine), node.memory
            minor = node.render_minor
            names = () if minor is None else (f"renderD{minor}", self.files.partition_names.get(minor, ""))
            memory = None if total is None or used is None or self.unified else Memory(total, max(0, total - used))
            yield GpuInstance(number, self.card.mode.lower(), tuple(filter(None, names)), memory)

    def _faults(self) -> Iterator[Fault]:
        holdings = (held for device in self.devices for held in self.held.get(device.key, {}).values())
        problems = sorted({problem for held in holdings for problem in held.problems})
        if problems:
            message = f"GPU {self.card.pci}: DRM clients print values that are not understood ({', '.join(problems)})"
            yield Fault("devices", "fdinfo_unclear", message, self.card.pci, incomplete=False)
        if self.divided and not self.devices:
            message = f"GPU {self.card.pci} is divided ({self.card.mode}), and its partitions could not be read"
            yield Fault("devices", "partitions_unread", message, self.card.pci)
        elif self.files.scan is None and not self._listed():
            message = (
                f"GPU {self.card.pci}: its processes are not known: ROCm's driver (KFD) does not have it, and the "
                "memory that processes hold by DRM is not read (--devices=drm)"
            )
            yield Fault("devices", "processes_unknown", message, self.card.pci, incomplete=False)
        if self._summed() and self._looked() and not self._complete():
            message = (
                f"GPU {self.card.pci}: its used memory is not known: it is the sum over its processes, and "
                + _named(self.files.scan.unseen if self.files.scan else ())
            )
            yield Fault("devices", "fdinfo_denied", message, self.card.pci, incomplete=False)

    def _summed(self) -> bool:
        """Say whether the used memory of the GPU, or of its partitions, is known only as the sum over its processes."""
        used_known = self.card.memory is not None or self.card.pci in self.files.dmem.used
        return not self.unified and (self.divided or not used_known)


def _faults(files: Files) -> Iterator[Fault]:
    if files.kfd.denied:
        message = (
            f"{files.kfd.denied[0]} may not be read, so the GPU of ROCm's processes is not known: the devices cgroup "
            "of this container excludes the GPU; run privileged"
        )
        yield Fault("devices", "kfd_denied", message, incomplete=False)
    scan = files.scan
    if scan is not None and not scan.allowed:
        message = "the memory that processes hold by DRM is not known: fdinfo needs CAP_SYS_PTRACE and the host's /proc"
        yield Fault("devices", "fdinfo_denied", message, incomplete=False)
    elif scan is not None and (in_containers := [pid for pid, owner in scan.unseen.items() if owner != Owner()]):
        message = f"the memory that some containers hold by DRM is not known: {_named(in_containers)}"
        yield Fault("devices", "fdinfo_denied", message, incomplete=False)


def _named(unseen: Collection[int]) -> str:
    more = f" (and {len(unseen) - 1} more)" if len(unseen) > 1 else ""
    return f"the descriptors of process {min(unseen)}{more} cannot be read, or take too long"


def _in_containers(scan: Scan | None) -> tuple[Owner, ...]:
    """
    Name the owners of processes that could not be read.

    The host's own processes belong to no container, and are left out.
    """
    return tuple(dict.fromkeys(owner for owner in scan.unseen.values() if owner != Owner())) if scan else ()


def _together(ratios: Sequence[Mapping[str, float | None]], names: frozenset[str]) -> float | None:
    """Add up clients. A client that never showed such an engine adds nothing to others; alone it is unknown."""
    if not ratios:
        return 0.0  # all its clients are counted for the process that it was forked from
    return known_sum(of_class(engines, names) for engines in ratios if any(name in names for name in engines))


def _all(processes: Iterable[GpuProcess] | None) -> int | None:
    return None if processes is None else known_sum((process.memory for process in processes), 0)
