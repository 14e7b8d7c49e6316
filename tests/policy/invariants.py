"""
What must hold of each trace of the policy, told a second time and naively.

What comes in: a trace, step by step: what was seen, under which rules, when, and what the policy said. What goes out:
each invariant that the last step breaks, in words.

The law: **nothing of the policy's judgement is used here.** Only its data (keys, actions, standings) and the model are
known; use, protection, consent, time seen, shortage and budgets are derived anew, by the slowest way that is plainly
right. What is derived is necessary for an action, not sufficient: that no action is missing `enumeration` shows.

    invariant                                                         checked
    INV-1   evidence: complete, newer than anything that voids it     here (`_evidence`)
    INV-2   tied to one pod and container that live now               here (`_identity`)
    INV-3   UID precondition                                          acting half; here: the action names the UID
    INV-4   last look                                                 acting half; here: all guards hold in this round
    INV-5   one in flight, no fallthrough                             here (`_alone`)
    INV-6   the intent is durable                                     acting half; here: a token goes with the action
    INV-7   restart, sleep, reload, gap only delay                    here (`_evidence`), and `enumeration`
    INV-8   budgets and breakers survive                              here (`_budgets`, `_breakers`)
    INV-9   unknown is not over and not under                         here (`_evidence`, `_telling`)
    INV-10  never grace 0                                             acting half
    INV-11  signals through a pidfd                                   acting half
    INV-12  protections                                               here (`shield`, both ways: `_telling`)
    INV-13  each refusal is told once, with its reason                here (`_telling`)
    INV-14  a rehearsal touches nothing                               acting half; here: dry exactly where the mode says
    INV-15  two enforcers                                             acting half
    INV-16  MPS                                                       here (`_device`)
    INV-17  success is seen                                           acting half; here: what an end voids (`_voided`)
    INV-18  total and pure                                            here (`internal` is never open), and the tests
    INV-19  the PID domain                                            here (`use`)
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from enforcer.policy.history import Action, History, Moment, Result, Verdict
from enforcer.policy.limit_holders import CaseKey, key_of
from enforcer.policy.rules import Rules
from enforcer.policy.vocabulary import Breaker, Mode, Reason, Rung, State, Trigger
from exporter.model import ContainerKind, Device, DeviceKey, Limit, Pod, PodUid, Sharing, Snapshot, Usage

SHARE = 0.9
MODES = ["off", "observe", "warn", "dry-run", "enforce"]
RUNGS = [Rung.NOTIFY, Rung.FENCE, Rung.EVICT, Rung.KILL]


@dataclass(frozen=True, slots=True)
class Step:
    """
    One call of `decide`.

    `history` is what it returned. `ended`, `reborn` and `closed` happened since the step before: the action in flight
    ended so, the daemon was started anew, a person closed breakers.
    """

    snapshot: Snapshot
    rules: Rules
    now: Moment
    verdict: Verdict
    history: History
    ended: Result | None = None
    reborn: bool = False
    closed: frozenset[Breaker] = frozenset()


Trace = Sequence[Step]


def violations(trace: Trace) -> list[str]:
    """Name what the last step of `trace` breaks."""
    found = [*_telling(trace), *_breakers(trace)]
    action = trace[-1].verdict.action
    if action is not None:
        for check in (_identity, _device, _permission, _evidence, _announced, _contention, _alone, _budgets, _order):
            found += [f"{check.__name__.strip('_')}: {what}" for what in check(trace, action)]
    return found


# --- what is so, derived from a snapshot -------------------------------------------------------------------------


def _device_of(snapshot: Snapshot, key: CaseKey) -> Device | None:
    return next((one for one in snapshot.devices if _leaf(one.key) == key.device), None)


def _leaf(device: DeviceKey) -> tuple[str, int]:
    return device.uuid, -1 if device.gpu_instance is None else device.gpu_instance


def limits(snapshot: Snapshot, key: CaseKey) -> list[Limit]:
    """List the declarations that hold for a subject."""
    here = [one for one in snapshot.limits if _leaf(one.device) == key.device]
    if key.claim:
        return [one for one in here if one.claim == key.claim]
    return [one for one in here if not one.claim and (one.pod_uid, one.container) == (key.pod_uid, key.container)]


def limit(snapshot: Snapshot, key: CaseKey) -> int | None:
    """Find the smallest valid amount."""
    return min((one.memory for one in limits(snapshot, key) if one.memory is not None), default=None)


def use(step: Step, key: CaseKey) -> int | None:
    """Find the bytes that the subject certainly holds in this round; None where nothing is certain."""
    snapshot = step.snapshot
    device = _device_of(snapshot, key)
    stale = step.now.monotonic - snapshot.monotonic > 2.5 * step.rules.interval
    if device is None or stale or not snapshot.pid_domain_proven or key.uuid not in snapshot.gpus_read:
        return None
    if any(fault.source == "allocations" for fault in snapshot.faults):
        return None
    if device.account.memory is None:  # the lists alone are not believed (seed 60915877)
        return None
    pods = {one.pod_uid for one in limits(snapshot, key)} if key.claim else {key.pod_uid}
    held = [
        usage.memory_used
        for usage in snapshot.usages
        if usage.device == device.key
        and usage.subject.pod_uid in pods
        and (
            not key.container
            or (usage.subject.container, usage.subject.container_id or "") == (key.container, key.container_id)
        )
    ]
    if not held or None in held:
        return None
    return sum(one or 0 for one in held) - _doubt(snapshot, device)


def _doubt(snapshot: Snapshot, device: Device) -> int:
    """Return the bytes that cannot all be true; what containers hold counts as far as it is known (seed 60388793)."""
    account = device.account
    known = [one.memory_used for one in snapshot.usages if one.device == device.key and one.memory_used is not None]
    listed = sum(known) + (account.ghost or 0) + (account.host or 0)
    used = account.memory.used if account.memory else listed
    return max(account.clamped, listed - used, 0)


def ceiling(rules: Rules, amount: int) -> int:
    """Return limit and tolerance."""
    return amount + max(int(amount * rules.tolerance.ratio), rules.tolerance.bytes)


def shield(step: Step, key: CaseKey) -> Reason | None:
    """Say why nobody may touch the subject (INV-12); any reason that holds."""
    snapshot, rules = step.snapshot, step.rules
    declared = limits(snapshot, key)
    pod = snapshot.pods.get(key.pod_uid or declared[0].pod_uid)
    if pod is None:
        return Reason.POD_UNKNOWN
    if pod.uid == rules.own_pod:
        return Reason.OWN_POD
    if pod.config_hash is not None:
        return Reason.STATIC_POD
    name = pod.namespace
    if name == rules.own_namespace or any(
        name == one or (one.endswith("*") and name.startswith(one[:-1])) for one in rules.protect.namespaces
    ):
        return Reason.NAMESPACE
    if pod.priority is None or pod.priority >= rules.protect.priority_at_least or pod.priority_class[:7] == "system-":
        return Reason.PRIORITY
    if any((name, value) in pod.labels.items() for name, value in rules.protect.labels.items()):
        return Reason.LABEL
    if pod.terminating:
        return Reason.TERMINATING
    if pod.phase != "Running":
        return Reason.NOT_RUNNING
    if key.container:
        same = [one for one in snapshot.containers if (one.pod_uid, one.name) == (key.pod_uid, key.container)]
        if not same or same[-1].id is None or same[-1].id != key.container_id:
            return Reason.OTHER_GENERATION
        if same[-1].kind in {ContainerKind.INIT, ContainerKind.EPHEMERAL}:
            return Reason.CONTAINER_KIND
    labels = snapshot.namespaces.get(pod.namespace, {})
    trusted = labels.get("gpusteward.io/allow-pod-exemption") == "true"
    return Reason.EXEMPT if trusted and pod.annotations.get("gpusteward.io/exempt") == "true" else None


def mode(step: Step, pod: Pod) -> Mode:
    """Find the effective mode for a pod: the most restrictive of all that may restrict."""
    labels = step.snapshot.namespaces.get(pod.namespace)
    written = "observe" if labels is None else labels.get("gpusteward.io/mode", "enforce")
    inputs = [step.rules.mode.value, *(one.mode.value for one in step.rules.ceilings)]
    inputs.append(written if written in MODES else "observe")
    if any(fault.reason == "config_invalid" for fault in step.snapshot.faults):
        inputs.append("observe")
    return Mode(min(inputs, key=MODES.index))


def _wished(step: Step, pod: Pod) -> bool:
    """Tell whether somebody wants this rehearsal."""
    label = step.snapshot.namespaces.get(pod.namespace, {}).get("gpusteward.io/mode")
    if step.rules.mode is Mode.DRY_RUN or label == "dry-run":
        return True
    return any(one.mode is Mode.DRY_RUN and one.reason is Reason.MODE for one in step.rules.ceilings)


def unallowed(step: Step, key: CaseKey, rung: Rung, victim: str = "") -> str | None:
    """Say why this rung is not allowed for the subject in this round, if it is not."""
    snapshot, rules = step.snapshot, step.rules
    declared, device = limits(snapshot, key), _device_of(snapshot, key)
    pod = snapshot.pods.get(key.pod_uid or (declared[0].pod_uid if declared else key.pod_uid))
    if pod is None or not declared or device is None:
        return "nobody and nothing to act on"
    if mode(step, pod) not in {Mode.DRY_RUN, Mode.ENFORCE}:
        return f"mode {mode(step, pod)}"
    if mode(step, pod) is Mode.DRY_RUN and not _wished(step, pod):
        return "nobody asked for a rehearsal: something that acting takes is missing"
    smallest = limit(snapshot, key)
    if any(one.report_only for one in declared if one.memory == smallest):
        return "report only"
    if any(one.scope in {"process", "instance"} for one in declared if one.memory == smallest):
        return "the limit is not the subject's"
    if len({one.pod_uid for one in declared}) > 1:
        return "several pods share the claim"
    alone = device.key.gpu_instance is not None and device.pods <= 1
    if alone or device.sharing is Sharing.EXCLUSIVE:
        return f"sharing {device.sharing}"
    if device.gpu.vendor not in rules.trusted_vendors:
        return f"vendor {device.gpu.vendor}"
    ended = _clients(snapshot, pod.uid)
    if rung in {Rung.KILL, Rung.FENCE}:
        ended &= {"", key.container or victim}
    if ended and RUNGS.index(rung) > RUNGS.index(rules.mps):
        return "MPS"
    if rung in {Rung.EVICT, Rung.KILL}:
        name, value = rules.consent
        labels = snapshot.namespaces.get(pod.namespace, {})
        rehearsed = mode(step, pod) is Mode.DRY_RUN and labels.get("gpusteward.io/mode") == "dry-run"
        if labels.get(name) != value and not rehearsed:
            return "no consent"
        written = pod.annotations
        if rules.protect.third_party and (
            written.get("cluster-autoscaler.kubernetes.io/safe-to-evict") == "false"
            or written.get("karpenter.sh/do-not-disrupt") == "true"
            or "descheduler.alpha.kubernetes.io/prefer-no-eviction" in written
        ):
            return "a third party's promise"
    if rung is Rung.EVICT and rules.protect.daemon_sets and pod.controller_kind == "DaemonSet":
        return "DaemonSet"
    if rung is Rung.EVICT and rules.protect.bare_pods and not pod.controller_kind:
        return "bare pod"
    return None


def shortest_grace(step: Step, key: CaseKey) -> float:
    """Return the seconds of grace that the subject has at least, whenever it was told."""
    declared = limits(step.snapshot, key)
    pod = step.snapshot.pods.get(key.pod_uid or declared[0].pod_uid)
    written = pod.annotations.get("gpusteward.io/grace-seconds", "") if pod else ""
    try:
        return max(30.0, min(step.rules.grace, float(int(written))))
    except ValueError:
        return step.rules.grace


# --- the invariants ------------------------------------------------------------------------------------------------


def _identity(trace: Trace, action: Action) -> Iterator[str]:
    snapshot, key = trace[-1].snapshot, action.key
    pod = snapshot.pods.get(action.pod_uid)
    if pod is None or (pod.namespace, pod.name) != (action.namespace, action.pod):
        yield "INV-2 the pod that is named is not there"
    own = action.container_id if action.limit.container else None
    limited = key_of(action.limit.device, action.limit.pod_uid, action.limit.container, own)
    if replace(key, claim="") != limited:
        yield "INV-3 the action names another subject than its key"
    if action.rung in {Rung.KILL, Rung.FENCE} and not action.container_id:
        yield f"INV-2 {action.rung} without a container"
    if action.rung in {Rung.KILL, Rung.FENCE} and not key.container:
        yield from _only_user(snapshot, action)
    reason = shield(trace[-1], key)
    if reason is not None:
        yield f"INV-12 protected: {reason}"
    if not snapshot.names_live:
        yield "INV-2 the names are remembered only"
    if any(earlier.snapshot.monotonic > snapshot.monotonic for earlier in trace[-10:]):
        yield "INV-4 a newer snapshot was seen already"
    if (action.used, action.limit.memory) != (use(trace[-1], key), limit(snapshot, key)):
        yield "INV-4 use or limit of another time"


def _only_user(snapshot: Snapshot, action: Action) -> Iterator[str]:
    """Of a pod's limit only the container that uses the device alone may be taken, in its present generation."""
    users = {
        (usage.subject.container, usage.subject.container_id)
        for usage in snapshot.usages
        if usage.device == action.device and usage.subject.pod_uid == action.pod_uid
        if usage.memory_used is None or usage.memory_used > 0 or len(usage.processes) > 0
    }
    if users != {(action.container, action.container_id)}:
        yield f"INV-3 {action.container} is not the only one of its pod that uses the device"
    same = [one for one in snapshot.containers if (one.pod_uid, one.name) == (action.pod_uid, action.container)]
    if not same or same[-1].id != action.container_id or same[-1].kind in {ContainerKind.INIT, ContainerKind.EPHEMERAL}:
        yield "INV-2 another generation, or a container that is left alone"


