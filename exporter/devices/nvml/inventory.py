"""
The present GPUs and MIG instances.

What comes in: the library. What goes out: handles with lasting names. Indices and handles do not last. An index may
belong to another GPU tomorrow, and a MIG handle to another instance within the second. So both are read again in each
round, and everything is keyed by UUID.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from exporter.devices import errors
from exporter.devices.nvml.health import ALL
from exporter.devices.nvml.library import Handle, Library
from exporter.model import DeviceKey, Fault, GpuUuid

GIB = 2**30


@dataclass(frozen=True, slots=True)
class FoundGpu:
    """A GPU that can be opened."""

    uuid: GpuUuid
    index: int
    handle: Handle


@dataclass(frozen=True, slots=True)
class FoundDevice:
    """
    A device: a GPU, or a MIG GPU instance with the handles of its compute instances.

    Each handle reports the memory of the whole instance; each lists its own processes.
    """

    key: DeviceKey
    handles: tuple[Handle, ...]
    profile: str = ""
    mig_uuids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Identity:
    """The facts that do not change while a GPU keeps its UUID: read once."""

    model: str
    pci_bus_id: str
    known_throttles: int
    minor: int | None = None


@dataclass(frozen=True, slots=True)
class Enumeration:
    """One reading of all indices. `present` (UUID to index) includes lost GPUs that were seen before."""

    gpus: tuple[FoundGpu, ...]
    present: Mapping[GpuUuid, int]
    faults: tuple[Fault, ...]


def find_gpus(library: Library, before: Mapping[GpuUuid, int]) -> Enumeration:
    """Open every GPU that the driver counts. A lost one returns no UUID: `before` says which GPU had its index."""
    gpus: list[FoundGpu] = []
    refused: dict[int, errors.CallError | errors.DeviceLostError] = {}
    for index in range(library.count()):
        try:
            handle = library.gpu(index)
            gpus.append(FoundGpu(GpuUuid(library.uuid(handle)), index, handle))
        except errors.REFUSED as refusal:
            refused[index] = refusal
    present = {gpu.uuid: gpu.index for gpu in gpus}
    names = {index: uuid for uuid, index in before.items() if uuid not in present}
    faults = []
    for index, error in refused.items():
        uuid = names.get(index)
        if uuid is not None:
            present[uuid] = index
        # A GPU that we may not open belongs to others (a devices cgroup, a VM): reported, but the round is complete.
        foreign = isinstance(error, errors.NoPermissionError)
        subject = uuid or f"index {index}"
        message = f"GPU {index} is skipped: {error}" if foreign else f"GPU {index} does not answer: {error}"
        faults.append(Fault("devices", error.reason, message, subject, incomplete=not foreign))
    return Enumeration(tuple(gpus), present, tuple(faults))


def identify(library: Library, handle: Handle, *, throttles: bool = True) -> Identity:
    """
    Read the lasting facts of a GPU; with `throttles` also which reasons for lowered clocks it reports.

    Raises CallError or DeviceLostError when it does not answer.
    """
    try:
        pci_bus_id = library.pci_bus_id(handle)
    except errors.UnsupportedError:
        pci_bus_id = ""
    try:
        known_throttles = library.known_clock_limits(handle) if throttles else ALL
    except errors.CallError:
        known_throttles = ALL
    try:
        minor = library.minor(handle)
    except errors.CallError:
        minor = None
    return Identity(library.name(handle), pci_bus_id, known_throttles, minor)


def mig_enabled(library: Library, handle: Handle) -> bool:
    """Say whether the MIG instances are the devices, and not the GPU."""
    try:
        return library.mig_enabled(handle)
    except errors.UnsupportedError:
        return False


def find_devices(library: Library, gpu: FoundGpu, *, mig: bool) -> tuple[FoundDevice, ...]:
    """Name the devices of a GPU. With MIG, all slots are read: empty ones lie between full ones."""
    if not mig:
        return (FoundDevice(DeviceKey(gpu.uuid), (gpu.handle,)),)
    devices: dict[int, FoundDevice] = {}
    for slot in range(library.mig_slots(gpu.handle)):
        try:
            mig_handle = library.mig_device(gpu.handle, slot)
            number, uuid = library.gpu_instance_id(mig_handle), library.uuid(mig_handle)
            if device := devices.get(number):
                devices[number] = replace(
                    device, handles=(*device.handles, mig_handle), mig_uuids=(*device.mig_uuids, uuid)
                )
            else:
                devices[number] = FoundDevice(
                    DeviceKey(gpu.uuid, number), (mig_handle,), profile(library, mig_handle), (uuid,)
                )
        except (errors.NotFoundError, errors.InvalidArgumentError):
            continue
    return tuple(devices[number] for number in sorted(devices))


def profile(library: Library, mig_device: Handle) -> str:
    """
    Return the profile of the GPU instance of a MIG device, such as `1g.10gb`.

    The name of the device ends in `MIG 3g.20gb`, or in `MIG 1c.3g.20gb` for a compute instance that is only a part.
    Without such a name, the profile is made from compute slices and memory, rounded to GiB. It may differ from the name
    by one GiB.
    """
    if named := re.search(r"MIG (?:\d+c\.)?(\S+)$", library.name(mig_device)):
        return named[1]
    try:
        slices, memory = library.slices(mig_device)
    except errors.UnsupportedError:
        return ""
    return f"{slices}g.{round(memory / GIB)}gb"
