"""
Device ids of AMD's and Intel's plugins, which name devices as the kernel does.

What comes in: an id of the kubelet, with its resource, or a device of a claim, with its driver. What goes out: a name
by which a leaf device is known, or None.

| written by | id | means |
|---|---|---|
| AMD | `0000:19:00.0` | the GPU; its first partition where it is divided |
| AMD | `amdgpu_xcp_<n>` | the partition of that name |
| AMD, DRA | `gpu-<card>-<render minor>` | GPU or partition of that render node |
| Intel | `card<n>-<share>` | the GPU, or a share of it: numbers of cards hold until the next boot |
| Intel | `all` of `gpu.intel.com/monitoring` | nobody: it grants a look at all |
| Intel, DRA | `0000-03-00-0-0x56a0` | the GPU of that PCI address |

Sources: ROCm/k8s-device-plugin internal/pkg/amdgpu, ROCm/k8s-gpu-dra-driver cmd/gpu-kubeletplugin/deviceinfo.go,
intel/intel-device-plugins-for-kubernetes cmd/gpu_plugin, intel/intel-resource-drivers-for-kubernetes pkg/gpu/device.
"""

import re
from dataclasses import dataclass

_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII | re.IGNORECASE)
_XCP = re.compile(r"amdgpu_xcp_\d+", re.ASCII | re.IGNORECASE)
_CARD = re.compile(r"card(\d+)-(\d+)", re.ASCII)
_AMD_CLAIMED = re.compile(r"gpu-\d+-(\d+)", re.ASCII)
_INTEL_CLAIMED = re.compile(r"([0-9a-f]{4})-([0-9a-f]{2})-([0-9a-f]{2})-([0-7])-0x[0-9a-f]{4}", re.ASCII)

AMD, INTEL = "amd", "intel"
VENDORS = {"amd.com": AMD, "gpu.intel.com": INTEL}
"""Group of a resource to vendor; the drivers of claims are `gpu.amd.com` and `gpu.intel.com`."""


@dataclass(frozen=True, slots=True)
class KernelId:
    """What an id says: a `name` (PCI address, partition, render node), or the number of a `card`; perhaps a share."""

    vendor: str
    name: str | None = None
    card: int | None = None
    share: int | None = None


def parse(resource: str, device_id: str) -> KernelId | None:
    """Read an id of a resource; None when it means no device."""
    match VENDORS.get(resource.partition("/")[0]):
        case "amd" if _PCI.fullmatch(device_id) or _XCP.fullmatch(device_id):
            return KernelId(AMD, name=device_id.lower())
        case "intel" if found := _CARD.fullmatch(device_id):
            return KernelId(INTEL, card=int(found[1]), share=int(found[2]))
    return None


def parse_claimed(driver: str, device: str) -> KernelId | None:
    """Read the name of a claimed device; None for other drivers, and for names of another form."""
    if driver == "gpu.amd.com" and (found := _AMD_CLAIMED.fullmatch(device)):
        return KernelId(AMD, name=f"renderD{found[1]}")
    if driver == "gpu.intel.com" and (found := _INTEL_CLAIMED.fullmatch(device)):
        return KernelId(INTEL, name=f"{found[1]}:{found[2]}:{found[3]}.{found[4]}")
    return None
