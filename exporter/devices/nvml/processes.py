"""
The processes that hold memory: the driver's three process lists, merged into one.

What comes in: the handles of one device (several under MIG, one for each compute instance). What goes out: one
`GpuProcess` for each raw PID.

The rule: without a compute list the processes are unknown. A GPU without graphics or MPS list has none of that kind.
Lists that say the same as the last time give the same objects. So the next step sees by identity that nothing changed.
"""

import struct
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from exporter.devices.errors import OtherVersionError, UnsupportedError
from exporter.devices.nvml.arrays import Entry
from exporter.devices.nvml.library import Handle, Library
from exporter.devices.process_list import merged
from exporter.model import DeviceKey, GpuProcess, GpuUuid, ProcessKind

LISTS: Mapping[ProcessKind, str] = {
    ProcessKind.COMPUTE: "nvmlDeviceGetComputeRunningProcesses",
    ProcessKind.GRAPHICS: "nvmlDeviceGetGraphicsRunningProcesses",
    ProcessKind.MPS: "nvmlDeviceGetMPSComputeRunningProcesses",
}
NOT_AVAILABLE = 2**64 - 1

_WITH_INSTANCES = struct.Struct("@IQII")  # pid, bytes, GPU instance, compute instance: 24 bytes
_PLAIN = struct.Struct("@IQ")  # pid, bytes: 16 bytes, before R450

Version = tuple[str, struct.Struct]
Lists = list[tuple[ProcessKind, list[Entry]]]


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


class ProcessLists:
    """Reads the lists; `believed`: the versions of their calls. Remembers the last lists of each device."""

    def __init__(self, believed: Sequence[Version]) -> None:
        self._believed = believed
        self._last: dict[DeviceKey, tuple[Lists, tuple[GpuProcess, ...]]] = {}

    def read(self, library: Library, device: DeviceKey, handles: Iterable[Handle]) -> tuple[GpuProcess, ...]:
        """
        Read and merge the lists of one device.

        A GPU without graphics or MPS list has no such processes. Without compute list they are unknown:
        UnsupportedError.
        """
        lists = [
            (kind, list(_list(library, handle, function, self._believed, required=kind is ProcessKind.COMPUTE)))
            for handle in handles
            for kind, function in LISTS.items()
        ]
        last = self._last.get(device)
        if last is None or last[0] != lists:
            last = self._last[device] = lists, merge(device, lists)
        return last[1]

    def keep(self, uuid: GpuUuid, there: Collection[DeviceKey]) -> None:
        """Forget the devices of a GPU that no longer exist."""
        for key in [key for key in self._last if key.uuid == uuid and key not in there]:
            del self._last[key]


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
            # Python's cache of attributes keeps each text that it is asked with, and 4,096 new ones take 0.4 MB.
            return library.processes(sys.intern(function + suffix), entry, handle)
        except OtherVersionError as error:
            missing: UnsupportedError = error
        except UnsupportedError as error:
            missing = error
            break
    if required:
        raise missing
    return ()
