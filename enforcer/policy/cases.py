"""
The cases of one snapshot: each declared limit, beside what its holder uses of one device.

A snapshot comes in. A case for each limit holder and device goes out.

The rule: a reading counts when the holder's own GPU and its memory were read in this round. Of two limits for the same
holder and device the smaller one counts.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter

from enforcer.policy.holder import Target, key_of
from enforcer.policy.limit_holders import ALLOCATIONS, Case
from enforcer.policy.mps import clients
from enforcer.policy.shared_claims import Claimed, Where, claims_of
from enforcer.policy.usage_bounds import interval, least, listed, overshoot
from enforcer.policy.vocabulary import Reason
from exporter.model import (
    Container,
    ContainerId,
    ContainerKind,
    Device,
    DeviceKey,
    Limit,
    Pod,
    PodUid,
    Scope,
    Snapshot,
    Usage,
    processes_of,
    summands,
)

NO_CLIENTS: Mapping[str, str] = {}
_CLAIM, _PROCESS, _REGULAR = Scope.CLAIM, Scope.PROCESS, ContainerKind.REGULAR  # to look up a member takes long
_PLACE = attrgetter("pod_uid", "container", "container_id", "claim", "uuid", "gpu_instance")
_Order = tuple[str, str, str, str, str, int]
"""A key as a tuple: faster to hash and to compare than a `CaseKey`."""


def cases(snapshot: Snapshot, recent: float = 0.0, spared: Callable[[Pod], bool] = lambda _: False) -> tuple[Case, ...]:
    """
    Compare each limit with its holder. A key occurs once: of two limits for it the smaller counts.

    Args:
        snapshot: of one round.
        recent: seconds for which the reading of a GPU that an early round left out is waited for.
        spared: says of which pods the limit of a shared claim is no ground for an action, because they are protected.

    """
    look = _Look.at(snapshot, recent, spared)
    best: dict[_Order, Case] = {}
    for limit in snapshot.limits:
        for case in look.of(limit):
            place = _PLACE(case.key)
            known = best.setdefault(place, case)
            if known is not case and _rank(case) < _rank(known):
                best[place] = case
    return tuple([best[place] for place in sorted(best)])


@dataclass(slots=True)  # as `Case`
class _Seen:
    """A device: why nothing can be said of usages on it now, whether it is only pending, and the doubt in bytes."""

    device: Device | None
    blind: Reason | None
    pending: bool
    doubt: int


_UNSEEN = _Seen(None, Reason.READING_UNKNOWN, pending=False, doubt=0)


@dataclass(slots=True)
class _Look:
    """A snapshot, indexed for its cases."""

    snapshot: Snapshot
    devices: Mapping[DeviceKey, _Seen]
    usages: Mapping[Where, list[Usage]]
    present: Mapping[tuple[PodUid, str], Container]
    clients: Mapping[PodUid, Mapping[str, str]]
    claims: Mapping[tuple[str, DeviceKey], "Claimed"]
    by_claim: frozenset[tuple[PodUid, DeviceKey]]
    """The pods whose claim declares an amount of a device."""

    @classmethod
    def at(cls, snapshot: Snapshot, recent: float, spared: Callable[[Pod], bool]) -> "_Look":
        """Index the snapshot."""
        usages: dict[Where, list[Usage]] = defaultdict(list)
        for usage in snapshot.usages:
            device_key = usage.device
            usages[usage.subject.pod_uid, device_key.uuid, device_key.gpu_instance].append(usage)
        held = listed(snapshot, parts=True)
        remembered = any(fault.source == ALLOCATIONS for fault in snapshot.faults)
        everywhere = (
            Reason.PID_DOMAIN if not snapshot.pid_domain_proven else Reason.ALLOCATIONS_STALE if remembered else None
        )
        devices: dict[DeviceKey, _Seen] = {}
        for device in snapshot.devices:
            read = device.key.uuid in snapshot.gpus_read
            pending = not read and 0 <= snapshot.taken_at - device.sampled_at <= recent
            known = read and device.account.memory is not None
            blind = everywhere or (None if known else Reason.READING_UNKNOWN)
            devices[device.key] = _Seen(device, blind, pending, overshoot(device.account, held[device.key]))
        present = {(container.pod_uid, container.name): container for container in snapshot.containers}
        of_claims = [limit for limit in snapshot.limits if limit.scope is Scope.CLAIM]
        claims = claims_of(snapshot, usages, spared) if of_claims else {}
        by_claim = frozenset((limit.pod_uid, limit.device) for limit in of_claims if limit.memory is not None)
        return cls(snapshot, devices, usages, present, clients(snapshot), claims, by_claim)

    def of(self, limit: Limit) -> Iterable[Case]:
        """Make the cases of one limit: of a container, one for each generation that holds something."""
        if limit.undeclared and (limit.pod_uid, limit.device) in self.by_claim:
            return ()  # an extended resource that a claim serves: the claim says the amount
        uid, device = limit.pod_uid, limit.device
        seen = self.devices.get(device, _UNSEEN)
        blind = _unusable(limit) or seen.blind
        pod = self.snapshot.pods.get(uid)
        if limit.scope is _CLAIM:
            return self._of_claim(limit, pod, seen, blind)
        mine = self.usages.get((uid, device.uuid, device.gpu_instance), ())
        clients_ = self.clients.get(uid, NO_CLIENTS)
        name = limit.container
        if not name:
            mine = summands(mine)
            largest, kind = self._largest(mine)
            whole = Case(
                key_of(device, uid), limit, pod, seen.device,
                *_measured(blind, *interval(mine, seen.doubt)),
                pending=seen.pending, kind=kind, processes=processes_of(mine), largest=largest, clients=clients_,
            )  # fmt: skip
            return (whole,)
        now = self.present.get((uid, name))
        present, kind = (None, _REGULAR) if now is None else (now.id, now.kind)
        generations: dict[ContainerId | None, list[Usage]] = {}
        for usage in mine:
            if usage.subject.container == name:
                generations.setdefault(usage.subject.container_id, []).append(usage)
        return [
            Case(
                key_of(device, uid, name, id_), limit, pod, seen.device,
                *_measured(blind, *interval(generation, seen.doubt)),
                seen.pending, present is not None and present == id_, kind, processes_of(generation), None, clients_,
            )
            for id_, generation in (generations or {present: []}).items()
        ]  # fmt: skip

    def _of_claim(self, limit: Limit, pod: Pod | None, seen: _Seen, blind: Reason | None) -> Iterable[Case]:
        """Make the case of a claim once: with the limit of the pod that holds most, which is acted on."""
        claimed = self.claims[limit.claim, limit.device]
        if limit.pod_uid != claimed.victim:
            return
        mine = [usage for usage in claimed.usages if usage.subject.pod_uid == limit.pod_uid]
        largest, kind = self._largest(mine)
        only = limit.pod_uid if len(claimed.pods) == 1 else PodUid("")
        yield Case(
            key_of(limit.device, only, claim=limit.claim), limit, pod, seen.device,
            *_measured(blind, max(0, claimed.low - seen.doubt), claimed.high),
            pending=seen.pending, kind=kind, processes=claimed.processes, largest=largest,
            clients=self.clients.get(limit.pod_uid, NO_CLIENTS),
        )  # fmt: skip

    def _largest(self, usages: Iterable[Usage]) -> tuple[Target | None, ContainerKind]:
        """Name the present container that certainly holds most, and its kind; ties go to the first name."""
        best: tuple[int, str] | None = None
        target, kind = None, ContainerKind.REGULAR
        for usage in usages:
            now = self.present.get((usage.subject.pod_uid, usage.subject.container))
            if now is None or now.id is None or now.id != usage.subject.container_id or not least(usage):
                continue
            order = (-least(usage), now.name)
            if best is None or order < best:
                best, target, kind = order, Target(now.name, now.id), now.kind
        return target, kind


def _measured(blind: Reason | None, low: int, high: int | None) -> tuple[int, int | None, Reason | None]:
    """Return the interval of a usage, and why nothing is known of it."""
    if blind is not None:
        return 0, None, blind
    return low, high, Reason.READING_UNKNOWN if high is None and not low else None


def _rank(case: Case) -> tuple[bool, float, str, str, str]:
    """Order the limits of one holder: a limit that binds nothing must not hide one that does."""
    limit = case.limit
    binds = limit.memory is not None and not limit.report_only and limit.scope is not Scope.PROCESS
    amount = float("inf") if limit.memory is None else limit.memory
    return not binds, amount, limit.pod_uid, limit.system, limit.source


def _unusable(limit: Limit) -> Reason | None:
    if limit.undeclared:
        return Reason.UNDECLARED
    if limit.scope is _PROCESS:
        return Reason.PROCESS_SCOPE  # each process may hold so much, and the number of processes is not declared
    return Reason.LIMIT_INVALID if limit.memory is None else None