def _clients(snapshot: Snapshot, pod_uid: PodUid) -> set[str]:
    """Name the containers of a pod that are MPS clients, "" for all of it (INV-16)."""
    shared = {device.key for device in snapshot.devices if device.sharing is Sharing.MPS}
    mine = [
        one for one in snapshot.usages if one.subject.pod_uid == pod_uid and (one.memory_used != 0 or one.processes)
    ]
    found = {one.subject.container for one in mine if one.device in shared}
    found |= {one.container for one in snapshot.limits if one.mps and one.pod_uid == pod_uid and _on(one.device, mine)}
    for usage in (one for one in mine if one.mps):
        others = [one for one in snapshot.usages if one.device == usage.device and one.mps]
        if any(one.subject.pod_uid != pod_uid for one in others):
            found.add(usage.subject.container)
    return found


def _on(device: DeviceKey, usages: Iterable[Usage]) -> bool:
    return any(usage.device == device for usage in usages)


def _device(trace: Trace, action: Action) -> Iterator[str]:
    why = unallowed(trace[-1], action.key, action.rung, action.container)
    if why is not None:
        yield f"INV-12/16 not allowed: {why}"


def _permission(trace: Trace, action: Action) -> Iterator[str]:
    step = trace[-1]
    effective = mode(step, step.snapshot.pods[action.pod_uid])
    if action.dry is not (effective is Mode.DRY_RUN):
        yield f"INV-14 dry={action.dry} in mode {effective}"
    if action.rung not in step.rules.ladder or action.rung is Rung.NOTIFY:
        yield f"{action.rung} is not on the ladder"
    if (
        action.rung is Rung.KILL
        and Rung.EVICT in step.rules.ladder
        and not _ends(trace, action, Rung.EVICT, Result.BLOCKED)
    ):
        yield "a kill without a blocked eviction before it"
    first = next(one for one in step.rules.ladder if one is not Rung.NOTIFY)
    if first is Rung.FENCE and action.rung is not Rung.FENCE and action.container and not _fences(trace, action):
        yield "the gentler rung was left out"
    since = next(i for i in range(len(trace) - 1, -1, -1) if i == 0 or trace[i].reborn)
    if step.now.monotonic - trace[since].now.monotonic < step.rules.hold_off:
        yield "INV-7 within the hold-off"


