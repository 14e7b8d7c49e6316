"""Compile the stand-in for CUDA: c/cuda.c and what the fake driver shares go in, `libcuda.so.1` comes out.

Law: that of `compiling`, as with the fake driver.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from compiling import compiled
from driver.build import SOURCES as DRIVER
from gpu.cuda import SONAME

_OWN: Final = Path(__file__).parent / "c" / "cuda.c"
_SHARED: Final = ("text.c", "node.c", "allocations.c", "limits.c", "holdings.c")
_FLAGS: Final = (
    *("-std=gnu17", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-shared", "-fPIC", "-fvisibility=hidden"),
    f"-Wl,-soname,{SONAME}",
)


def build(cache_dir: Path) -> Path:
    """Return the library. Raises subprocess.CalledProcessError, with gcc's words in its note."""
    sources = [_OWN, *(DRIVER / name for name in _SHARED)]

    def commands(folder: Path) -> list[list[str]]:
        return [["gcc", *_FLAGS, f"-I{DRIVER}", "-o", str(folder / SONAME), *map(str, sources)]]

    inputs = [Path(__file__), *sources, *DRIVER.glob("*.h")]
    return compiled(cache_dir, "fake-cuda", inputs=inputs, commands=commands) / SONAME
