"""
Compile C sources once: they go in, a folder with what the compiler made of them comes out.

Law: the folder's name is the hash of all sources and of the flags, so what is found there is what would be built.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

Commands = Callable[[Path], Iterable[Sequence[str]]]
"""The compiler's commands, which write below the folder that is given."""


def compiled(cache_dir: Path, name: str, *, inputs: Iterable[Path], commands: Commands) -> Path:
    """
    Return the folder `<cache_dir>/<name>-<hash>`, compiling when one of `inputs` is new.

    `inputs`: the sources, their headers, and the Python file that holds the flags. Raises subprocess.CalledProcessError
    (with the compiler's words in its note) when they do not compile.
    """
    target = cache_dir / f"{name}-{_fingerprint(inputs)}"
    if target.is_dir():
        return target
    cache_dir.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="building-", dir=cache_dir))
    try:
        with ThreadPoolExecutor() as pool:
            list(pool.map(_compile, commands(scratch)))
        scratch.chmod(0o755)  # mkdtemp gives 0700, and containers of other users load from here
        try:
            scratch.rename(target)
        except OSError:
            if not target.is_dir():  # else another process was faster, with the same bytes
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def _compile(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    if done.returncode != 0:
        failure = subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
        failure.add_note(done.stderr)
        raise failure


def _fingerprint(inputs: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in sorted(inputs):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]
