"""Compile the fake vendor libraries: the C sources in c/ go in, a folder with one library a variant comes out.

Law: the folder's name is the hash of all sources and flags, so what is found there is what would be built.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).parent / "c"

_FLAGS: Final = ("-std=gnu17", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden")

VARIANTS: Final[Mapping[str, tuple[str, ...]]] = {
    "ixml": ("nvml_like.c", "-DIXML"),
    "ixml-v3": ("nvml_like.c", "-DIXML", "-DIXML_V3"),
    "efml": ("nvml_like.c", "-DEFML"),
    "efml-uuid": ("nvml_like.c", "-DEFML", "-DWITH_UUID"),
    "mxsml": ("nvml_like.c", "-DMXSML"),
    "mxsml-own": ("nvml_like.c", "-DMXSML", "-DWITHOUT_PROCESSES"),
    "xpuml": ("nvml_like.c", "-DXPUML"),
    "hgml": ("nvml_like.c", "-DHGML"),
    "hgml-bare": ("nvml_like.c", "-DHGML", "-DWITHOUT_PROCESSES"),
    "dcmi": ("dcmi.c",),
    "cndev": ("cndev.c",),
    "mtml": ("mtml.c",),
    "rsmi": ("rsmi.c",),
}
"""Source and definitions of each. `ixml` has the old process list alone, `hgml-bare` none, `mxsml-own` its own;
`efml-uuid` has the older half of the library, too."""


def build(cache_dir: Path) -> Path:
    """Return the folder that holds `<variant>/lib<name>.so`, compiling when the sources are new.

    Raises subprocess.CalledProcessError (with the compiler's words in its note) when they do not compile.
    """
    target = cache_dir / f"fake-libraries-{_fingerprint()}"
    if target.is_dir():
        return target
    cache_dir.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="building-", dir=cache_dir))
    try:
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda variant: _compile(scratch, variant), VARIANTS))
        scratch.chmod(0o755)
        try:
            scratch.rename(target)
        except OSError:
            if not target.is_dir():  # else another process was faster, with the same bytes
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def file_name(variant: str) -> str:
    """Name the file of a variant as the vendor calls it."""
    return f"lib{variant.partition('-')[0]}.so"


def _compile(folder: Path, variant: str) -> None:
    (folder / variant).mkdir(mode=0o755)
    source, *definitions = VARIANTS[variant]
    # Without a SONAME: else a library that one test has loaded would be found by its name in the tests after it.
    command = ["gcc", *_FLAGS, *definitions, "-o", str(folder / variant / file_name(variant))]
    command += [str(SOURCES / source), str(SOURCES / "state.c")]
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
