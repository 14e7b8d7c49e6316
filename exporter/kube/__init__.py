"""What Kubernetes says: which pods and containers this node has, and what the kubelet handed to them."""

from collections.abc import Sequence
from typing import Protocol

from exporter.model import Fault, Gpu, Inventory


class InventorySource(Protocol):
    """The seam to names and allocations. It answers at once from what it knows; fetching is its own affair."""

    def inventory(self, gpus: Sequence[Gpu]) -> Inventory:
        """Return what is known now; faults say what is not live. Device ids are those of `gpus`."""
        ...

    async def run(self) -> None:
        """Fetch, until cancelled. Returns at once where there is nothing to fetch."""
        ...


class NoNames:
    """Nobody was asked: devices are exported, and what containers hold is unattributed. Told, but no failure."""

    def inventory(self, _gpus: Sequence[Gpu]) -> Inventory:
        """Return an inventory that knows nobody."""
        message = "no source of names is configured (names.source): what containers hold stays unattributed"
        return Inventory(faults=(Fault("names", "names_not_configured", message, incomplete=False),))

    async def run(self) -> None:
        """Return: there is nothing to fetch."""
