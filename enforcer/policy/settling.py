"""
The time after a change of ours, and the look at its blast radius.

A change of the version, the rules, the catalogue or a GPU's driver comes in. Why nothing is done yet goes out. Then,
once, it is counted how many workloads are over their limits.

The rule: **a change of ours is judged once, before the first action.** If it makes many workloads exceed their limits,
an error of ours is more likely than theirs. A restart is no change, and nothing that a pod does is one.
"""

from collections.abc import Iterable
from dataclasses import replace

from enforcer.policy.history import History, Moment, Settled
from enforcer.policy.judgement import Judged
from enforcer.policy.levels import prevents
from enforcer.policy.rules import Rules
from enforcer.policy.vocabulary import Reason
from exporter.model import Snapshot

LONGEST_WAIT = 60.0
"""Seconds after the hold-off for which namespaces that cannot be read are waited for, at least."""


def settled(history: History, snapshot: Snapshot, rules: Rules, now: Moment) -> Settled:
    """Compare what is in force now with what was, and note since when every namespace can be read."""
    known = history.settled
    drivers = frozenset(gpu.driver_version for gpu in snapshot.gpus)
    if known is None or known.rules.differs(rules) or _other_drivers(known.drivers, drivers):
        state = Settled(rules, drivers, now.monotonic)
    else:
        state = replace(known, rules=rules, drivers=known.drivers | drivers)
    if state.vetted:
        return state
    readable = all(
        pod.namespace in snapshot.namespaces
        for limit in snapshot.limits
        if (pod := snapshot.pods.get(limit.pod_uid)) is not None
    )
    readable = readable and snapshot.names_live
    return replace(state, read_all=(state.read_all or now.monotonic) if readable else None)


def settling(state: Settled, rules: Rules, now: Moment) -> Reason | None:
    """Say why nothing is done yet; None: the blast radius can be judged, or was."""
    if state.vetted:
        return None
    if now.monotonic - state.since < rules.hold_off:
        return Reason.HOLD_OFF
    if now.monotonic - state.since >= rules.hold_off + max(LONGEST_WAIT, rules.warn_after):
        return None  # a namespace that cannot be read stops no other one
    if state.read_all is None:
        return Reason.NAMESPACE_UNKNOWN
    return Reason.HOLD_OFF if now.monotonic - state.read_all < rules.warn_after else None


def blast(cases: Iterable[Judged]) -> tuple[int, int]:
    """Count the workloads that are over their limits, and those with limits, among those that could be acted on."""
    over, limited = set(), set()
    for judged in cases:
        if judged.shield is None and prevents(judged.allowed.held) is None and judged.case.limit.memory is not None:
            workload = judged.case.workload
            limited.add(workload)
            if judged.over:
                over.add(workload)
    return len(over), len(limited)


def _other_drivers(known: frozenset[str], now: frozenset[str]) -> bool:
    """Tell whether a driver is new. A GPU that does not answer takes its version away, which is no change."""
    return bool(known) and not now <= known
