"""The limit that was seen first stays: a lower one counts; raising and removing it are refused and reported."""

import json
from collections.abc import Callable

import pytest

from exporter.limits import LeafDevice, ResolvedLimit, Seen, resolve
from exporter.limits.first_seen import as_data, from_data
from exporter.limits.loading import builtin
from exporter.model import DeclaredPod

GIB = 2**30
ANNOTATION = "nvidia.com/container.main.gpu-memory.limit"
HAMI = "hami.io/vgpu-devices-allocated"
GPU0 = "GPU-00000000-1111-2222-3333-444444444444"
GPU1 = "GPU-00000001-1111-2222-3333-444444444444"

Pod = Callable[..., DeclaredPod]
Gpus = Callable[..., tuple[LeafDevice, ...]]


def after(*pods: DeclaredPod, devices: tuple[LeafDevice, ...]) -> ResolvedLimit:
    """Resolve the pods one after the other, as one pod that changes; return the last limit."""
    seen: tuple[Seen, ...] = ()
    limits: tuple[ResolvedLimit, ...] = ()
    for pod in pods:
        found = resolve(pod, None, devices, builtin(), seen)
        seen, limits = found.first_seen, found.limits
    (limit,) = limits
    return limit


@pytest.mark.parametrize(
    ("texts", "expected", "told"),
    [
        (["8Gi"], 8, ""),
        (["8Gi", "4Gi"], 4, ""),
        (["8Gi", "12Gi"], 8, "refused"),
        (["8Gi", "4Gi", "12Gi"], 8, "refused"),
        (["8Gi", None], 8, "removed from the running pod"),
        (["8Gi", None, "6Gi"], 6, ""),
        (["8Gi", "nonsense"], 8, "removed from the running pod"),
        ([None, "8Gi"], 8, ""),
    ],
)
def test_user_annotations(texts: list[str | None], expected: int, told: str, pod: Pod, gpus: Gpus) -> None:
    """A user's annotation may fall; it does not rise above what was first seen, nor vanish."""
    pods = [pod({"nvidia.com/gpu.shared": "1"}, annotations={ANNOTATION: text} if text else {}) for text in texts]
    limit = after(*pods, devices=gpus(16 * GIB))
    assert limit.bytes == expected * GIB
    assert told in " ".join(limit.problems)


def test_another_key_is_no_way_out(pod: Pod, gpus: Gpus) -> None:
    """Replacing one declaration by a larger one of another kind is a raise, too."""
    before = pod(annotations={"gpu-memory": "4096"}, scheduler="kai-scheduler")
    later = pod(annotations={"gpu-fraction": "0.9"}, scheduler="kai-scheduler")
    assert (
        after(before, later, devices=gpus(16 * GIB)).bytes == 4 * GIB
    )  # 25 hundredths: KAI's rounding changes nothing


def test_scheduler_annotations(pod: Pod, gpus: Gpus) -> None:
    """A user with the right to patch the pod can patch a scheduler's annotation: its limit does not rise either."""
    count = {"nvidia.com/gpu": "1"}
    first = pod(count, annotations={HAMI: f"{GPU0},NVIDIA,4096,0:;"})
    raised = pod(count, annotations={HAMI: f"{GPU0},NVIDIA,16000,0:;"})
    limit = after(first, raised, devices=gpus(16 * GIB))
    assert limit.bytes == 4 * GIB
    assert any("refused" in problem for problem in limit.problems)


def test_another_device_is_no_way_out(pod: Pod, gpus: Gpus) -> None:
    """A scheduler's record that names another device, and more, is a raise: what was first seen holds on both."""
    count, devices = {"nvidia.com/gpu": "1"}, gpus(16 * GIB, 16 * GIB)
    first = pod(count, annotations={HAMI: f"{GPU0},NVIDIA,4096,0:;"})
    moved = pod(count, annotations={HAMI: f"{GPU1},NVIDIA,16000,0:;"})
    seen = resolve(first, None, devices, builtin()).first_seen
    found = resolve(moved, None, devices, builtin(), seen)
    assert {limit.device: limit.bytes for limit in found.limits} == {each.key: 4 * GIB for each in devices}
    assert any("refused" in problem for problem in found.problems)
    assert found.first_seen == seen


def test_a_record_that_is_taken_away(pod: Pod, gpus: Gpus) -> None:
    """A limit stays when the scheduler's record is removed or broken."""
    count = {"nvidia.com/gpu": "1"}
    first = pod(count, annotations={HAMI: f"{GPU0},NVIDIA,4096,0:;"})
    for later in (pod(count), pod(count, annotations={HAMI: "garbage"})):
        limit = after(first, later, devices=gpus(16 * GIB))
        assert limit.bytes == 4 * GIB
        assert any("removed from the running pod" in problem for problem in limit.problems)


def test_a_device_that_gets_its_name_late(pod: Pod, gpus: Gpus) -> None:
    """`minor 0` while the devices were not known, its UUID later: the same record, neither raised nor taken away."""
    allocated = '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-memory":"8Gi"}}]}'
    asked = pod(annotations={"scheduling.koordinator.sh/device-allocated": allocated})
    seen = resolve(asked, None, (), builtin()).first_seen
    found = resolve(asked, None, gpus(16 * GIB, 16 * GIB), builtin(), seen)
    assert [limit.bytes for limit in found.limits] == [8 * GIB]
    assert found.problems == ()


def test_nothing_else_is_remembered(pod: Pod, gpus: Gpus) -> None:
    """Resources cannot change while a pod lives; of them nothing is kept, and nothing of what is invalid."""
    found = resolve(pod({"nvidia.com/gpumem": "4096"}, annotations={ANNOTATION: "x"}), None, gpus(16 * GIB), builtin())
    assert found.first_seen == ()


def test_remembered_for_every_device(pod: Pod, gpus: Gpus) -> None:
    """What was first seen outlives the round in which the devices are not known."""
    asked = pod({"nvidia.com/gpu.shared": "1"}, annotations={ANNOTATION: "8Gi"})
    first = resolve(asked, None, (), builtin())
    raised = pod({"nvidia.com/gpu.shared": "1"}, annotations={ANNOTATION: "12Gi"})
    (limit,) = resolve(raised, None, gpus(16 * GIB), builtin(), first.first_seen).limits
    assert limit.bytes == 8 * GIB


def test_survives_a_restart(pod: Pod, gpus: Gpus) -> None:
    """What is remembered comes back from JSON as it was; what is something else is refused."""
    asked = pod({"nvidia.com/gpu": "1"}, annotations={ANNOTATION: "8Gi", HAMI: f"{GPU0},NVIDIA,4096,0:;"})
    seen = resolve(asked, None, gpus(16 * GIB), builtin()).first_seen
    assert len(seen) == 2
    assert tuple(from_data(json.loads(json.dumps(as_data(each)))) for each in seen) == seen
    for broken in ({}, {**as_data(seen[0]), "bytes": "8"}, {**as_data(seen[0]), "scope": "galaxy"}):
        with pytest.raises(ValueError, match=r"galaxy|first seen"):
            from_data(broken)
