"""
What Helm does where the cluster has the RuntimeClass, and where it lacks it.

In: an API server, the chart, values of nvml.access. Out: Helm's words, and the pod of the DaemonSet. Law: a person who
installs learns before the first pod that it could not start; nothing that a lookup finds gives more privileges.
"""

from __future__ import annotations

import json
import subprocess

import pytest

from cluster.bed import Bed
from cluster.client import Api
from cluster.installed import nvidia_class
from deploy.chart import packed

pytestmark = pytest.mark.cluster


def helm(bed: Bed, verb: str, namespace: str, access: str, *words: str) -> str:
    """Install or upgrade with a way to the driver; what Helm says."""
    return bed.helm(verb, "one", str(packed()), f"--namespace={namespace}", f"--set=nvml.access={access}", *words)


def runtime(bed: Bed, namespace: str) -> tuple[str | None, bool]:
    """The RuntimeClass of the daemon's pods, and whether their container is privileged."""
    found = bed.kubectl("-n", namespace, "get", "daemonset", "one-gpusteward", "-o", "json")
    spec = json.loads(found)["spec"]["template"]["spec"]
    return spec.get("runtimeClassName"), spec["containers"][0]["securityContext"]["privileged"]


async def test_an_installation_without_the_class_says_what_to_do(api_server: Bed, server_namespace: str) -> None:
    """With access runtimeClass it fails, and names the fix. Asked not to look, Helm installs."""
    with pytest.raises(subprocess.CalledProcessError) as caught:
        helm(api_server, "install", server_namespace, "runtimeClass")
    said = str(caught.value.stderr)
    assert "this cluster has no RuntimeClass nvidia" in said
    assert "; fix: correct nvml.runtimeClass, install NVIDIA's container toolkit" in said
    assert "NO RUNTIMECLASS" not in helm(
        api_server, "install", server_namespace, "runtimeClass", "--set=nvml.checkRuntimeClass=false"
    )
    assert runtime(api_server, server_namespace) == ("nvidia", False)
    # What is installed can be upgraded all the same: an upgrade must be able to change something else, or to go back.
    assert "THIS CLUSTER HAS NO RUNTIMECLASS nvidia" in helm(api_server, "upgrade", server_namespace, "runtimeClass")
    api_server.helm("uninstall", "one", f"--namespace={server_namespace}")


async def test_auto_takes_what_the_cluster_has(api_server: Bed, server_api: Api, server_namespace: str) -> None:
    """Without the class the node's default runtime, with a warning; with it the class; privileged never."""
    assert "THIS CLUSTER HAS NO RUNTIMECLASS nvidia" in helm(api_server, "install", server_namespace, "auto")
    assert runtime(api_server, server_namespace) == (None, False)
    async with nvidia_class(server_api):
        assert "NO RUNTIMECLASS" not in helm(api_server, "upgrade", server_namespace, "auto")
        assert runtime(api_server, server_namespace) == ("nvidia", False)
    api_server.helm("uninstall", "one", f"--namespace={server_namespace}")


async def test_helm_template_renders_without_a_cluster(api_server: Bed) -> None:
    """No lookup answers there, also with a kubeconfig: both ways name the class, as in Argo CD."""
    for access in ("auto", "runtimeClass"):
        rendering = api_server.helm(
            "template", "one", str(packed()), f"--set=nvml.access={access}", "--kube-version=1.34"
        )
        assert 'runtimeClassName: "nvidia"\n' in rendering
