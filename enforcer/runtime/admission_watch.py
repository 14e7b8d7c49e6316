"""
Asks again and again whether the admission policies that bound our evictions are in force.

What comes in: the daemon's own pod, with which it asks; whether the ladder evicts. What goes out: that both policies
are in force, or why that is unknown.

The rule: no pod is evicted before both policies were seen in force. The check is repeated, because they may be removed.
"""

from collections.abc import Callable
from dataclasses import dataclass

from enforcer.actions.evict.admission_probe import OwnPod, missing
from enforcer.actions.kube_writer import Writer
from exporter.base.clock import Clock

AGAIN = 10.0
"""Seconds until the next check if a policy was not seen in force."""
CANARY_AGAIN = 600.0
"""Seconds until the next check if both were."""
LOOK = 1.0
"""Seconds until the next look whether the ladder evicts by now: fewer than three readings take, after which an action
may follow where all times are 0."""
NOT_YET = "the admission policies were not asked for yet"
NOWHERE = "the daemon's own pod, with which the admission policies are asked for, is not known: POD_NAMESPACE, POD_NAME"


@dataclass(frozen=True, slots=True)
class AdmissionWatch:
    """
    Watches the admission policies.

    Attributes:
        own: the daemon's own pod; None where the operator does not want the policies.
        evicts: returns whether any pod could be evicted now.
        doubted: called with the reason why one is not known to be in force; "" when both are, or are not needed.

    """

    writer: Writer
    own: OwnPod | None
    evicts: Callable[[], bool]
    doubted: Callable[[str], None]
    clock: Clock

    def doubt(self) -> None:
        """Assume that the policies, where they are wanted, are not in force."""
        if self.own is not None and self.evicts():
            self.doubted(NOT_YET if self.own.known else NOWHERE)

    async def watch(self) -> None:
        """Check the policies, where they are wanted, until cancelled."""
        while self.own is not None:
            pause = AGAIN
            if not self.evicts():
                self.doubted("")
                pause = LOOK
            elif not self.own.known:
                self.doubt()
            else:
                absent = await missing(self.writer, self.own)
                self.doubted("" if absent is None else str(absent.problem))
                pause = CANARY_AGAIN if absent is None else AGAIN
            await self.clock.sleep(pause)
