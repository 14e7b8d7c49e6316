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
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from cluster import build, requirements

NAME = "gpusteward.test/gpusteward:1"
ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy/Dockerfile"
SUITE = "bookworm"
KEPT_FOR_S = 24 * 3600.0
"""How long an image of another checkout is kept: another run may be about to import it."""

TO_BUILD = ("--variant=minbase", "--include=python3,python3-venv,ca-certificates")
TO_RUN = (
    "--variant=extract",  # packages as they are, nothing is configured: no shell, no package manager is wanted
    "--include=base-files,libc6,libgcc-s1,libstdc++6,libexpat1,libssl3,zlib1g,libpython3.11-stdlib,python3-minimal",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
    # What dependencies bring and no program calls is removed. Scanners find what is there where distroless lists it.
    """--extract-hook=cd "$1"
    mkdir -p var/lib/dpkg/status.d
    for archive in var/cache/apt/archives/*.deb; do
      package=$(dpkg-deb --field "$archive" Package)
      case $package in dpkg|mawk|tar) ;; *) dpkg-deb --field "$archive" > "var/lib/dpkg/status.d/$package";; esac
    done
    find bin sbin usr/bin usr/sbin ! -type d ! -name 'python3*' -delete
    find usr/share -mindepth 1 -maxdepth 1 ! -name doc ! -name common-licenses -exec rm -r '{}' +
    rm -r etc/cron* etc/logrotate.d etc/update-motd.d lib/systemd usr/games usr/include usr/libexec usr/lib/*/gconv""",
)
OF_THE_MACHINE = (Path("/etc/pip.conf"), Path("/etc/ssl/certs/ca-certificates.crt"))


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
    yield from (DOCKERFILE, Path(__file__), *OF_THE_MACHINE)
    yield from (
        ROOT / name for name in (".dockerignore", "LICENSE", "README.md", "pyproject.toml", "requirements.lock")
    )
    for package in ("exporter", "enforcer"):
        yield from (path for path in sorted((ROOT / package).rglob("*")) if "__pycache__" not in path.parts)


def _digest(files: Iterator[Path]) -> str:
    key = hashlib.sha256(platform.machine().encode())
    for file in files:
        if file.is_file():
            key.update(f"{file}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return key.hexdigest()[:16]


def _build(made: Path) -> None:
    print("building the image (the first time it takes two minutes) ...", file=sys.stderr, flush=True)
    began = time.monotonic()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    arguments = {"BASE": _base(made.parent, TO_BUILD), "RUNTIME": _base(made.parent, TO_RUN), "VERSION": version}
    flags = [f"--build-arg={key}={value}" for key, value in arguments.items()]
    _buildah(made.parent, "bud", "--isolation=chroot", *flags, f"--file={DOCKERFILE}", f"--tag={NAME}", str(ROOT))
    draft = made.with_suffix(".new")
    draft.unlink(missing_ok=True)
    _buildah(made.parent, "push", NAME, f"docker-archive:{draft}:{NAME}")
    _buildah(made.parent, "rmi", NAME)
    draft.rename(made)
    print(f"built the image in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def _base(folder: Path, words: Sequence[str]) -> str:
    """Name of the image of these packages, made by mmdebstrap if it is not there."""
    to_build = words is TO_BUILD
    key = hashlib.sha256(repr((SUITE, words)).encode())
    lent = [path for path in OF_THE_MACHINE if path.exists()] if to_build else []
    for path in lent:
        key.update(path.read_bytes())
    name = f"localhost/base:{key.hexdigest()[:16]}"
    if _buildah(folder, "images", "--quiet", "--filter", f"reference={name}"):
        return name
    with tempfile.TemporaryDirectory(dir=folder) as context:
        tar = Path(context, "base.tar")
        _run("mmdebstrap", "--quiet", *words, SUITE, str(tar))
        lines = ["FROM scratch", "ADD base.tar /"]
        for path in lent:
            shutil.copy(path, context)
            lines.append(f"COPY {path.name} {path}")
        Path(context, "Dockerfile").write_text("\n".join(lines))
        _buildah(folder, "bud", "--isolation=chroot", f"--tag={name}", context)
    return name


def _buildah(folder: Path, *words: str) -> str:
    # Storage of our own; "vfs" copies where overlays cannot be mounted, as in most containers.
    storage = (f"--root={folder / 'storage'}", f"--runroot={folder / 'run'}", "--storage-driver=vfs")
    return _run("buildah", *storage, *words)


def _run(*command: str) -> str:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise build.BuildError(f"{shlex.join(command)} failed:\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout.strip()


if __name__ == "__main__":
    try:
        repository, _, tag = NAME.rpartition(":")
        print(f"{archive()}  ({NAME}; `ctr -n k8s.io images import` or `docker load` takes it)")
        print(f"for helm: --set image.repository={repository} --set-string image.tag={tag}")
    except build.BuildError as error:
        sys.exit(str(error))
