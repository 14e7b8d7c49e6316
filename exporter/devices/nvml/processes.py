"""
The processes that hold memory: the driver's three process lists, merged into one.

What comes in: the handles of one device (several under MIG, one for each compute instance). What goes out: one
`GpuProcess` for each raw PID.

The rule: without a compute list the processes are unknown. A GPU without graphics or MPS list has none of that kind.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence

from exporter.devices.errors import OtherVersionError, UnsupportedError
from exporter.devices.nvml.arrays import Entry
from exporter.devices.nvml.library import Handle, Library
from exporter.devices.process_list import merged
from exporter.model import DeviceKey, GpuProcess, ProcessKind

LISTS: Mapping[ProcessKind, str] = {
    ProcessKind.COMPUTE: "nvmlDeviceGetComputeRunningProcesses",
    ProcessKind.GRAPHICS: "nvmlDeviceGetGraphicsRunningProcesses",
    ProcessKind.MPS: "nvmlDeviceGetMPSComputeRunningProcesses",
}
NOT_AVAILABLE = 2**64 - 1

_WITH_INSTANCES = struct.Struct("@IQII")  # pid, bytes, GPU instance, compute instance: 24 bytes
_PLAIN = struct.Struct("@IQ")  # pid, bytes: 16 bytes, before R450

Version = tuple[str, struct.Struct]


def versions(library: Library) -> tuple[Version, ...]:
    """
    Return the versions of the list calls that can be believed, the newest first.

    Drivers 535.43 to 535.86 fill `_v3` with entries of 32 bytes, so that every second entry read as 24 bytes is garbage
    (https://github.com/XuehaiPan/nvitop/issues/75). They are the only ones with the first but not the second of these
    symbols.
    """
    broken = library.has("nvmlDeviceGetConfComputeMemSizeInfo") and not library.has(
        "nvmlDeviceGetRunningProcessDetailList"
    )
    older = (("_v2", _WITH_INSTANCES), ("", _PLAIN))
    return older if broken else (("_v3", _WITH_INSTANCES), *older)


def read_processes(
    library: Library, device: DeviceKey, handles: Iterable[Handle], believed: Sequence[Version]
) -> tuple[GpuProcess, ...]:
    """
    Read and merge the lists of one device.

    A GPU without graphics or MPS list has no such processes. Without compute list they are unknown: UnsupportedError.
    """
    return merge(
        device,
        (
            (kind, _list(library, handle, function, believed, required=kind is ProcessKind.COMPUTE))
            for handle in handles
            for kind, function in LISTS.items()
        ),
    )


def merge(device: DeviceKey, lists: Iterable[tuple[ProcessKind, Iterable[Entry]]]) -> tuple[GpuProcess, ...]:
    """Make one entry for each raw PID of the lists, whose entries are (PID, bytes, …)."""
    return merged(device, _named(lists))


def _named(lists: Iterable[tuple[ProcessKind, Iterable[Entry]]]) -> Iterator[tuple[ProcessKind, int, int | None]]:
    for kind, entries in lists:
        for pid, used, *_ in entries:
            if pid:  # Jetson Orin fills its lists with zeros
                yield kind, pid, None if used == NOT_AVAILABLE else used


def _list(
    library: Library, handle: Handle, function: str, believed: Sequence[Version], *, required: bool
) -> Iterable[Entry]:
    for suffix, entry in believed:
        try:
            return library.processes(function + suffix, entry, handle)
        except OtherVersionError as error:
            missing: UnsupportedError = error
        except UnsupportedError as error:
            missing = error
            break
    if required:
        raise missing
    return ()
