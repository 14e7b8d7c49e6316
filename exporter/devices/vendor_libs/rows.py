"""
The libraries in NVML's shape, one row each. A library of another shape has its row beside its reader.

What comes in: nothing. What goes out: names of libraries, device nodes and functions, and the layouts of the structures
of a library in NVML's shape.

The rule: data, each fact from the vendor's own header or binding (`source`). No row was ever run on hardware, so each
is believed only while it proves its layout (`layouts`). Of several versions, the first one counts that the library has
and that proves its layout.

| order of `memory` | first | then | then |
|---|---|---|---|
| NVML, T-Head, Iluvatar | total | free | used |
| MetaX (`Ex`) | free | total | used |
| NVML v2, T-Head, Iluvatar | total | reserved | free, used |
| Enflame v2 | total | free | used, reserved |
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.devices.vendor_libs.layouts import Entry, MemoryLayout

_V1 = Entry(16, pid=0, used=8)
_V2 = Entry(24, pid=0, used=8)
_V2_PROTECTED = Entry(32, pid=0, used=8)
"""With the used protected memory at the end: NVIDIA's R535 has that field, and Iluvatar's header, too."""

_NVML_MEMORY = MemoryLayout(24, total=0, free=8, used=16)
_NVML_MEMORY_V2 = MemoryLayout(40, total=8, reserved=16, free=24, used=32, version=0x02000028)
_UNVERSIONED = {"Init_v2": "Init", "DeviceGetCount_v2": "DeviceGetCount"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """
    One vendor's library.

    Attributes:
        name: of the source, as in a config.
        vendor: as in the catalogue of limits.
        title: the name of its devices for people.
        libraries: names to load it by.
        nodes: patterns of the vendor's device nodes below /dev.
        source: the origin of the facts.
        modules: kernel modules, one of which must be loaded; none: the library is its own proof.

    """

    name: str
    vendor: str
    title: str
    libraries: tuple[str, ...]
    nodes: tuple[str, ...]
    source: str
    modules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Library):
    """
    One library in NVML's shape.

    Attributes:
        prefix: before the common part of each function's name; `functions` where that part is not NVML's.
        memory: layout of the plain call.
        reserved: (function, layout) of calls that also report reserved memory; believed where they agree with `memory`.
        processes: (function, layouts of its entries), the newest first.
        uuid: function that returns the name, a serial number where there is no UUID; empty: the PCI address.
        pci: (function, size of its structure, offset of the text `domain:bus:device.function`).
        busy: size of the structure of `DeviceGetUtilizationRates`, which begins with two percentages.
        own_entry: the caller itself is listed.

    """

    prefix: str
    memory: MemoryLayout
    processes: tuple[tuple[str, tuple[Entry, ...]], ...]
    uuid: str = "DeviceGetUUID"
    pci: tuple[str, int, int] = ("DeviceGetPciInfo_v3", 68, 36)
    busy: int = 8
    own_entry: bool = False
    reserved: tuple[tuple[str, MemoryLayout], ...] = ()
    functions: Mapping[str, str] = field(default_factory=dict)

    def function(self, name: str) -> str:
        """Return the full name of a function."""
        return self.prefix + self.functions.get(name, name)


ROWS = (
    Row(
        name="ixml",
        vendor="iluvatar",
        title="Iluvatar GPU",
        libraries=("libixml.so", "/usr/local/corex/lib64/libixml.so", "/usr/local/corex/lib/libixml.so"),
        prefix="nvml",
        memory=_NVML_MEMORY,
        reserved=(("DeviceGetMemoryInfo_v2", _NVML_MEMORY_V2),),
        processes=(
            ("DeviceGetComputeRunningProcesses_v3", (_V2, _V2_PROTECTED)),
            ("DeviceGetComputeRunningProcesses", (_V1, _V2, _V2_PROTECTED)),
        ),
        nodes=("iluvatar*", "itrctl"),
        source="Deep-Spark/go-ixml pkg/ixml/api.h",
    ),
    Row(
        name="efml",
        vendor="enflame",
        title="Enflame GCU",
        libraries=("libefml.so", "libefml.so.1", "libefml.so.2"),
        prefix="efml",
        memory=_NVML_MEMORY,
        reserved=tuple(  # the header says "must be 2", as NVML's does, where the size is added
            ("DeviceGetMemoryInfo_v2", MemoryLayout(40, total=8, free=16, used=24, reserved=32, version=version))
            for version in (2, 0x02000028)
        ),
        processes=(("DeviceGetComputeRunningProcesses_v3", (_V2,)),),
        nodes=("gcu*",),
        source="EnflameTechnology/gcu-exporter efml.h 1.2.3.5",
        uuid="",
        pci=("DeviceGetPciInfo_v3", 56, 24),
    ),
    Row(
        name="mxsml",
        vendor="metax",
        title="MetaX GPU",
        libraries=("libmxsml.so", "/opt/mxdriver/lib/libmxsml.so", "/opt/maca/lib/libmxsml.so"),
        prefix="mxSmlEx",
        memory=MemoryLayout(24, free=0, total=8, used=16),
        processes=(("DeviceGetComputeRunningProcesses", (Entry(24, pid=8, used=16),)),),
        nodes=("mxcd", "mxnd", "mxgd"),
        source="MetaX-MACA mxsml extension header",
        pci=("DeviceGetPciInfo", 68, 36),
        functions={
            **_UNVERSIONED,
            "DeviceGetHandleByIndex_v2": "GetDeviceHandleByIndex",
            "DeviceGetUtilizationRates": "DeviceGetUtilization",
            "DeviceGetPowerUsage": "GetPowerUsage",
        },
    ),
    Row(
        name="xpuml",
        vendor="kunlunxin",
        title="Kunlunxin XPU",
        libraries=("libxpuml.so", "libxpuml.so.1", "/usr/local/xpu/so/libxpuml.so"),
        prefix="xpuml",
        memory=MemoryLayout(128, total=8, free=16, used=24, ends=32),
        processes=(("DeviceGetComputeRunningProcesses", (Entry(128, pid=0, used=8, host_pid=24, ends=28),)),),
        nodes=("xpu*",),
        source="kunlunxin/go-xpuml pkg/xpuml/xpuml.h",
        uuid="DeviceGetSerial",
        pci=("DeviceGetPciInfo", 128, 24),
        busy=128,
        own_entry=True,
        functions={**_UNVERSIONED, "DeviceGetHandleByIndex_v2": "DeviceGetHandleByIndex"},
    ),
    Row(
        name="hgml",
        vendor="t-head",
        title="T-Head PPU",
        libraries=("libhgml.so",),
        prefix="hgml",
        memory=_NVML_MEMORY,
        reserved=(("DeviceGetMemoryInfo_v2", _NVML_MEMORY_V2),),
        processes=(
            ("DeviceGetComputeRunningProcesses_v3", (_V2,)),
            ("DeviceGetComputeRunningProcesses_v2", (_V2,)),
        ),
        nodes=("alixpu*",),
        source="gpustack/runtime pyhgml",
        functions={"Init_v2": "InitWithFlags"},
    ),
)
