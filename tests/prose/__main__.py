"""
Looks for prose that is hard to read: `PYTHONPATH=tests python -m prose`, which `make style` runs.

`python -m prose PATH...` looks at these files alone. The rules and their reasons: CONTRIBUTING.md.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from cluster.build import BuildError
from prose import exceptions, texts
from prose.linting import HERE, Finding, lint
from prose.remembered import remembered

ROOT = HERE.parents[1]
EXCEPTIONS = HERE / "exceptions.yaml"


def main(paths: list[str]) -> int:
    """Look at all files, or at some, and return the exit code."""
    files = {path.relative_to(ROOT).as_posix(): _read(path) for path in texts.files(ROOT)}
    asked = {path: text for path, text in files.items() if not paths or path in paths}
    given = [one for one in exceptions.read(_read(EXCEPTIONS)) if not paths or one.path in paths]
    try:
        found = look(asked) if paths else remembered(asked, look)
        findings, needless = exceptions.applied(found, given)
    except BuildError as error:
        cause = next((line for line in str(error).splitlines() if "reason:" in line), error)
        print(f"The prose was not checked, because textlint is not here.\ncause: {cause}", file=sys.stderr)
        print("fix: let npm reach a registry once (`npm config set registry URL`); it is kept", file=sys.stderr)
        return int(os.environ.get("CI") == "true")
    wrong = [str(one) for one in findings]
    wrong += [f"tests/prose/exceptions.yaml: nothing needs this: {one}" for one in needless]
    print("\n".join(wrong) or f"The prose of {len(asked)} files has no findings, and {len(given)} exceptions.")
    return int(bool(wrong))


def look(files: Mapping[str, str]) -> list[Finding]:
    """Look at files, by path."""
    return lint(texts.prose(path, text) for path, text in files.items())


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
