"""
The vendors of GPUs and accelerators, one row each.

What comes in: nothing. What goes out: `VENDORS`, and the device that an id means in a vendor's own form.

The rule: each fact about a vendor is here, and nowhere else. A new vendor needs a row here, a reader in
`exporter.devices`, and a row in the catalogue of limits.

An id that does not certainly name a device counts as no device. Many plugins give the kubelet made-up ids (one per MiB,
one per block) and choose the device elsewhere. A wrong guess would give the memory to the wrong container.

| written by | id | means |
|---|---|---|
| NVIDIA | `GPU-<uuid>`, `MIG-<uuid>` | the device |
| NVIDIA, drivers before R470 | `MIG-GPU-<uuid>/<gi>/<ci>` | the GPU instance |
| NVIDIA, time-slicing or MPS | `<either>::<n>` | a replica: n is no order and no share |
| nos | `GPU-<uuid>::<GB>::<n>` | a replica |
| GKE | `nvidia<m>`, `nvidia<m>/gi<gi>`, either with `/vgpu<n>` | /dev/nvidia<m>; with vgpu a replica |
| by index (`deviceIDStrategy: index`) | `<i>` | the GPU of that index |
| by index, MIG | `<i>:<j>` | no device: j counts MIG slots, also empty ones, not MIG instances |
| NVIDIA, DRA | `gpu-<minor>` | the GPU, where the ResourceSlice has no UUID; MIG devices are not understood |
| AMD | `0000:19:00.0` | the GPU; its first partition where it is divided |
| AMD | `amdgpu_xcp_<n>` | the partition of that name |
| AMD, DRA | `gpu-<card>-<render minor>` | GPU or partition of that render node |
| Intel | `card<n>-<share>` | the GPU, or a share of it: card numbers are valid until the next boot |
| Intel | `all` of `gpu.intel.com/monitoring` | no device: it allows to monitor all |
| Intel, DRA | `0000-03-00-0-0x56a0` | the GPU of that PCI address |
| Cambricon | `MLU-<uuid>` | the device |
| Cambricon, shared | `MLU-<uuid>-_-<n>` | a share of it |
| Cambricon, sMLU and MIM | `MLU-<uuid>-<profile>-<n>`, `MLU-<uuid>-mim-<uuid>` | a share of it |
| Iluvatar | `<uuid>`, `<uuid>::<n>` | the device, a share of it |
| MetaX, Kunlunxin, Moore Threads | its own UUID or serial number | the device; any other form means none |
| Enflame (`gcu`) | the UUID of the library's older half | the device |
| Enflame gcushare | `<index>-<slice>` | no device: Allocate follows an annotation |
| Huawei MindCluster | `Ascend910-<i>`, `Ascend910-2c-<v>-<i>` | no device: under Volcano it is a placeholder |
| the same, in the annotation `huawei.com/AscendReal` | the same | /dev/davinci<i>; vNPU v of it |
| HAMi, DRA for Ascend | `npu-<i>-0` | the NPU of that logic id, the index in the driver's library |
| HAMi, Volcano vGPU | `GPU-<uuid>-<n>` | no device: Allocate follows the pod's annotation, not this id |
| vgpu-manager, HAMi | any of `nvidia.com/vgpu-*`, `*-vgpu`, `vxpu`, ... | no device, for the same reason |
| gpushare, ACK, AWS, Koordinator, KAI ... | made up, or none | no device |

Sources:
- NVIDIA: NVIDIA/k8s-device-plugin internal/rm, GoogleCloudPlatform/container-engine-accelerators pkg/gpu/nvidia,
  Project-HAMi/HAMi nvinternal/rm/devices.go, coldzerofear/vgpu-manager pkg/deviceplugin, nebuly-ai/nos pkg/gpu/slicing.
- AMD: ROCm/k8s-device-plugin internal/pkg/amdgpu, ROCm/k8s-gpu-dra-driver cmd/gpu-kubeletplugin/deviceinfo.go.
- Intel: intel/intel-device-plugins-for-kubernetes cmd/gpu_plugin, intel/intel-resource-drivers-for-kubernetes
  pkg/gpu/device.
- Huawei: Ascend/mind-cluster component/ascend-device-plugin pkg/server/plugin.go (vol2kltMap),
  pkg/device/ascendcommon.go; Project-HAMi/ascend-dra-driver cmd/ascend-dra-kubeletplugin/discovery.go.
- Others: Cambricon/cambricon-k8s-device-plugin, Deep-Spark/ix-device-plugin, EnflameTechnology gcushare, gcu-exporter.
"""

import re
from dataclasses import dataclass

_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"


@dataclass(frozen=True, slots=True)
class DeviceId:
    """
    The meaning of an id: one of `name` (a UUID, a PCI address, ...), `minor` or `index`, perhaps with a MIG instance.

    `replica` is the number of the replica, None for the whole device. Minors and indices are counted per `vendor`.
    """

    name: str | None = None
    minor: int | None = None
    index: int | None = None
    gpu_instance: int | None = None
    replica: int | None = None
    vendor: str = "nvidia"


