"""
What is so in one round, recomputed from a snapshot without any code of the policy.

A step of a trace comes in: what was seen, under which rules, and when. Facts go out: the usage of each limit holder as
an interval, its ceiling, what protects it, and whether a step of the ladder is allowed on it.

The rule: each fact is derived anew, in the slowest way that is plainly right. Only the model and the policy's types are
used. Each fact is necessary for an action and not sufficient: `policy.enumeration` shows that no action is missing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from enforcer.policy.history import Action, History, Moment, Result, Verdict
from enforcer.policy.holder import CaseKey, HolderKey, key_of
from enforcer.policy.rules import ALLOW_EXEMPTION, CONSENT, EXEMPT, GRACE, LONGEST_GRACE, Rules
from enforcer.policy.vocabulary import Breaker, Mode, Reason, Rung, Trigger
from exporter.model import (
    ContainerId,
    ContainerKind,
    Context,
    Device,
    DeviceKey,
    Limit,
    Pod,
    PodUid,
    Scope,
    Sharing,
    Snapshot,
    Subject,
    Usage,
)

MODES = ["off", "observe", "warn", "dry-run", "enforce"]
RUNGS = [Rung.NOTIFY, Rung.FENCE, Rung.EVICT, Rung.KILL]
OVER, WITHIN, UNKNOWN = "over", "within", "unknown"
LEFT_ALONE = {ContainerKind.INIT, ContainerKind.EPHEMERAL}


@dataclass(frozen=True, slots=True)
class Step:
    """
    One call of `decide`, and what happened since the call before.

    Attributes:
        history: what `decide` returned.
        ended: how the action in flight ended.
        ended_at: monotonic seconds of that end.
        began: the daemon started before this step: with the levels of its predecessor ("restored"), or without ("new").
        closed: the breakers that a person closed.
        accepted: the holders whose warning the API server accepted.

    """

    snapshot: Snapshot
    rules: Rules
    now: Moment
    verdict: Verdict
    history: History
    ended: Result | None = None
    ended_at: float = 0.0
    began: str = ""
    closed: frozenset[Breaker] = frozenset()
    accepted: tuple[HolderKey, ...] = ()


@dataclass(slots=True)
class Fact:
    """
    One limit holder on one device in one round. Nothing changes it.

    Attributes:
        limits: the declarations that hold for it; `amount` is the smallest that can be enforced, or else reported.
        pods: the pods whose containers share the limit.
        users: the containers that use the device under this limit.
        low, high: bounds of its usage in bytes; None where nothing is certain.
        ceiling: bytes that it may use: the limit, the tolerance, and what contexts may add.
        status: over or within the ceiling for certain, or unknown.

    """

    key: CaseKey
    device: Device | None
    limits: tuple[Limit, ...]
    amount: int | None
    pods: frozenset[PodUid]
    users: tuple[Usage, ...]
    low: int | None
    high: float | None
    ceiling: int
    status: str

    @property
    def where(self) -> DeviceKey:
        """The device on which the limit counts."""
        return self.limits[0].device


class Facts:
    """
    The facts of one step.

    Attributes:
        devices: of the round.
        present: the present generation of each container.
        listed: the usages of each device.
        trusted: the devices of which what was read in this round can be held against a container.
        doubts: by device, the bytes of the lists that cannot all be true, whichever container they count for.
        left_out: the devices that an early round left out, and that were read a short time ago.
        cases: the facts by case.
        holders: the facts of each limit holder: one for each device, and for each generation of its container there.

    """

    def __init__(self, snapshot: Snapshot, rules: Rules, now: Moment) -> None:
        self.snapshot = snapshot
        self.rules = rules
        self.now = now
        self.devices = {device.key: device for device in snapshot.devices}
        self.present = {(box.pod_uid, box.name): box for box in snapshot.containers}
        self.listed: dict[DeviceKey, list[Usage]] = {}
        for usage in snapshot.usages:
            self.listed.setdefault(usage.device, []).append(usage)
        self.trusted = self._trusted()
        self.doubts = {key: self._doubt(device) for key, device in self.devices.items()}
        self.left_out = {device.key for device in snapshot.devices if self._left_out(device)}
        self.cases = self._cases()
        self.holders: dict[HolderKey, list[Fact]] = {}
        for fact in self.cases.values():
            self.holders.setdefault(_holder(fact), []).append(fact)

    def _cases(self) -> dict[CaseKey, Fact]:
        declared: dict[tuple[str, str, str, DeviceKey], list[Limit]] = {}
        for limit in self.snapshot.limits:
            whose = "" if limit.claim else limit.pod_uid
            declared.setdefault((whose, limit.container, limit.claim, limit.device), []).append(limit)
        return {fact.key: fact for limits in declared.values() for fact in self._of(limits)}

    def status(self, holder: HolderKey) -> str:
        """Over when it is so on some device, within when it is so on all."""
        each = {fact.status for fact in self.holders.get(holder, ()) if self.runs(fact.key)}
        return OVER if OVER in each else WITHIN if each == {WITHIN} else UNKNOWN

    def early(self, holder: HolderKey) -> bool:
        """Tell whether an early round left out a GPU that this holder has a limit on, and that was read before."""
        if not self.left_out:
            return False
        limited = [fact for fact in self.holders.get(holder, ()) if fact.amount is not None and self.runs(fact.key)]
        return any(fact.where in self.left_out for fact in limited)

    def _left_out(self, device: Device) -> bool:
        if device.key.uuid in self.snapshot.gpus_read:
            return False
        return 0 <= self.snapshot.taken_at - device.sampled_at <= in_a_row(self.rules)

    def runs(self, key: CaseKey) -> bool:
        """Tell whether the container is the present generation; what an earlier one left behind says nothing."""
        now = self.present.get((key.pod_uid, key.container))
        return not key.container or (now is not None and now.id is not None and now.id == key.container_id)

    # --- the usage ---

    def _of(self, limits: list[Limit]) -> list[Fact]:
        first, binds = limits[0], limits[0]
        if len(limits) > 1:
            valid = [one for one in limits if one.memory is not None and one.scope is not Scope.PROCESS]
            binding = [one for one in valid if not one.report_only] or valid
            amount = min((one.memory for one in binding if one.memory is not None), default=None)
            binds = next((one for one in binding if one.memory == amount), first)
        if first.claim:
            return [self._of_claim(limits, binds)]
        name = first.container
        mine = [one for one in self.listed.get(first.device, ()) if one.subject.pod_uid == first.pod_uid]
        if not name:
            return [self._fact(key_of(first.device, first.pod_uid), limits, binds, mine)]
        generations: dict[ContainerId | None, list[Usage]] = {}
        for one in mine:
            if one.subject.container == name:
                generations.setdefault(one.subject.container_id, []).append(one)
        if not generations:
            now = self.present.get((first.pod_uid, name))
            generations[now.id if now else None] = []
        return [
            self._fact(key_of(first.device, first.pod_uid, name, id_), limits, binds, users)
            for id_, users in generations.items()
        ]

    def _of_claim(self, limits: list[Limit], binds: Limit) -> Fact:
        subjects: set[Subject] = set()
        doubtful: set[Subject] = set()
        all_known = True
        for usage in self.snapshot.claim_usages:
            if (f"{usage.namespace}/{usage.claim}", usage.device) == (binds.claim, binds.device):
                subjects |= usage.subjects
                doubtful |= usage.doubtful
                all_known = all_known and usage.memory_used is not None
        pods = {one.pod_uid for one in limits} | {one.pod_uid for one in subjects}
        users = [one for one in self.listed.get(binds.device, []) if one.subject in subjects]
        key = key_of(binds.device, next(iter(pods)) if len(pods) == 1 else PodUid(""), claim=binds.claim)
        sure = [one for one in users if one.subject not in doubtful]
        return self._fact(key, limits, binds, users, sure, all_known=all_known)

    def _fact(
        self,
        key: CaseKey,
        limits: list[Limit],
        binds: Limit,
        users: list[Usage],
        sure: list[Usage] | None = None,
        *,
        all_known: bool = True,
    ) -> Fact:
        device = self.devices.get(binds.device)
        amount = None if binds.scope is Scope.PROCESS else binds.memory
        ceiling = 0 if amount is None else self._above(amount) + self._contexts(binds, users)
        low, high = self._interval(device, users if sure is None else sure)
        high = high if all_known else None
        pods = frozenset(one.pod_uid for one in limits) | {one.subject.pod_uid for one in users}
        status = UNKNOWN
        if low is not None and amount is not None:
            within = high is not None and high <= ceiling
            status = OVER if low > ceiling else WITHIN if within else UNKNOWN
        return Fact(key, device, tuple(limits), amount, pods, tuple(users), low, high, ceiling, status)

    def _trusted(self) -> frozenset[DeviceKey]:
        snapshot = self.snapshot
        stale = self.now.monotonic - snapshot.monotonic > in_a_row(self.rules) + self.rules.interval
        unsure = any(fault.source == "allocations" for fault in snapshot.faults)
        if stale or unsure or not snapshot.pid_domain_proven:
            return frozenset()
        read = [device for device in snapshot.devices if device.key.uuid in snapshot.gpus_read]
        return frozenset(device.key for device in read if device.account.memory is not None)

    def _interval(self, device: Device | None, counted: Sequence[Usage]) -> tuple[int | None, float | None]:
        if device is None or not counted or device.key not in self.trusted:
            return None, None
        low, high = 0, 0.0
        for one in counted:
            used, sure = one.memory_used, one.memory_sure
            low += (used or 0) if sure is None else sure
            high += inf if used is None else used
        if high == inf and not low:
            return None, None
        doubt = self.doubts[device.key]
        return max(0, low - doubt) if doubt else low, inf if device.account.partial else high

    def _doubt(self, device: Device) -> int:
        account = device.account
        known = sum(one.memory_used or one.memory_sure or 0 for one in self.listed.get(device.key, []))
        listed = known + (account.ghost or 0) + (account.host or 0)
        used = account.memory.used if account.memory else listed
        return max(account.clamped, listed - used, 0)

    def _above(self, amount: int) -> int:
        tolerance = self.rules.tolerance
        return amount + max(int(amount * tolerance.ratio), min(tolerance.bytes, amount // 10))

    def _contexts(self, limit: Limit, users: list[Usage]) -> int:
        each = self.rules.tolerance.per_process
        if limit.memory is None or limit.context is Context.INCLUDED or each <= 0:
            return 0
        most = max(each, limit.memory // 4)
        if limit.headroom is not None:
            most = max(0, min(most, limit.headroom))
        known = all(one.process_memory or one.memory_used == 0 for one in users)
        own = sum(min(each, size) for one in users for size in one.process_memory)
        return min(most, own) if known else most

    # --- the victim ---

    def largest(self, fact: Fact) -> set[PodUid]:
        """Find the pods that use most of the device under this limit, of those that may be acted on at all."""
        used: dict[PodUid, int] = {}
        for one in fact.users:
            pod = self.snapshot.pods.get(one.subject.pod_uid)
            if pod is not None and not pod.terminating and self.shield(fact, pod.uid) is None:
                used[pod.uid] = used.get(pod.uid, 0) + (one.memory_used or 0)
        return {uid for uid, amount in used.items() if amount == max(used.values())}

    def largest_container(self, fact: Fact, uid: PodUid) -> set[str | None]:
        """Find the containers of a pod, in their present generation, that use most of the device under this limit."""
        mine = [one for one in fact.users if one.subject.pod_uid == uid]
        ids = {box.id for box in self.present.values()}
        mine = [one for one in mine if one.subject.container_id in ids]
        most = max((one.memory_used or 0 for one in mine), default=0)
        return {one.subject.container_id for one in mine if one.memory_used == most}

    # --- what forbids an action ---

    def shield(self, fact: Fact, uid: PodUid) -> Reason | None:
        """Say why no operator's rule and no state of the pod allow an action on it; any reason that holds."""
        snapshot, rules = self.snapshot, self.rules
        pod = snapshot.pods.get(uid)
        if pod is None:
            return Reason.POD_UNKNOWN
        if pod.uid == rules.own_pod:
            return Reason.OWN_POD
        if pod.config_hash is not None:
            return Reason.STATIC_POD
        name, protect = pod.namespace, rules.protect
        if name == rules.own_namespace or any(
            name == one or (one.endswith("*") and name.startswith(one[:-1])) for one in protect.namespaces
        ):
            return Reason.NAMESPACE
        if pod.priority is None or pod.priority >= protect.priority_at_least or pod.priority_class[:7] == "system-":
            return Reason.PRIORITY
        if any((name, value) in pod.labels.items() for name, value in protect.labels.items()):
            return Reason.LABEL
        if pod.phase in {"Succeeded", "Failed", ""}:
            return Reason.NOT_RUNNING
        if fact.key.container:
            now = self.present.get((fact.key.pod_uid, fact.key.container))
            if now is None or now.id is None or now.id != fact.key.container_id:
                return Reason.OTHER_GENERATION
        granted = snapshot.namespaces.get(name, {}).get(ALLOW_EXEMPTION) == "true"
        if granted and pod.annotations.get(EXEMPT) == "true":
            return Reason.EXEMPT
        return None

    def promised(self, pod: Pod) -> bool:
        """Tell whether an annotation that its namespace allows asks that the pod is not evicted."""
        granted = self.snapshot.namespaces.get(pod.namespace, {}).get(ALLOW_EXEMPTION) == "true"
        written = pod.annotations
        asks = (
            written.get("cluster-autoscaler.kubernetes.io/safe-to-evict") == "false"
            or written.get("karpenter.sh/do-not-disrupt") == "true"
            or "descheduler.alpha.kubernetes.io/prefer-no-eviction" in written
        )
        return granted and self.rules.protect.third_party and asks

    def mode(self, pod: Pod) -> Mode:
        """Find the effective mode for a pod: the most restrictive of all that may restrict."""
        labels = self.snapshot.namespaces.get(pod.namespace)
        written = "observe" if labels is None else labels.get(CONSENT, "enforce")
        inputs = [self.rules.mode.value, *(one.mode.value for one in self.rules.ceilings)]
        inputs.append(written if written in MODES else "observe")
        if any(fault.reason == "config_invalid" for fault in self.snapshot.faults):
            inputs.append("observe")
        return Mode(min(inputs, key=MODES.index))

    def unallowed(self, fact: Fact, action: Action) -> Iterable[str]:
        """Say why this action is not allowed for the holder in this round."""
        rules, device, pod = self.rules, fact.device, self.snapshot.pods.get(action.pod_uid)
        if pod is None or device is None or fact.amount is None:
            yield "no pod, no device or no limit that binds"
            return
        if any(one.scope is Scope.INSTANCE for one in fact.limits if one.memory == fact.amount):
            yield "MIG already bounds the instance"
        if (device.key.gpu_instance is not None and device.pods <= 1) or device.sharing is Sharing.EXCLUSIVE:
            yield f"nothing is shared: {device.sharing}"
        if device.gpu.vendor not in rules.trusted_vendors:
            yield f"vendor {device.gpu.vendor}"
        ended = self._clients(pod.uid)
        if action.rung in {Rung.KILL, Rung.FENCE}:
            ended &= {"", action.container}
        if ended and RUNGS.index(action.rung) > RUNGS.index(rules.mps):
            yield "MPS"
        labels = self.snapshot.namespaces.get(pod.namespace, {})
        dry = action.dry and labels.get(CONSENT) == Mode.DRY_RUN
        if action.rung is not Rung.FENCE and labels.get(rules.consent[0]) != rules.consent[1] and not dry:
            yield "no consent"
        if action.rung is not Rung.FENCE and self.promised(pod):
            yield "an annotation asks that it is not evicted"
        if action.rung is Rung.EVICT and rules.protect.daemon_sets and pod.controller_kind == "DaemonSet":
            yield "DaemonSet"
        if action.rung is Rung.EVICT and rules.protect.bare_pods and not pod.controller_kind:
            yield "bare pod"
        if action.rung in {Rung.KILL, Rung.FENCE}:
            box = self.present.get((pod.uid, action.container))
            if box is None or (box.kind in LEFT_ALONE and action.rung is Rung.KILL):
                yield f"{action.rung} of an init or ephemeral container"
        if pod.terminating and action.rung is not Rung.KILL:
            yield "the pod is terminating"

    def _clients(self, uid: PodUid) -> set[str]:
        """Name the containers of a pod that are MPS clients, "" for all of it."""
        mine = [one for one in self.snapshot.usages if one.subject.pod_uid == uid]
        mine = [one for one in mine if one.memory_used != 0 or one.processes]
        shared = {device.key for device in self.snapshot.devices if device.sharing is Sharing.MPS}
        used = {one.device for one in mine}
        found = {one.subject.container for one in mine if one.device in shared}
        found |= {
            one.container for one in self.snapshot.limits if one.mps and one.pod_uid == uid and one.device in used
        }
        for usage in (one for one in mine if one.mps):
            others = [one for one in self.listed[usage.device] if one.mps and one.subject.pod_uid != uid]
            if others:
                found.add(usage.subject.container)
        return found

    def grace(self, fact: Fact) -> float:
        """Return the grace of the holder: the rules', or the pod's own, where that is shorter or allowed."""
        return min(self._graces(fact), default=self.rules.grace)

    def longest_grace(self, fact: Fact) -> float:
        """Return the longest grace of the pods that share the limit."""
        return max(self._graces(fact), default=self.rules.grace)

    def _graces(self, fact: Fact) -> list[float]:
        pods = self.snapshot.pods
        return [self._grace(pods[uid]) for uid in fact.pods if uid in pods]

    def _grace(self, pod: Pod) -> float:
        text = pod.annotations.get(GRACE, "")
        if not (text and text.isascii() and text.isdigit() and len(text) <= 9):
            return self.rules.grace
        wanted = min(float(text), LONGEST_GRACE)
        granted = self.snapshot.namespaces.get(pod.namespace, {}).get(ALLOW_EXEMPTION) == "true"
        return wanted if wanted <= self.rules.grace or granted else self.rules.grace

    def shortage(self, action: Action) -> int:
        """Return the most bytes that neighbours may be short of; with the trigger `contended` 0 forbids an action."""
        device = self.devices.get(action.device)
        if self.rules.trigger is not Trigger.CONTENDED or device is None or device.account.memory is None:
            return 1
        owed = 0
        for fact in self.cases.values():
            if fact.device is device and fact.amount is not None and action.pod_uid not in fact.pods:
                owed += max(0, fact.amount - (fact.low or 0))
        return owed - device.account.memory.free


def in_a_row(rules: Rules) -> float:
    """Return the seconds for which two readings without one between them count together: 15, or 1.5 intervals."""
    return max(15.0, 1.5 * rules.interval)


def _holder(fact: Fact) -> HolderKey:
    key = fact.key
    if key.claim:  # on each device another pod of it may hold most
        return HolderKey(PodUid(""), key.container, key.claim, key.uuid, key.gpu_instance)
    return HolderKey(key.pod_uid, key.container, "")
