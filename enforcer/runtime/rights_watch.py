"""
Asks again and again whether the daemon may act in each namespace that consents.

What comes in: the namespaces that consent and have a limit on this node. What goes out: a hold on each namespace in
which a right is missing, and its end once the right is there.

The rule: a missing RoleBinding is reported before anything is due there, and it holds that namespace alone.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from enforcer.actions.evict.actuator import RIGHTS
from enforcer.policy.rules import Rules
from enforcer.policy.vocabulary import Place, Reason, Rung
from exporter.base.clock import Clock
from exporter.base.problem import Problem
from exporter.kube.errors import KubeError
from exporter.kube.rights import Right
from exporter.model import Snapshot

EVICT_ROLE, LOOK_ROLE = "gpusteward-evict", "with `get pods`, such as the chart's gpusteward-look,"
"""The ClusterRole that a RoleBinding in each consenting namespace grants: with the step `evict`
(deploy/enforcer/rbac-evict.yaml), and without it."""
BEAT = 5.0
"""Seconds between two looks for namespaces that consent by now."""
AGAIN = 60.0
"""Seconds until a namespace is checked again: as often as its labels are read."""
SOON = 10.0
"""The same while a right is missing there."""


class Holder(Protocol):
    """What the watch needs of the decider."""

    rules: Rules

    @property
    def heard(self) -> Snapshot | None:
        """The last snapshot."""

    def hold(self, place: Place, name: str, reason: Reason, *, detail: str = "") -> None:
        """Hold a place until the hold is lifted."""

    def lift(self, place: Place, name: str, reason: Reason) -> None:
        """Lift a hold."""


May = Callable[..., Awaitable[bool]]
"""Asks for one right: verb, group, resource, and `namespace`; `exporter.kube.client.Client.may`."""


def consenting(snapshot: Snapshot, rules: Rules) -> Collection[str]:
    """Name the namespaces that consent and have a pod with a limit on this node."""
    key, value = rules.consent
    limited = {pod.namespace for limit in snapshot.limits if (pod := snapshot.pods.get(limit.pod_uid)) is not None}
    return {name for name in limited if snapshot.namespaces.get(name, {}).get(key) == value}


def needed(rules: Rules) -> Iterable[Right]:
    """Name the rights that the ladder uses in a consenting namespace."""
    return [right for right in RIGHTS if Rung.EVICT in rules.ladder or right.resource == "pods"]


async def missing(may: May, namespace: str, rules: Rules) -> Problem | None:
    """Say which rights are missing in a namespace, and how to grant them; None where none is. Raises KubeError."""
    lacking = [
        str(right)
        for right in needed(rules)
        if not await may(right.verb, right.group, right.resource, namespace=namespace)
    ]
    if not lacking:
        return None
    role = EVICT_ROLE if Rung.EVICT in rules.ladder else LOOK_ROLE
    what = f"{' and '.join(lacking)} not granted in {namespace}"
    return Problem(what, fix=f"bind the ClusterRole {role} there by a RoleBinding")


@dataclass(slots=True)
class RightsWatch:
    """Watches the rights of one node's daemon. One task calls `watch`."""

    decider: Holder
    may: May
    clock: Clock
    ask_at: dict[str, float] = field(default_factory=dict)

    async def watch(self) -> None:
        """Ask until cancelled."""
        while True:
            await self.look()
            await self.clock.sleep(BEAT)

    async def look(self) -> None:
        """Check the namespaces whose turn it is. A server that does not answer changes nothing."""
        snapshot, rules = self.decider.heard, self.decider.rules
        if snapshot is None or not snapshot.names_live:
            return
        names = consenting(snapshot, rules)
        for name in [*self.ask_at.keys() - names]:
            del self.ask_at[name]
            self.decider.lift(Place.NAMESPACE, name, Reason.NO_RIGHTS)
        for name in sorted(names):
            if self.clock.monotonic() < self.ask_at.get(name, 0.0):
                continue
            try:
                lacking = await missing(self.may, name, rules)
            except KubeError:
                continue
            self.ask_at[name] = self.clock.monotonic() + (SOON if lacking else AGAIN)
            if lacking:
                self.decider.hold(Place.NAMESPACE, name, Reason.NO_RIGHTS, detail=str(lacking))
            else:
                self.decider.lift(Place.NAMESPACE, name, Reason.NO_RIGHTS)
