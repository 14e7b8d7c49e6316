"""
What the driver of the simulated node says.

What comes in: indices of GPUs and the time. What goes out: their samples, with memory that is the sum of what their
processes hold, and utilization that is the sum of theirs.
"""

from collections import defaultdict
from collections.abc import Iterable

from exporter.devices.xids import COMMON
from exporter.model import (
    DeviceKey,
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
from exporter.simulated.health import health
from exporter.simulated.rows import gpu, mig
from exporter.simulated.scene import PAGE, PAGES_PER_GIB, Actor, actors
from exporter.simulated.table import DRIVER, GPUS, XIDS

MIB = 2**20
DRIVERS_OWN = 3 * PAGE
"""Bytes in use of each leaf device that belong to no process: what the kernel's own clients hold."""


def samples(indices: Iterable[int], now: float, time: float) -> tuple[GpuSample, ...]:
    """Return what the driver says of some GPUs at Unix time `now`, `time` seconds after the start."""
    listed = tuple(actor for actor in actors(time) if actor.memory)
    return tuple(_sample(index, listed, now, time) for index in indices)


def xid_errors(started_at: float, time: float) -> XidCounts:
    """Return the XIDs of all GPUs from the start, at Unix time `started_at`, until `time` seconds after it."""
    found = {gpu(index).uuid: dict.fromkeys(COMMON, XidErrors()) for index in range(len(GPUS))}
    for row in XIDS:
        if time >= row.first:
            times = int((time - row.first) // row.period)
            last_at = started_at + row.first + times * row.period
            found[gpu(row.gpu).uuid][row.code] = XidErrors(times + 1, last_at, row.instance)
    return found


def _sample(index: int, listed: Iterable[Actor], now: float, time: float) -> GpuSample:
    row, on = GPUS[index], defaultdict[DeviceKey, list[Actor]](list)
    for actor in listed:
        if actor.row.on.uuid == gpu(index).uuid:
            on[actor.row.on].append(actor)
    everybody = [actor for members in on.values() for actor in members]
    managed = round(row.managed.at(time) * PAGES_PER_GIB) * PAGE
    instances = tuple(
        GpuInstance(
            instance.id,
            instance.profile,
            (f"MIG-{gpu(index).uuid[4:-4]}{instance.id:04x}",),
            _memory(instance.memory_mib, 0, on[mig(index, instance.id)]),
            # NVML's utilization does not exist under MIG; GPM does.
            Utilization(sm=_ratio(_loads(on[mig(index, instance.id)])) if row.model.gpm else None),
        )
        for instance in row.instances
    )
    own = DRIVERS_OWN * max(0, len(instances) - 1) + managed  # each instance has a share of its own
    busy = None if instances else _utilization(everybody)
    return GpuSample(
        gpu=Gpu(
            uuid=gpu(index).uuid,
            index=index,
            model=row.model.name,
            pci_bus_id=row.pci_bus_id,
            driver_version=DRIVER,
            mig=bool(instances),
            memory=_memory(row.model.memory_mib, row.model.reserved_mib, everybody, own),
            utilization=Utilization() if busy is None else _device(busy, gpm=row.model.gpm),
            health=health(index, time),
            instances=instances,
        ),
        sampled_at=now,
        processes=tuple(
            GpuProcess(actor.row.on, actor.listed_as, actor.row.kinds, actor.memory) for actor in everybody
        ),
        utilization=busy,
    )


def _memory(total_mib: int, reserved_mib: int, members: Iterable[Actor], own: int = 0) -> Memory:
    total, reserved = total_mib * MIB, reserved_mib * MIB
    used = sum(actor.memory for actor in members) + DRIVERS_OWN + own
    return Memory(total, total - reserved - used, reserved)


def _loads(members: Iterable[Actor]) -> float:
    return sum(actor.load for actor in members)


def _utilization(members: Iterable[Actor]) -> tuple[ProcessUtilization, ...]:
    """Return the driver's statistics: by process id, even where its lists show threads; who is idle has no line."""
    return tuple(
        ProcessUtilization(
            actor.pid,
            sm=_ratio(actor.load),
            memory_controller=_ratio(actor.load * 0.55),
            encoder=0.0,
            decoder=_ratio(actor.row.decoder if actor.load else 0.0),
        )
        for actor in members
        if actor.load
    )


def _device(busy: tuple[ProcessUtilization, ...], *, gpm: bool) -> Utilization:
    return Utilization(
        busy=_ratio(sum(sample.sm or 0 for sample in busy)),
        memory_controller=_ratio(sum(sample.memory_controller or 0 for sample in busy)),
        encoder=_ratio(sum(sample.encoder or 0 for sample in busy)),
        decoder=_ratio(sum(sample.decoder or 0 for sample in busy)),
        sm=_ratio(sum(sample.sm or 0 for sample in busy) * 0.82) if gpm else None,
    )


def _ratio(value: float) -> float:
    """Round to whole percents, as the driver does."""
    return min(1.0, round(value, 2))
