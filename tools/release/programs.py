"""
Runs the programs that make a release.

What comes in: a command. What goes out: what it prints.

The rule: a program that fails ends the release with its own words.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class ReleaseError(Exception):
    """The release cannot be made; the message says what happened, and below `fix:` what to do."""


def run(*command: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    """Run a program; what it prints, without its errors and warnings. Raises ReleaseError."""
    return _done(command, env, cwd).stdout.strip()


def said(*command: str | Path) -> str:
    """Run a program; all that it prints. Raises ReleaseError."""
    done = _done(command, None, None)
    return f"{done.stdout}\n{done.stderr}"


def _done(
    command: Sequence[str | Path], env: Mapping[str, str] | None, cwd: Path | None
) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    if shutil.which(words[0]) is None:
        raise ReleaseError(f"{words[0]} is missing.\nfix: install it; docs/release.md lists the programs.")
    variables = {**os.environ, **(env or {})}
    done = subprocess.run(
        words, env=variables, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ReleaseError(f"{shlex.join(words)} failed:\n{(done.stdout + done.stderr)[-4000:].strip()}")
    return done
