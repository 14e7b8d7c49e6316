"""
A journal on a small disk that fills up, is left, and has room again.

In: an empty folder, in a mount namespace of its own. Out: what happened, as JSON. Law: the disk is a real file system
of 64 kB that goes with this process.

    unshare --mount --map-root-user python -m filling FOLDER
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import structlog

from default_rules import default_rules
from enforcer.journal import file as journal_file
from enforcer.journal.file import JournalError
from journals import Hands, action, intended, uuid


def until_full(write: Callable[[int], object]) -> tuple[int, str]:
    """Write until that is refused; tell how often it went well, and the refusal."""
    for number in range(10_000):
        try:
            write(number)
        except JournalError as error:
            return number, str(error)
    return 10_000, ""


def main() -> int:
    """Fill it up."""
    folder = Path(sys.argv[1])
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "none", str(folder)], check=True)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    hands, path, ballast = Hands(limit=20_000), folder / "gpusteward" / "journal", folder / "ballast"
    journal = journal_file.opened(path, default_rules(), given=hands.given)
    ballast.write_bytes(b"x" * 16_000)
    noted, why = until_full(lambda number: journal.append(intended(uuid(number), action(number))))
    remembered = len(journal.kept.spent)
    journal.close()
    _, why_not = until_full(lambda _: journal_file.opened(path, default_rules(), given=hands.given).close())
    ballast.unlink()
    found = journal_file.opened(path, default_rules(), given=hands.given).kept
    print(
        json.dumps(
            {
                "noted": noted,
                "why": why,
                "remembered": remembered,
                "why_not": why_not,
                "found": len(found.spent),
                "open": len(found.open),
                "breakers": [*found.breakers],
                "drafts": [one.name for one in path.parent.glob("*.new")],
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
