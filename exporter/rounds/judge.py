"""
What may sit on top of the observing half.

What comes in: nothing. What goes out: the seam at which a daemon that decides is put on one that observes.

The law: a judge hears every snapshot, and adds to what is shown; the observing half does not know who it is, and is
the same without one.
"""

from collections.abc import Iterator
from typing import Any, Protocol

from prometheus_client.core import Metric

from exporter.model import PodUid, Snapshot


class Judge(Protocol):
    """Hears snapshots, and answers from memory."""

    def hear(self, snapshot: Snapshot) -> None:
        """Take a snapshot, before anybody else sees it; must not wait."""

    def families(self, snapshot: Snapshot) -> Iterator[Metric]:
        """Yield metric families about it."""

    def summary(self) -> dict[str, Any] | None:
        """Describe what is thought of the node, for the JSON snapshot and the page; None before the first snapshot."""

    def decisions(self) -> dict[str, Any]:
        """Describe what was decided of late."""

    def preview(self) -> dict[str, Any] | None:
        """Describe what would be done now; None before the first snapshot."""

    def standings(self, pod: PodUid) -> list[dict[str, Any]]:
        """Describe what is thought of one pod."""
