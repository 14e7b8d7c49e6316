"""
The devices that device ids stand for.

What comes in: an id of the kubelet's pod-resources API or of a DRA claim, in its vendor's form (`model.vendors`), and
the GPUs that the driver counts now. What goes out: the key of a device, or None.

The rule: each list of ids is read once. A plugin that counts memory in MiB offers 80,000 ids for one GPU. Reading them
again in each round would keep a core busy for half a second.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from exporter.model import DeviceKey, Gpu, GpuUuid
from exporter.model.vendors import AMD, DeviceId, claimed_id, device_id


@dataclass(frozen=True, slots=True)
class SameDevice:
    """Ids of one list that differ only in their replica. `texts` counts the distinct ids as they were written."""

    meant: DeviceId
    ids: frozenset[DeviceId]
    texts: int


ReadIds = Callable[[str, tuple[str, ...]], tuple[SameDevice, ...]]
"""Reads the ids of a resource."""


def read_ids(resource: str, ids: tuple[str, ...]) -> tuple[SameDevice, ...]:
    """Group ids of a resource by the device that they stand for, in their order. Ids of no device are left out."""
    texts: defaultdict[DeviceId, list[DeviceId]] = defaultdict(list)
    for text in dict.fromkeys(ids):
        if (parsed := device_id(resource, text)) is not None:
            whole = DeviceId(parsed.name, parsed.minor, parsed.index, parsed.gpu_instance, vendor=parsed.vendor)
            texts[whole].append(parsed)
    return tuple(SameDevice(meant, frozenset(parsed), len(parsed)) for meant, parsed in texts.items())


class RememberedIds:
    """Reads lists of ids, and keeps those of this round and of the last one."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, tuple[str, ...]], tuple[SameDevice, ...]] = {}
        self._now: dict[tuple[str, tuple[str, ...]], tuple[SameDevice, ...]] = {}

    def begin_round(self) -> None:
        """Forget the lists that the last round did not ask for."""
        self._last, self._now = self._now, {}

    def __call__(self, resource: str, ids: tuple[str, ...]) -> tuple[SameDevice, ...]:
        """Read as `read_ids` does."""
        key = resource, ids
        if key not in self._now:
            self._now[key] = self._last[key] if key in self._last else read_ids(resource, ids)
        return self._now[key]


@dataclass(frozen=True, slots=True)
class DeviceIndex:
    """
    The present devices, by every name that an id may use. Made once for many ids.

    `by_name` has MIG instances, AMD's partitions, and names of GPUs other than the UUID. `by_minor` and `by_index` have
    the GPUs of each vendor.
    """

    keys: frozenset[DeviceKey]
    by_name: Mapping[str, DeviceKey]
    by_minor: Mapping[tuple[str, int | None], GpuUuid]
    by_index: Mapping[tuple[str, int | None], GpuUuid]

    @classmethod
    def of(cls, gpus: Iterable[Gpu]) -> "DeviceIndex":
        """Index the GPUs of the latest sample."""
        by_name: dict[str, DeviceKey] = {}
        gpus = tuple(gpus)
        for gpu in gpus:
            if not gpu.mig:
                by_name |= {name: DeviceKey(gpu.uuid) for name in gpu.names}
                continue
            by_name |= {uuid: DeviceKey(gpu.uuid, gi.id) for gi in gpu.instances for uuid in gi.mig_uuids}
            if gpu.vendor == AMD.name:
                by_name[gpu.uuid] = DeviceKey(gpu.uuid, 0)
        return cls(
            frozenset(key for gpu in gpus for key, _, _ in gpu.leaves()),
            by_name,
            {(gpu.vendor, gpu.minor): gpu.uuid for gpu in gpus if gpu.minor is not None},
            {(gpu.vendor, gpu.index): gpu.uuid for gpu in gpus},
        )


def resolve(meant: DeviceId | None, index: DeviceIndex) -> DeviceKey | None:
    """
    Name the device that an id stands for.

    None for a device that is not present: unplugged, MIG reconfigured since, or a whole GPU whose MIG was switched on.
    An id by minor number is resolved only when the driver reports minor numbers. The order of the indices (PCI bus) is
    mostly the same, but not on every board.
    """
    if meant is None:
        return None
    if meant.name is not None and meant.name in index.by_name:
        return index.by_name[meant.name]
    if meant.name is not None:
        gpu: GpuUuid | None = GpuUuid(meant.name)
    elif meant.minor is not None:
        gpu = index.by_minor.get((meant.vendor, meant.minor))
    else:
        gpu = index.by_index.get((meant.vendor, meant.index))
    key = DeviceKey(gpu, meant.gpu_instance) if gpu is not None else None
    return key if key in index.keys else None


def resolve_claimed(driver: str, device: str, uuid: str | None, index: DeviceIndex) -> DeviceKey | None:
    """
    Name the device of a DRA claim's result. The names of AMD's and Intel's drivers contain the kernel's name.

    HAMi's driver for Ascend names a device by its index, and makes up a UUID. `uuid` is the attribute of that name in
    the device's ResourceSlice, if it was read. Without it, only NVIDIA's `gpu-<minor>` can be resolved. Its MIG devices
    (`gpu-1-mig-1g6gb-14-0`: profile and placement) cannot.
    """
    claimed = claimed_id(driver, device)
    if uuid is not None and (claimed is None or (claimed.name is None and claimed.index is None)):
        claimed = device_id("nvidia.com/gpu", uuid)
    return resolve(claimed, index)
