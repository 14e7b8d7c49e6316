"""
The pods that share a device, played through the real parsers, accounts, limits and policy.

The kubelet's "whole" does not mean exclusive use. Each test is a way in which several pods use a device that the
kubelet handed out whole. Or it is a way in which a tenant may try to gain by that.
"""

from typing import Any

import msgspec
import pytest

from enforcer.policy.vocabulary import Reason, State
from exporter.accounts.device_reading import readings
from exporter.model import DeviceKey, GpuUuid, Sharing
from exporter.rounds.watched import crowded
from systems.book import SceneRow, gpu_uuid, mig_uuid
from systems.player import Played, play

LIMIT = "nvidia.com/container.main.gpu-memory.limit"
GPU = gpu_uuid(0)
WHOLE: dict[str, Any] = {"allocatable": {"nvidia.com/gpu": [GPU]}, "node": {"capacity": {"nvidia.com/gpu": "1"}}}
KAI: dict[str, Any] = {
    "namespace": "kai-resource-reservation",
    "labels": {"app": "kai-resource-reservation", "runai-gpu-group": "g"},
}
RUNAI: dict[str, Any] = {
    "namespace": "runai-reservation",
    "labels": {"app": "runai-reservation", "runai-gpu-group": "g"},
}
KUBESHARE: dict[str, Any] = {
    "namespace": "kube-system",
    "labels": {"kubeshare/role": "dummyPod", "kubeshare/nodeName": "gpu-node-1"},
}
NVSHARE: dict[str, Any] = {"namespace": "nvshare-system", "labels": {"name": "nvshare-device-plugin"}}


