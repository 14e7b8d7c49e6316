"""What Kubernetes says: which pods and containers this node has, and what the kubelet handed to them."""

from typing import Protocol

from exporter.model import Inventory


class InventorySource(Protocol):
    """The seam to names and allocations. It answers at once from what it knows; fetching is its own affair."""

    def inventory(self) -> Inventory:
        """Return what is known now; faults say what is not live."""
        ...
