"""
The twelve cases of "The limit holds", and forty innocent pods, at once on one node with four GPUs.

In: the scenario book, the stage. Out: the scene of three sharing systems, the objects of the other cases, and of each
case what becomes of it. Law: every pod is within its limit when it starts, so a pod that a controller makes anew is an
innocent one. `Case.excess` is what a test lets it take more.

GPU 0 is shared by time-slicing, GPU 1 by KAI's fractions, GPU 2 by gpushare, GPU 3 by MPS.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import msgspec

from cluster.client import Object
from cluster.manifests import controller
from cluster.stage import SHARED, spec
from cluster.stories import slow
from cluster.test_decide import EXEMPT, bare, declaring
from driver.node import GiB, Kind, MiB
from exporter.model import Tolerance
from systems.book import FOLDER, SceneRow, gpu_uuid, read

RESOURCES = ("nvidia.com/gpu", SHARED, "aliyun.com/gpu-mem")
"""What the bed's device plugin serves."""
LIMIT, BASE, EXCESS = "1Gi", "64MiB", 3 * GiB
EXACT_LIMIT = 4 * GiB
TOLERANCE = Tolerance(0.02, 256 * MiB, 512 * MiB)
"""The defaults; a CUDA context is allowed 512 MiB."""
REPLICAS = 80
PERIOD = 20.0
"""Seconds of a bursty pod's period."""
SHARES = {"burst-50": 0.5, "burst-70": 0.7, "burst-90": 0.9}
AN_HOUR = 3600
GUARDED = 5
QUIET = 31


@dataclass(frozen=True)
class Case:
    """
    One pod above its limit.

    Attributes:
        name: its label `app`, or its name in the scene.
        held: the reason why nothing is done, and its kind; None: it is evicted.
        speaker: what follows the pod's UID in the name of the workload that exceeds.
        device: where it takes more, and the kind of memory.

    """

    name: str
    held: tuple[str, str] | None = None
    speaker: str = ""
    device: str = "visible"
    kinds: tuple[Kind, ...] = (Kind.COMPUTE,)
    excess: int = EXCESS


ACTED = (
    Case("sliced"),
    Case("kai-trainer", speaker="-main-0", device=gpu_uuid(1), excess=16 * GiB),
    Case("gpushare-trainer", speaker="-side-0", device=gpu_uuid(2), excess=9 * GiB),
    Case("exempts-itself"),
    Case("server-away"),
    Case("lone"),
    Case("agent"),
    Case("deaf"),
    *(Case(name) for name in SHARES),
)
HELD = (
    Case("guarded", held=("blocked", "evaded")),
    Case("unbound", held=("no_rights", "unknown")),
    Case(
        "mps-trainer",
        held=("mps", "chosen"),
        speaker="-main-0",
        device=gpu_uuid(3),
        kinds=(Kind.MPS, Kind.COMPUTE),
        excess=16 * GiB,
    ),
)


def systems() -> SceneRow:
    """Put a scene of KAI, of gpushare and of Alauda's MPS on a GPU each, beside a GPU that is shared by time."""
    sliced = msgspec.to_builtins(_scene("nvidia-timeslicing"))
    labels = {**sliced["node"]["labels"], "nvidia.com/gpu.count": "4", "nvidia.com/gpu.replicas": str(REPLICAS)}
    parts = [
        _on_gpu("kai", "", 1, {"trainer": "8Gi"}),
        _on_gpu("gpushare", "two-containers", 2, {"side": "1Gi"}),
        _on_gpu("alauda-mps", "", 3, {"trainer": "8Gi"}),
    ]
    capacity = {name: str(4 * int(count)) for part in parts for name, count in part["node"]["capacity"].items()}
    made = {
        "gpus": [{} for _ in range(4)],
        "node": {"labels": {**labels, "gpushare": "true"}, "capacity": capacity},
        "allocatable": {
            SHARED: [f"{gpu_uuid(0)}::{{0..{REPLICAS - 1}}}"],
            "nvidia.com/gpu": [gpu_uuid(1)],
            "aliyun.com/gpu-mem": [f"{gpu_uuid(gpu)}-_-{{0..79}}" for gpu in range(4)],
        },
        "namespaces": {"kai-resource-reservation": {}},
        "pods": [manifest for part in parts for manifest in part["pods"]],
        "processes": [row for part in parts for row in part["processes"]],
        "expect": {"sharing": [], "limits": [], "verdicts": []},
    }
    return msgspec.convert(made, SceneRow)


def controlled() -> list[Object]:
    """Make what is over its limit on the GPU that is shared by time, and has a controller; the DaemonSet's pod, too."""
    kinds = {"agent": "DaemonSet"}
    more: dict[str, Object] = {"guarded": {"replicas": GUARDED}}
    names = ("sliced", "guarded", "exempts-itself", "server-away", "agent", *SHARES)
    made = [
        declaring(_controller(kinds.get(name, "Deployment"), name, more.get(name, {})), LIMIT, _annotations(name))
        for name in names
    ]
    deaf = slow("deaf")
    deaf["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = AN_HOUR
    return [*made, declaring(deaf, LIMIT), bare("lone", BASE, LIMIT)]


def unbound() -> Object:
    """Make the Deployment of a namespace without the RoleBinding."""
    return declaring(_controller("Deployment", "unbound", {}), LIMIT)


def quiet(number: int) -> Object:
    """Make an innocent pod."""
    return bare(f"quiet-{number}", "512MiB", LIMIT)


def exact() -> Object:
    """Make the pod that holds what it may, to the byte: its limit, the tolerance, and one CUDA context."""
    return bare("exact", str(TOLERANCE.above(EXACT_LIMIT) + TOLERANCE.per_process), str(EXACT_LIMIT))


def _annotations(name: str) -> Object:
    """Let one pod exempt itself, in each way that there is."""
    own = {**EXEMPT, "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    return own if name == "exempts-itself" else {}


def _controller(kind: str, name: str, more: Object) -> Object:
    return controller(kind, name, spec(f"alloc visible {BASE}", resource=SHARED), **more)


def _scene(system: str, mode: str = "") -> SceneRow:
    (row,) = (each for each in read(FOLDER / f"{system}.yaml").scenes if each.mode == mode)
    return row


def _on_gpu(system: str, mode: str, gpu: int, at_ease: dict[str, str]) -> Object:
    """Move a scene of one GPU to another one; `at_ease`: what a pod, or a container of `trainer`, holds at first."""
    row = _scene(system, mode)
    text = msgspec.json.encode(row).decode().replace(gpu_uuid(0), gpu_uuid(gpu))
    text = text.replace('"ALIYUN_COM_GPU_MEM_IDX":"0"', f'"ALIYUN_COM_GPU_MEM_IDX":"{gpu}"')
    for name in ("trainer", "notebook", "server"):
        text = text.replace(f'"{name}"', f'"{system.partition("-")[0] if gpu < 3 else "mps"}-{name}"')
    made: Object = json.loads(text)
    for process in made["processes"]:
        process["gpu"] = gpu
        if process["pod"].endswith("trainer"):
            first = process["pod"].rpartition("-")[2]
            process["memory"] = at_ease.get(process["container"] or first, process["memory"])
    return made
