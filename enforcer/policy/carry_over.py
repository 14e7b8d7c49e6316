"""
What of the past still counts.

What comes in: the history, a snapshot, the moment. What goes out: the history as it stands at this moment, and, when
all subjects are judged, what it has to remember of them.

The law: **whatever makes the past another past voids the evidence**: other rules, other GPUs, another driver, a machine
that slept, process numbers that are no longer proven. It can delay an action, never hasten one. How one GPU is divided
is the past of that GPU alone: instances are made and unmade as pods come and go (MindCluster's vNPUs, dynamic MIG), so
that whoever may start a pod could shield the whole node otherwise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from enforcer.policy import breakers, budgets
from enforcer.policy.evidence import MARGIN, Evidence, Phase
from enforcer.policy.history import Excess, History, Known, Moment, Series
from enforcer.policy.judgement import Judged
from enforcer.policy.limit_holders import Case, CaseKey
from enforcer.policy.rules import ROUNDS, Rules
from enforcer.policy.vocabulary import Mode
from exporter.model import Snapshot

TOLD = frozenset({Phase.GRACE, Phase.DUE})
SUSPENDED = 5.0
"""Seconds by which boot time may run ahead of monotonic time between two snapshots; above that the machine slept."""


def carried(history: History, snapshot: Snapshot, rules: Rules, now: Moment) -> History:
    """Carry the history to this moment."""
    before = history.at
    known, seen = dict(history.gpus), _gpus(snapshot)
    present = {str(uuid) for uuid in snapshot.gpus_present}
    changed = bool(known) and (
        any(known[uuid].driver != gpu.driver for uuid, gpu in seen.items() if uuid in known)
        or not seen.keys() <= known.keys()
        or not known.keys() <= present
    )
    slept = before is not None and (now.boot - before.boot) - (now.monotonic - before.monotonic) > SUSPENDED
    other = history.rules is not None and history.rules.differs(rules)
    if changed or slept or other or not snapshot.pid_domain_proven:
        history = without_evidence(history)
    divided = {uuid for uuid, gpu in seen.items() if uuid in known and known[uuid].divided != gpu.divided}
    history = replace(history, evidence={key: one for key, one in history.evidence.items() if key.uuid not in divided})
    history = _landed(history, rules, now)
    return replace(
        history,
        at=now,
        started=now.monotonic if before is None else history.started,
        rules=rules,
        gpus=frozenset(({uuid: gpu for uuid, gpu in known.items() if uuid in present} | seen).items()),
        breakers=breakers.after(history.breakers, snapshot, now.boot, gpus_changed=changed, hold_off=rules.hold_off),
        spent=budgets.pruned(history.spent, rules, now.boot),
    )


def without_evidence(history: History) -> History:
    """Void all evidence, and what hangs on it. A real action that is in flight stays: the world does not forget it."""
    return replace(history, evidence={}, blocked={}, rehearsal=None)


def beside(evidence: Mapping[CaseKey, Evidence], key: CaseKey) -> dict[CaseKey, Evidence]:
    """Keep the evidence of other devices only: after an action all that was seen on its device is the past."""
    return {one: known for one, known in evidence.items() if one.device != key.device}


def remembered(history: History, found: Sequence[Judged], snapshot: Snapshot, rules: Rules, now: Moment) -> History:
    """
    Put the new evidence into the history, and count what it adds up to: seconds above limits, strikes.

    Who was told, is fenced, or is spared by a PodDisruptionBudget, is so until it is gone: a round that misses a
    subject (as the first ones of a daemon do) makes neither a second excess of the one that it had, nor a second fence.
    """
    seconds = dict(history.over_seconds)
    strikes = budgets.unforgiven(history.strikes, rules, now.boot)
    evidence: dict[CaseKey, Evidence] = {}
    here = {one.case.key for one in found}
    known = {*history.excesses, *history.fenced, *history.blocked}
    lasting = {key for key in known if key in here or not _gone(key, snapshot)}
    excesses = {key: excess for key, excess in history.excesses.items() if key in lasting}
    blocked = {key: one for key, one in history.blocked.items() if key in lasting}
    for one in found:
        before, after = history.evidence.get(one.case.key), one.evidence
        if after is None:
            continue
        key, told = one.case.key, after.phase in TOLD
        if key in excesses:
            excesses[key] = replace(excesses[key], within=_within(excesses[key].within, before, after, rules))
            if not told and _ended(excesses[key], after, rules):
                del excesses[key]
                blocked.pop(key, None)  # of the next one a PodDisruptionBudget has not been asked
        step = after.read_at - before.read_at if before is not None else 0.0
        if before is not None and before.above and after.above and step <= 1.5 * rules.interval:
            series = series_of(one.case)
            seconds[series] = seconds.get(series, 0.0) + step
        if told and key not in excesses and one.case.owned:  # else whose strike it is comes later
            workload = one.case.workload
            strikes[workload] = budgets.struck(strikes, workload, rules, now.boot)
            # Whoever is told exceeds once at least, whatever was forgiven or lost.
            excesses[key] = Excess(max(1.0, budgets.standing(strikes, workload, rules, now.boot)))
        if key in excesses:
            after = replace(after, strikes=excesses[key].strikes)
        evidence[key] = after
    living = {(pod.namespace, pod.name) for pod in snapshot.pods.values()}
    return replace(
        history,
        evidence=evidence,
        over_seconds={one: value for one, value in seconds.items() if one[:2] in living or not snapshot.names_live},
        strikes=strikes,
        excesses=excesses,
        fenced=history.fenced & lasting,
        blocked=blocked,
    )


def series_of(case: Case) -> Series:
    """Name the counter of a subject: a container that restarts goes on in the same one."""
    return case.namespace, case.pod.name if case.pod else "", case.key.container, case.limit.device


def _gpus(snapshot: Snapshot) -> dict[str, Known]:
    return {
        str(gpu.uuid): Known(gpu.driver_version, f"{gpu.mig} {[(one.id, one.mig_uuids) for one in gpu.instances]}")
        for gpu in snapshot.gpus
    }


def _within(since: float | None, before: Evidence | None, after: Evidence, rules: Rules) -> float | None:
    """Return from when on each reading saw a subject within its limit; of what lay between two far apart none tells."""
    if after.above:
        return None
    unbroken = before is not None and after.read_at - before.read_at <= 1.5 * rules.interval
    return since if since is not None and unbroken else after.read_at


def _ended(excess: Excess, after: Evidence, rules: Rules) -> bool:
    return excess.within is not None and after.read_at - excess.within >= (ROUNDS - 1) * MARGIN * rules.interval


def _gone(key: CaseKey, snapshot: Snapshot) -> bool:
    """Tell whether a subject is no more, by names that are true now; in doubt it is there."""
    if not snapshot.names_live:
        return False
    if not key.pod_uid:  # several pods share a claim; names that are live say nothing of claims that were not read yet
        return bool(snapshot.claims) and all(f"{one.namespace}/{one.name}" != key.claim for one in snapshot.claims)
    if key.pod_uid not in snapshot.pods:
        return True
    known = {one.id for one in snapshot.containers if (one.pod_uid, one.name) == (key.pod_uid, key.container)}
    return bool(known) and not known & {None, key.container_id}


def _landed(history: History, rules: Rules, now: Moment) -> History:
    """End a rehearsed action after the time that separates two: its victim is then taken for a new one."""
    flight = history.rehearsal
    if flight is None or now.monotonic - flight.at < rules.spacing:
        return history
    device = flight.action.key.device
    kept = {
        key: one
        for key, one in history.evidence.items()
        if key.device != device or one.terms.mode is not Mode.DRY_RUN  # a rehearsal delays no action
    }
    return replace(history, rehearsal=None, evidence=kept)
