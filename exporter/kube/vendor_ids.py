"""
Device ids of accelerators whose vendors tell of them through a library of their own.

What comes in: an id of a resource that begins with the vendor's domain. What goes out: the device's name and, of a
share, its number; or None.

The law: that of `device_ids`. Where the vendor's plugin chooses the device by something else, its id names none.
T-Head's resource is not known; a UUID in NVIDIA's form is understood wherever it stands.

| written by | id | means |
|---|---|---|
| Cambricon | `MLU-<uuid>` | the device |
| Cambricon, shared | `MLU-<uuid>-_-<n>` | a share of it |
| Cambricon, sMLU and MIM | `MLU-<uuid>-<profile>-<n>`, `MLU-<uuid>-mim-<uuid>` | a share of it |
| Iluvatar | `<uuid>`, `<uuid>::<n>` | the device, a share of it |
| MetaX, Kunlunxin, Moore Threads | its own UUID or serial number | the device; in any other form nobody |
| Iluvatar and others under HAMi (`*-vgpu`, `vxpu`, ...) | made up | nobody: Allocate follows an annotation |
| Enflame (`gcu`) | the UUID of the library's older half | the device |
| Enflame gcushare | `<index>-<slice>` | nobody, for the same reason |
| Huawei MindCluster | `Ascend910-<i>`, `Ascend910-2c-<v>-<i>` | nobody: under Volcano the kubelet's id is a stand-in |
| the same, in the annotation `huawei.com/AscendReal` | the same | /dev/davinci<i>; vNPU v of it |

Sources: Cambricon/cambricon-k8s-device-plugin, Deep-Spark/ix-device-plugin, EnflameTechnology gcushare, gcu-exporter,
Ascend/mind-cluster component/ascend-device-plugin pkg/server/plugin.go (vol2kltMap), pkg/device/ascendcommon.go.
"""

import re
from dataclasses import dataclass

_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_CAMBRICON = re.compile(
    rf"(MLU-{_UUID})(?:-_-(?P<shared>\d+)|-(?P<mim>mim)-{_UUID}|-[0-9A-Za-z._]+-(?P<smlu>\d+))?", re.ASCII
)
_SHARED = re.compile(r"(.+?)(?:::(\d+))?", re.ASCII)
_ASCEND = re.compile(
    r"Ascend[0-9A-Za-z]+(?:-\d+c(?:\.[0-9a-z.]+)?-(?P<vdev>\d+))?-(?P<physical>\d+)(?:-\d+)?", re.ASCII
)

VENDORS = {
    "huawei.com": "huawei",
    "cambricon.com": "cambricon",
    "iluvatar.ai": "iluvatar",
    "iluvatar.com": "iluvatar",
    "enflame.com": "enflame",
    "metax-tech.com": "metax",
    "kunlunxin.com": "kunlunxin",
    "mthreads.com": "mthreads",
}
"""Domain of a resource's name to the vendor of its devices."""
CHOSEN_ELSEWHERE = re.compile(r".+-vgpu|vxpu|sgpu|vgpu|vmlu|shared-gcu|drs-gcu")
"""Names below these domains whose plugin follows an annotation, though its ids may look like devices."""
ASCEND_REAL = "huawei.com/AscendReal"
"""The annotation in which MindCluster's plugin writes what a pod really got, separated by commas."""


@dataclass(frozen=True, slots=True)
class NamedDevice:
    """A device by the name that its library gives it. `share` is the number of a share, None for the whole device."""

    name: str
    share: int | None = None


@dataclass(frozen=True, slots=True)
class RealAscend:
    """An NPU by its physical id, perhaps one vNPU of it."""

    physical: int
    vdev: int | None = None


def parse(resource: str, device_id: str) -> NamedDevice | None:
    """Read an id of a resource whose domain is one of VENDORS; None when it means no device."""
    domain, _, name = resource.partition("/")
    vendor = VENDORS[domain]
    if CHOSEN_ELSEWHERE.fullmatch(name) or vendor == "huawei":
        return None
    if vendor == "cambricon":
        if match := _CAMBRICON.fullmatch(device_id):
            share = match["shared"] or match["smlu"] or ("0" if match["mim"] else None)
            return NamedDevice(match[1], None if share is None else int(share))
        return None
    match = _SHARED.fullmatch(device_id)
    return NamedDevice(match[1], None if match[2] is None else int(match[2])) if match else None


def parse_ascend(device: str) -> RealAscend | None:
    """Read one device of the annotation ASCEND_REAL; a soft share of a device (`-<n>` at the end) is the device."""
    if match := _ASCEND.fullmatch(device.strip()):
        return RealAscend(int(match["physical"]), None if match["vdev"] is None else int(match["vdev"]))
    return None