def _ends(trace: Trace, action: Action, rung: Rung, result: Result) -> list[int]:
    """List the steps before which an action of `rung` on the same subject ended so."""
    flying: Action | None = None
    found = []
    for index, step in enumerate(trace):
        if step.ended is not None and flying is not None:
            if (flying.key, flying.rung, step.ended) == (action.key, rung, result):
                found.append(index)
            flying = None
        done = step.verdict.action
        flying = done if done is not None and not done.dry else flying
    return found


def _fences(trace: Trace, action: Action) -> list[int]:
    """List the steps before which a fence stood, or turned out to be impossible."""
    return [one for end in (Result.VERIFIED, Result.FAILED) for one in _ends(trace, action, Rung.FENCE, end)]


@dataclass(frozen=True, slots=True)
class _Look:
    at: float
    used: int
    limit: int
    over: bool
    allowed: bool


def _looks(trace: Trace, action: Action) -> list[_Look]:
    """List the readings of the subject since the last thing that voids evidence, the oldest first."""
    key, looks = action.key, list[_Look]()
    amount = limit(trace[-1].snapshot, key) or 0
    least = ceiling(trace[-1].rules, amount)
    voided = _voided(trace, key)
    after_evicting = action.rung is Rung.KILL and Rung.EVICT in trace[-1].rules.ladder
    ended = _ends(trace, action, Rung.EVICT, Result.BLOCKED) if after_evicting else []
    allowed_from = max([0, *ended, *_fences(trace, action)])
    newest, shown = set[int](), float("-inf")
    for index, step in enumerate(trace):
        if step.snapshot.monotonic > shown:  # one that was shown before is no second reading
            newest.add(index)
            shown = step.snapshot.monotonic
    for index in range(len(trace) - 1, -1, -1):
        step = trace[index]
        declared = limits(step.snapshot, key)
        if not declared or shield(step, key) is not None or step.verdict.mode is Mode.OFF:
            break
        held, now = use(step, key), limit(step.snapshot, key)
        if held is not None and now is not None and index in newest:
            at = step.snapshot.monotonic
            if looks and looks[0].at - at > 2.5 * step.rules.interval:
                break
            pod = step.snapshot.pods[action.pod_uid]
            same = mode(step, pod) is (Mode.DRY_RUN if action.dry else Mode.ENFORCE)
            allowed = index >= allowed_from and same and unallowed(step, key, action.rung) is None
            over = held > ceiling(step.rules, now) and held > least
            looks.insert(0, _Look(at, held, now, over, allowed))
        if index in voided:
            break
    below = 0
    for index in range(len(looks) - 1, -1, -1):
        below = below + 1 if looks[index].used <= looks[index].limit else 0
        if below == 3 and looks[index + 2].at - looks[index].at >= 2 * trace[-1].rules.interval:
            return looks[index + 3 :]
    return looks


