"""
Whether the daemon is ready: there is something to scrape, and it is deployed as it should be.

What comes in: a snapshot. What goes out: what it still waits for, in words that may be shown to anybody.

The law: **what another deployment would cure keeps an install from going green; what only other hardware would cure
does not**, as long as any GPU is told of. A rolling update that waits for a GPU off the bus, or for a vendor's library
that hangs, would never end on the one node that needs its daemon most; faults, `source_up` and alerts tell of these.
"""

from exporter.model import Snapshot

OF_THE_HARDWARE = frozenset({"devices", "accounts"})
"""Sources whose faults are of GPUs and drivers. Those of `host`, `names`, `api`, `allocations` are of the node."""
OF_THE_DEPLOYMENT = frozenset({"no_permission"})
"""
Reasons of theirs that are not: MIG without `mig/monitor`. `access_lost` is none of these. It is NVML's unknown error,
which a GPU off the bus answers, too; where device files are missing no GPU is told of at all.
"""


def waits_for(snapshot: Snapshot) -> tuple[str, ...]:
    """Name what a daemon that has just started still waits for, as `source: reason`; nothing once it is ready."""
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
