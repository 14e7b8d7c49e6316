"""Compile the fake driver: the C sources in c/ go in, a folder with the library's variants and the workload comes out.

Law: that of `compiling`: what is found is what would be built.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Final

from compiling import compiled

SOURCES: Final = Path(__file__).parent / "c"
SONAME: Final = "libnvidia-ml.so.1"

_STRICT: Final = ("-std=gnu17", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread")
_SHARED: Final = ("-shared", "-fPIC", "-fvisibility=hidden", f"-Wl,-soname,{SONAME}")
_COMMON: Final = ("text.c", "node.c", "allocations.c", "limits.c")
_LIBRARY: Final = (
    *("faults.c", "system.c", "devices.c", "health.c", "hardware.c", "mig.c", "instances.c", "processes.c"),
    *("utilization.c", "events.c", "gpm.c", "memory_limits.c"),
)
_WORKLOAD: Final = ("workload.c", "holdings.c")


class Variant(StrEnum):
    """Which generation of the library: the symbols that it lacks are really absent."""

    MODERN = "modern"
    ABI535 = "abi535"
    """535.43 to 535.86: `_v3` entries have 32 bytes; ConfComputeMemSizeInfo is there, the detail list is not."""
    OLD = "old"
    """Before R510: no `_v3`."""
    ANCIENT = "ancient"
    """Before R450: 16-byte process entries only, no MIG."""


def build(cache_dir: Path) -> Path:
    """Return the folder that holds `<variant>/libnvidia-ml.so.1` and `workload`, compiling when the sources are new.

    Raises subprocess.CalledProcessError (with gcc's words in its note) when they do not compile.
    """
    inputs = [Path(__file__), *SOURCES.glob("*.[ch]")]
    return compiled(cache_dir, "fake-nvml", inputs=inputs, commands=_commands)


def _commands(folder: Path) -> Iterator[list[str]]:
    yield _workload(folder)
    yield from (_library(folder, variant) for variant in Variant)


def _library(folder: Path, variant: Variant) -> list[str]:
    (folder / variant).mkdir(mode=0o755)
    define = f"-DVARIANT={variant.upper()}"
    return ["gcc", *_STRICT, *_SHARED, define, "-o", str(folder / variant / SONAME), *_paths((*_COMMON, *_LIBRARY))]


def _workload(folder: Path) -> list[str]:
    return ["gcc", *_STRICT, "-static", "-o", str(folder / "workload"), *_paths((*_COMMON, *_WORKLOAD))]


def _paths(names: tuple[str, ...]) -> list[str]:
    return [str(SOURCES / name) for name in names]