def _voided(trace: Trace, key: CaseKey) -> set[int]:
    """Find the steps from which on all evidence about the subject must be: what was before is another past."""
    found: set[int] = set()
    known: dict[str, object] = {}
    flying: Action | None = None
    for index, step in enumerate(trace):
        before = trace[index - 1] if index else None
        if step.reborn or not step.snapshot.pid_domain_proven:
            found.add(index)
        if before is not None:
            if (step.now.boot - before.now.boot) - (step.now.monotonic - before.now.monotonic) > 5:
                found.add(index)
            if replace(step.rules, ceilings=()) != replace(before.rules, ceilings=()):
                found.add(index)
            if step.snapshot.gpus_present.keys() != before.snapshot.gpus_present.keys():
                found.add(index)
        for gpu in step.snapshot.gpus:
            if known.setdefault(gpu.uuid, gpu.driver_version) != gpu.driver_version:
                found.add(index)
                known[gpu.uuid] = gpu.driver_version
            parts = (gpu.mig, [(one.id, one.mig_uuids) for one in gpu.instances])
            if gpu.uuid == key.uuid and known.setdefault("its parts", parts) != parts:
                found.add(index)
                known["its parts"] = parts
        if step.ended is not None and flying is not None:
            if step.ended is not Result.BLOCKED and flying.key.device == key.device:
                found.add(index)
            flying = None
        done = step.verdict.action
        flying = done if done is not None and not done.dry else flying
    return found


