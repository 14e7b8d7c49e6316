"""
The commands of `gpusteward`, run to their end.

What comes in: words and variables. What goes out: exit code and what was said. Law: no command waits for a person.
"""

import os
import subprocess
import sys
from pathlib import Path

from patience import PATIENCE

COMMAND = Path(sys.executable).with_name("gpusteward")
WIDEST = 160
"""Characters of a printed line. No word of the tests is longer."""


def gpusteward(*words: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [str(COMMAND), *map(str, words)],
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def shell(line: str, *words: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a line of a shell, in which `gpusteward` is the program, and `words` are "$1" and so on."""
    path = os.pathsep.join((str(COMMAND.parent), os.environ["PATH"]))
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line, "bash", *map(str, words)],
        env={**os.environ, "PATH": path, **env},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def complaint(command: str, ended: subprocess.CompletedProcess[str], code: int = 1) -> str:
    """Check that this ended with what happened and its fix on standard error alone; return both in one line."""
    assert (ended.returncode, ended.stdout) == (code, ""), ended.stderr
    assert ended.stderr.startswith(f"gpusteward {command}: ")
    assert "\nfix: " in ended.stderr and ended.stderr.count(f"gpusteward {command}: ") == 1, ended.stderr
    return " ".join(ended.stderr.split())


def checks_and_fixes(text: str) -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
    """
    Read the lines of `gpusteward check`: each check's verdict and message, and each check's fix.

    Two spaces part verdict, check and message. A long message goes on below, in its own column; so does `fix:`.
    """
    checks: dict[str, tuple[str, str]] = {}
    fixes: dict[str, str] = {}
    name, column = "", 0
    for line in text.splitlines():
        assert len(line) <= WIDEST, line
        if not line.startswith(" "):
            verdict, rest = line.split(maxsplit=1)
            name, message = (part.strip() for part in rest.split("  ", 1))
            column = line.rindex(message)
            assert name not in checks, f"{name} twice:\n{text}"
            checks[name] = verdict, message
            continue
        words = line.strip()
        assert line.index(words) == column, f"not in its column:\n{text}"
        if words.startswith("fix: "):
            assert name not in fixes, f"two fixes for {name}:\n{text}"
            fixes[name] = words.removeprefix("fix: ")
        elif name in fixes:
            fixes[name] += f" {words}"
        else:
            checks[name] = checks[name][0], f"{checks[name][1]} {words}"
    return checks, fixes
