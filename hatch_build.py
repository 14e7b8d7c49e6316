"""
Writes the git commit into the wheel: `exporter/revision.txt`.

What comes in: the variable `GPUSTEWARD_REVISION` (the image is built without git's folder), else git itself. What goes
out: the file, or none where neither knows. A commit with changes ends in `-dirty`. An editable install has no file.
"""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE = "GPUSTEWARD_REVISION"


def revision(root: Path) -> str:
    """Name the commit of the checkout `root`; empty where it is no checkout, or git is missing."""
    if given := os.environ.get(VARIABLE):
        return given

    def git(*words: str) -> str:
        ended = subprocess.run(("git", *words), cwd=root, capture_output=True, text=True, check=False)
        return ended.stdout.strip() if ended.returncode == 0 else ""

    try:
        if Path(git("rev-parse", "--show-toplevel") or "/").resolve() != root.resolve():
            return ""  # unpacked somewhere below the checkout of something else
        return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except OSError:
        return ""


class Revision(BuildHookInterface):  # type: ignore[type-arg]
    """The hook of hatchling, which pyproject.toml names."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file to a wheel that is not editable."""
        if version != "editable" and (found := revision(Path(self.root))):
            self._folder = tempfile.TemporaryDirectory()
            written = Path(self._folder.name, "revision.txt")
            written.write_text(f"{found}\n", encoding="ascii")
            written.chmod(0o644)
            build_data["force_include"][str(written)] = "exporter/revision.txt"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove what was written."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()
