"""
Sharing systems on a real node: scenes of the scenario book as pods that a real kubelet runs beside `gpusteward run`.

In: scenes of `tests/systems/`. Out: the JSON that the daemon serves; for two systems, what is done.
Law: what is expected is the book's. A verdict is what `GET /api/v1/preview` says, in which no grace has to be waited
for. The policy's trigger is the limit alone, as in the book, so that the rows that need its second version count, too.

The bed is this file's own: its GPUs, and what its device plugin serves, are the book's.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cluster import requirements
from cluster.bed import Bed
from cluster.client import Api, Object
from cluster.fixtures import require
from cluster.scenes import NODE_PATH, played, together
from cluster.stage import RUN, Stage, staged
from daemon.running import Daemon
from daemon.running import until as becomes
from exporter.base.quantities import parse_bytes
from patience import PATIENCE
from systems.book import FOLDER, LimitRow, SceneRow, VerdictRow, gpu_uuid, read

pytestmark = pytest.mark.cluster

RESOURCES = ("nvidia.com/gpu", "nvidia.com/mig-3g.40gb", "aliyun.com/gpu-mem")
"""What the bed's device plugin serves: that of which the kubelet's own allocation matters to a scene."""
TIMES = {"warn_after": "5s", "grace": "30s", "hold_off": "0s", "spacing": "10s"}

Place = tuple[str, str, str, int | None, bool]
"""Of a limit: its pod, its container, its GPU and MIG instance, and whether it is a claim's."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Bed]:
    """Start a cluster for this file."""
    require(requirements.missing(node=True))
    with Bed(gpus=(), inventory={resource: [] for resource in RESOURCES}) as bed:
        yield bed


@pytest.fixture
async def stage(cluster: Bed, node_api: Api, tmp_path: Path) -> Stage:
    """Stand on this file's cluster with the rights of `gpusteward run`."""
    made = await staged(cluster, node_api, tmp_path, inventory={})
    await made.enforcing()
    return made


@pytest.fixture(autouse=True)
async def node_is_left_as_it_was(stage: Stage) -> AsyncIterator[None]:
    """See after each test, also one that failed, that nothing of a scene is left on the Node."""
    before = written(await stage.api.get(NODE_PATH))
    yield
    assert written(await stage.api.get(NODE_PATH)) == before


def written(node: Object) -> dict[str, object]:
    """Read what a scene may change on the Node. The counts of a device plugin are the kubelet's."""
    counts = {name for part in ("capacity", "allocatable") for name in node["status"][part]}
    return {
        "resources": counts - set(RESOURCES),
        **{key: node["metadata"].get(key) for key in ("labels", "annotations")},
    }


def scene(system: str, mode: str = "") -> SceneRow:
    """Take a scene from the book."""
    (found,) = (one for one in read(FOLDER / f"{system}.yaml").scenes if one.mode == mode)
    return found


def running(stage: Stage, scene: SceneRow, *flags: str) -> Daemon:
    """Start `gpusteward run` with the scene's part of the config."""
    files = {"stop_file": str(stage.folder / "stop"), "journal": str(stage.folder / "journal" / "journal")}
    policy = {**TIMES, **files, "trigger": "limit", **scene.config.get("policy", {})}
    config = stage.folder / "config.yaml"
    config.write_text(json.dumps({**scene.config, "policy": policy}))
    return stage.daemon(f"--config={config}", "--sampling.interval=2s", *flags, command=RUN)


def wanted(system: str, scene: SceneRow) -> dict[str, Any]:
    """Say what the book expects, in the keys of the JSON."""
    expect = scene.expect
    sharing = {
        (gpu_uuid(row.gpu), row.mig): {"sharing": row.sharing, "replicas": row.replicas, "pods": row.pods}
        for row in expect.sharing
    }
    limits = {_place(row): _limit(row, system) for row in expect.limits if not row.absent}
    return {"sharing": sharing, "limits": limits, "verdicts": {row.pod: _words(row) for row in expect.verdicts}}


def shown(daemon: Daemon, scene: SceneRow) -> dict[str, Any]:
    """Say the same of what the daemon serves."""
    snapshot = daemon.snapshot()
    places = {(gpu_uuid(row.gpu), row.mig): row for row in scene.expect.sharing}
    sharing = {
        place: {key: device[key] for key in ("sharing", "replicas", "pods")}
        for device in snapshot["devices"]
        if (place := (device["uuid"], device["gpu_instance"])) in places
    }
    rows = {_place(row): row for row in scene.expect.limits}
    declared = {_declared(limit): limit for limit in snapshot["limits"]}
    limits = {place: _shown(limit, rows.get(place)) for place, limit in declared.items()}
    return {"sharing": sharing, "limits": limits, "verdicts": _previewed(daemon, snapshot, scene.expect.verdicts)}


def comes(daemon: Daemon, system: str, scene: SceneRow) -> None:
    """Wait until the daemon says what the book says; else show the difference."""
    expected, deadline = wanted(system, scene), time.monotonic() + PATIENCE
    while (found := shown(daemon, scene)) != expected and time.monotonic() < deadline:
        time.sleep(0.2)
    assert found == expected, daemon.snapshot()["faults"]


def _place(row: LimitRow) -> Place:
    return row.pod, row.container, gpu_uuid(row.gpu), row.mig, bool(row.claim)


