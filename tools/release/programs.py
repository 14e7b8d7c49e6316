"""
Runs the programs that make a release.

In: a command. Out: what it prints. Law: a program that fails ends the release with its own words.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path


class ReleaseError(Exception):
    """The release cannot be made; the message says what happened, and below `fix:` what to do."""


def run(*command: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None, given: str = "") -> str:
    """Run a program with `given` as its input; its standard output. Raises ReleaseError."""
    words = [str(word) for word in command]
    if shutil.which(words[0]) is None:
        raise ReleaseError(f"{words[0]} is missing.\nfix: install it; docs/release.md lists the programs.")
    done = subprocess.run(
        words, env={**os.environ, **(env or {})}, cwd=cwd, input=given, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ReleaseError(f"{shlex.join(words)} failed:\n{(done.stdout + done.stderr)[-4000:].strip()}")
    return done.stdout.strip()
