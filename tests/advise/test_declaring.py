"""A limit as it is declared: a patch that counts, or words that say where to write it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from exporter.advise.declaring import Declared, declared
from exporter.advise.patches import patch
from exporter.limits.loading import builtin
from exporter.limits.offline import explain
from policy.scenes import GIB


def said(system: str, source: str, limit: int, **facts: Any) -> Declared | str | None:
    """What is advised for a container on a GPU of 80 GiB."""
    place: dict[str, Any] = {"device": 80 * GIB, "devices": 1, "scope": "container", **facts}
    return declared(builtin(), system, source, "main", limit, **place)


LOWER_ONLY = [
    ("gpusteward", "policy", "fair_share of gpusteward's configuration"),
    ("cce-fraction", "resource", "cce-fraction (nvidia.com/gpu)"),
    ("baidu-cgpu", "resource", "baidu-cgpu (baidu.com/*_cgpu_memory or baidu.com/*_cgpu_memory_percent)"),
    ("nos", "resource", "nos (nvidia.com/gpu-*gb)"),
    ("of-our-own-rows", "resource", "of-our-own-rows (resource)"),
]


@pytest.mark.parametrize(("system", "source", "place"), LOWER_ONLY)
def test_a_limit_that_our_annotation_cannot_raise_gets_words(system: str, source: str, place: str) -> None:
    """The smallest declaration counts: the present one would still be the limit beside a larger annotation."""
    words = said(system, source, 33 * GIB, present=20 * GIB)
    assert isinstance(words, str), words
    assert words.startswith(f"the present limit of 20Gi comes from {place}: raise it there to 33Gi. ")


@pytest.mark.parametrize(("system", "source", "place"), LOWER_ONLY)
def test_our_annotation_may_lower_any_limit(system: str, source: str, place: str) -> None:
    """A less trusted declaration may be smaller."""
    written = said(system, source, 11 * GIB, present=20 * GIB)
    assert isinstance(written, Declared) and written.key == "nvidia.com/container.main.gpu-memory.limit", place


def test_our_annotation_raises_itself() -> None:
    """It takes the place of the present one."""
    assert isinstance(said("gpusteward", "annotation", 33 * GIB, present=20 * GIB), Declared)


def test_an_amount_that_the_scheduler_grants_is_raised_by_the_users() -> None:
    """HAMi's scheduler writes its annotation anew, from the resource."""
    written = said("hami-nvidia", "annotation", 33 * GIB, present=20 * GIB)
    assert isinstance(written, Declared) and written.key == "nvidia.com/gpumem"


def test_a_limit_of_a_pod_is_not_written_as_that_of_a_container() -> None:
    """An operator's own row may be of the pod; our annotation is not."""
    words = said("of-our-own-rows", "resource", 11 * GIB, present=20 * GIB, scope="pod")
    assert isinstance(words, str) and words.startswith("declare 11Gi for the whole pod")


@pytest.mark.parametrize(
    ("system", "source", "scope", "notes"),
    [
        (
            "kai", "annotation", "container",
            [
                "if present: gpu-fraction, gpu-fraction-limit; what is named above counts before gpu-memory",
                "where the pod has gpu-memory-limit, write the amount there instead",
            ],
        ),
        (
            "koordinator", "resource", "pod",
            ["koordinator.sh/gpu declares compute, too: declare that by its own key",
             "where the pod has kubernetes.io/gpu-memory, write the amount there instead"],
        ),
        ("volcano-vgpu", "resource", "container", ["if present: volcano.sh/vgpu-memory-percentage;"]),
        ("hami-nvidia", "resource", "container", []),
    ],
)  # fmt: skip
def test_keys_that_count_beside_the_patch_are_named(system: str, source: str, scope: str, notes: list[str]) -> None:
    """Metrics do not say which key a pod has. HAMi's MiB win over percent, so nothing has to be removed."""
    written = said(system, source, 33 * GIB, present=20 * GIB, scope=scope)
    assert isinstance(written, Declared)
    assert ("the pod" in written.note) == bool(notes or scope == "pod")
    for note in notes:
        assert note in written.note
    if system == "koordinator":
        assert "if present: koordinator.sh/gpu-memory-ratio, koordinator.sh/gpu," in written.note


@pytest.mark.parametrize(
    ("system", "scope", "key"),
    [
        ("nvidia-mps", "process", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"),
        ("gke-mps", "process", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"),
        ("nvidia-dra", "process", "sharing.mpsConfig.defaultPinnedDeviceMemoryLimit of the ResourceClaim"),
        ("nvidia-dra", "container", "sharing.mpsConfig.defaultPinnedDeviceMemoryLimit of the ResourceClaim"),
    ],
)
def test_mps_is_told_what_one_process_may_have(system: str, scope: str, key: str) -> None:
    """In the place where its kind of MPS reads it: a claim has a configuration, a device plugin a variable."""
    words = said(system, "claim", 10 * GIB, scope=scope)
    assert isinstance(words, str), words
    assert words.startswith("MPS limits each process: divide 10Gi by the number of its processes")
    assert f"write that to {key}" in words


def test_a_request_beside_the_limit_is_written_with_it() -> None:
    """tensor-fusion's request would stay above a lowered limit; a resource's request has to equal its limit."""
    fusion, hami = (said(name, "", 12 * GIB, scope="") for name in ("tensor-fusion", "hami-nvidia"))
    assert isinstance(fusion, Declared) and isinstance(hami, Declared)
    annotations = patch([(fusion, "main")], "Pod", "team-a", "one")["metadata"]["annotations"]
    assert annotations == {"tensor-fusion.ai/vram-limit": "12288Mi", "tensor-fusion.ai/vram-request": "12288Mi"}
    (container,) = patch([(hami, "main")], "Pod", "team-a", "one")["spec"]["containers"]
    assert container["resources"]["limits"] == container["resources"]["requests"] == {"nvidia.com/gpumem": "12288"}


@pytest.mark.parametrize("system", ["nvidia-gpu", "cambricon", "amd"])
def test_a_share_of_a_device_is_advised_below_half_of_it_only(system: str) -> None:
    """Nor beside a fraction: the need is unknown then."""
    small = said(system, "resource", 40 * GIB, present=80 * GIB)
    assert small == "it has a whole device, and needs 40Gi: a share of one would do"
    assert said(system, "resource", int(79.25 * GIB), present=80 * GIB) is None
    assert said(system, "resource", 40 * GIB, present=80 * GIB, in_advance=True) is None


def test_explain_agrees_that_a_larger_annotation_counts_for_nothing() -> None:
    """The rule that the words rest on, as `gpusteward explain` states it."""
    key = "nvidia.com/container.main.gpu-memory.limit"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "one", "namespace": "team-a", "annotations": {key: "33Gi"}},
        "spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpumem": "20480"}}}]},
    }
    found = json.loads(explain(yaml.safe_dump(pod), None, builtin(), as_json=True).text)
    assert [one["why"] for entry in found for one in entry["candidates"] if one["text"] == "33Gi"] == [
        "larger than hami-nvidia resource nvidia.com/gpumem; a less trusted declaration can only lower the limit"
    ]
