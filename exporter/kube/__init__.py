"""Kubernetes' answers: the pods and containers of this node, and the devices that the kubelet allocated to them."""

from collections.abc import Sequence
from typing import Protocol

from exporter.model import Fault, Gpu, Inventory


class InventorySource(Protocol):
    """The interface to names and allocations. It answers at once from its memory, and fetches in `run`."""

    def inventory(self, gpus: Sequence[Gpu]) -> Inventory:
        """Return what is known now; faults name the parts that are not live. Device ids are those of `gpus`."""
        ...

    async def run(self) -> None:
        """Fetch, until cancelled. Returns at once if there is nothing to fetch."""
        ...


class NoNames:
    """
    No source of names: devices are exported, and containers' memory is unattributed.

    That is a fault, but no failure.
    """

    def inventory(self, _gpus: Sequence[Gpu]) -> Inventory:
        """Return an inventory without pods."""
        message = "no source of names is configured (names.source): the memory of containers stays unattributed"
        return Inventory(faults=(Fault("names", "names_not_configured", message, incomplete=False),))

    async def run(self) -> None:
        """Return: there is nothing to fetch."""
