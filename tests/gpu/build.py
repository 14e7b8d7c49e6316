"""Compile the stand-in for CUDA: c/cuda.c and what the fake driver shares go in, `libcuda.so.1` comes out.

Law: the folder's name is the hash of all sources and flags, as with the fake driver.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

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
    digest = hashlib.sha256(repr(_FLAGS).encode())
    for source in (*sources, *sorted(DRIVER.glob("*.h"))):
        digest.update(source.read_bytes())
    target = cache_dir / f"fake-cuda-{digest.hexdigest()[:16]}"
    if not target.is_dir():
        cache_dir.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix="building-", dir=cache_dir))
        try:
            _compile(["gcc", *_FLAGS, f"-I{DRIVER}", "-o", str(scratch / SONAME), *map(str, sources)])
            try:
                scratch.rename(target)
            except OSError:
                if not target.is_dir():  # else another process was faster, with the same bytes
                    raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return target / SONAME


def _compile(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    if done.returncode:
        failure = subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
        failure.add_note(done.stderr)
        raise failure
