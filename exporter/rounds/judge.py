"""
The interface between the exporter and the enforcer.

What comes in: nothing. What goes out: `Judge`, the protocol that the enforcer implements.

The rule: a judge gets every snapshot, and adds to metrics, page and JSON documents. The exporter does not import the
enforcer, and works the same without it.
"""

from collections.abc import Iterator
from typing import Any, Protocol

from prometheus_client.core import Metric

from exporter.model import PodUid, Snapshot


class Judge(Protocol):
    """Gets snapshots, and answers from memory."""

    @property
    def told(self) -> object:
        """Stand for what summary and decisions say: another object after a change; None before the first snapshot."""

    def hear(self, snapshot: Snapshot) -> None:
        """Take a snapshot before it is published; must not wait."""

    def families(self, snapshot: Snapshot) -> Iterator[Metric]:
        """Yield the judge's metric families for a snapshot."""

    def summary(self) -> dict[str, Any] | None:
        """Describe the policy's state for the JSON snapshot and the node page; None before the first snapshot."""

    def decisions(self) -> dict[str, Any]:
        """Describe the recent decisions."""

    def preview(self) -> dict[str, Any] | None:
        """Describe what mode `enforce` would do from now on; None before the first snapshot."""

    def standings(self, pod: PodUid) -> list[dict[str, Any]]:
        """Describe the states of one pod's limit holders, one entry per holder and device."""

    def actions(self, namespace: str, pod: str) -> list[dict[str, Any]]:
        """Describe the recent actions on pods of this name, the newest first; each has a `text`, one sentence."""
