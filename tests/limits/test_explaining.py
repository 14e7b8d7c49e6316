"""Promises of exporter/limits/explaining.py: whose limit it is, and which key said so."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from exporter.limits import LeafDevice, Seen, resolve
from exporter.limits.answers import Subject
from exporter.limits.explaining import as_data, as_text
from exporter.limits.loading import builtin
from exporter.limits.rows import Trust
from exporter.model import DeclaredPod, DeviceKey, GpuUuid, Held, NodeFacts, Scope

GIB = 2**30
PATTERN, KEY = "nvidia.com/container.*.gpu-memory.limit", "nvidia.com/container.main.gpu-memory.limit"

Pod = Callable[..., DeclaredPod]
Gpus = Callable[..., tuple[LeafDevice, ...]]


def test_each_entry_says_whose_it_is(pod: Pod, gpus: Gpus) -> None:
    """Entries of many pods in one list can be told apart."""
    (entry,) = as_data(resolve(pod({"nvidia.com/gpumem": "8192"}), None, gpus(16 * GIB), builtin()))
    assert (entry["namespace"], entry["pod"], entry["container"]) == ("team-a", "pod", "main")


def test_the_key_that_was_found_is_told(pod: Pod, gpus: Gpus) -> None:
    """Of a row with a pattern the author is shown the key as it stands in the pod, also in reasons and problems."""
    asked = pod({"nvidia.com/gpumem": "8192"}, annotations={KEY: "4Gi"})
    found = resolve(asked, None, gpus(16 * GIB), builtin())
    keys = {candidate["row"]: candidate["key"] for entry in as_data(found) for candidate in entry["candidates"]}
    assert keys[f"gpusteward annotation {PATTERN}"] == KEY
    assert keys["hami-nvidia resource nvidia.com/gpumem"] == "nvidia.com/gpumem"
    text = as_text(found)
    assert f"* gpusteward annotation {KEY} = '4Gi': 4 GiB" in text
    assert f"larger than gpusteward annotation {KEY}; the smallest amount counts" in text
    assert "*.gpu-memory" not in text
    wrong = as_text(resolve(pod(annotations={KEY: "a lot"}), None, gpus(16 * GIB), builtin()))
    assert f"! gpusteward annotation {KEY}: invalid: " in wrong
    assert "*.gpu-memory" not in wrong


def test_what_is_remembered_has_no_key(pod: Pod, gpus: Gpus) -> None:
    """A value as first seen stands in the pod no longer, so no key of the pod is named for it."""
    first = [Seen(Subject("main"), Scope.CONTAINER, None, Trust.USER, "gpusteward", 4 * GIB)]
    (entry,) = as_data(resolve(pod(annotations={KEY: "8Gi"}), None, gpus(16 * GIB), builtin(), first))
    remembered = next(each for each in entry["candidates"] if each["row"] == "gpusteward as first seen")
    assert (remembered["key"], remembered["bytes"], entry["limit_bytes"]) == (None, 4 * GIB, 4 * GIB)


@pytest.mark.parametrize(("now", "became"), [({KEY: "8Gi"}, "raised"), ({}, "removed")])
def test_what_is_remembered_is_a_sentence(pod: Pod, gpus: Gpus, now: dict[str, str], became: str) -> None:
    """It says the amount, and what became of the declaration. Amounts are in GiB, not in bytes."""
    first = [Seen(Subject("main"), Scope.CONTAINER, None, Trust.USER, "gpusteward", 4 * GIB)]
    text = as_text(resolve(pod(annotations=now), None, gpus(16 * GIB), builtin(), first))
    words = f"* gpusteward, as first seen 4 GiB; the declaration was {became} later (trust user): "
    assert words in text
    assert str(4 * GIB) not in text
    assert ("the raise from 4 GiB to 8 GiB is refused" in text) is (became == "raised")


@pytest.mark.parametrize(
    ("labels", "resources", "remark"),
    [
        ({}, {"nvidia.com/gpu.shared": "2"}, "failRequestsGreaterThanOne is set"),
        (
            {"nvidia.com/gpu.sharing-strategy": "time-slicing"},
            {"nvidia.com/gpu": "2"},
            "failRequestsGreaterThanOne is set",
        ),
        ({}, {"nvidia.com/mig-1g.5gb.shared": "2"}, "failRequestsGreaterThanOne is set"),
        ({"nvidia.com/gpu.sharing-strategy": "mps"}, {"nvidia.com/gpu": "2"}, "failRequestsGreaterThanOne is false"),
        ({"cloud.google.com/gke-gpu-sharing-strategy": "time-sharing"}, {"nvidia.com/gpu": "2"}, "GKE admits only 1"),
        ({"cloud.google.com/gke-gpu-sharing-strategy": "mps"}, {"nvidia.com/gpu": "2"}, "nodes with one GPU"),
        ({}, {"nvidia.com/gpu": "2"}, ""),
        ({}, {"nvidia.com/mig-1g.5gb": "2"}, ""),
    ],
)
def test_a_plugin_that_admits_only_one(
    labels: dict[str, str], resources: dict[str, str], remark: str, pod: Pod
) -> None:
    """More replicas than the plugin admits get a remark, and no problem that the pod's user hears of."""
    node, (key, _) = NodeFacts(labels=labels), next(iter(resources.items()))
    asked = pod(resources)
    for data, found in ((explained(asked, node), remark), (explained(pod({key: "1"}), node), "")):
        remarks = [problem for entry in data for problem in entry["problems"]]
        assert (found in remarks[0]) if found else remarks == []
    held = (Held("main", key, DeviceKey(GpuUuid("GPU-1")), replicas=2),)
    assert [entry["problems"] for entry in explained(replace(asked, held=held), node)] == [[]]
    assert all(limit.problems == () for limit in resolve(asked, node, (), builtin()).limits)


def explained(asked: DeclaredPod, node: NodeFacts) -> list[dict[str, Any]]:
    return as_data(resolve(asked, node, (), builtin()))
