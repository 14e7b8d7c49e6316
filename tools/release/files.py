"""
The files of a release: wheel, chart, the folder deploy/, rules, dashboards, checksums.

What comes in: a checkout, names and digests of what is in the registry. What goes out: files in a folder.

The rule: the same commit gives the same files, byte by byte; each is dated as the commit.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tools.release.programs import ReleaseError, run
from tools.release.source import CHART, Source


def wheel(source: Source, to: Path) -> Path:
    """Build the wheel of both packages. Raises ReleaseError."""
    command = (Path(sys.executable).with_name("hatchling"), "build", "--target=wheel", f"--directory={to}")
    run(*command, cwd=source.root, env={"SOURCE_DATE_EPOCH": str(source.date)})
    return to / f"gpusteward-{source.version}-py3-none-any.whl"


def chart(source: Source, registry: str, digest: str, to: Path) -> Path:
    """Pack the chart with the image of this digest as its default. Raises ReleaseError."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "gpusteward")
        shutil.copytree(source.root / CHART, copy)
        publish(copy, registry, digest)
        for path in copy.rglob("*"):
            os.utime(path, (source.date, source.date))
        run(
            "helm",
            "package",
            copy,
            f"--version={source.version}",
            f"--app-version={source.version}",
            f"--destination={to}",
        )
    packed = to / f"gpusteward-{source.version}.tgz"
    os.utime(packed, (source.date, source.date))  # Helm writes it into the manifest of the chart
    return packed


def publish(folder: Path, registry: str, digest: str) -> None:
    """
    Make the image of this digest in this registry the default of the chart in `folder`. Raises ReleaseError.

    Its path goes into the repository: a mirror that global.imageRegistry names has the image at the same path. Its
    digest is an annotation, which holds for this name alone: a value would hold for each image that a user names.
    """
    host, _, path = registry.partition("/")
    repository = f"{path}/gpusteward" if path else "gpusteward"
    values, about = folder / "values.yaml", folder / "Chart.yaml"
    _replace(values, '  registry: ""', f"  registry: {host}")
    _replace(values, "  repository: gpusteward", f"  repository: {repository}")
    _replace(about, "annotations:", f"annotations:\n  gpusteward.io/image: {host}/{repository}@{digest}")


def _replace(file: Path, line: str, filled: str) -> None:
    text, found = re.subn(rf"^{re.escape(line)}(?!\S)", filled, file.read_text(), flags=re.MULTILINE)
    if found != 1:
        raise ReleaseError(f"{file.name} of the chart has {found} lines `{line}` instead of one.")
    file.write_text(text)


def deploy(source: Source, registry: str, digest: str) -> dict[str, bytes]:
    """Read what the commands of the pages name: deploy/ as in a checkout, where chart and manifests name the image."""
    local = f"image: gpusteward:{source.version}\n".encode()
    image = f"image: {registry}/gpusteward:{source.version}@{digest}\n".encode()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "deploy")
        shutil.copytree(source.root / "deploy", copy, ignore=shutil.ignore_patterns("__pycache__"))
        publish(copy / CHART.relative_to("deploy"), registry, digest)
        return {path: content.replace(local, image) for path, content in _below(copy, "*", "deploy").items()}


def rules(source: Source) -> dict[str, bytes]:
    """Read the alerting and recording rules."""
    found = _below(source.root / "alerts", "*.yaml", "rules")
    return {path: content for path, content in found.items() if not path.startswith("rules/tests/")}


def dashboards(source: Source) -> dict[str, bytes]:
    """Read Grafana's boards."""
    return _below(source.root / "grafana/dashboards", "*.json", "dashboards")


def pack(files: Mapping[str, bytes], date: int, to: Path) -> Path:
    """Write a .tar.gz, the same for the same files."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=date, filename="") as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in sorted(files):
            member = tarfile.TarInfo(path)
            member.size, member.mtime = len(files[path]), date
            archive.addfile(member, io.BytesIO(files[path]))
    to.write_bytes(packed.getvalue())
    return to


def checksums(folder: Path) -> Path:
    """Write SHA256SUMS of all files in the folder, as `sha256sum --check` reads it."""
    lines = [f"{digest(file)}  {file.name}\n" for file in sorted(folder.iterdir()) if file.is_file()]
    sums = folder / "SHA256SUMS"
    sums.write_text("".join(lines))
    return sums


def digest(file: Path) -> str:
    """Compute the SHA-256 of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _below(folder: Path, pattern: str, name: str) -> dict[str, bytes]:
    paths = (path for path in folder.rglob(pattern) if path.is_file())
    found = {f"{name}/{path.relative_to(folder)}": path.read_bytes() for path in paths}
    if not found:
        raise ReleaseError(f"{folder} has no {pattern}.")
    return found
