"""
What is made once a round, however often it is asked for.

What comes in: the snapshot that something is made of, and a function that makes it. What goes out: what was made.

The rule: a flood of requests costs the event loop no more than one request a round.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from exporter.model import Snapshot

Made = TypeVar("Made")


@dataclass(slots=True)
class PerRound:
    """Keeps what was made of the latest round."""

    _snapshot: Snapshot | None = None
    _made: dict[str, tuple[object, Any]] = field(default_factory=dict)

    def forget(self, latest: Snapshot) -> None:
        """Let go of an earlier round than the latest. Its documents and its snapshot are megabytes on a large node."""
        if latest is not self._snapshot:
            self._snapshot, self._made = None, {}

    def get(self, snapshot: Snapshot, name: str, make: Callable[[], Made], basis: object = None) -> Made:
        """Return what `name` stands for in this round. It is made anew when `basis`, which it depends on, changes."""
        if snapshot is not self._snapshot:
            self._snapshot, self._made = snapshot, {}
        known = self._made.get(name)
        if known is None or known[0] is not basis:
            known = self._made[name] = (basis, make())
        made: Made = known[1]
        return made
