"""
The limits of this node's pods, round after round.

What comes in: the inventory with the pods' declarations, the GPUs, the usages on each device. What goes out: limits by
limit holder and device, with bypassed ones marked; the sum of the declared bytes of each device; invalid declarations.

The rule:
- A pod is resolved again only if its declarations, the node, the devices or the claims have changed.
- Its first-seen values are kept as long as the pod is known, and saved over restarts.
- If the resolver fails on one pod, the others keep their limits. Pods that change in each round cannot delay the
  others, because the oldest answer is renewed first.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress

import structlog

from exporter.accounts.sharing import occupied, only_reserves
from exporter.limits import (
    LeafDevice,
    Options,
    Resolution,
    ResolvedLimit,
    Seen,
    declared,
    leaf_devices,
    resolve,
)
from exporter.limits.decoding import NOTHING_CHOSEN
from exporter.limits.reservations import Reservations
from exporter.limits.rows import Catalogue
from exporter.model import (
    Claim,
    DeclaredPod,
    DeviceKey,
    Gpu,
    GpuUuid,
    Inventory,
    Limit,
    NodeFacts,
    Pod,
    PodUid,
    Tolerance,
    Usage,
)
from exporter.rounds.limit_facts import Invalid, held_by_reservations, invalid_of, with_held
from exporter.rounds.placements import Placements

log = structlog.get_logger()

MOST = 64
"""Pods resolved per round, at about 0.8 ms each; the others keep their last answer until the next round."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one round. `memory_declared` is the sum in bytes on each device, each declaration once."""

    limits: tuple[Limit, ...] = ()
    memory_declared: Mapping[DeviceKey, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """The facts that the limits of every pod depend on."""

    node: NodeFacts | None = None
    devices: tuple[LeafDevice, ...] = ()
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True, slots=True)
class _Resolved:
    """A resolution with its inputs, and the number of its refresh."""

    pod: DeclaredPod
    surroundings: _Surroundings
    resolution: Resolution
    invalid: frozenset[Invalid]
    refresh: int


