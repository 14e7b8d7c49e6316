"""
The daemon's image, made of deploy/Dockerfile by buildah on two bases of Debian's packages; no registry, no Docker.

In: the checkout as it is. Out: a docker-archive that holds `NAME`, for containerd to import.
Law: what is built is named by what it is built from, and kept, so a stale image cannot be met. Of this machine only its
trusted certificates and pip's settings are used, in the base that is built on. The image itself is made of Debian and
the lock alone.

`python -m cluster.image` builds and says where it is; as root, because files in an image have owners.
"""

from __future__ import annotations

import fcntl
import hashlib
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

from cluster import build, requirements
from tools.release.images import OF_THE_MACHINE, Store, native
from tools.release.programs import ReleaseError

NAME = "gpusteward.test/gpusteward:1"
ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy/Dockerfile"
KEPT_FOR_S = 24 * 3600.0
"""How long an image of another checkout is kept: another run may be about to import it."""
DATE = 1_700_000_000
"""Of all files of the image; a release has the date of its commit."""


def archive() -> Path:
    """Path of the archive, built now if that was not done before. Raises BuildError."""
    if problems := requirements.missing_for_image():
        raise build.BuildError("; ".join(problems))
    folder = build.cache() / "image"
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"gpusteward-{_digest(_sources())}.tar"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs: one builds, the other waits for it
        if not made.exists():
            _build(made)
        for old in folder.glob("gpusteward-*.tar"):
            if old != made and time.time() - old.stat().st_mtime > KEPT_FOR_S:
                old.unlink()
    return made


def _sources() -> Iterator[Path]:
    yield from (
        DOCKERFILE,
        Path(__file__),
        *(ROOT / "tools/release" / name for name in ("images.py", "slim.sh")),
        *OF_THE_MACHINE,
    )
    yield from (
        ROOT / name
        for name in (".dockerignore", "LICENSE", "README.md", "hatch_build.py", "pyproject.toml", "requirements.lock")
    )
    for package in ("exporter", "enforcer"):
        yield from (path for path in sorted((ROOT / package).rglob("*")) if "__pycache__" not in path.parts)


def _digest(files: Iterator[Path]) -> str:
    key = hashlib.sha256(native().encode())
    for file in files:
        if file.is_file():
            key.update(f"{file}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return key.hexdigest()[:16]


def _build(made: Path) -> None:
    print("building the image (the first time it takes two minutes) ...", file=sys.stderr, flush=True)
    began = time.monotonic()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    store = Store(made.parent, DATE)
    draft = made.with_suffix(".new")
    draft.unlink(missing_ok=True)
    try:
        store.image(ROOT, native(), NAME, VERSION=version)
        store.buildah("push", NAME, f"docker-archive:{draft}:{NAME}")
        store.buildah("rmi", NAME)
    except ReleaseError as error:
        raise build.BuildError(str(error)) from error
    draft.rename(made)
    print(f"built the image in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        repository, _, tag = NAME.rpartition(":")
        print(f"{archive()}  ({NAME}; `ctr -n k8s.io images import` or `docker load` takes it)")
        print(f"for helm: --set image.repository={repository} --set-string image.tag={tag}")
    except build.BuildError as error:
        sys.exit(str(error))