@dataclass(frozen=True, slots=True)
class Form:
    """
    A form of ids.

    Attributes:
        pattern: its groups have the names of the fields of `DeviceId`. An empty number is 0.
        name: template that makes the device's name of the match, if the id has no group `name`.

    """

    pattern: re.Pattern[str]
    name: str | None = None

    def read(self, text: str, vendor: str) -> DeviceId | None:
        """Read an id; None if it has another form."""
        if (match := self.pattern.fullmatch(text)) is None:
            return None
        groups = match.groupdict()

        def number(group: str) -> int | None:
            digits = groups.get(group)
            return None if digits is None else int(digits or 0)

        name = match.expand(self.name) if self.name else groups.get("name")
        if name is not None and self.pattern.flags & re.IGNORECASE:
            name = name.lower()
        return DeviceId(name, number("minor"), number("index"), number("gpu_instance"), number("replica"), vendor)


def _form(pattern: str, name: str | None = None, *, flags: re.RegexFlag = re.ASCII) -> Form:
    return Form(re.compile(pattern, flags), name)


_NEVER = re.compile(r"(?!)")
_BY_ANNOTATION = re.compile(r"[^/]*/(?:.+-vgpu|vxpu|sgpu|vgpu|vmlu|shared-gcu|drs-gcu)")


@dataclass(frozen=True, slots=True)
class Vendor:
    """
    One vendor.

    Attributes:
        name: in metrics, in the config, and in the catalogue of limits.
        title: for people.
        sources: the device sources that report its devices, as `--devices` names them.
        drivers: the kernel's DRM drivers, if the kernel's own files report the devices.
        domains: of the resources that its device plugins offer.
        ids: the forms of those plugins' device ids.
        indexed: resources whose bare numbers are indices. For other resources they number made-up devices.
        chosen_elsewhere: resources whose plugin follows an annotation, though its ids may look like devices.
        claim_driver: its DRA driver.
        claimed: the form of the device names in that driver.
        annotation: where its plugin writes the devices that a pod really got, separated by commas, in the form
            `annotated`.
        trusted: `policy.trusted_vendors` names it by default.
        memory_by_process: memory is known by process, so a container can be found above its limit.
        unknown: what its sources can never report.
        partial: the same, for process lists with only the processes that use a GPU in one way.

    """

    name: str
    title: str
    sources: tuple[str, ...]
    drivers: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    ids: tuple[Form, ...] = ()
    indexed: frozenset[str] = frozenset()
    chosen_elsewhere: re.Pattern[str] = _BY_ANNOTATION
    claim_driver: str = ""
    claimed: Form | None = None
    annotation: str = ""
    annotated: Form | None = None
    trusted: bool = False
    memory_by_process: bool = True
    unknown: str = ""
    partial: str = ""

    def annotated_id(self, text: str) -> DeviceId | None:
        """Read one device of `annotation`."""
        return self.annotated.read(text.strip(), self.name) if self.annotated else None

    def claimed_id(self, text: str) -> DeviceId | None:
        """Read the name of a device of `claim_driver`."""
        return self.claimed.read(text, self.name) if self.claimed else None


_PROCESS_LOAD = "how busy a process keeps a device"
_NAMED = (_form(r"(?P<name>.+?)(?:::(?P<replica>\d+))?"),)
_ASCEND = r"Ascend[0-9A-Za-z]+(?:-\d+c(?:\.[0-9a-z.]+)?-(?P<gpu_instance>\d+))?-(?P<minor>\d+)(?:-\d+)?"