def _evidence(trace: Trace, action: Action) -> Iterator[str]:
    step, rules = trace[-1], trace[-1].rules
    looks = _looks(trace, action)
    if not looks or looks[-1].at != step.snapshot.monotonic or not looks[-1].over:
        yield "INV-9 not over in this very round"
        return
    pairs = [
        later.at - one.at if one.over and later.over and later.at - one.at <= 1.5 * rules.interval else 0.0
        for one, later in pairwise(looks)
    ]
    told = _told(looks, pairs, rules)
    if told is None:
        yield "INV-1 never seen over for warn_after and three rounds"
        return
    grace = min(shortest_grace(one, action.key) for one in trace if limits(one.snapshot, action.key))
    first = next((i for i in range(len(looks) - 1, -1, -1) if not looks[i].allowed), -1) + 1
    for begin in range(max(told, first), len(looks)):
        seen = 0.0
        for end in range(begin + 1, len(looks)):
            seen += pairs[end - 1]
            if seen >= grace - 1e-6 and seen >= SHARE * (looks[end].at - looks[begin].at) - 1e-6:
                return
    yield f"INV-1 the excess was not seen for a grace of {grace:.0f} s under the same terms"


def _announced(trace: Trace, action: Action) -> Iterator[str]:
    """Look for the round in which its subject was told of this very rung, since the daemon began."""
    wanted = Mode.DRY_RUN if action.dry else Mode.ENFORCE
    for step in reversed(trace[:-1]):
        for one in step.verdict.standings:
            if one.key == action.key and (one.state, one.rung, one.mode) == (State.GRACE, action.rung, wanted):
                return
        if step.reborn:
            break
    yield f"INV-1 nobody was told of {action.rung}"