def _declared(limit: Mapping[str, Any]) -> Place:
    return _short(limit["pod"]), limit["container"], limit["uuid"], limit["gpu_instance"], bool(limit["claim"])


def _limit(row: LimitRow, system: str) -> dict[str, Any]:
    return {
        "bytes": None if row.bytes is None else parse_bytes(row.bytes),
        "system": row.system or system,
        "source": row.source,
        "scope": row.scope,
        "enforced_by": row.enforced_by,
        "context": row.context,
        "report_only": row.report_only,
        "problem": row.problem,
    }


def _shown(limit: Mapping[str, Any], row: LimitRow | None) -> dict[str, Any]:
    return {
        "bytes": limit["memory_bytes"],
        "system": limit["system"],
        "source": limit["declared_in"] if row is None or row.source else None,
        "scope": limit["scope"],
        "enforced_by": limit["enforced_by"],
        "context": limit["context"] if row is None or row.context else "",
        "report_only": bool(limit["report_only"]),
        "problem": bool(limit["problems"]),
    }


def _words(row: VerdictRow) -> str:
    if row.acts is not None:
        return row.acts.action
    return row.held.reason if row.held is not None else "within" if row.within else "no limit"


def _previewed(daemon: Daemon, snapshot: Mapping[str, Any], rows: list[VerdictRow]) -> dict[str, str]:
    """Read of each pod what would be done to it now, or why nothing would."""
    preview = json.loads(daemon.get("/api/v1/preview")[1])
    would = {_short(one["pod"]): str(one["next"]) for one in preview["would_act_on"]}
    held = {_short(one["pod"]): str(one["reason"]) for one in preview["held"]}
    states: dict[str, str] = {}
    for one in snapshot["policy"]["standings"]:
        pod = _short(one["pod"])
        states.setdefault(pod, "within")
        if one["state"] != "ok":
            states[pod] = one["reason"] or one["state"]
    found = {**states, **held, **would}
    return {row.pod: found.get(row.pod, "no limit") for row in rows}


def _short(pod: str | None) -> str:
    """Name a pod as the book does, without the ordinal of its StatefulSet."""
    return (pod or "").removesuffix("-0")


@pytest.mark.parametrize(
    ("system", "mode"),
    [
        ("nvidia-mig", "replicas"),
        ("nvidia-mps", "container"),
        ("gpushare", "two-containers"),
        ("hami-nvidia", "factor"),
        ("kai", ""),
        ("koordinator", ""),
        ("nvidia-dra", ""),
        ("gpusteward", "fair-share"),
    ],
)
async def test_pods_of_a_system_are_seen_and_judged_as_the_book_says(stage: Stage, system: str, mode: str) -> None:
    """Sharing of its devices, every limit, and what would be done about each pod, are the same on a real node."""
    played_scene = scene(system, mode)
    async with played(stage.bed, stage.api, played_scene, RESOURCES):
        with running(stage, played_scene, "--mode=dry-run") as daemon:
            comes(daemon, system, played_scene)


async def test_one_that_shares_time_is_evicted_and_a_client_of_mps_lives_on(stage: Stage) -> None:
    """
    Time-slicing and Alauda's MPS, each on a GPU of one node that has no label of MPS: each has a pod above its limit.

    That of time-slicing gets an Event and is evicted. MPS keeps the other's limit, so it is held, and lives. All others
    live.
    """
    both = together(scene("nvidia-timeslicing"), scene("alauda-mps"), "alauda-mps", "mps-")
    async with played(stage.bed, stage.api, both, RESOURCES) as scenery:
        await stage.guard()
        try:
            async with stage.as_pod():
                await stage.may_evict(*scenery.namespaces)
                with running(stage, both, "--mode=enforce") as daemon:
                    comes(daemon, "nvidia-timeslicing", both)
                    assert clients(daemon) == {name for name in scenery.pods if name.startswith("mps-")}
                    becomes(lambda: ended(daemon) or None, "the eviction", daemon)
                    freed = [("trainer", "evict", "verified")]
                    becomes(lambda: ended(daemon) == freed or None, "the memory to be free", daemon)
                    becomes(lambda: held(daemon, "mps-trainer") == "mps" or None, "MPS to be held", daemon)
        finally:
            await stage.unguard()
        living = {name for name in scenery.pods if await scenery.lives(name)}
        assert living == scenery.pods.keys() - {"trainer"}


def clients(daemon: Daemon) -> set[str]:
    """Name the pods whose limit says that they are clients of MPS; the driver's list says the same of them."""
    snapshot = daemon.snapshot()
    declared, listed = ({_short(one["pod"]) for one in snapshot[key] if one["mps"]} for key in ("limits", "containers"))
    assert declared == listed
    return declared


def ended(daemon: Daemon) -> list[tuple[str, str, str]]:
    """List the pod, the action and the result of each action that came to its end; one that failed is tried again."""
    decided = json.loads(daemon.get("/api/v1/decisions")[1])["recent"]
    return [
        (_short(one["pod"]), one["action"], one["result"])
        for one in decided
        if one["kind"] == "action" and one["result"] not in ("", None, "failed")
    ]


def held(daemon: Daemon, pod: str) -> str | None:
    """Say why nothing is done about a pod whose grace is over; None while it is not held."""
    found = [one for one in daemon.snapshot()["policy"]["standings"] if _short(one["pod"]) == pod]
    return next((str(one["reason"]) for one in found if one["state"] == "held"), None)
