"""Documents as a daemon serves them, and the table that `gpusteward top` makes of them."""

from typing import Any

from exporter.api.document import head, joined, tail
from exporter.model import Snapshot
from exporter.rounds.latest import Tally
from exporter.top.fetch import parse
from exporter.top.table import Table, table


def served(facts: Snapshot, policy: dict[str, Any] | None = None, *, age: float = 1.0, interval: float = 5.0) -> bytes:
    """Make the bytes that a daemon answers with."""
    begin = head(facts, age=age, interval=interval, program="gpusteward run 0.1.0")
    return b"".join(joined(begin, tail(facts, Tally(), policy)))


def shown(facts: Snapshot, policy: dict[str, Any] | None = None, **world: Any) -> Table:
    """Make the table, as of one second after the round."""
    return table(parse(served(facts, policy)), **world)


def judged(*standings: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Make what a daemon that enforces says of its policy."""
    return {"mode": "enforce", "breakers": [], "standings": list(standings), **more}
