"""
Device ids as device plugins write them, and the leaf devices they mean.

What comes in: an id of the kubelet's pod-resources API, the GPUs that the driver counts now. What goes out: a leaf
device, or None.

The law: an id that does not name a device surely names none. Many plugins hand the kubelet ids that they made up (one
per MiB, one per block) and choose the device elsewhere; a wrong answer would entitle the wrong container.

| written by | id | means |
|---|---|---|
| NVIDIA | `GPU-<uuid>`, `MIG-<uuid>` | the device |
| NVIDIA, drivers before R470 | `MIG-GPU-<uuid>/<gi>/<ci>` | the GPU instance |
| NVIDIA, time-slicing or MPS | `<either>::<n>` | a replica: n is no order and no share |
| nos | `GPU-<uuid>::<GB>::<n>` | a replica |
| GKE | `nvidia<m>`, `nvidia<m>/gi<gi>`, either with `/vgpu<n>` | /dev/nvidia<m>; with vgpu a replica |
| by index (`deviceIDStrategy: index`) | `<i>` | the GPU of that index |
| by index, MIG | `<i>:<j>` | nobody here: j counts MIG slots, empty ones too, not GPU instances |
| HAMi, Volcano vGPU | `GPU-<uuid>-<n>` | nobody: Allocate follows the pod's annotation, not this id |
| vgpu-manager | `GPU-<uuid>::<n>` of `nvidia.com/vgpu-*` | nobody, for the same reason |
| gpushare, ACK, AWS, Koordinator, KAI ... | made up, or none | nobody |
| vendors with a library of their own | see `vendor_ids` | |
| AMD, Intel | see `kernel_ids` | |

Sources: NVIDIA/k8s-device-plugin internal/rm, GoogleCloudPlatform/container-engine-accelerators pkg/gpu/nvidia,
Project-HAMi/HAMi nvinternal/rm/devices.go, coldzerofear/vgpu-manager pkg/deviceplugin, nebuly-ai/nos pkg/gpu/slicing.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from exporter.kube import kernel_ids, vendor_ids
from exporter.model import DeviceKey, Gpu, GpuUuid

_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_BY_UUID = re.compile(rf"((?:GPU|MIG)-{_UUID})(?:(?:::\d+)?::(\d+))?", re.ASCII)
_BY_INSTANCE = re.compile(rf"MIG-(GPU-{_UUID})/(\d+)/\d+(?:::(\d+))?", re.ASCII)
_BY_MINOR = re.compile(r"nvidia(\d+)(?:/gi(\d+))?(?:/vgpu(\d+))?", re.ASCII)
_BY_INDEX = re.compile(r"(\d+)(?:::(\d+))?", re.ASCII)
_DRA_GPU = re.compile(r"gpu-(\d+)", re.ASCII)

INDEXED = frozenset({"nvidia.com/gpu", "nvidia.com/gpu.shared"})
"""Resources of which a bare number is an index. Elsewhere it is what a plugin numbers its made-up devices with."""
CHOSEN_ELSEWHERE = ("nvidia.com/vgpu-",)
"""Beginnings of resource names whose plugin follows an annotation, though its ids look like devices."""
DRA_DRIVER = "gpu.nvidia.com"


@dataclass(frozen=True, slots=True)
class DeviceId:
    """
    What an id says: one of `uuid` (or another name of a GPU or a part), `minor` or `index`, perhaps a GPU instance.

    `replica` is the number of the replica, None for the whole device; `vendor` whose minors and indices are meant.
    """

    uuid: str | None = None
    minor: int | None = None
    index: int | None = None
    gpu_instance: int | None = None
    replica: int | None = None
    vendor: str = "nvidia"


@lru_cache(maxsize=4096)  # eight GPUs in 48 replicas are 384 ids, the same in each round
def parse(device_id: str) -> DeviceId | None:
    """Read an id; None when it has no form that means a device."""
    if match := _BY_UUID.fullmatch(device_id):
        return DeviceId(uuid=match[1], replica=_number(match[2]))
    if match := _BY_INSTANCE.fullmatch(device_id):
        return DeviceId(uuid=match[1], gpu_instance=int(match[2]), replica=_number(match[3]))
    if match := _BY_MINOR.fullmatch(device_id):
        return DeviceId(minor=int(match[1]), gpu_instance=_number(match[2]), replica=_number(match[3]))
    if match := _BY_INDEX.fullmatch(device_id):
        return DeviceId(index=int(match[1]), replica=_number(match[2]))
    return None


def parse_of(resource: str, device_id: str) -> DeviceId | None:
    """Read an id of this resource; None when its plugin does not choose the device by the id."""
    if (known := kernel_ids.parse(resource, device_id)) is not None:
        return DeviceId(uuid=known.name, minor=known.card, replica=known.share, vendor=known.vendor)
    if (vendor := vendor_ids.VENDORS.get(resource.partition("/")[0])) is not None:
        named = vendor_ids.parse(resource, device_id)
        return None if named is None else DeviceId(uuid=named.name, replica=named.share, vendor=vendor)
    found = None if resource.startswith(CHOSEN_ELSEWHERE) else parse(device_id)
    return None if found is not None and found.index is not None and resource not in INDEXED else found


@dataclass(frozen=True, slots=True)
class Leaves:
    """The leaf devices that there are, by all that an id may call them. Made once for many ids."""

    keys: frozenset[DeviceKey]
    by_mig_uuid: Mapping[str, DeviceKey]
    by_minor: Mapping[tuple[str, int], GpuUuid]
    by_index: Mapping[tuple[str, int], GpuUuid]

    @classmethod
    def of(cls, gpus: Iterable[Gpu]) -> "Leaves":
        """Index the GPUs of the latest sample."""
        gpus = tuple(gpus)
        return cls(
            frozenset(key for gpu in gpus for key, _, _ in gpu.leaves()),
            {
                uuid: DeviceKey(gpu.uuid, gi.id)
                for gpu in gpus
                if gpu.mig
                for gi in gpu.instances
                for uuid in gi.mig_uuids
            }
            | {gpu.uuid: DeviceKey(gpu.uuid, 0) for gpu in gpus if gpu.mig and gpu.vendor == kernel_ids.AMD}
            | {name: DeviceKey(gpu.uuid) for gpu in gpus if not gpu.mig for name in gpu.names},
            {(gpu.vendor, gpu.minor): gpu.uuid for gpu in gpus if gpu.minor is not None},
            {(gpu.vendor, gpu.index): gpu.uuid for gpu in gpus},
        )


def resolve(device_id: DeviceId | None, leaves: Leaves) -> DeviceKey | None:
    """
    Name the leaf device that an id means.

    None for a device that is not there: unplugged, MIG set up anew since, or a whole GPU whose MIG was switched on.
    An id by minor number is resolved only when the driver told the minor numbers: the order of the indices (PCI bus)
    is mostly the same, but not on every board.
    """
    if device_id is None:
        return None
    if device_id.uuid is not None and (device_id.uuid.startswith("MIG-") or device_id.uuid in leaves.by_mig_uuid):
        return leaves.by_mig_uuid.get(device_id.uuid)
    gpu: GpuUuid | None = None
    if device_id.uuid is not None:
        gpu = GpuUuid(device_id.uuid)
    elif device_id.minor is not None:
        gpu = leaves.by_minor.get((device_id.vendor, device_id.minor))
    elif device_id.index is not None:
        gpu = leaves.by_index.get((device_id.vendor, device_id.index))
    if gpu is None:
        return None
    key = DeviceKey(gpu, device_id.gpu_instance)
    return key if key in leaves.keys else None


def resolve_claimed(driver: str, device: str, uuid: str | None, leaves: Leaves) -> DeviceKey | None:
    """
    Name the leaf device of a DRA claim's result. AMD's and Intel's drivers name it so that the kernel's name is in it.

    `uuid` is the attribute of that name in the device's ResourceSlice, where it was read. Without it NVIDIA's
    `gpu-<minor>` is understood; its MIG devices (`gpu-1-mig-1g6gb-14-0`: profile and placement) are not.
    """
    if (known := kernel_ids.parse_claimed(driver, device)) is not None:
        return resolve(DeviceId(uuid=known.name, vendor=known.vendor), leaves)
    if uuid is not None:
        return resolve(parse(uuid), leaves)
    if driver == DRA_DRIVER and (match := _DRA_GPU.fullmatch(device)):
        return resolve(DeviceId(minor=int(match[1])), leaves)
    return None


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