NVIDIA = Vendor(
    "nvidia",
    "NVIDIA",
    ("nvml",),
    domains=("nvidia.com",),
    ids=(
        _form(rf"(?P<name>(?:GPU|MIG)-{_UUID})(?:(?:::\d+)?::(?P<replica>\d+))?"),
        _form(rf"MIG-(?P<name>GPU-{_UUID})/(?P<gpu_instance>\d+)/\d+(?:::(?P<replica>\d+))?"),
        _form(r"nvidia(?P<minor>\d+)(?:/gi(?P<gpu_instance>\d+))?(?:/vgpu(?P<replica>\d+))?"),
        _form(r"(?P<index>\d+)(?:::(?P<replica>\d+))?"),
    ),
    indexed=frozenset({"nvidia.com/gpu", "nvidia.com/gpu.shared"}),
    chosen_elsewhere=re.compile(r"nvidia\.com/vgpu-.*", re.DOTALL),
    claim_driver="gpu.nvidia.com",
    claimed=_form(r"gpu-(?P<minor>\d{1,4})"),
    trusted=True,
)
AMD = Vendor(
    "amd",
    "AMD",
    ("kfd", "drm"),
    drivers=("amdgpu",),
    domains=("amd.com",),
    chosen_elsewhere=_NEVER,
    ids=(
        _form(r"(?P<name>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|amdgpu_xcp_\d+)", flags=re.ASCII | re.IGNORECASE),
    ),
    claim_driver="gpu.amd.com",
    claimed=_form(r"gpu-\d{1,4}-(\d{1,4})", r"renderD\1"),
    unknown="how busy ROCm's processes keep a GPU; load, power and temperature of a partition",
    partial="by kfd alone: what is held by DRM (Vulkan, OpenGL, VA-API), and so what a container holds that has no "
    "ROCm process; --devices=drm tells",
)
INTEL = Vendor(
    "intel",
    "Intel",
    ("drm",),
    drivers=("xe", "i915"),
    domains=("gpu.intel.com",),
    chosen_elsewhere=_NEVER,
    ids=(_form(r"card(?P<minor>\d+)-(?P<replica>\d+)"),),
    claim_driver="gpu.intel.com",
    claimed=_form(r"([0-9a-f]{4})-([0-9a-f]{2})-([0-9a-f]{2})-([0-7])-0x[0-9a-f]{4}", r"\1:\2:\3.\4"),
    unknown="how busy a process keeps the video engines; load of the whole GPU; engines of a virtual function",
)
HUAWEI = Vendor(
    "huawei",
    "Huawei Ascend",
    ("dcmi",),
    domains=("huawei.com",),
    claim_driver="ascend.project-hami.io",
    claimed=_form(r"npu-(?P<index>\d{1,4})-0"),
    annotation="huawei.com/AscendReal",
    annotated=_form(_ASCEND),
    unknown="how busy a process keeps an NPU; processes of a vNPU; more than 31 processes of one",
)

VENDORS = (
    NVIDIA,
    AMD,
    INTEL,
    Vendor(
        "iluvatar", "Iluvatar", ("ixml",), domains=("iluvatar.ai", "iluvatar.com"), ids=_NAMED, unknown=_PROCESS_LOAD
    ),
    Vendor("enflame", "Enflame", ("efml",), domains=("enflame.com",), ids=_NAMED, unknown=_PROCESS_LOAD),
    Vendor("metax", "MetaX", ("mxsml",), domains=("metax-tech.com",), ids=_NAMED, unknown=_PROCESS_LOAD),
    Vendor("kunlunxin", "Kunlunxin", ("xpuml",), domains=("kunlunxin.com",), ids=_NAMED, unknown=_PROCESS_LOAD),
    # T-Head's resource is unknown. A UUID in NVIDIA's form is read in any resource without a vendor.
    Vendor("t-head", "T-Head", ("hgml",), unknown=_PROCESS_LOAD),
    HUAWEI,
    Vendor(
        "cambricon",
        "Cambricon",
        ("cndev",),
        domains=("cambricon.com",),
        ids=(
            _form(rf"(?P<name>MLU-{_UUID})(?:-[0-9A-Za-z._]+-(?P<replica>\d+))?"),
            _form(rf"(?P<name>MLU-{_UUID})-mim-{_UUID}(?P<replica>)"),
        ),
        unknown="which sMLU or MIM instance a process is on",
    ),
    Vendor(
        "mthreads",
        "Moore Threads",
        ("mtml",),
        domains=("mthreads.com",),
        ids=_NAMED,
        memory_by_process=False,
        unknown="memory by process, and so by container",
    ),
    Vendor(
        "hygon",
        "Hygon",
        ("rsmi",),
        unknown=f"{_PROCESS_LOAD}; how much of each device a process holds that is on several",
    ),
)
VENDOR = {vendor.name: vendor for vendor in VENDORS}
SOURCES = tuple(dict.fromkeys(source for vendor in VENDORS for source in vendor.sources))
TRUSTED = frozenset(vendor.name for vendor in VENDORS if vendor.trusted)

_OF_DOMAIN = {domain: vendor for vendor in VENDORS for domain in vendor.domains}
_OF_CLAIM_DRIVER = {vendor.claim_driver: vendor for vendor in VENDORS}


def vendor_of(resource: str) -> Vendor:
    """Return the vendor of a resource's devices. The resources of sharing systems have NVIDIA's ids."""
    return _OF_DOMAIN.get(resource.partition("/")[0], NVIDIA)


def device_id(resource: str, text: str) -> DeviceId | None:
    """Read an id of a resource; None if no form names a device, or if the plugin chooses the device elsewhere."""
    vendor = vendor_of(resource)
    if vendor.chosen_elsewhere.fullmatch(resource):
        return None
    meant = next((meant for form in vendor.ids if (meant := form.read(text, vendor.name))), None)
    return None if meant is not None and meant.index is not None and resource not in vendor.indexed else meant


def claimed_id(driver: str, device: str) -> DeviceId | None:
    """Read a device's name in a DRA claim; None for other drivers, and for names of another form."""
    vendor = _OF_CLAIM_DRIVER.get(driver)
    return vendor.claimed_id(device) if vendor else None
