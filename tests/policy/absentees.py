"""
Neighbours that ended abnormally on a nearly full device, as the checker of safety counts them.

The facts of each round come in. The bytes that these neighbours are in need of, beside an accused pod, go out.

The rule: what goes out is the most that they can be short of. A pod counts for ten minutes after it failed, or after
one of its containers came back as another generation. The device was nearly full then, or in the round before.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from enforcer.policy.history import Action
from exporter.model import ContainerId, DeviceKey, PodUid
from policy.facts import Facts

COUNTS = 600.0
NEARLY_FULL = 0.9
Place = tuple[DeviceKey, PodUid]


@dataclass(slots=True)
class Absentees:
    """
    What is remembered from one round to the next.

    Attributes:
        entitled: bytes that each pod might hold of each device; `full` the devices that were nearly full.
        generations: the last known one of each container.
        missing: bytes, and since when (monotonic seconds).

    """

    entitled: Mapping[Place, int] = field(default_factory=dict)
    full: frozenset[DeviceKey] = frozenset()
    generations: dict[tuple[PodUid, str], ContainerId] = field(default_factory=dict)
    missing: dict[Place, tuple[int, float]] = field(default_factory=dict)

    def copy(self) -> "Absentees":
        """Make another one that goes on from here."""
        return Absentees(self.entitled, self.full, dict(self.generations), dict(self.missing))

    def pause(self) -> None:
        """Let a round pass unseen: what changes until the next one is no abnormal end."""
        self.entitled = {}

    def count(self, facts: Facts) -> None:
        """Add a round. Remembered names say nothing."""
        snapshot = facts.snapshot
        if not snapshot.names_live:
            return
        present = {place: box.id for place, box in facts.present.items() if box.id is not None}
        back = {uid for (uid, name), id_ in present.items() if self.generations.get((uid, name), id_) != id_}
        back |= {uid for uid, pod in snapshot.pods.items() if pod.phase == "Failed"}
        full = _nearly_full(facts)
        for (device, uid), amount in self.entitled.items():
            if uid in back and device in self.full | full:
                self.missing[device, uid] = amount, facts.now.monotonic
        self.generations |= present
        self.full = full
        entitled: dict[Place, int] = {}
        for fact in facts.cases.values():
            for uid in fact.pods:
                entitled[fact.where, uid] = entitled.get((fact.where, uid), 0) + (fact.amount or 0)
        self.entitled = entitled

    def need(self, facts: Facts, action: Action) -> int:
        """Return the most bytes that they are in need of, without what their present limits show."""
        total = 0
        for (device, uid), (amount, since) in self.missing.items():
            if device != action.device or uid == action.pod_uid or facts.now.monotonic - since >= COUNTS:
                continue
            held = sum(one.memory_used or 0 for one in facts.listed.get(device, []) if one.subject.pod_uid == uid)
            mine = [fact for fact in facts.cases.values() if fact.where == device and uid in fact.pods]
            shown = sum(max(0, (fact.amount or 0) - (fact.low or 0)) for fact in mine)
            total += max(0, amount - held - shown)
        return total


def _nearly_full(facts: Facts) -> frozenset[DeviceKey]:
    full = set()
    for device in facts.snapshot.devices:
        memory = device.account.memory
        if memory is not None and memory.used + memory.reserved >= NEARLY_FULL * memory.total:
            full.add(device.key)
    return frozenset(full)
