"""
Looks for prose that is hard to read: `PYTHONPATH=tests python -m prose`, which `make style` runs.

`python -m prose --lower` (`make prose`) takes out of the ledger what was fixed. `python -m prose PATH...` lists all
findings in these files. The rules and their reasons: CONTRIBUTING.md.
"""

import os
import sys
from pathlib import Path

from cluster.build import BuildError
from prose import ledger, texts
from prose.linting import HERE, lint

ROOT = HERE.parents[1]
KNOWN, EXCEPTIONS = HERE / "findings.yaml", HERE / "exceptions.yaml"


def main(arguments: list[str]) -> int:
    """Look at all files, and return the exit code."""
    found = [texts.prose(path.relative_to(ROOT).as_posix(), _read(path)) for path in texts.files(ROOT)]
    try:
        findings, needless = ledger.excused(lint(found), ledger.excuses(_read(EXCEPTIONS)))
    except BuildError as error:
        cause = next((line for line in str(error).splitlines() if "reason:" in line), error)
        print(f"The prose was not checked, because textlint is not here.\ncause: {cause}", file=sys.stderr)
        print("fix: let npm reach a registry once (`npm config set registry URL`); it is kept", file=sys.stderr)
        return int(os.environ.get("CI") == "true")
    if paths := [one for one in arguments if not one.startswith("-")]:
        print("\n".join(str(one) for one in findings if one.path in paths))
        return 0
    known = ledger.read(_read(KNOWN))
    if "--lower" in arguments:
        known = ledger.read(ledger.written(ledger.lowered(findings, known)))
        KNOWN.write_text(ledger.written(known), encoding="utf-8")
    wrong = [*ledger.risen(findings, known)]
    if fewer := [*ledger.fallen(findings, known)]:
        wrong += [*fewer, "fix: `make prose` takes what was fixed out of tests/prose/findings.yaml"]
    wrong += [f"tests/prose/exceptions.yaml: nothing needs this: {one}" for one in needless]
    print("\n".join(wrong) or f"The prose of {len(found)} files has {len(findings)} known findings, and no new one.")
    return int(bool(wrong))


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