def pod(name: str, *, gpus: int = 0, env: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    """Make a manifest. `gpus`: whole GPUs that it asks for; `limit`: what it declares for its container `main`."""
    limit = metadata.pop("limit", None)
    spec = metadata.pop("spec", {})
    resources = metadata.pop("resources", {"nvidia.com/gpu": str(gpus)} if gpus else {})
    annotations = {**metadata.pop("annotations", {}), **({LIMIT: limit} if limit else {})}
    container = {
        "name": "main",
        "resources": {"limits": resources, "requests": resources},
        "env": [{"name": key, "value": value} for key, value in (env or {}).items()],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team-a", "annotations": annotations, **metadata},
        "spec": {"containers": [container], **spec},
    }


def played(*pods: dict[str, Any], holds: dict[str, str], held_by: str = "", **scene: Any) -> Played:
    """Play a scene in which a limit alone is enough to act. `held_by`: the pod that holds the whole GPU."""
    row = {
        **WHOLE,
        "pods": list(pods),
        "processes": [{"pod": name, "memory": memory} for name, memory in holds.items()],
        "allocations": [{"pod": held_by, "resource": "nvidia.com/gpu", "ids": [GPU]}] if held_by else [],
        "config": {"policy": {"trigger": "limit"}},
        "expect": {"sharing": [], "limits": [], "verdicts": []},
        **scene,
    }
    return play(msgspec.convert(row, SceneRow))


def reasons(scene: Played) -> dict[str, Reason | None]:
    """Return why each pod is held at the end; None where nothing holds it."""
    return {name: standing.reason for (name, _), standing in scene.states.items()}


def acted(scene: Played) -> set[str]:
    """Return the pods that were acted on."""
    return {name for name, _ in scene.acted}


@pytest.mark.parametrize("reservation", [KAI, RUNAI, KUBESHARE, NVSHARE], ids=["kai", "runai", "kubeshare", "nvshare"])
def test_a_reservation_pod_hides_no_over_user(reservation: dict[str, Any]) -> None:
    """A reservation pod holds the whole GPU, and two pods share it: the one above its limit is acted on."""
    scene = played(
        pod("reserves", gpus=1, **reservation),
        pod("greedy", limit="16Gi"),
        pod("meek", limit="16Gi", namespace="team-b"),
        holds={"greedy": "24Gi", "meek": "8Gi"},
        held_by="reserves",
    )
    device = scene.devices[0, None]
    assert (device.sharing, device.pods) == (Sharing.SHARED, 2)
    assert acted(scene) == {"greedy"}


def test_what_a_reservation_pod_holds_is_declared_by_nobody() -> None:
    """Its whole GPU is for the others: it is in no sum of limits, and denies no neighbour its due."""
    scene = played(
        pod("reserves", gpus=1, **KAI),
        pod("greedy", limit="16Gi"),
        pod("meek", limit="16Gi", namespace="team-b"),
        holds={"greedy": "24Gi", "meek": "8Gi"},
        held_by="reserves",
        config={"policy": {"trigger": "contended"}},
    )
    assert {name for name, *_ in scene.limits} == {"greedy", "meek"}
    assert scene.snapshot.memory_declared == {DeviceKey(GpuUuid(GPU)): 32 * 2**30}
    assert acted(scene) == set()
    assert reasons(scene)["greedy"] is Reason.NOT_CONTENDED


def test_a_pod_alone_with_its_reservation_pod_has_the_device_for_itself() -> None:
    """While one pod alone uses the reserved GPU, it harms no other pod: its limit is only reported."""
    scene = played(
        pod("reserves", gpus=1, **KAI), pod("greedy", limit="16Gi"), holds={"greedy": "24Gi"}, held_by="reserves"
    )
    assert (scene.devices[0, None].sharing, scene.devices[0, None].pods) == (Sharing.EXCLUSIVE, 1)
    assert (acted(scene), reasons(scene)) == (set(), {"greedy": Reason.EXCLUSIVE})


@pytest.mark.parametrize(
    ("namespace", "labels"),
    [("team-a", KAI["labels"]), ("team-a", RUNAI["labels"]), ("kai-resource-reservation", {"app": "x"})],
)
def test_who_imitates_a_reservation_pod_gains_nothing(namespace: str, labels: dict[str, str]) -> None:
    """Labels of a reservation pod in a tenant's namespace: it is a pod like any other, and acted on above its limit."""
    scene = played(
        pod("forged", gpus=1, namespace=namespace, labels=labels, limit="16Gi"),
        pod("meek", limit="16Gi", namespace="team-b"),
        holds={"forged": "24Gi", "meek": "8Gi"},
        held_by="forged",
    )
    assert scene.snapshot.devices[0].pods == 2
    assert acted(scene) == {"forged"}


def test_a_reservation_pod_that_uses_memory_is_a_pod_like_any_other() -> None:
    """Even in the system's own namespace: memory above its own limit is acted on, and counts as another pod."""
    scene = played(
        pod("reserves", gpus=1, limit="4Gi", **KAI),
        pod("meek", limit="16Gi", namespace="team-b"),
        holds={"reserves": "24Gi", "meek": "8Gi"},
        held_by="reserves",
    )
    assert (scene.devices[0, None].sharing, scene.devices[0, None].pods) == (Sharing.SHARED, 2)
    assert acted(scene) == {"reserves"}


def test_an_installation_may_rename_its_reservation_namespace() -> None:
    """`limits.rows` says where this installation's reservation pods are."""
    renamed = {"namespaces": ["gpu-holds"], "labels": ["runai-gpu-group"], "group": "runai-gpu-group"}
    scene = played(
        pod("reserves", gpus=1, namespace="gpu-holds", labels=KAI["labels"]),
        pod("alone", limit="16Gi", namespace="team-b"),
        holds={"alone": "8Gi"},
        held_by="reserves",
        config={"limits": {"rows": [{"system": "kai", "reservation": renamed}]}, "policy": {"trigger": "limit"}},
    )
    assert scene.devices[0, None].pods == 1
    assert {each.name: each.reservation for each in scene.snapshot.pods.values()} == {"reserves": "kai", "alone": ""}


def fraction(name: str, namespace: str, group: str = "g") -> dict[str, Any]:
    """Make a pod of KAI with a fifth of a GPU of its group."""
    labels = {"kai.scheduler/queue": "q", "runai-gpu-group": group}
    return pod(name, namespace=namespace, labels=labels, annotations={"gpu-fraction": "0.2"})


TWO_GPUS: dict[str, Any] = {
    "gpus": [{}, {}],
    "allocatable": {"nvidia.com/gpu": [GPU, gpu_uuid(1)]},
    "node": {"capacity": {"nvidia.com/gpu": "2"}},
}


def test_a_pod_of_the_group_counts_before_it_uses_anything() -> None:
    """A neighbour that finds no memory at its start is there all the same: it is in the reservation pod's group."""
    scene = played(
        pod("reserves", gpus=1, **KAI),
        fraction("greedy", "team-a"),
        fraction("starting", "team-b"),
        fraction("elsewhere", "team-c", group="h"),
        holds={"greedy": "24Gi"},
        held_by="reserves",
        **TWO_GPUS,
    )
    assert (scene.devices[0, None].sharing, scene.devices[0, None].pods) == (Sharing.SHARED, 2)
    assert scene.devices[1, None].pods == 0
    assert {(name, gpu) for name, _, gpu, *_ in scene.limits} == {("greedy", 0), ("starting", 0)}
    assert acted(scene) == {"greedy"}


def test_pods_on_a_reserved_gpu_are_allocated_their_fractions() -> None:
    """Two pods of KAI have a fifth of the GPU each, and the reservation pod the rest: a report adds up to one GPU."""
    scene = played(
        pod("reserves", gpus=1, **KAI),
        fraction("greedy", "team-a"),
        fraction("starting", "team-b"),
        holds={"greedy": "8Gi"},
        held_by="reserves",
    )
    ((_, reading),) = readings(scene.snapshot, 5.0)
    found = {holder[1]: share["nvidia.com/gpu"] for holder, share in reading.shares.items()}
    assert found == pytest.approx({"greedy": 0.2, "starting": 0.2, "reserves": 0.6})


def test_gpushare_beside_nvidias_plugin() -> None:
    """NVIDIA's plugin offers the GPU whole, gpushare hands out parts of it: two pods of gpushare share it."""
    placed = {"ALIYUN_COM_GPU_MEM_IDX": "0", "ALIYUN_COM_GPU_MEM_POD": "16", "ALIYUN_COM_GPU_MEM_ASSIGNED": "true"}
    scene = played(
        pod("greedy", resources={"aliyun.com/gpu-mem": "16"}, annotations=placed),
        pod("meek", namespace="team-b", resources={"aliyun.com/gpu-mem": "16"}, annotations=placed),
        holds={"greedy": "24Gi", "meek": "8Gi"},
        node={"capacity": {"nvidia.com/gpu": "1", "aliyun.com/gpu-mem": "80"}},
    )
    assert (scene.devices[0, None].sharing, scene.devices[0, None].pods) == (Sharing.SHARED, 2)
    assert acted(scene) == {"greedy"}


@pytest.mark.parametrize("privileged", [False, True])
def test_all_devices_by_environment_protects_nobody(privileged: bool) -> None:
    """A pod that takes a GPU past the kubelet is acted on above its own limit. The holder, within its own, is not."""
    env = {} if privileged else {"NVIDIA_VISIBLE_DEVICES": "all"}
    scene = played(
        pod("holder", gpus=1),
        pod("intruder", namespace="team-b", env=env, limit="4Gi"),
        holds={"holder": "60Gi", "intruder": "8Gi"},
        held_by="holder",
    )
    assert (scene.devices[0, None].sharing, scene.devices[0, None].pods) == (Sharing.SHARED, 2)
    assert acted(scene) == {"intruder"}
    assert scene.states["holder", "main"].state is State.OK


def test_an_intruder_exposes_no_pod_that_stays_within_its_limit() -> None:
    """The holder declared less than the whole GPU and stays within it: another pod's arrival causes no action."""
    scene = played(
        pod("holder", gpus=1, limit="40Gi"),
        pod("intruder", namespace="team-b", env={"NVIDIA_VISIBLE_DEVICES": "all"}),
        holds={"holder": "30Gi", "intruder": "45Gi"},
        held_by="holder",
    )
    assert (acted(scene), scene.states["holder", "main"].state) == (set(), State.OK)


def test_who_only_looks_at_a_device_does_not_share_it() -> None:
    """A monitor that sees all GPUs by environment runs nothing on them and declares nothing: it is no pod on them."""
    scene = played(
        pod("holder", gpus=1, limit="16Gi"),
        pod("monitor", namespace="monitoring", env={"NVIDIA_VISIBLE_DEVICES": "all"}),
        holds={"holder": "24Gi"},
        held_by="holder",
    )
    assert (scene.devices[0, None].sharing, scene.devices[0, None].pods) == (Sharing.EXCLUSIVE, 1)
    assert reasons(scene)["holder"] is Reason.EXCLUSIVE


def test_a_neighbour_that_comes_later_gives_the_over_user_its_whole_warning() -> None:
    """Alone above its limit for ten minutes, then a neighbour comes: warning and grace begin then, and not before."""
    scene = played(
        pod("holder", gpus=1, limit="16Gi"),
        pod("late", namespace="team-b", limit="16Gi"),
        holds={"holder": "24Gi"},
        held_by="holder",
        processes=[{"pod": "holder", "memory": "24Gi"}, {"pod": "late", "memory": {"600s": "8Gi"}}],
        gpus=[{}, {}],  # else the late pod's limit could only be on this one
    )
    assert acted(scene) == {"holder"}
    assert scene.acted["holder", "main"].after >= 600 + 120


@pytest.mark.parametrize(("memory", "faster"), [("60Gi", False), ("70Gi", True)])
def test_a_nearly_full_shared_gpu_is_looked_at_faster(memory: str, faster: bool) -> None:
    """As under time-slicing: the next allocation of a neighbour may fail between two rounds."""
    scene = played(
        pod("reserves", gpus=1, **KAI),
        pod("big", limit="72Gi"),
        pod("meek", limit="8Gi", namespace="team-b"),
        holds={"big": memory, "meek": "4Gi"},
        held_by="reserves",
    )
    assert bool(crowded(scene.snapshot)) is faster


def test_an_ended_pod_shares_nothing() -> None:
    """The pod that had the GPU before has succeeded: the pod that has it now has it for itself."""
    scene = played(
        pod("holder", gpus=1, limit="16Gi"),
        {**pod("done", namespace="team-b", limit="16Gi"), "status": {"phase": "Succeeded"}},
        holds={"holder": "24Gi"},
        held_by="holder",
    )
    assert (scene.devices[0, None].sharing, scene.devices[0, None].pods) == (Sharing.EXCLUSIVE, 1)


MIG: dict[str, Any] = {
    "gpus": [{"mig": [{"id": 1, "profile": "3g.40gb", "memory": "40Gi", "uuids": [mig_uuid(0, 1)]}]}],
    "processes": [{"pod": "greedy", "mig": 1, "memory": "24Gi"}, {"pod": "meek", "mig": 1, "memory": "8Gi"}],
}


def test_a_mig_instance_with_replicas_is_enforced() -> None:
    """Time-sliced MIG: the hardware bounds the instance, and not the two pods that share it."""
    resource = "nvidia.com/mig-3g.40gb.shared"
    ids = [f"{mig_uuid(0, 1)}::{number}" for number in range(2)]
    scene = played(
        pod("greedy", resources={resource: "1"}, limit="16Gi"),
        pod("meek", namespace="team-b", resources={resource: "1"}, limit="16Gi"),
        holds={},
        allocatable={resource: ids},
        node={"capacity": {resource: "2"}},
        allocations=[
            {"pod": name, "resource": resource, "ids": [id_]} for name, id_ in zip(("greedy", "meek"), ids, strict=True)
        ],
        **MIG,
    )
    device = scene.devices[0, 1]
    assert (device.sharing, device.replicas, device.pods) == (Sharing.MIG, 2, 2)
    assert acted(scene) == {"greedy"}


def test_a_fair_share_of_a_mig_instance_is_enforced() -> None:
    """With `fair_share` a replica of an instance is half of it, for each pod that declares nothing."""
    resource = "nvidia.com/mig-3g.40gb"
    ids = [f"{mig_uuid(0, 1)}::{number}" for number in range(2)]
    scene = played(
        pod("greedy", resources={resource: "1"}),
        pod("meek", namespace="team-b", resources={resource: "1"}),
        holds={},
        allocatable={resource: ids},
        node={"capacity": {resource: "2"}},
        allocations=[
            {"pod": name, "resource": resource, "ids": [id_]} for name, id_ in zip(("greedy", "meek"), ids, strict=True)
        ],
        config={"limits": {"fair_share": True}, "policy": {"trigger": "limit"}},
        **MIG,
    )
    assert {limit.memory for limit in scene.limits.values()} == {20 * 2**30}
    assert acted(scene) == {"greedy"}


def test_an_instance_that_one_pod_has_is_only_reported() -> None:
    """A whole instance with a smaller limit by annotation: the hardware bounds the pod, and it harms no other pod."""
    resource = "nvidia.com/mig-3g.40gb"
    scene = played(
        pod("greedy", resources={resource: "1"}, limit="16Gi"),
        holds={},
        allocatable={resource: [mig_uuid(0, 1)]},
        node={"capacity": {resource: "1"}},
        allocations=[{"pod": "greedy", "resource": resource, "ids": [mig_uuid(0, 1)]}],
        gpus=MIG["gpus"],
        processes=[{"pod": "greedy", "mig": 1, "memory": "24Gi"}],
    )
    assert (acted(scene), reasons(scene)) == (set(), {"greedy": Reason.MIG})
