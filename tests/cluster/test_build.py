"""Programs are pinned, and what was built is what runs."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from cluster import build, requirements
from cluster.device_plugin import uuids
from cluster.fixtures import require
from cluster.versions import DEFAULT, VARIABLE, VERSIONS, chosen


@pytest.fixture
def go() -> None:
    """This machine can build."""
    require([problem] if (problem := build.go_problem()) else [])


def test_every_program_is_pinned_by_checksums() -> None:
    """Each module has a go.sum with the checksum of the version that its go.mod names."""
    for module, requirement in (
        *((one.module, f"k8s.io/kubernetes v{one.minor}.") for one in VERSIONS.values()),
        ("helm", "helm.sh/helm/v4 v4."),
        ("kubeconform", "github.com/yannh/kubeconform v0."),
        ("dashboard-linter", "github.com/grafana/dashboard-linter v0."),
        ("actionlint", "github.com/rhysd/actionlint v1."),
        ("cosign", "github.com/sigstore/cosign/v2 v2."),
        ("registry", "github.com/distribution/distribution/v3 v3."),
        ("containerd", "github.com/containerd/containerd/v2 v2.2."),
        ("nvidia-toolkit", "github.com/NVIDIA/nvidia-container-toolkit v1.20.1"),
        ("kube-state-metrics", "k8s.io/kube-state-metrics/v2 v2.15."),
        ("prometheus-adapter", "sigs.k8s.io/prometheus-adapter v0.12."),
        ("prometheus-operator", "github.com/prometheus-operator/prometheus-operator v0.85.0"),
    ):
        named = next(
            line.strip().removeprefix("require ").removesuffix(" // indirect")
            for line in (build.TOOLS / module / "go.mod").read_text().splitlines()
            if line.strip().removeprefix("require ").startswith(requirement)
        )
        assert f"{named} h1:" in (build.TOOLS / module / "go.sum").read_text()


@pytest.mark.parametrize(("version", "count"), [("1.30", 30), ("1.34", 31), ("1.37", 33)])
def test_all_staging_modules_are_of_one_version(version: str, count: int) -> None:
    """Kubernetes v1.34.x is built with the v0.34.x of each of its staging modules."""
    module = VERSIONS[version].module
    lines = [line for line in (build.TOOLS / module / "go.mod").read_text().splitlines() if "=>" in line]
    assert {line.split()[-1] for line in lines} == {build.kubernetes_version(version).replace("v1.", "v0.")}
    assert len(lines) == count


def test_a_version_that_the_bed_lacks_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUSTEWARD_KUBERNETES chooses a version of the bed; the message for another one lists those that there are."""
    monkeypatch.delenv(VARIABLE, raising=False)
    assert chosen() == DEFAULT
    monkeypatch.setenv(VARIABLE, "1.37")
    assert chosen() == "1.37"
    monkeypatch.setenv(VARIABLE, "1.29")
    with pytest.raises(ValueError, match=r"GPUSTEWARD_KUBERNETES=1\.29: the test bed has 1\.30, 1\.34, 1\.37"):
        chosen()


def test_what_is_built_beside_kubernetes_shares_its_libraries() -> None:
    """kube-state-metrics names no other version of a Kubernetes library: else each would be compiled twice."""

    def pinned(module: str) -> dict[str, str]:
        text = (build.TOOLS / module / "go.mod").read_text()
        return dict(re.findall(r"^\t(k8s\.io/\S+) (v0\.\d\d\.\d+)", text, re.MULTILINE))

    both = pinned("kubernetes").keys() & pinned("kube-state-metrics").keys()
    assert both >= {"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"}
    assert all(pinned("kubernetes")[name] == pinned("kube-state-metrics")[name] for name in both)


@pytest.mark.cluster
@pytest.mark.usefixtures("go")
def test_what_was_built_says_its_version() -> None:
    """The programs call themselves what go.mod pins, so that clients do not complain of a skew."""

    def said(name: str, *words: str) -> str:
        program = build.program(name, chosen())
        return subprocess.run([program, *words], capture_output=True, text=True, check=True).stdout

    wanted = build.kubernetes_version()  # one kubectl serves all versions
    assert json.loads(said("kubectl", "version", "--client", "-o", "json"))["clientVersion"]["gitVersion"] == wanted
    wanted = build.kubernetes_version(chosen())
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"):
        assert said(name, "--version") == f"Kubernetes {wanted}\n"
    assert said("helm", "version", "--short").startswith("v4.")
    assert "[FILE OR FOLDER]" in said("kubeconform", "-h")


@pytest.mark.cluster
@pytest.mark.usefixtures("go")
def test_a_build_that_failed_leaves_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that does not build raises Go's own words, and the next run tries again."""
    source = tmp_path / "tools" / "kubeconform"
    source.mkdir(parents=True)
    (source / "go.mod").write_text("module broken\n\ngo 1.24\n\ntool example.invalid/nothing\n")
    (source / "go.sum").write_text("")
    monkeypatch.setattr(build, "TOOLS", source.parent)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GOCACHE", str(tmp_path / "go"))
    for _ in range(2):
        with pytest.raises(build.BuildError, match=r"(?s)go build in .* failed.*example\.invalid/nothing"):
            build.program("kubeconform")
    assert [path.name for path in (tmp_path / "cache" / "gpusteward" / "tools").iterdir()] == ["kubeconform.lock"]


def test_replicas_of_one_gpu_are_one_device() -> None:
    """The device plugin names each physical device once, in the order of the ids."""
    assert uuids(["GPU-b::3", "GPU-a::0", "GPU-b::1", "MIG-c"]) == ["GPU-b", "GPU-a", "MIG-c"]


def test_a_bed_without_a_node_wants_no_root() -> None:
    """Only containers, mounts and cgroups want root: what the API server alone needs does not mention it."""
    assert not any("root" in problem.split() for problem in requirements.missing(node=False))
