"""
The program as the image has it: in an environment without what only developers install.

In: the lock. Out: the folder of its programs. Law: the packages that `deploy/Dockerfile` installs, in the locked
versions, by the Python that measures. The environment of development also has rich, which structlog imports where it is
installed: 3 MB. The image of `make image` has no bundle of certificate authorities, which aiohttp parses on
import: 2 MB.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

from cluster.build import cache

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {"SSL_CERT_FILE": os.devnull}
"""Hides this machine's bundle of certificate authorities."""


def programs() -> Path:
    """Install this checkout into an environment of its own, once for each lock; return its folder `bin`."""
    lock = (ROOT / "requirements.lock").read_text()
    made = cache() / f"shipped-{hashlib.sha256(f'{ROOT} {sys.version} {lock}'.encode()).hexdigest()[:12]}"
    if not (made / "bin/gpusteward").exists():
        subprocess.run((sys.executable, "-m", "venv", "--clear", made), check=True)
        pins = made / "constraints.txt"
        pins.write_text("".join(f"{one}\n" for one in re.findall(r"^\S+==\S+", lock, re.MULTILINE)))
        install = (made / "bin/pip", "install", "-q", "--disable-pip-version-check", "-c", pins)
        subprocess.run((*install, "hatchling", "editables"), check=True)
        subprocess.run((*install, "--no-build-isolation", "-e", f"{ROOT}[auth]"), check=True)
    return made / "bin"
