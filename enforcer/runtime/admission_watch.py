"""
Asks again and again whether the admission policy that bounds our evictions is in force.

What comes in: the namespace of the daemon, where the canary asks; whether the ladder evicts. What goes out: that the
policy is in force, or why that is unknown.

The rule: no pod is evicted before the policy was seen in force. The check is repeated, because the policy may be
removed.
"""

from collections.abc import Callable
from dataclasses import dataclass

from enforcer.actions.evict.admission_probe import Guard, canary
from enforcer.actions.kube_writer import Writer
from exporter.base.clock import Clock

AGAIN = 10.0
"""Seconds until the next check if the policy was not seen in force."""
CANARY_AGAIN = 600.0
"""Seconds until the next check if it was."""
NOT_YET = "it was not asked for yet"
NOWHERE = "the daemon's own namespace, where the admission policy is asked for, is not known: POD_NAMESPACE"


@dataclass(frozen=True, slots=True)
class AdmissionWatch:
    """
    Watches the admission policy.

    Attributes:
        namespace: where the canary asks; empty where the daemon knows none of its own, None where the operator does
            not want the policy.
        evicts: returns whether any pod could be evicted now.
        doubted: called with the reason why the policy is not known to be in force; "" when it is, or is not needed.

    """

    writer: Writer
    namespace: str | None
    evicts: Callable[[], bool]
    doubted: Callable[[str], None]
    clock: Clock

    def doubt(self) -> None:
        """Assume that the policy, where it is wanted, is not in force."""
        if self.namespace is not None and self.evicts():
            self.doubted(NOT_YET if self.namespace else NOWHERE)

    async def watch(self) -> None:
        """Check the policy, where it is wanted, until cancelled."""
        while self.namespace is not None:
            in_force = False
            if not self.evicts():
                self.doubted("")  # other rules start each grace anew, and a grace is longer than this wait
            elif not self.namespace:
                self.doubt()
            else:
                sighting = await canary(self.writer, self.namespace)
                in_force = sighting.guard is Guard.IN_FORCE
                self.doubted("" if in_force else f"{sighting.guard}: {sighting.detail}")
            await self.clock.sleep(CANARY_AGAIN if in_force else AGAIN)
