"""
What `helm test` makes: a pod without rights on the node, and the rights to read pods, Events and the DaemonSet.

In: variants, rendered with their tests. Out: nothing. Law: what tests is never part of the release itself.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy import chart
from deploy.chart import CHART, Object, Rendered, rendered, text, written

pytestmark = [pytest.mark.charts, pytest.mark.usefixtures("helm")]


def hooks(made: Rendered) -> list[Object]:
    """What Helm makes for a test alone."""
    return [one for one in made.objects if one["metadata"].get("annotations", {}).get("helm.sh/hook") == "test"]


def environment(pod: Object) -> dict[str, str]:
    """The variables of its one container."""
    (one,) = pod["spec"]["containers"]
    return {each["name"]: each["value"] for each in one["env"]}


@pytest.mark.parametrize("name", chart.VARIANTS)
def test_the_release_is_the_same_with_its_tests(name: str) -> None:
    """Tests add hooks and change nothing else; with a network policy one of them lets the pod in."""
    made = rendered(name, tests=True)
    ours = hooks(made)
    assert [one for one in made.objects if one not in ours] == [*rendered(name).objects]
    policy = ["NetworkPolicy"] if rendered(name).of("NetworkPolicy") else []
    assert sorted(one["kind"] for one in ours) == [*policy, "Pod", "Role", "RoleBinding", "ServiceAccount"]
    assert all("hook-succeeded" in one["metadata"]["annotations"]["helm.sh/hook-delete-policy"] for one in ours)


@pytest.mark.parametrize("name", chart.VARIANTS)
def test_the_pod_that_asks_has_no_rights(name: str) -> None:
    """Not root, nothing of the host, the daemon's image; it reads the DaemonSet, pods and Events of its namespace."""
    made = Rendered(tuple(hooks(rendered(name, tests=True))))
    spec, daemon = made.only("Pod")["spec"], rendered(name)
    assert not {"hostPID", "hostNetwork", "hostIPC", "volumes"} & set(spec)
    assert spec["securityContext"]["runAsNonRoot"] is True and spec["securityContext"]["runAsUser"] == 65534
    (container,) = spec["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["image"] == daemon.container["image"]
    name = daemon.only("DaemonSet")["metadata"]["name"]
    assert made.only("Role")["rules"] == [
        {"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["list"]},
        {"apiGroups": ["apps"], "resources": ["daemonsets"], "resourceNames": [name], "verbs": ["get"]},
    ]
    assert environment(made.only("Pod"))["DAEMONSET"] == name
    assert (
        made.only("RoleBinding")["subjects"][0]["name"]
        == spec["serviceAccountName"]
        != daemon.pod["serviceAccountName"]
    )


@pytest.mark.parametrize("name", chart.VARIANTS)
def test_it_asks_the_daemons_of_this_release(name: str) -> None:
    """By the DaemonSet's selector, at the addresses of its probe and metrics; itself it is none of them."""
    made = rendered(name, tests=True)
    pod, daemon = made.only("Pod"), made.only("DaemonSet")["spec"]
    told = environment(pod)
    selected = dict(one.split("=") for one in told["SELECTOR"].split(","))
    assert selected == daemon["selector"]["matchLabels"]
    assert not selected.items() <= pod["metadata"]["labels"].items()
    probe = made.container["readinessProbe"]["httpGet"]
    ports = {one["name"]: one["containerPort"] for one in made.container["ports"]}
    assert told["READY"] == f"{probe['scheme'].lower()}://{{host}}:{ports[probe['port']]}/readyz"
    metrics = f"{{host}}:{ports['metrics']}/metrics"
    assert told["METRICS"] == ("" if name == "mutual-tls" else f"http://{metrics}")


def test_openshift_chooses_the_user(tmp_path: Path) -> None:
    """A fixed user is refused there by the constraints that any account may use."""
    made = Rendered(chart.objects(text(written(tmp_path, {"openshift": {"scc": "privileged"}}), tests=True)))
    context = made.only("Pod")["spec"]["securityContext"]
    assert context == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def test_without_roles_there_is_no_test(tmp_path: Path) -> None:
    """It needs a role, which rbac.create: false forbids the chart."""
    assert not hooks(Rendered(chart.objects(text(written(tmp_path, {"rbac": {"create": False}}), tests=True))))


def test_the_program_is_the_file() -> None:
    """What the pod runs is files/ask.py, word by word."""
    (container,) = rendered("observe", tests=True).only("Pod")["spec"]["containers"]
    assert container["args"] == [(CHART / "files" / "ask.py").read_text()]
