"""
Two days of a GPU, and changes to them.

In: samples, and functions that change their labels. Out: samples, and what a report says of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any

from report.test_report import Asking
from report.week import DAY, GIB, START, Box, Device, Labels

END = START + 2 * DAY
TRAIN = Box("team-a", "train-0", "main", "train", 40 * GIB, 1.0, 0.5, 60 * GIB)
GPU = Device("n1", "GPU-1", "NVIDIA H100", 80 * GIB, 80 * GIB, (TRAIN,), until=END)

Sample = tuple[str, Labels, int, float]
Serve = Callable[[Iterable[Sample]], AbstractContextManager[Asking]]


def at(seconds: float) -> str:
    """A moment as `--until` reads it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def labelled(samples: Iterable[Sample], change: Callable[[dict[str, str], int], dict[str, str]]) -> Iterator[Sample]:
    """The same samples with other labels."""
    for name, labels, when, value in samples:
        yield name, tuple(change(dict(labels), when).items()), when, value


def hours(found: dict[str, Any]) -> dict[str, float]:
    """GiB-hours by part of the memory."""
    return {row["part"]: row["gib_hours"] for row in found["memory"]}


def rows(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The rows by name."""
    return {row[found["by"]]: row for row in found["rows"]}
