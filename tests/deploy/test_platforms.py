"""
The values for each platform: what they render, and what their headers and docs/platforms.md say of them.

In: deploy/charts/gpusteward/platforms. Out: nothing. Law: a platform that was never tried says so in its header.
"""

from __future__ import annotations

import re

import pytest

from deploy.chart import CHART, DEPLOY, EVICTS_FROM, NEWEST, PLATFORMS, rendered, variant

PAGE = (DEPLOY.parent / "docs" / "platforms.md").read_text()
PLATFORM_OF = {
    "aks": (None, False),
    "eks-al2023": (None, False),
    "eks-bottlerocket": (None, False),
    "gke": (None, True),
    "gpu-operator": ("nvidia", False),
    "k3s": ("nvidia", False),
    "kubeadm": ("nvidia", False),
    "openshift": ("nvidia", False),
    "rke2": ("nvidia", False),
    "talos": ("nvidia", False),
}
"""Platform -> the RuntimeClass of its pods, and whether the container is privileged."""


def test_every_platform_is_judged_here() -> None:
    """A file without a line above would be looked at by no test."""
    assert {f"platforms/{name}" for name in PLATFORM_OF} == set(PLATFORMS)


@pytest.mark.parametrize("name", PLATFORMS)
def test_the_header_says_what_was_never_tried(name: str) -> None:
    """Each file begins with a comment, which names what was never tried and, but for the operator's, its sources."""
    header = "".join(line for line in variant(name).read_text().splitlines(keepends=True) if line.startswith("#"))
    assert variant(name).read_text().startswith(header[:20])
    assert re.search(r"^# Never tried: .*a real GPU", header, re.MULTILINE)
    assert re.search(r"^# Sources?: ", header, re.MULTILINE) or name == "platforms/gpu-operator"


@pytest.mark.parametrize("name", PLATFORMS)
def test_the_page_has_the_platform(name: str) -> None:
    """docs/platforms.md links each file in a row of its table."""
    file = name.removeprefix("platforms/")
    assert re.search(rf"^\| [^|]+\| \[`{file}\.yaml`\]\([^)]+/platforms/{file}\.yaml\) \|", PAGE, re.MULTILINE)


@pytest.mark.charts
@pytest.mark.usefixtures("helm")
@pytest.mark.parametrize("name", PLATFORMS)
def test_a_platform_gives_no_more_than_it_says(name: str) -> None:
    """The RuntimeClass and the privilege are those of the table; nothing acts on a pod."""
    for version in (EVICTS_FROM, NEWEST):
        made = rendered(name, version)
        runtime, privileged = PLATFORM_OF[name.removeprefix("platforms/")]
        assert made.pod.get("runtimeClassName") == runtime
        assert made.container["securityContext"]["privileged"] is privileged
        assert "mode: observe" in made.config
        assert ("workload_labels: exported" in made.config) is (name == "platforms/openshift")
        assert not made.of("ValidatingAdmissionPolicy")
        bound = [one["roleRef"]["name"] for one in made.of("RoleBinding")]
        assert bound == (["system:openshift:scc:privileged"] if name == "platforms/openshift" else [])


@pytest.mark.charts
@pytest.mark.usefixtures("helm")
def test_bottlerocket_is_asked_by_a_mount() -> None:
    """It reads the names of devices from a folder, because it ignores the variable of unprivileged containers."""
    made = rendered("platforms/eks-bottlerocket")
    (mount,) = (one for one in made.container["volumeMounts"] if "nvidia-container-devices" in one["mountPath"])
    assert (mount["mountPath"], mount["readOnly"]) == ("/var/run/nvidia-container-devices/all", True)
    assert {"name": mount["name"], "hostPath": {"path": "/dev/null"}} in made.pod["volumes"]


def test_the_chart_ships_them() -> None:
    """What is packed has them; .helmignore leaves out no platform."""
    assert "platforms" not in (CHART / ".helmignore").read_text()
