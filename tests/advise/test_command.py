"""`gpusteward advise` against a real Prometheus that has days of three workloads."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from patience import PATIENCE
from prometheus.scraping import serving
from report.week import DAY, GIB, START, STEP, Labels, blocks

COMMAND = Path(sys.executable).parent / "gpusteward"
DAYS = 4
UNTIL = "2023-11-19T00:00:00Z"

Ask = Callable[..., "subprocess.CompletedProcess[str]"]


def bursts(at: int) -> float:
    """10 GiB, and 30 GiB for an hour in the evening of the third day."""
    return 30 * GIB if START + 2 * DAY + 68_400 <= at < START + 2 * DAY + 72_000 else 10 * GIB


BOXES: tuple[tuple[str, str, str, Callable[[int], float | None], dict[str, str]], ...] = (
    ("train", "train-a", "GPU-0", bursts, {"system": "hami-nvidia", "source": "resource", "enforced_by": "hook"}),
    ("train", "train-b", "GPU-1", lambda _: 12 * GIB, {"system": "hami-nvidia", "source": "resource"}),
    ("vllm", "vllm-a", "GPU-1", lambda _: 72 * GIB, {"system": "gpusteward", "source": "annotation"}),
    ("fresh", "fresh-a", "GPU-0", lambda at: 5 * GIB if at >= START + 3 * DAY else None, {}),
)
"""Workload, pod, GPU, bytes held at a time (None: not there), and the declaration that won."""


def samples() -> Iterator[tuple[str, Labels, int, float]]:
    """Days of the workloads."""
    for at in range(START, START + DAYS * DAY + 1, STEP):
        yield "gpusteward_snapshot_timestamp_seconds", (("node", "n"),), at, at
        for uuid in ("GPU-0", "GPU-1"):
            yield "gpusteward_device_memory_total_bytes", (("node", "n"), ("uuid", uuid)), at, 80 * GIB
        for workload, pod, uuid, held, declaration in BOXES:
            if (used := held(at)) is None:
                continue
            whose = (("node", "n"), ("namespace", "team-a"), ("pod", pod))
            box = (*whose, ("container", "main"), ("uuid", uuid))
            yield "gpusteward_container_memory_used_bytes", box, at, used
            yield "gpusteward_pod_info", (*whose, ("workload_kind", "Deployment"), ("workload", workload)), at, 1
            if declaration:
                yield "gpusteward_container_limit_info", (*box, *declaration.items()), at, 1
                yield "gpusteward_container_memory_limit_bytes", box, at, 40 * GIB


@pytest.fixture(scope="module")
def advise(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """The command, beside a Prometheus of these days."""
    folder = tmp_path_factory.mktemp("days")
    with serving(blocks(folder, samples()), folder) as one:

        def ask(*words: str) -> subprocess.CompletedProcess[str]:
            command = [str(COMMAND), "advise", "--prometheus", one.url, "--until", UNTIL, "--since", "4d", *words]
            return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)

        yield ask


def found(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    """The answer by workload."""
    assert done.returncode == 0, done.stderr
    return {one["workload"]: one for one in json.loads(done.stdout)}


@pytest.mark.prometheus
def test_each_workload_gets_its_own_kind_of_advice(advise: Ask) -> None:
    """The peak of both pods counts; memory taken in advance and a short history give no limit."""
    answers = found(advise("--json"))
    train = answers["train"]
    assert train["advice"] == "limit" and train["advised_bytes"] == 33 * GIB
    assert (train["peak_bytes"], train["days"], train["limit_bytes"]) == (30 * GIB, 4, 40 * GIB)
    assert train["p95_bytes"] < train["p99_bytes"] <= train["peak_bytes"]
    assert answers["vllm"]["advice"] == "fraction" and answers["vllm"]["advised_bytes"] == 79.25 * GIB
    assert answers["fresh"]["advice"] == "unknown" and "1 day" in answers["fresh"]["why"]


@pytest.mark.prometheus
def test_the_patch_has_the_form_of_the_sharing_system(advise: Ask) -> None:
    """HAMi counts MiB in a resource; what is printed is YAML that kubectl patch takes."""
    done = advise("team-a/train", "--headroom", "50%")
    assert done.returncode == 0, done.stderr
    (patch,) = [one for one in yaml.safe_load_all(done.stdout.partition("---")[2]) if one]
    amount = {"nvidia.com/gpumem": "46080"}
    assert patch == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"namespace": "team-a", "name": "train"},
        "spec": {
            "template": {
                "spec": {"containers": [{"name": "main", "resources": {"limits": amount, "requests": amount}}]}
            }
        },
    }
    assert "team-a/Deployment/train/main" in done.stdout and "45.00Gi" in done.stdout
    assert "vllm" not in done.stdout


@pytest.mark.prometheus
def test_what_is_said_of_a_fraction_is_said_once(advise: Ask) -> None:
    """With its limit in brackets, and the knobs of the frameworks below the reasons."""
    text = advise("team-a").stdout
    assert "fraction (79.25Gi)" in text and text.count("--gpu-memory-utilization") == 1
    assert "--gpu-memory-utilization" not in advise("team-a/train").stdout


@pytest.mark.prometheus
def test_few_days_are_enough_when_asked_so(advise: Ask) -> None:
    """A system that declares nothing gets our annotation."""
    answers = found(advise("team-a/fresh", "--json", "--min-days", "1"))
    assert answers.keys() == {"fresh"} and answers["fresh"]["advised_bytes"] == 5.5 * GIB
    template = answers["fresh"]["patch"]["spec"]["template"]
    assert template == {"metadata": {"annotations": {"nvidia.com/container.main.gpu-memory.limit": "5632Mi"}}}


@pytest.mark.prometheus
def test_what_cannot_be_answered_is_explained(advise: Ask) -> None:
    """A namespace without pods on GPUs, a name that is none, a percentage that is none."""
    for words, code, expected in (
        (("nobody",), 1, "has no containers on GPUs in this time"),
        (("team-a/train", "--since", "x"), 2, "--since: 'x' is not a time"),
        (("Team A",), 2, "is not [CLUSTER/]NAMESPACE[/[KIND/]WORKLOAD[/CONTAINER]]"),
        (("a/b/c/d/e",), 2, "is not [CLUSTER/]NAMESPACE[/[KIND/]WORKLOAD[/CONTAINER]]"),
        (("--min-days", "0"), 2, "--min-days: expected a whole number of at least 1, got '0'"),
        (("--min-days", "-1"), 2, "--min-days: expected a whole number of at least 1, got '-1'"),
        (("--headroom", "much"), 2, "is not a percentage"),
        (("--headroom", "0.1"), 2, "is less than 1%: write 10% for a share, or 0.1%"),
    ):
        done = advise(*words)
        assert done.returncode == code and expected in done.stderr, done.stderr
