"""
Accelerators of other vendors, read through their own C libraries.

What comes in: the sources that the operator named. What goes out: a device source for each library that can be loaded.

| source | vendor | library | memory by process |
|---|---|---|---|
| `ixml` | Iluvatar | libixml.so, NVML's names and layouts | yes |
| `efml` | Enflame | libefml.so, NVML's shape | yes |
| `mxsml` | MetaX | libmxsml.so, NVML's shape, other order | yes |
| `xpuml` | Kunlunxin | libxpuml.so, NVML's shape, larger structures | yes |
| `hgml` | T-Head | libhgml.so, NVML's shape | yes |
| `dcmi` | Huawei Ascend | libdcmi.so | yes, up to 31 processes a device; not on a vNPU |
| `cndev` | Cambricon | libcndev.so | yes |
| `mtml` | Moore Threads | libmtml.so | never |
| `rsmi` | Hygon | librocm_smi64.so, beside Hygon's kernel modules only | of a process that is on one device |

The rule: none of these readers was ever run on hardware. Each answer proves its layout or is refused (`layouts`). No
action follows from a vendor's figures before the operator trusts that vendor (`unverified_backend`).
"""

import asyncio
import ctypes
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from exporter.devices import DeviceError, DeviceSource
from exporter.devices.open_nodes import OpenNodes
from exporter.devices.session import Beat, Devices, LibrarySource
from exporter.devices.vendor_libs import cndev, dcmi, mtml, rsmi
from exporter.devices.vendor_libs.devices import VendorDevices
from exporter.devices.vendor_libs.enflame import Enflame
from exporter.devices.vendor_libs.metax import Metax
from exporter.devices.vendor_libs.nvml_like import NvmlLike
from exporter.devices.vendor_libs.reader import Reader
from exporter.devices.vendor_libs.rows import ROWS, Library
from exporter.model import ALL_ON, Off

_READERS: Mapping[str, Callable[[Any, Beat, OpenNodes], Reader[Any]]] = {
    "mxsml": Metax,  # NVML's shape, and an older half
    "efml": Enflame,  # NVML's shape, and an older half
    dcmi.LIBRARY.name: dcmi.Dcmi,
    cndev.LIBRARY.name: cndev.Cndev,
    mtml.LIBRARY.name: mtml.Mtml,
    rsmi.LIBRARY.name: rsmi.Rsmi,
}
"""The readers of libraries that differ from NVML by more than a row."""
LIBRARIES: Mapping[str, Library] = {
    library.name: library for library in (*ROWS, dcmi.LIBRARY, cndev.LIBRARY, mtml.LIBRARY, rsmi.LIBRARY)
}


def devices(
    library: Library, proc: Path, dev: Path, clock: Callable[[], float], beat: Beat, *, off: Off = ALL_ON
) -> Devices:
    """Make the devices of a library; `proc` and `dev` are the host's; collectors that are `off` are not read."""
    nodes = OpenNodes(proc, dev, library.nodes, beat)
    return VendorDevices(reader(library, beat, nodes), nodes, clock, off)


def reader(library: Library, beat: Beat, nodes: OpenNodes) -> Reader[Any]:
    """Make the reader of a library."""
    return _READERS.get(library.name, NvmlLike)(library, beat, nodes)


async def present(
    *,
    clock: Callable[[], float],
    monotonic: Callable[[], float],
    host_root: Path,
    wanted: Collection[str] | None,
    off: Off = ALL_ON,
) -> tuple[DeviceSource, ...]:
    """
    Make a source of each library that can be loaded here.

    Args:
        clock: Unix time.
        monotonic: paces the attempts after a failure.
        host_root: the mount point of the host's file system; without a `/proc` there our own root counts.
        wanted: names of sources in the config, of this package or others; None: all that exist.
        off: collectors that are not read.
    Raises DeviceError when one that the config names cannot be loaded.

    """
    proc = host_root / "proc"
    root = host_root if (proc / "self/stat").exists() else Path("/")
    sources: list[DeviceSource] = []
    for name, library in LIBRARIES.items():
        if wanted is not None and name not in wanted:
            continue
        if why := await asyncio.to_thread(_missing, root, library):
            if wanted is not None:
                raise DeviceError(
                    f"devices: {name} cannot be used",
                    cause=why,
                    fix="install the vendor's driver on the node, and mount its library "
                    f"({library.libraries[0]}) into the daemon's container",
                )
            continue
        make = partial(devices, library, root / "proc", root / "dev", clock, off=off)
        sources.append(LibrarySource(name, make, monotonic=monotonic))
    return tuple(sources)


def _missing(root: Path, library: Library) -> str | None:
    """
    Return the reason why a library cannot be loaded here; None if it can.

    It stays loaded, and is not initialised.
    """
    if library.modules and not any((root / "sys/module" / module).exists() for module in library.modules):
        return f"none of the kernel modules {', '.join(library.modules)} is loaded"
    why = None
    for name in library.libraries:
        try:
            ctypes.CDLL(name)
        except OSError as error:
            why = why or str(error)
        else:
            return None
    return why
