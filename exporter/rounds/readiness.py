"""
Whether the daemon is ready: there is something to scrape, and the deployment is complete.

What comes in: a snapshot. What goes out: the reasons why it is not ready. They hold no secrets and no names.

The rule: **a fault of the deployment makes the daemon not ready; a fault of the hardware does not**, if at least one
GPU is reported. Otherwise a rolling update would wait forever for a GPU off the bus, or for a vendor's library that
hangs. That node needs its daemon most. Faults, `source_up` and alerts report such hardware.
"""

from exporter.model import Snapshot

OF_THE_HARDWARE = frozenset({"devices", "accounts"})
"""Sources with faults of GPUs and drivers. Faults of `host`, `names`, `api`, `allocations` are the node's."""
OF_THE_DEPLOYMENT = frozenset({"no_permission"})
"""
Reasons of these sources that are faults of the deployment: MIG without `mig/monitor`.

`access_lost` does not belong here: it is NVML's unknown error, which a GPU off the bus answers, too. If device files
are missing, no GPU is reported at all.
"""


def waits_for(snapshot: Snapshot) -> tuple[str, ...]:
    """List the faults that a new daemon still waits for, as `source: reason`; empty once it is ready."""
    return tuple(
        sorted(
            {
                f"{fault.source}: {fault.reason}"
                for fault in snapshot.faults
                if fault.incomplete
                and (not snapshot.gpus or fault.source not in OF_THE_HARDWARE or fault.reason in OF_THE_DEPLOYMENT)
            }
        )
    )