def _told(looks: Sequence[_Look], pairs: Sequence[float], rules: Rules) -> int | None:
    for begin in range(len(looks)):
        seen, rounds, counted = 0.0, 1, looks[begin].at
        for index in range(begin, len(looks)):
            if not looks[index].over:
                break
            if index > begin:
                seen += pairs[index - 1]
                if looks[index].at - counted >= 0.9 * rules.interval:
                    rounds, counted = rounds + 1, looks[index].at
            if seen >= rules.warn_after and rounds >= 3:
                return index
    return None


def _contention(trace: Trace, action: Action) -> Iterator[str]:
    if (
        trace[-1].rules.trigger is Trigger.CONTENDED
        and shortage(trace[-1].snapshot, action.device, action.pod_uid) <= 0
    ):
        yield "no neighbour is short"


def shortage(snapshot: Snapshot, where: DeviceKey, accused: str) -> int:
    """Return the bytes that neighbours are certainly short of."""
    device = next(one for one in snapshot.devices if one.key == where)
    memory = device.account.memory
    if memory is None:
        return 0
    owed, blind = 0, 0
    entitled: dict[tuple[str, str], tuple[int, list[int | None]]] = {}
    whole = {one.pod_uid for one in snapshot.limits if one.device == where and not one.container and not one.claim}
    for one in snapshot.limits:
        pod = snapshot.pods.get(one.pod_uid)
        if pod is None or pod.uid == accused or pod.terminating or pod.phase in {"Succeeded", "Failed"}:
            continue
        if one.device != where or one.memory is None or one.report_only or one.scope == "process":
            continue
        if one.container and one.pod_uid in whole:
            continue
        kinds = [box.kind for box in snapshot.containers if (box.pod_uid, box.name) == (one.pod_uid, one.container)]
        if pod.phase == "Running" and kinds[-1:] == [ContainerKind.INIT]:
            continue
        held = [
            usage.memory_used
            for usage in snapshot.usages
            if (usage.device, usage.subject.pod_uid) == (where, one.pod_uid)
            and one.container in {"", usage.subject.container}
        ]
        amount, before = entitled.get((one.claim or one.pod_uid, one.container), (one.memory, []))
        entitled[one.claim or one.pod_uid, one.container] = min(amount, one.memory), [*before, *held]
    for amount, held in entitled.values():
        rest = max(0, amount - sum(one or 0 for one in held))
        if not held or None in held:
            blind += amount
        elif device.account.partial:
            blind += rest
        else:
            owed += rest
    explained = sum(usage.memory_used or 0 for usage in snapshot.usages if usage.device == where)
    explained += (device.account.ghost or 0) + (device.account.host or 0)
    owed += max(0, blind - max(0, memory.used - explained))
    return owed - memory.free if owed > 0 else 0