class Limiting:
    """
    Keeps the resolution of each pod. Only one task may use it: first `refresh`, then `limits`.

    Attributes:
        tolerance: how much usage may exceed a limit; a reload of the config replaces it. Without a tolerance there are
            no ceilings.

    """

    def __init__(
        self,
        catalogue: Catalogue,
        options: Options = NOTHING_CHOSEN,
        first_seen: Mapping[PodUid, tuple[Seen, ...]] | None = None,
        *,
        tolerance: Tolerance | None = None,
    ) -> None:
        self.tolerance = tolerance
        self._catalogue = catalogue
        self._options = options
        self._reservations = Reservations(catalogue, options.systems)
        self._before = dict(first_seen or {})
        self._gpus: dict[GpuUuid, Gpu] = {}
        self._surroundings = _Surroundings()
        self._resolved: dict[PodUid, _Resolved] = {}
        self._placements = Placements(self._foreign)
        self._refreshes = 0

    @property
    def first_seen(self) -> dict[PodUid, tuple[Seen, ...]]:
        """The first-seen values of each pod that has any, to hand in after a restart."""
        now = {uid: known.resolution.first_seen for uid, known in self._resolved.items()}
        return {uid: seen for uid, seen in {**self._before, **now}.items() if seen}

    def resolution(self, uid: PodUid) -> Resolution | None:
        """Return the resolution of a pod; None if it was not resolved yet."""
        known = self._resolved.get(uid)
        return known.resolution if known else None

    def marked(self, inventory: Inventory) -> Inventory:
        """Return the inventory with each reservation pod marked; see `exporter.limits.reservations`."""
        pods = self._reservations.marked(inventory.pods)
        return inventory if pods is inventory.pods else replace(inventory, pods=pods)

    def invalid(self) -> frozenset[Invalid]:
        """Return all invalid declarations of now, also of pods without a device."""
        return frozenset[Invalid]().union(*(known.invalid for known in self._resolved.values()))

    def refresh(self, inventory: Inventory, gpus: Iterable[Gpu], present: Iterable[GpuUuid]) -> Iterator[None]:
        """
        Resolve new and changed pods: first pods without an answer, then the oldest answers. Yields after each pod.

        `present` are the GPUs that the driver counts: a GPU that does not answer for a while stays a device. So do the
        MIG instances of a GPU that is present, and not in `gpus`, because they could not be listed.
        """
        self._look(inventory, gpus, present)
        self._resolved = {
            uid: known for uid, known in self._resolved.items() if uid in inventory.pods or uid in inventory.declared
        }
        if inventory.known and inventory.live:
            self._before = {uid: seen for uid, seen in self._before.items() if uid in inventory.pods}
        if not self._surroundings.devices:
            return
        self._refreshes += 1
        asked = with_held(inventory)
        due = [uid for uid, pod in asked.items() if self._is_due(uid, pod)]
        for uid in sorted(due, key=self._resolved_at)[:MOST]:
            resolution = self._resolve(uid, asked[uid])
            invalid = invalid_of(uid, resolution)
            self._resolved[uid] = _Resolved(asked[uid], self._surroundings, resolution, invalid, self._refreshes)
            yield

    def limits(self, inventory: Inventory, usages: Iterable[Usage]) -> Limits:
        """Return the limits on used devices, and those that name a device which is not used yet."""
        used: dict[PodUid, list[Usage]] = defaultdict(list)
        for usage in usages:
            used[usage.subject.pod_uid].append(usage)
        occupants = occupied(usage for mine in used.values() for usage in mine)
        reserved = self._reservations.reserved(inventory.pods, held_by_reservations(inventory))
        facts: list[Limit] = []
        counted: list[Sequence[ResolvedLimit]] = []
        self._placements.begin()
        for uid in inventory.declared:
            if (known := self._resolved.get(uid)) is None:
                continue
            pod = inventory.pods.get(uid)
            expected = pod is not None and not pod.terminating
            seen = frozenset((usage.subject.container, usage.device) for usage in used[uid])
            if pod is not None and expected:
                seen |= self._in_group(pod, known.resolution, reserved)
            on = self._placements.of(uid, known.resolution, seen, expected=expected)
            on.use(used[uid], self.tolerance)
            # A reservation pod takes the whole device for other pods. Its limit is dropped, else it would count twice.
            counts = [not only_reserves(pod, fact.device, occupants) for fact in on.facts]
            facts += compress(on.facts, counts)
            counted.append(tuple(compress(on.limits, counts)))
        return Limits(tuple(facts), declared(counted))

    def _in_group(
        self, pod: Pod, resolution: Resolution, reserved: Mapping[tuple[str, str], frozenset[DeviceKey]]
    ) -> set[tuple[str, DeviceKey]]:
        """List the devices reserved for a pod's groups: its limits count there, also without any usage."""
        return {
            (limit.subject.container, device)
            for system, group in self._reservations.groups(pod)
            for limit in resolution.limits
            if limit.system == system
            for device in reserved.get((system, group), ())
        }

    def _look(self, inventory: Inventory, gpus: Iterable[Gpu], present: Iterable[GpuUuid]) -> None:
        there = set(present)
        self._gpus = {uuid: gpu for uuid, gpu in self._gpus.items() if uuid in there}
        for gpu in gpus:
            # If the memory could not be read this time, the last size stays.
            if gpu.uuid not in self._gpus or all(memory for _, memory, _ in gpu.leaves()):
                self._gpus[gpu.uuid] = gpu
        now = _Surroundings(inventory.node, leaf_devices(self._gpus.values(), inventory.sharing), inventory.claims)
        if now != self._surroundings:
            self._surroundings = now

    def _is_due(self, uid: PodUid, pod: DeclaredPod) -> bool:
        known = self._resolved.get(uid)
        return known is None or known.surroundings is not self._surroundings or known.pod != pod

    def _resolved_at(self, uid: PodUid) -> int:
        """Return the number of the refresh that resolved a pod; 0 without one, so that it comes first."""
        known = self._resolved.get(uid)
        return known.refresh if known else 0

    def _foreign(self, limit: ResolvedLimit, device: DeviceKey) -> bool:
        """Return whether the device is of another vendor than those on which the limit counts."""
        gpu = self._gpus.get(device.uuid)
        return bool(limit.vendor) and gpu is not None and limit.vendor != gpu.vendor

    def _resolve(self, uid: PodUid, pod: DeclaredPod) -> Resolution:
        before = self.resolution(uid)
        first_seen = before.first_seen if before else self._before.get(uid, ())
        try:
            return resolve(
                pod,
                self._surroundings.node,
                self._surroundings.devices,
                self._catalogue,
                first_seen,
                claims=self._surroundings.claims,
                options=self._options,
            )
        except Exception:
            # One pod's text may trigger a bug of gpusteward. It must not stop the round, or the limits of other pods.
            log.exception("limits.failed", namespace=pod.namespace, pod=pod.name)
            return Resolution(pod.uid, pod.namespace, pod.name, first_seen=first_seen)
