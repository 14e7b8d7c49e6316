"""
The commands of `gpusteward`, run to their end.

What comes in: words and variables. What goes out: exit code and what was said. Law: no command waits for a person.
"""

import os
import subprocess
import sys
from pathlib import Path

COMMAND = Path(sys.executable).with_name("gpusteward")


def gpusteward(*words: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [str(COMMAND), *map(str, words)],
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def complaint(command: str, ended: subprocess.CompletedProcess[str], code: int = 1) -> str:
    """Check that this ended with what happened and its fix on standard error alone; return both in one line."""
    assert (ended.returncode, ended.stdout) == (code, ""), ended.stderr
    assert ended.stderr.startswith(f"gpusteward {command}: ")
    assert "\nfix: " in ended.stderr and ended.stderr.count(f"gpusteward {command}: ") == 1, ended.stderr
    return " ".join(ended.stderr.split())
