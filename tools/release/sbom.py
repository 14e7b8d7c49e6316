"""
Lists what is in an image (SBOM, CycloneDX): cyclonedx-bom for Python's packages, debsbom for Debian's.

What comes in: an image's own lists of packages. What goes out: two JSON files.

The rule: read from the image itself, never from this machine.
"""

from __future__ import annotations

import re
import sys
import tempfile
import uuid
import venv
from datetime import UTC, datetime
from pathlib import Path

from tools.release.layout import Layout
from tools.release.programs import run

OF_PYTHON = re.compile(r"opt/gpusteward/lib/python3[^/]*/site-packages/([^/]+\.dist-info/.+)")
OF_DEBIAN = re.compile(r"var/lib/dpkg/status\.d/[^/]+")
BIN = Path(sys.executable).parent


def python(image: Layout, digest: str, date: int, to: Path) -> None:
    """Write the list of the Python packages of one platform's image. Raises ReleaseError."""
    files = image.files(digest, lambda path: OF_PYTHON.fullmatch(path) is not None)
    with tempfile.TemporaryDirectory() as folder:
        # An environment of this machine's Python that holds no package but the image's descriptions of its own.
        venv.create(folder, symlinks=True)
        (packages,) = Path(folder, "lib").glob("python3*/site-packages")
        for path, content in files.items():
            file = packages / OF_PYTHON.sub(r"\1", path)
            file.parent.mkdir(exist_ok=True, parents=True)
            file.write_bytes(content)
        command = (BIN / "cyclonedx-py", "environment", "--output-reproducible", "--output-file", to, folder)
        run(*command, env={"SOURCE_DATE_EPOCH": str(date)})


def debian(image: Layout, platform: str, date: int, to: Path) -> None:
    """Write the list of the Debian packages of the image for a platform. Raises ReleaseError."""
    digest = image.platforms[platform]
    stanzas = image.files(digest, lambda path: OF_DEBIAN.fullmatch(path) is not None)
    with tempfile.TemporaryDirectory() as folder:
        status = Path(folder, "root/var/lib/dpkg/status")
        status.parent.mkdir(parents=True)
        installed = "Status: install ok installed\n"
        status.write_text("\n".join(installed + stanzas[path].decode().rstrip() + "\n" for path in sorted(stanzas)))
        same = (
            f"--timestamp={datetime.fromtimestamp(date, UTC).isoformat()}",
            f"--cdx-serialnumber={uuid.uuid5(uuid.NAMESPACE_OID, digest)}",
        )
        out = Path(folder, "debian")
        run(BIN / "debsbom", "generate", "--sbom-type=cdx", f"--distro-arch={platform}", *same,
            f"--root={Path(folder, 'root')}", f"--out={out}")  # fmt: skip
        to.write_bytes(out.with_suffix(".cdx.json").read_bytes())
