"""Promises of exporter/limits/explaining.py: whose limit it is, and which key said so."""

from collections.abc import Callable

from exporter.limits import LeafDevice, Seen, resolve
from exporter.limits.answers import Subject
from exporter.limits.explaining import as_data, as_text
from exporter.limits.loading import builtin
from exporter.limits.rows import Trust
from exporter.model import DeclaredPod, Scope

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
    assert f"gpusteward annotation {KEY} says less" in text
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
