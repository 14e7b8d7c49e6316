"""
The driver of the simulated node.

What comes in: the index of a GPU and the time. What goes out: its sample. Memory and utilization are sums over its
processes.
"""

from collections.abc import Iterable

from exporter.devices.xids import COMMON
from exporter.model import (
    Gpu,
    GpuInstance,
    GpuProcess,
    GpuSample,
    Memory,
    ProcessUtilization,
    Utilization,
    XidCounts,
    XidErrors,
)
from exporter.simulated.curves import curve
from exporter.simulated.health import hardware, health
from exporter.simulated.playing import PAGE, PAGES_PER_GIB, PlayedProcess, processes
from exporter.simulated.scene import device_key, scene

MIB = 2**20
DRIVERS_OWN = 3 * PAGE
"""Used bytes of each device that belong to no process, but to the kernel's own clients."""


def sample_of(index: int, now: float, time: float) -> GpuSample:
    """Return the sample of a GPU at Unix time `now`, `time` seconds after the start."""
    row = scene().gpus[index]
    listed = [process for process in processes(time) if process.row.device.gpu == index and process.memory]
    instances = []
    for instance in row.instances:
        members = [process for process in listed if process.row.device.instance == instance.id]
        uuid = f"MIG-{device_key(index).uuid[4:-4]}{instance.id:04x}"
        # NVML's utilization does not exist under MIG; GPM does.
        sm = _ratio(sum(process.load for process in members)) if row.model.gpm else None
        memory = _memory(instance.memory_mib, 0, members)
        instances.append(GpuInstance(instance.id, instance.profile, (uuid,), memory, Utilization(sm=sm)))
    managed = round(curve(row.managed).at(time) * PAGES_PER_GIB) * PAGE
    own = DRIVERS_OWN * max(0, len(instances) - 1) + managed  # each instance has a share of its own
    # The driver's statistics are by process id, even where its lists show threads. An idle process has no line.
    busy = tuple(_utilization(process) for process in listed if process.load)
    facts = Gpu(
        uuid=device_key(index).uuid,
        index=index,
        model=row.model.name,
        pci_bus_id=row.pci_bus_id,
        driver_version=scene().driver,
        mig=bool(instances),
        memory=_memory(row.model.memory_mib, row.model.reserved_mib, listed, own),
        utilization=Utilization() if instances else _sum(busy, gpm=row.model.gpm),
        health=health(index, time),
        hardware=hardware(index),
        instances=tuple(instances),
    )
    entries = (
        GpuProcess(process.row.device.key, process.listed_as, process.row.kinds, process.memory) for process in listed
    )
    return GpuSample(facts, now, tuple(entries), None if instances else busy)


def xid_errors(started_at: float, time: float) -> XidCounts:
    """Return the XIDs of all GPUs from the start, at Unix time `started_at`, until `time` seconds after it."""
    errors = {device_key(index).uuid: dict.fromkeys(COMMON, XidErrors()) for index in range(len(scene().gpus))}
    for row in scene().xids:
        if time >= row.first:
            repeated = int((time - row.first) // row.period)
            last_at = started_at + row.first + repeated * row.period
            errors[device_key(row.gpu).uuid][row.code] = XidErrors(repeated + 1, last_at, row.instance)
    return errors


def _memory(total_mib: int, reserved_mib: int, members: Iterable[PlayedProcess], own: int = 0) -> Memory:
    total, reserved = total_mib * MIB, reserved_mib * MIB
    used = sum(process.memory for process in members) + DRIVERS_OWN + own
    return Memory(total, total - reserved - used, reserved)


def _utilization(process: PlayedProcess) -> ProcessUtilization:
    load = process.load
    return ProcessUtilization(process.pid, _ratio(load), _ratio(load * 0.55), 0.0, _ratio(process.row.decoder))


def _sum(busy: Iterable[ProcessUtilization], *, gpm: bool) -> Utilization:
    sm = sum(process.sm or 0 for process in busy)
    return Utilization(
        busy=_ratio(sm),
        memory_controller=_ratio(sum(process.memory_controller or 0 for process in busy)),
        encoder=_ratio(sum(process.encoder or 0 for process in busy)),
        decoder=_ratio(sum(process.decoder or 0 for process in busy)),
        sm=_ratio(sm * 0.82) if gpm else None,
    )


def _ratio(value: float) -> float:
    """Round to whole percents, as the driver does."""
    return min(1.0, round(value, 2))
