"""What Kubernetes says: which pods and containers this node has, and what the kubelet handed to them."""

from typing import Protocol

from exporter.model import Fault, Inventory


class InventorySource(Protocol):
    """The seam to names and allocations. It answers at once from what it knows; fetching is its own affair."""

    def inventory(self) -> Inventory:
        """Return what is known now; faults say what is not live."""
        ...


class NoNames:
    """Nobody was asked: devices are exported, and what containers hold is unattributed. Told, but no failure."""

    def inventory(self) -> Inventory:
        """Return an inventory that knows nobody."""
        message = "no source of names is configured: set names.file, or what containers hold stays unattributed"
        return Inventory(faults=(Fault("names", "names_not_configured", message, incomplete=False),))
