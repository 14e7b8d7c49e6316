"""
Accelerators of other vendors, as their own C libraries tell of them.

What comes in: what the operator asked for. What goes out: a device source for each library that can be loaded here.

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
| `rsmi` | Hygon | librocm_smi64.so, beside Hygon's kernel modules only | of who is on one device |

The law: nobody here has run one of them on hardware. Each answer proves its layout or is refused (`layouts`), and no
vendor is acted on before the operator trusts it (`unverified_backend`).
"""

import asyncio
import ctypes
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from exporter.devices import DeviceError, DeviceSource
from exporter.devices.vendor_libs import cndev, dcmi, mtml, rsmi
from exporter.devices.vendor_libs.enflame import Enflame
from exporter.devices.vendor_libs.holders import OpenNodes
from exporter.devices.vendor_libs.metax import Metax
from exporter.devices.vendor_libs.nvml_like import NvmlLike
from exporter.devices.vendor_libs.rows import ROWS, Row
from exporter.devices.vendor_libs.source import LibrarySource, Make

__all__ = ["NAMES", "LibrarySource", "present"]


KINDS: Mapping[str, type[NvmlLike]] = {"mxsml": Metax, "efml": Enflame}
"""Rows whose libraries have another half, too."""


def _row(row: Row) -> Make:
    return lambda beat, _: KINDS.get(row.name, NvmlLike)(row, beat)


@dataclass(frozen=True, slots=True)
class _Library:
    """
    How a source is made: names to load its library by, patterns of its device nodes, its reader.

    `modules`: kernel modules, one of which must be loaded; none: the library is its own proof.
    """

    names: Sequence[str]
    nodes: Sequence[str]
    make: Make
    modules: Sequence[str] = ()


_LIBRARIES: Mapping[str, _Library] = {
    **{row.name: _Library(row.libraries, row.nodes, _row(row)) for row in ROWS},
    "dcmi": _Library(dcmi.LIBRARIES, dcmi.NODES, lambda beat, _: dcmi.Dcmi(beat)),
    "cndev": _Library(cndev.LIBRARIES, cndev.NODES, lambda beat, _: cndev.Cndev(beat)),
    "mtml": _Library(mtml.LIBRARIES, mtml.NODES, mtml.Mtml),
    "rsmi": _Library(rsmi.LIBRARIES, rsmi.NODES, lambda beat, _: rsmi.Rsmi(beat), rsmi.MODULES),
}
NAMES = tuple(_LIBRARIES)
"""The sources that there can be."""


async def present(
    *,
    clock: Callable[[], float],
    monotonic: Callable[[], float],
    host_root: Path,
    wanted: Collection[str] | None,
) -> tuple[DeviceSource, ...]:
    """
    Make a source of each library that can be loaded here.

    Args:
        clock: Unix time.
        monotonic: paces what is tried again.
        host_root: where the host's file system is mounted; without a `/proc` there our own counts.
        wanted: names of sources that were asked for, others are not ours; None: whatever is there.

    Raises DeviceError when one that was asked for cannot be loaded.

    """
    proc = host_root / "proc"
    root = host_root if (proc / "self/stat").exists() else Path("/")
    found: list[DeviceSource] = []
    for name, library in _LIBRARIES.items():
        if wanted is not None and name not in wanted:
            continue
        if why := await asyncio.to_thread(_missing, root, library):
            if wanted is not None:
                raise DeviceError(
                    f"devices: {name} cannot be used: {why}; install the vendor's driver on the node, and mount its "
                    f"library ({library.names[0]}) into the daemon's container"
                )
            continue
        nodes = OpenNodes(root / "proc", root / "dev", library.nodes)
        found.append(LibrarySource(name, library.make, nodes, clock=clock, monotonic=monotonic))
    return tuple(found)


def _missing(root: Path, library: _Library) -> str | None:
    """Say why a library cannot be loaded here; None if it can. It stays loaded, and is not initialised."""
    if library.modules and not any((root / "sys/module" / module).exists() for module in library.modules):
        return f"none of the kernel modules {', '.join(library.modules)} is loaded"
    why = None
    for name in library.names:
        try:
            ctypes.CDLL(name)
        except OSError as error:
            why = why or str(error)
        else:
            return None
    return why