def _alone(trace: Trace, action: Action) -> Iterator[str]:
    step = trace[-1]
    ended_at = began = None
    flying = harmless = False
    for index, one in enumerate(trace[:-1]):
        flying = flying and one.ended is None and not one.reborn
        if one.reborn and harmless:
            ended_at = began = None  # nothing was done, so a new daemon knows of nothing
        done = one.verdict.action
        if done is not None and not done.dry:
            flying, began, harmless = True, one.now.monotonic, False
        end = trace[index + 1].ended
        if end is not None and flying:
            ended_at, harmless = one.now.monotonic, end.harmless
    if step.reborn and harmless:
        ended_at = began = None
    flying = flying and step.ended is None and not step.reborn
    if not action.dry and flying:
        yield "INV-5 another action is in flight"
    for when in () if action.dry else (ended_at, began):
        if when is not None and step.now.monotonic - when < step.rules.spacing:
            yield f"INV-5 {step.now.monotonic - when:.0f} s after another action"
    flight = step.history.rehearsal if action.dry else step.history.in_flight
    if flight is None or flight.action != action:
        yield "INV-6 the action is not noted"


def _budgets(trace: Trace, action: Action) -> Iterator[str]:
    step, budgets = trace[-1], trace[-1].rules.budgets
    harmless = {Result.ABANDONED, Result.BLOCKED}  # certainly nothing was done: the token came back
    returned, last = set(), None
    for place, one in enumerate(trace):
        if one.ended in harmless and last is not None:
            returned.add(last)
        if one.verdict.action is not None and not one.verdict.action.dry:
            last = place
    earlier = [
        (one.now.boot, one.verdict.action)
        for place, one in enumerate(trace[:-1])
        if place not in returned and one.verdict.action is not None and one.verdict.action.dry is action.dry
    ]
    for name, budget, same in (
        ("node", budgets.node, earlier),
        ("namespace", budgets.namespace, [one for one in earlier if one[1].namespace == action.namespace]),
        ("workload", budgets.workload, [one for one in earlier if one[1].workload == action.workload]),
    ):
        if sum(step.now.boot - at < budget.window for at, _ in same) >= budget.most:
            yield f"INV-8 the budget of the {name} was spent"
    if not any(one.at == step.now.boot and one.workload == action.workload for one in step.history.spent):
        yield "INV-6 no token was taken"


