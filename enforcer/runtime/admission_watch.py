"""
Keeps asking whether the admission policy is there, which bounds what our evictions can be.

What comes in: the namespace of the daemon, where the canary asks; whether the ladder evicts. What goes out: that it is
in force, or why it is not known to be.

The law: until it was seen in force nobody is evicted, and it is asked for again: somebody may have removed it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from enforcer.actions.evict.admission_probe import Guard, canary
from enforcer.actions.kube_writer import Writer
from exporter.base.clock import Clock

AGAIN = 10.0
"""Seconds until it is asked for again where it was not seen in force."""
CANARY_AGAIN = 600.0
"""Seconds after which it is asked for again where it was."""
NOT_YET = "it was not asked for yet"
NOWHERE = "the daemon's own namespace, where the admission policy is asked for, is not known: POD_NAMESPACE"


@dataclass(frozen=True, slots=True)
class AdmissionWatch:
    """
    Watches over the policy.

    Attributes:
        namespace: where the canary asks; empty where the daemon knows none of its own, None where the operator does
            not want the policy.
        evicts: says whether anybody would be evicted now.
        doubted: is told why it is not known to be in force; "" when it is, or nobody asks.

    """

    writer: Writer
    namespace: str | None
    evicts: Callable[[], bool]
    doubted: Callable[[str], None]
    clock: Clock

    def doubt(self) -> None:
        """Take it that the policy, where it is wanted, is not there."""
        if self.namespace is not None and self.evicts():
            self.doubted(NOT_YET if self.namespace else NOWHERE)

    async def watch(self) -> None:
        """Ask for it, where it is wanted, until cancelled."""
        while self.namespace is not None:
            in_force = False
            if not self.evicts():
                self.doubted("")  # other rules void all evidence: the next grace is longer than this beat
            elif not self.namespace:
                self.doubt()
            else:
                sighting = await canary(self.writer, self.namespace)
                in_force = sighting.guard is Guard.IN_FORCE
                self.doubted("" if in_force else f"{sighting.guard}: {sighting.detail}")
            await self.clock.sleep(CANARY_AGAIN if in_force else AGAIN)
