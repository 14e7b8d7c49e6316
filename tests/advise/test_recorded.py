"""Advised limits on recorded nodes: the real policy, replayed with them, never finds a container over its limit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from advise.test_advice import HURRIED, quantile
from enforcer.policy.decide import decide
from enforcer.policy.history import Moment
from enforcer.policy.vocabulary import Mode, State
from exporter.advise import notes
from exporter.advise.advice import advise
from exporter.advise.grouping import Wanted, grouped
from exporter.config import Arguments, load
from exporter.history.owners import Workload
from exporter.model import Context, DeviceKey, EnforcedBy, Limit, Mechanism, Scope, Snapshot, Usage
from exporter.recording import Reading, replay
from exporter.simulated import SimulatedNode
from pace import quick
from policy.scenes import settled
from recordings import BEGINNING, SteppedClock, record, replayed

RECORDED = Path(__file__).parents[1] / "compat" / "fixtures" / "0.1" / "node.jsonl.gz"
"""Four minutes of a node that version 0.1 recorded (tests/compat/fixtures/0.1/README.md)."""
SECONDS = 100.0 if quick() else 240.0
"""Of it that are replayed: pods come and go, a notebook passes its limit, and early rounds follow."""
PARTS = 3
"""A recording is cut into so many "days"."""
QUIET = {State.OK, State.EXEMPT, State.UNJUDGED}
Key = tuple[str, str, str, str]
"""Namespace, kind, workload, container: a target without its cluster."""


def of_pod(snapshot: Snapshot, usage: Usage) -> dict[str, str] | None:
    """Labels of the usage's pod, as the daemon exports them; None while its names are unknown."""
    pod = snapshot.pods.get(usage.subject.pod_uid)
    return None if pod is None else {"node": snapshot.node, "namespace": pod.namespace, "pod": pod.name}


def on_device(device: DeviceKey) -> dict[str, str]:
    """Labels of a device."""
    return {"uuid": device.uuid, "gpu_instance": "" if device.gpu_instance is None else str(device.gpu_instance)}


def noted(snapshots: Sequence[Snapshot]) -> notes.Notes:
    """Note what a Prometheus would answer of the recording."""
    found, length = notes.Notes(), len(snapshots) // PARTS + 1
    found.workloads = {
        notes.PodName("", snapshot.node, pod.namespace, pod.name): Workload(pod.workload_kind, pod.workload)
        for snapshot in snapshots
        for pod in snapshot.pods.values()
    }
    for number in range(PARTS):
        readings: dict[tuple[tuple[str, str], ...], list[float]] = defaultdict(list)
        for snapshot in snapshots[number * length : (number + 1) * length]:
            for device in snapshot.devices:
                if device.account.memory is not None:
                    labels = {"node": snapshot.node, **on_device(device.key)}
                    notes.size(found, labels, device.account.memory.total, number)
            for limit in snapshot.limits:
                pod = snapshot.pods.get(limit.pod_uid)
                if pod is not None and not limit.claim:
                    whose = {"node": snapshot.node, "namespace": pod.namespace, "pod": pod.name}
                    labels = {**whose, "container": limit.container, **on_device(limit.device)}
                    notes.declaration(found, {**labels, "system": limit.system, "scope": limit.scope}, 1, number)
            for usage in snapshot.usages:
                pod_labels = of_pod(snapshot, usage)
                if pod_labels is None or usage.memory_used is None:
                    continue
                labels = {**pod_labels, "container": usage.subject.container, **on_device(usage.device)}
                readings[tuple(labels.items())].append(usage.memory_used)
        for one, held in readings.items():
            notes.peak(found, dict(one), max(held), number)
            for note, share in ((notes.p99, 0.99), (notes.p95, 0.95), (notes.p25, 0.25)):
                note(found, dict(one), quantile(held, share), number)
    return found


def advised(found: notes.Notes) -> dict[Key, int]:
    """The limits without a headroom, also where a fraction or a whole device is the better answer."""
    limits: dict[Key, int] = {}
    for seen in grouped(found, Wanted()):
        sizes = tuple(replace(size, bytes=None) for size in seen.use.sizes)
        advice = advise(replace(seen.use, sizes=sizes), 0.0, 1)
        if advice.limit is not None:
            limits[seen.target[1:]] = advice.limit
    return limits


def declared(snapshot: Snapshot, limits: Mapping[Key, int], share: float) -> Snapshot:
    """The same round, with a share of these limits as the only ones; a limit of the pod stays the pod's."""
    made: dict[tuple[str, str, DeviceKey], Limit] = {}
    for usage in snapshot.usages:
        if of_pod(snapshot, usage) is None:
            continue
        pod, container = snapshot.pods[usage.subject.pod_uid], usage.subject.container
        kind, name = pod.workload_kind or "Pod", pod.workload or pod.name
        for holder, scope in ((container, Scope.CONTAINER), ("", Scope.POD)):
            limit = limits.get((pod.namespace, kind, name, holder))
            if limit is not None:
                made[pod.uid, holder, usage.device] = Limit(
                    pod.uid, holder, usage.device, int(limit * share), "policy", Mechanism.ANNOTATION, scope,
                    EnforcedBy.NONE, context=Context.INCLUDED,
                )  # fmt: skip
    return replace(snapshot, limits=tuple(made.values()))


def states(snapshots: Sequence[Snapshot], limits: Mapping[Key, int], share: float) -> set[State]:
    """Replay the policy under the strictest rules; return the states of all rounds."""
    rules = replace(HURRIED, mode=Mode.DRY_RUN)
    history, found = settled(rules), set()
    for snapshot in snapshots:
        now = Moment(snapshot.monotonic, snapshot.monotonic)
        history, verdict = decide(declared(snapshot, limits, share), rules, history, now)
        found |= {standing.state for standing in verdict.standings}
    return found


def assert_quiet(snapshots: Sequence[Snapshot]) -> None:
    """With the advised limits all is quiet; with half of them it is not."""
    limits = advised(noted(snapshots))
    assert len(limits) >= PARTS, limits
    with_them = states(snapshots, limits, 1.0)
    assert State.OK in with_them and with_them <= QUIET, with_them
    assert not states(snapshots, limits, 0.5) <= QUIET


async def test_a_node_that_was_recorded_by_the_first_release_stays_quiet() -> None:
    """Four minutes that version 0.1 recorded, with containers over the limits that they had then; see `SECONDS`."""
    snapshots: list[Snapshot] = []
    with Reading(RECORDED) as reading:
        async for snapshot in replay.snapshots(reading, load(Arguments())):
            if snapshots and snapshot.monotonic > snapshots[0].monotonic + SECONDS:
                break
            snapshots.append(snapshot)
    assert_quiet(snapshots)


async def test_a_node_that_is_recorded_now_stays_quiet(tmp_path: Path) -> None:
    """The simulated node: MIG, MPS, pods with limits of their own, pods that come and go. 80 s in `make check`."""
    clock = SteppedClock(80 if quick() else 120)
    await record(tmp_path / "r.gz", SimulatedNode(clock.time, BEGINNING), clock)
    assert_quiet(await replayed(tmp_path / "r.gz"))
