"""
Which files of tests never run beside each other, when `pytest -n` runs several files at once.

In: tests by their ids, with `--dist loadfile`. Out: the file, or the group of files, that one worker runs as a whole.

The rule: the files below keep two cores busy, with a daemon for each story or with a flood. A flood that ran beside the
crash stories failed once, and not in six runs beside other work. All other files mostly wait.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

TESTS = Path(__file__).parent
HEAVY = [
    "cluster/test_enforce_crash.py",
    "cluster/test_enforce_api.py",
    "cluster/test_enforce_races.py",
    "cluster/test_enforce_workloads.py",
    "daemon/test_floods.py",
]


def group(file: str) -> str:
    """Name what one worker runs as a whole; `file` is a path from the top of the repository."""
    return "heavy" if file.removeprefix(f"{TESTS.name}/") in HEAVY else file


class OneHeavyAtATime(LoadFileScheduling):  # type: ignore[misc]
    """Gives groups of files to workers."""

    def _split_scope(self, nodeid: str) -> str:
        return group(super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)  # `-p no:xdist` leaves it out
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Schedule so where whole files are asked for."""
    return OneHeavyAtATime(config, log) if config.getvalue("dist") == "loadfile" else None
