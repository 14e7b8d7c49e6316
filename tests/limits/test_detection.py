"""Which systems a node runs: by what it advertises and carries, and the operator's list beats it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from exporter.limits import LeafDevice, Options, resolve
from exporter.limits.detection import detect
from exporter.limits.loading import builtin
from exporter.model import DeclaredPod, DeviceKey, Held, NodeFacts, Sharing

GIB = 2**30
ALWAYS = {"gpusteward", "undeclared"}

Pod = Callable[..., DeclaredPod]
Gpus = Callable[..., tuple[LeafDevice, ...]]


def systems(node: NodeFacts, options: Options = Options()) -> set[str]:
    return {found.system.name for found in detect(builtin(), node=node, options=options)} - ALWAYS


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (NodeFacts({"nvidia.com/gpu": "8"}), {"nvidia-gpu", "cce-fraction"}),
        (
            NodeFacts({"nvidia.com/gpu": "8"}, labels={"nvidia.com/gpu.sharing-strategy": "time-slicing"}),
            {"nvidia-timeslicing", "cce-fraction"},
        ),
        (
            NodeFacts({"nvidia.com/gpu": "8"}, labels={"nvidia.com/gpu.sharing-strategy": "mps"}),
            {"nvidia-mps", "cce-fraction"},
        ),
        (
            NodeFacts({"nvidia.com/gpu": "20"}, annotations={"hami.io/node-nvidia-register": "x"}),
            {"hami-nvidia", "cce-fraction"},
        ),
        (
            NodeFacts(
                {"nvidia.com/gpu": "1", "volcano.sh/gpu-mem.128Mi": "640", "volcano.sh/gpu-core.percentage": "100"}
            ),
            {"nvidia-gpu", "cce-xgpu"},
        ),
        (NodeFacts({"aliyun.com/gpu-mem": "15"}), {"gpushare"}),
        (NodeFacts({"aliyun.com/gpu-mem": "15"}, labels={"ack.node.gpu.schedule": "share"}), {"ack"}),
        (NodeFacts({"nvidia.com/mig-1g.10gb": "7"}), {"nvidia-mig"}),
        (NodeFacts({"nvidia.com/mps-core": "100", "nvidia.com/mps-memory": "15"}), {"alauda-mps"}),
        (NodeFacts({"cpu": "8"}), set()),
    ],
)
def test_nodes(node: NodeFacts, expected: set[str]) -> None:
    """A node shows what it runs, and one name's several meanings do not apply at once."""
    assert systems(node) == expected


def test_the_operators_list_beats_detection() -> None:
    """A pinned list is what counts, whatever the node shows; our own policy stays."""
    node = NodeFacts({"nvidia.com/gpu": "8"}, annotations={"hami.io/node-nvidia-register": "x"})
    found = detect(builtin(), node=node, options=Options(systems=frozenset({"nvidia-gpu"})))
    assert {each.system.name for each in found} == {"nvidia-gpu"} | ALWAYS


def test_each_detection_says_why() -> None:
    """An operator can see which fact decided."""
    found = detect(builtin(), node=NodeFacts({"aliyun.com/gpu-mem": "15"}))
    assert "the node advertises aliyun.com/gpu-mem" in {each.because for each in found}


def test_keys_without_prefix_need_their_scheduler(pod: Pod, gpus: Gpus) -> None:
    """`gpu-memory` is KAI's only on KAI's pods; elsewhere it is an annotation like any other."""
    annotations = {"gpu-memory": "4096"}
    assert resolve(pod(annotations=annotations), None, gpus(16 * GIB), builtin()).limits == ()
    by_kai = pod(annotations=annotations, scheduler="kai-scheduler")
    assert [limit.bytes for limit in resolve(by_kai, None, gpus(16 * GIB), builtin()).limits] == [4 * GIB]


def test_a_pod_cannot_hide_a_system(pod: Pod, gpus: Gpus) -> None:
    """A label or annotation of another system adds a candidate, and takes no limit away."""
    asked = pod(
        {"aliyun.com/gpu-mem": "4"},
        labels={"kai.scheduler/queue": "q"},
        annotations={"scheduler.framework.gpushare.allocation": "{}", "hami.io/vgpu-devices-allocated": ";"},
    )
    node = NodeFacts({"aliyun.com/gpu-mem": "16", "aliyun.com/gpu-count": "1"})
    (limit,) = resolve(asked, node, gpus(16 * GIB), builtin()).limits
    assert (limit.bytes, limit.enforceable) == (4 * GIB, True)


def test_gpus_of_one_node_may_be_shared_differently(pod: Pod, gpus: Gpus) -> None:
    """A pod that the kubelet handed an exclusive GPU is no client of the MPS that shares the GPU beside it."""
    whole, shared = (
        replace(device, sharing=sharing)
        for device, sharing in zip(gpus(GIB, GIB), (Sharing.EXCLUSIVE, Sharing.MPS), strict=True)
    )
    assert whole.key is not None and shared.key is not None
    asks = pod({"nvidia.com/gpu": "1"})

    def on(key: DeviceKey) -> set[str]:
        held = replace(asks, held=(Held("main", "nvidia.com/gpu", key),))
        return {found.system.name for found in detect(builtin(), pod=held, devices=(whole, shared))}

    assert "nvidia-gpu" in on(whole.key) and "nvidia-mps" not in on(whole.key)
    assert "nvidia-mps" in on(shared.key) and "nvidia-gpu" not in on(shared.key)


def test_whole_gpus_beside_replicas_are_whole(pod: Pod, gpus: Gpus) -> None:
    """A node offers `nvidia.com/gpu` and `nvidia.com/gpu.shared`: a pod with a whole GPU may use all of its memory."""
    whole, sliced = (
        replace(device, sharing=sharing, replicas=replicas)
        for device, (sharing, replicas) in zip(
            gpus(16 * GIB, 16 * GIB), ((Sharing.EXCLUSIVE, 1), (Sharing.TIME_SLICING, 4)), strict=True
        )
    )
    assert whole.key is not None and sliced.key is not None
    node = NodeFacts(
        {"nvidia.com/gpu": "1", "nvidia.com/gpu.shared": "4"},
        labels={"nvidia.com/gpu.sharing-strategy": "time-slicing"},
    )

    def limit(resource: str, key: DeviceKey) -> tuple[str, int | None]:
        asked = replace(pod({resource: "1"}), held=(Held("main", resource, key),))
        (found,) = resolve(asked, node, (whole, sliced), builtin()).limits
        return found.system, found.bytes

    assert limit("nvidia.com/gpu", whole.key) == ("nvidia-gpu", 16 * GIB)
    assert limit("nvidia.com/gpu.shared", sliced.key) == ("nvidia-timeslicing", None)
