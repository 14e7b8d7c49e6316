"""Hostile declarations: invalid with a reason, never an exception, never a limit that a pod is judged by."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from exporter.limits import LeafDevice, Resolution, ResolvedLimit, resolve, resolver, terms
from exporter.limits.decoders import decode
from exporter.limits.decoding import LONGEST, MOST, Asked
from exporter.limits.first_seen import hold
from exporter.limits.loading import builtin
from exporter.model import DeclaredContainer, DeclaredPod, NodeFacts

MIB, GIB = 2**20, 2**30
GPU0 = "GPU-00000000-1111-2222-3333-444444444444"
HAMI = "hami.io/vgpu-devices-allocated"
KOORDINATOR = "scheduling.koordinator.sh/device-allocated"
ACK = "scheduler.framework.gpushare.allocation"

Pod = Callable[..., DeclaredPod]
Gpus = Callable[..., tuple[LeafDevice, ...]]


def resolved(pod: DeclaredPod, devices: tuple[LeafDevice, ...], node: NodeFacts | None = None) -> Resolution:
    return resolve(pod, node, devices, builtin())


def only(resolution: Resolution) -> ResolvedLimit:
    (limit,) = resolution.limits
    return limit


@pytest.mark.fault(63)
@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        (HAMI, "x" * 2**20, f"no declaration has more than {LONGEST}"),
        (HAMI, ":;" * 60_000, "segments do not match"),
        (HAMI, "GPU-1,NVIDIA,1,1:" * 5000 + ";", f"more than {MOST} devices"),
        (HAMI, f"{GPU0},NVIDIA,1000,0:;;;", "segments do not match 1 containers"),
        (HAMI, f"{GPU0},NVIDIA:;", "is not UUID,type,memory,cores"),
        (HAMI, f"{GPU0},NVIDIA,-1000,0:;", "not a plain number"),
        (HAMI, f"{GPU0},NVIDIA,{'9' * 400},0:;", "not a plain number"),
        (HAMI, "GPU-of-somebody-else,NVIDIA,1000,0:;", "which this node does not have"),
        (KOORDINATOR, "{", "not JSON"),
        (KOORDINATOR, "[" * 100_000, "not JSON"),
        (KOORDINATOR, "[]", "not a JSON object"),
        (KOORDINATOR, '{"gpu":{"minor":0}}', "not a list"),
        (KOORDINATOR, '{"gpu":[{"minor":true,"resources":{}}]}', "lacks minor or resources"),
        (KOORDINATOR, '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-memory":NaN}}]}', "not a quantity"),
        (KOORDINATOR, '{"gpu":[{"minor":7,"resources":{"koordinator.sh/gpu-memory":"1Gi"}}]}', "does not have"),
        (KOORDINATOR, f'{{"gpu":{"9" * 5000}}}', "not JSON"),
        (ACK, '{"5":{"0":4}}', "names container 5"),
        (ACK, '{"0":4}', "not an object"),
        (ACK, '{"0":{"0":1e999}}', "not a quantity"),
        ("nvidia.com/real-allocated", "other[0_GPU-1_10_1024]", "does not have"),
        ("nvidia.com/real-allocated", "main[0_GPU-1_10]", "is not index_uuid_cores_memory"),
        ("nvidia.com/real-allocated", "main", "is not container[devices]"),
        ("nvidia.com/container.main.gpu-memory.limit", "lots", "is not a quantity"),
        ("nvidia.com/container.main.gpu-memory.limit", "-8Gi", "is negative"),
        ("nvidia.com/container.main.gpu-memory.limit", "1e30", "too large"),
        ("nvidia.com/container.main.gpu-memory.limit", "17Ti", "of the device"),
        ("metax-tech.com/gpu-devices-allocated", "[[1]]", "not a list of objects"),
        ("metax-tech.com/gpu-devices-allocated", "[[],[],[]]", "do not match"),
    ],
)
def test_invalid_with_a_reason(key: str, text: str, reason: str, pod: Pod, gpus: Gpus) -> None:
    """The text is refused, the reason says why, and no limit comes of it."""
    needed = {"metax-tech.com/sgpu": "1"} if key.startswith("metax") else {}
    found = resolved(pod(needed, annotations={key: text}), gpus(16 * GIB, 16 * GIB))
    assert [limit.bytes for limit in found.limits] == [None]
    assert any(reason in problem for problem in found.problems), found.problems
    assert all(len(candidate.text) < 100 for limit in found.limits for candidate in limit.candidates)


@pytest.mark.fault(63)
@pytest.mark.parametrize(
    ("resources", "reason"),
    [
        ({"nvidia.com/gpumem": "16Gi"}, "of the device"),  # 16Gi of MiB: a user's mistake
        ({"nvidia.com/gpumem": "-1"}, "is negative"),
        ({"nvidia.com/gpumem-percentage": "101"}, "of one device"),
        ({"koordinator.sh/gpu-memory-ratio": "150"}, "of one device"),
        ({"nvidia.com/mps-memory": "500"}, "of the device"),
        ({"koordinator.sh/gpu-memory": "8"}, "less than 1 MiB"),  # a forgotten unit
    ],
)
def test_impossible_amounts(resources: dict[str, str], reason: str, pod: Pod, gpus: Gpus) -> None:
    """More than a device has, or less than anything can run with, is a mistake and no declaration."""
    limit = only(resolved(pod(resources), gpus(16 * GIB, 16 * GIB)))
    assert limit.bytes is None
    assert reason in " ".join(limit.problems)


def test_absurd_also_offline(pod: Pod) -> None:
    """Where the devices are not known, more than any device has is still invalid."""
    assert only(resolved(pod({"nvidia.com/gpumem": "16Gi"}), ())).bytes is None


@pytest.mark.parametrize("key", ["nvidia.com/gpumem", "volcano.sh/vgpu-memory", "nvidia.com/mps-memory"])
def test_zero_declares_nothing(key: str, pod: Pod, gpus: Gpus) -> None:
    """Zero is undeclared: no limit, and no problem either."""
    limit = only(resolved(pod({key: "0"}), gpus(16 * GIB)))
    assert limit.bytes is None
    assert limit.problems == ()


def test_a_broken_annotation_leaves_the_resource(pod: Pod, gpus: Gpus) -> None:
    """A limit stays when an annotation is broken, and when it names another device."""
    devices = gpus(16 * GIB, 16 * GIB)
    asked = pod({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4096"}, annotations={HAMI: "garbage"})
    limit = only(resolved(asked, devices))
    assert limit.bytes == 4 * GIB
    assert limit.problems
    moved = replace(asked, annotations={HAMI: f"{GPU0},NVIDIA,4096,0:;"})
    found = resolved(moved, devices)
    assert devices[1].key is not None
    there = found.on(devices[1].key, "main")
    assert there is not None
    assert there.bytes == 4 * GIB


def test_a_doubt_does_not_hide_another_one(pod: Pod, gpus: Gpus) -> None:
    """A pod writes a small amount in doubt, and a large one: the scheduler's resource stays the limit, and in doubt."""
    node = NodeFacts({"nvidia.com/gpumem": "16384"})
    asked = pod(
        {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4096"},
        annotations={"nvidia.com/container.main.gpu-memory.limit": "8Gi"},
    )
    (main,) = asked.containers
    asked = replace(asked, containers=(replace(main, env={"NVIDIA_GPU_MEMORY_REQUEST": "44"}),))
    limit = only(resolved(asked, gpus(16 * GIB), node))
    assert limit.bytes == 4 * GIB
    assert limit.report_only


def test_a_broken_part_makes_no_sum(gpus: Gpus) -> None:
    """A pod's limit is the sum of its containers: with one of them invalid there is no sum."""
    containers = tuple(
        DeclaredContainer(name, limits={"aliyun.com/gpu-mem": text}) for name, text in (("a", "3"), ("b", "x"))
    )
    node = NodeFacts({"aliyun.com/gpu-mem": "16", "aliyun.com/gpu-count": "1"})
    limit = only(resolved(DeclaredPod("u", "n", "p", containers=containers), gpus(16 * GIB), node))
    assert limit.bytes is None
    assert limit.problems


@pytest.mark.parametrize("count", ["x", "999999", "-2", "0.5", "3"])
def test_a_users_count_cannot_be_a_way_out(count: str, pod: Pod, gpus: Gpus) -> None:
    """A label that divides a total by nonsense is ignored and reported; the total stays the limit."""
    node = NodeFacts({"aliyun.com/gpu-mem": "32"}, labels={"ack.node.gpu.schedule": "share"})
    asked = pod({"aliyun.com/gpu-mem": "8"}, labels={"aliyun.com/gpu-count": count})
    limit = only(resolved(asked, gpus(16 * GIB, 16 * GIB), node))
    assert (limit.bytes, limit.enforceable) == (8 * GIB, True)
    assert any("ignored" in problem for problem in limit.problems)


@pytest.mark.parametrize(
    "annotations",
    [
        {"nvidia.com/container.main.gpu-memory.limit": "8Gi", "nvidia.com/container.main.gpus.devices": GPU0},
        {"tensor-fusion.ai/vram-limit": "8Gi", "tensor-fusion.ai/isolation": "partitioned"},
    ],
)
def test_a_users_word_shields_nobody(annotations: dict[str, str], pod: Pod, gpus: Gpus) -> None:
    """A pod that declares that another system enforces its limit is shown so, and judged like all others."""
    limit = only(resolved(pod(annotations=annotations), gpus(16 * GIB)))
    assert limit.enforced_by in {"driver", "hardware"}
    assert limit.enforceable


def test_many_containers_cost_in_proportion(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as many containers have twice as many texts decoded, and first-seen values compared: not four times."""
    work: list[int] = []

    def decoded(text: str, asked: Asked) -> Any:
        work[-1] += 1
        return decode(text, asked)

    def held(*given: Any) -> Any:
        work[-1] += len(given[3])
        return hold(*given)

    monkeypatch.setattr(terms, "decode", decoded)
    monkeypatch.setattr(resolver, "hold", held)
    for count in (50, 100):
        names = [f"c{number}" for number in range(count)]
        written = {f"nvidia.com/container.{name}.gpu-memory.limit": "1Gi" for name in names}
        asked_for = {"tke.cloud.tencent.com/qgpu-memory": "8", "tke.cloud.tencent.com/qgpu-core": "20"}
        containers = tuple(DeclaredContainer(name, limits=asked_for) for name in names)
        pod = DeclaredPod("u", "n", "p", {}, written, containers)
        work.append(0)
        first = resolve(pod, None, gpus(80 * GIB), builtin())
        assert len(resolve(pod, None, gpus(80 * GIB), builtin(), first.first_seen).limits) == count
    assert work[0] > 100 and work[1] <= 2 * work[0] + 10
