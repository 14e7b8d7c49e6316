"""Compile the fake driver: the C sources in c/ go in, a folder with the library's variants and the workload comes out.

Law: the folder's name is the hash of all sources and flags, so what is found there is what would be built.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).parent / "c"
SONAME: Final = "libnvidia-ml.so.1"

_STRICT: Final = ("-std=gnu17", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread")
_SHARED: Final = ("-shared", "-fPIC", "-fvisibility=hidden", f"-Wl,-soname,{SONAME}")
_COMMON: Final = ("text.c", "node.c", "allocations.c", "limits.c")
_LIBRARY: Final = (
    *("faults.c", "system.c", "devices.c", "health.c", "mig.c", "processes.c", "utilization.c", "events.c"),
    "gpm.c",
    "memory_limits.c",
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
    target = cache_dir / f"fake-nvml-{_fingerprint()}"
    if target.is_dir():
        return target
    cache_dir.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="building-", dir=cache_dir))
    try:
        jobs = [_workload(scratch), *(_library(scratch, variant) for variant in Variant)]
        with ThreadPoolExecutor() as pool:
            list(pool.map(_compile, jobs))
        scratch.chmod(0o755)  # mkdtemp gives 0700, and containers of other users load from here
        try:
            scratch.rename(target)
        except OSError:
            if not target.is_dir():  # else another process was faster, with the same bytes
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def _library(folder: Path, variant: Variant) -> list[str]:
    (folder / variant).mkdir(mode=0o755)
    define = f"-DVARIANT={variant.upper()}"
    return ["gcc", *_STRICT, *_SHARED, define, "-o", str(folder / variant / SONAME), *_paths((*_COMMON, *_LIBRARY))]


def _workload(folder: Path) -> list[str]:
    return ["gcc", *_STRICT, "-static", "-o", str(folder / "workload"), *_paths((*_COMMON, *_WORKLOAD))]


def _paths(names: tuple[str, ...]) -> list[str]:
    return [str(SOURCES / name) for name in names]


def _compile(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    if done.returncode != 0:
        failure = subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
        failure.add_note(done.stderr)
        raise failure


def _fingerprint() -> str:
    digest = hashlib.sha256(Path(__file__).read_bytes())  # this file holds the flags
    for source in sorted(SOURCES.glob("*.[ch]")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]