def _order(trace: Trace, action: Action) -> Iterator[str]:
    """Who waits for this action to end comes after its victim in the order; who acts may not be one of too many."""
    step = trace[-1]
    told = {State.GRACE, State.DUE, State.HELD, State.ACTING}
    judged = [one for one in step.verdict.standings if one.state not in {State.EXEMPT, State.UNJUDGED}]
    over = set()
    for one in judged:
        held, amount = use(step, one.key), limit(step.snapshot, one.key)
        if held is not None and amount is not None and one.state in told and held > ceiling(step.rules, amount):
            over.add(one.key.pod_uid)
    if len(over) >= 3 and len(over) >= 0.5 * len({one.key.pod_uid for one in judged}):
        yield "INV-8 so many pods over their limits are more likely an error of ours"
    mine = _rank(step, action.key)
    for one in step.verdict.standings:
        if one.reason is Reason.QUEUED and (one.mode is Mode.DRY_RUN) == action.dry and _rank(step, one.key) < mine:
            yield "the victim is not the first in the order"
        if one.reason is Reason.QUEUED and action.dry and one.mode is Mode.ENFORCE:
            yield "a rehearsal delays an action"


def _rank(step: Step, key: CaseKey) -> tuple[int, int, int, float, CaseKey]:
    pod = step.snapshot.pods[key.pod_uid]
    cost = int(pod.annotations.get("controller.kubernetes.io/pod-deletion-cost", "0"))
    excess = (use(step, key) or 0) - (limit(step.snapshot, key) or 0)
    return pod.priority or 0, cost, -excess, -pod.created_at, key


def _breakers(trace: Trace) -> Iterator[str]:
    step = trace[-1]
    if Breaker.INTERNAL in step.verdict.breakers:
        yield f"INV-18 {step.verdict.breakers[Breaker.INTERNAL].detail}"
    if step.verdict.action is not None and step.verdict.breakers:
        yield f"INV-8 an action with open breakers: {[*step.verdict.breakers]}"
    if len(trace) > 1:
        for name, one in trace[-2].history.breakers.items():
            if one.until is None and name is not Breaker.CONFIG and name not in {*step.closed, *step.verdict.breakers}:
                yield f"INV-8 nobody closed {name}"


def _telling(trace: Trace) -> Iterator[str]:
    step = trace[-1]
    before = {one.key: one for one in trace[-2].verdict.standings} if len(trace) > 1 and not step.reborn else {}
    refusals = {one.key for one in step.verdict.refusals}
    flying = step.history.in_flight
    if step.verdict.at != step.now or (len(trace) > 1 and step.now.monotonic <= trace[-2].now.monotonic):
        return
    for one in step.verdict.standings:
        if (one.reason is not None) is not (one.state in {State.HELD, State.EXEMPT, State.UNJUDGED}):
            yield f"INV-13 {one.state} with reason {one.reason}"
        was = before.get(one.key)
        changed = was is None or (was.state, was.reason) != (one.state, one.reason)
        if (one.key in refusals) is not (one.state is State.HELD and changed):
            yield f"INV-13 a refusal that is not told, or told twice: {one.reason}"
        acting = flying is not None and flying.action.key == one.key
        if (one.state is State.ACTING) is not acting:
            yield "INV-5 acting without an action, or the other way round"
        shared = len({each.pod_uid for each in limits(step.snapshot, one.key)}) > 1  # only reported in any case
        if not acting and not shared and (one.state is State.EXEMPT) is not (shield(step, one.key) is not None):
            yield f"INV-12 {one.state}, but protected: {shield(step, one.key)}"
        if one.state in {State.OVER, State.GRACE, State.DUE, State.HELD} and limit(step.snapshot, one.key) is None:
            yield f"INV-9 {one.state} without a limit"
