"""
The chart, rendered by Helm: what each variant gives to the daemon, and what is refused.

In: the variants of deploy/charts/gpusteward/ci, and values. Out: objects. Law: the daemon gets what its mode uses.
"""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.build import program as build_program
from deploy import chart
from deploy.chart import OLDEST, RELEASE, Rendered, rendered, text, variant, written
from enforcer.runtime.policy_config import impossible, rules_of
from exporter.config import Config
from exporter.config.arguments import CONFIG_FILE, Arguments
from exporter.config.loading import combine
from exporter.config.policy import REMOVED, removed
from exporter.kube.rights import RIGHTS
from tools.release.files import publish

pytestmark = [pytest.mark.charts, pytest.mark.usefixtures("helm")]

READS = {("*", right.verb, f"{right.resource}{'.' if right.group else ''}{right.group}") for right in RIGHTS}
TELLS = {("*", "create", "events.events.k8s.io"), ("*", "patch", "events.events.k8s.io")}
CANARY = {(RELEASE, "create", "pods/eviction"), (RELEASE, "get", "pods")}
EVICTS = READS | TELLS | CANARY
GRANTED = {
    "exporter": READS, "observe": READS, "warn": READS | TELLS, "dry-run": READS | TELLS,
    "evict": EVICTS, "kill": EVICTS, "mig": READS, "management": READS, "cdi": READS, "host-path": READS, "gke": READS,
    "simulated": READS, "monitored": READS, "mutual-tls": READS, "cgroups": READS, "drm": READS, "rocm": READS,
    "grafana-operator": READS, "service-monitor": READS,
    "kill-only": READS | TELLS | {("team-a", "get", "pods")}, "fence-only": READS | TELLS | {("team-a", "get", "pods")},
    "granted": EVICTS | {(team, verb, what) for team in ("team-a", "team-b") for _, verb, what in CANARY},
}  # fmt: skip
CAPABILITIES = {"kill": ["KILL"], "kill-only": ["KILL"], "mig": ["SYS_ADMIN"], "drm": ["SYS_PTRACE"]}
BY_LIBRARY = {"host-path", "gke", "fence-only"}
PRIVILEGED = {*BY_LIBRARY, "rocm"}
JOURNAL = {"evict", "kill", "kill-only", "fence-only", "granted"}


def config(made: Rendered) -> Config:
    """Read the config as the daemon would."""
    arguments = Arguments(overrides={"node.name": "gpu-node"}, origins={"node.name": "environment"})
    return combine(arguments, made.config.encode(), "gpu-node", impossible)


def build(folder: Path, values: dict[str, Any], *, release: str = RELEASE, namespace: str = RELEASE) -> Rendered:
    """Render values of a test's own."""
    return Rendered(chart.objects(text(written(folder, values), release=release, namespace=namespace)))


def mounts(made: Rendered) -> dict[str, tuple[str, bool]]:
    """Host path to where it is in the container, and whether that is read-only."""
    places = {one["name"]: one for one in made.container["volumeMounts"]}
    return {
        one["hostPath"]["path"]: (places[one["name"]]["mountPath"], places[one["name"]].get("readOnly", False))
        for one in made.pod["volumes"]
        if "hostPath" in one
    }


def test_every_variant_is_judged_here() -> None:
    """Each variant has a line above: without one it would be rendered, and no test would look at it."""
    assert set(GRANTED) == set(chart.VARIANTS)


@pytest.mark.parametrize("name", chart.VARIANTS)
def test_the_api_rights_are_those_of_the_mode(name: str) -> None:
    """Exactly the rights that the mode uses, those that act bound in namespaces only; no role is left unbound."""
    made = rendered(name)
    assert made.granted() == GRANTED[name]
    bound = {one["roleRef"]["name"] for one in (*made.of("ClusterRoleBinding"), *made.of("RoleBinding"))}
    named = [one["metadata"]["name"] for one in made.of("ClusterRole")]
    # Of a mode that acts nowhere yet the role is there to be bound.
    assert sorted(bound | ({"gpusteward-look"} & set(named))) == sorted(named)
    (account,) = {
        (one["kind"], one["namespace"], one["name"])
        for binding in (*made.of("ClusterRoleBinding"), *made.of("RoleBinding"))
        for one in binding["subjects"]
    }
    assert account == ("ServiceAccount", RELEASE, made.pod["serviceAccountName"])


@pytest.mark.parametrize("name", chart.VARIANTS)
def test_the_rights_on_the_node_are_those_of_the_mode(name: str) -> None:
    """uid 0 without capabilities; KILL to kill, SYS_ADMIN for MIG, SYS_PTRACE for DRM; privileged by name alone."""
    made = rendered(name)
    security = made.container["securityContext"]
    assert security["readOnlyRootFilesystem"] is True
    assert security["privileged"] is (name in PRIVILEGED)
    if name not in PRIVILEGED:
        wanted = {"drop": ["ALL"], **({"add": CAPABILITIES[name]} if name in CAPABILITIES else {})}
        assert security["capabilities"] == wanted
        assert security.get("appArmorProfile") == ({"type": "Unconfined"} if name == "drm" else None)
        assert security.get("allowPrivilegeEscalation") is (None if name == "mig" else False)
    pod = made.pod
    assert pod["securityContext"]["runAsUser"] == 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod.get("hostPID", False) is (name != "simulated")
    assert not {"hostNetwork", "hostIPC"} & set(pod)
    assert pod["automountServiceAccountToken"] is (name != "simulated")
    assert "ports" in made.container and all("hostPort" not in one for one in made.container["ports"])


@pytest.mark.parametrize("name", chart.VARIANTS)
def test_a_daemon_that_starts_slowly_is_left_alone(name: str) -> None:
    """
    It has five minutes to listen before the kubelet restarts it: on a busy node the start has taken two.

    Once it listens, a minute without an answer restarts it.
    """
    container = rendered(name).container

    def given_up(probe: str) -> int:
        one = container[probe]
        assert one["httpGet"]["path"] == "/healthz"
        seconds: int = one["periodSeconds"] * one["failureThreshold"]
        return seconds

    assert (given_up("startupProbe"), given_up("livenessProbe")) == (300, 60)


@pytest.mark.parametrize("name", chart.VARIANTS)
def test_of_the_host_only_the_journal_can_be_written(name: str) -> None:
    """Host paths are read-only but the journal's folder, there where the mode needs a journal; and no CRI socket."""
    found = mounts(rendered(name))
    assert {path for path, (_, read_only) in found.items() if not read_only} == (
        {"/var/lib/gpusteward"} if name in JOURNAL else set()
    )
    expected = {"/var/lib/kubelet/pod-resources", "/var/log/containers"} if name != "simulated" else set()
    expected |= {"/run/gpusteward"} if name != "exporter" else set()
    expected |= {"/sys/fs/cgroup"} if name in {"cgroups", "drm", "rocm"} else set()
    expected |= {"/var/lib/gpusteward"} if name in JOURNAL else set()
    assert {one for one in found if "libnvidia-ml" not in one} == expected
    assert ("libnvidia-ml" in " ".join(found)) is (name in BY_LIBRARY)


@pytest.mark.parametrize("name", chart.VARIANTS)
def test_a_node_without_profiles_or_apparmor_starts_the_pod(name: str) -> None:
    """By default no profile is named that has to be on the node first."""
    made = rendered(name)
    assert "Localhost" not in str(made.pod)


def test_a_profile_is_the_daemons_alone(tmp_path: Path) -> None:
    """What an operator names holds for the container; the sandbox keeps the runtime's own."""
    wanted = {
        "seccompProfile": {"type": "Localhost", "localhostProfile": "gpusteward.json"},
        "appArmorProfile": {"type": "Localhost", "localhostProfile": "gpusteward"},
    }
    made = build(tmp_path, wanted)
    assert made.container["securityContext"].items() >= wanted.items()
    assert made.pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}


CGROUPS = ("/sys/fs/cgroup", "/host/sys/fs/cgroup")


@pytest.mark.parametrize(
    ("values", "mounted"),
    [
        ({}, False),
        ({"vendors": ["amd"], "nvml": {"access": "none"}}, True),
        ({"kernel": {"access": "kfd"}}, True),
        ({"vendors": ["nvidia", "intel"], "nvml": {"access": "none"}, "profile": "exporter"}, True),
        ({"vendors": [], "affinity": {"nodeAffinity": {}}}, False),
        ({"hostCgroups": True}, True),
        ({"vendors": ["amd"], "nvml": {"access": "none"}, "hostCgroups": False}, False),
    ],
)
def test_the_hosts_cgroups_are_there_for_whom_they_tell_something(
    tmp_path: Path, values: dict[str, Any], mounted: bool
) -> None:
    """The tree is mounted where device memory is counted by cgroup, so not for NVIDIA's; read-only, all of it."""
    made = build(tmp_path, values)
    path, place = CGROUPS
    assert mounts(made).get(path) == ((place, True) if mounted else None)
    found = [one for one in made.container["volumeMounts"] if one["name"] == "cgroups"]
    assert [one["recursiveReadOnly"] for one in found] == ["IfPossible"] * mounted


@pytest.mark.parametrize(("version", "known"), [("1.30.14", False), ("1.31.0", True)])
def test_the_hosts_cgroups_name_no_field_that_the_server_drops(tmp_path: Path, version: str, known: bool) -> None:
    """Kubernetes 1.30 has `recursiveReadOnly` behind a gate that is off, and drops the field: GitOps sees a drift."""
    made = Rendered(chart.objects(text(written(tmp_path, {"hostCgroups": True}), kubernetes=version)))
    (found,) = [one for one in made.container["volumeMounts"] if one["name"] == "cgroups"]
    assert ("recursiveReadOnly" in found) is known


def test_the_hosts_cgroups_are_below_the_hosts_root(tmp_path: Path) -> None:
    """There where the daemon looks for what is the host's, wherever that is."""
    made = build(tmp_path, {"hostCgroups": True, "config": {"node": {"host_root": "/node"}}})
    assert mounts(made)[CGROUPS[0]] == (str(config(made).node.host_root / "sys/fs/cgroup"), True)


@pytest.mark.parametrize("name", chart.VARIANTS)
def test_the_daemon_takes_the_config(name: str) -> None:
    """The ConfigMap is read by the daemon's own reader, and the policy in it can be meant."""
    made = rendered(name)
    read = config(made)
    rules_of(read)
    mode = yaml.safe_load(variant(name).read_text()).get("config", {}).get("policy", {}).get("mode", "observe")
    assert read.policy.mode == mode
    assert str(read.web.listen_address).endswith(f":{made.container['ports'][0]['containerPort']}")
    assert "policy" not in yaml.safe_load(made.config) if name == "exporter" else True


@pytest.mark.parametrize("name", chart.VARIANTS)
def test_a_change_of_the_config_rolls_nobody(name: str) -> None:
    """The config is a folder of a ConfigMap: no subPath, no checksum, and no mode on the command line."""
    made = rendered(name)
    (place,) = (one for one in made.container["volumeMounts"] if one["name"] == "config")
    assert place["mountPath"] == "/etc/gpusteward" and "subPath" not in place
    assert not any("checksum" in one for one in made.only("DaemonSet")["spec"]["template"]["metadata"]["annotations"])
    words = [*made.container["command"], *made.container["args"]]
    program = ["gpusteward-exporter"] if name == "exporter" else ["gpusteward", "run"]
    assert words == [*program, "--config=/etc/gpusteward/config.yaml"]
    # A command in the pod, such as `gpusteward check`, reads the same file without a flag.
    assert {"name": CONFIG_FILE, "value": "/etc/gpusteward/config.yaml"} in made.container["env"]


def test_with_given_rights_the_mode_moves_without_a_new_pod(tmp_path: Path) -> None:
    """With `rights` as a list, observe and enforce differ in the ConfigMap alone."""

    def of(mode: str) -> tuple[dict[str, Any], list[str]]:
        made = build(tmp_path, {"rights": ["events", "evict"], "config": {"policy": {"mode": mode}}})
        return made.only("DaemonSet"), made.kinds()

    assert of("observe") == of("enforce") == of("dry-run")


@pytest.mark.parametrize("profile", ["enforcer", "exporter"])
def test_off_needs_no_quotes(tmp_path: Path, profile: str) -> None:
    """`mode: off` is false in YAML 1.1, which Helm reads. It renders as the word does."""
    found = []
    for word in ("off", '"off"'):
        values = tmp_path / "values.yaml"
        values.write_text(f"profile: {profile}\nconfig: {{policy: {{mode: {word}}}}}\n")
        found.append(Rendered(chart.objects(text(values))))
    unquoted, quoted = found
    assert unquoted == quoted
    assert config(unquoted).policy.mode == ("off" if profile == "enforcer" else "observe")
    assert "MODE OFF" in chart.notes(tmp_path, {"config": {"policy": {"mode": False}}})


def test_no_chart_version_rolls_the_fleet() -> None:
    """What changes with each release of the chart is no label of the pod."""
    labels = rendered("observe").only("DaemonSet")["spec"]["template"]["metadata"]["labels"]
    assert set(labels) == {f"app.kubernetes.io/{one}" for one in ("name", "instance", "component")}


def of_key(key: str, value: Any) -> dict[str, Any]:
    """Write values with one dotted key."""
    first, _, rest = key.partition(".")
    return {first: of_key(rest, value) if rest else value}


def alerts(**tuned: object) -> dict[str, Any]:
    """Values that tune alerts."""
    return {"prometheusRule": {"enabled": True, "alerts": tuned}}


def all_alerts(**labels: str) -> dict[str, Any]:
    """Values with labels of each alert."""
    return {"prometheusRule": {"enabled": True, "alertLabels": labels}}


def groups(name: str, rule: str, *, kind: str = "alert", twice: bool = False) -> dict[str, Any]:
    """Values with a group of one's own."""
    group = {"name": name, "rules": [{kind: rule, "expr": "vector(1)"}]}
    return {"prometheusRule": {"enabled": True, "groups": [group, group] if twice else [group]}}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a typing error in the policy": ({"config": {"policy": {"mdoe": "enforce"}}}, "'mdoe' not allowed"),
    "a typing error beside it": ({"confg": {}}, "'confg' not allowed"),
    "a mode that there is not": ({"config": {"policy": {"mode": "kill"}}}, "/config/policy/mode"),
    "a word for a switch": ({"rbac": {"create": "no"}}, "/rbac/create"),
    "a surge": ({"updateStrategy": {"rollingUpdate": {"maxSurge": 1}}}, "maxSurge"),
    "an unquoted duration": ({"config": {"policy": {"grace": 120}}}, "/config/policy/grace"),
    "an exporter that warns": (
        {"profile": "exporter", "config": {"policy": {"mode": "warn"}}},
        "profile exporter only observes",
    ),
    "an exporter with rights": ({"profile": "exporter", "rights": []}, "profile exporter has no rights"),
    "a mode beyond the rights": (
        {"rights": ["events"], "config": {"policy": {"mode": "enforce"}}},
        "rights: evict is missing",
    ),
    "a killer that only evicts": (
        {"rights": ["events", "evict"], "config": {"policy": {"mode": "enforce", "ladder": ["notify", "kill"]}}},
        "rights: kill is missing",
    ),
    "a ladder that cannot be meant": (
        {"config": {"policy": {"ladder": ["notify", "evict", "kill"]}}},
        "config.policy.when_blocked",
    ),
    "a fence without the host's cgroups": (
        {"config": {"policy": {"mode": "enforce", "ladder": ["notify", "fence"]}}},
        "the step fence needs",
    ),
    "a MIG capability that comes another way": ({"nvml": {"mig": True, "access": "cdi"}}, "nvml.mig is for"),
    "a MIG capability beside a CDI device": (
        {"nvml": {"mig": True, "visibleDevices": "management.nvidia.com/gpu=all"}},
        "nvml.mig is for nvml.visibleDevices all",
    ),
    "a CDI device that nobody asks the runtime for": (
        {"nvml": {"access": "cdi", "visibleDevices": "management.nvidia.com/gpu=all"}},
        "nvml.visibleDevices is for",
    ),
    "some of the GPUs": ({"nvml": {"visibleDevices": "0"}}, "/nvml/visibleDevices"),
    "NVIDIA's runtime on nodes without it": ({"vendors": ["nvidia", "amd"]}, "vendors amd: their nodes"),
    "a library path that hides the library": (
        {"nvml": {"access": "hostPath"}, "extraEnv": [{"name": "LD_LIBRARY_PATH", "value": "/opt/dcmi"}]},
        "extraEnv: LD_LIBRARY_PATH has to name",
    ),
    "privileges for nothing": ({"kernel": {"access": "none", "privileged": True}}, "kernel.privileged is for"),
    "a profile for a privileged container": (
        {"nvml": {"access": "hostPath"}, "seccompProfile": {"type": "Localhost", "localhostProfile": "a"}},
        "no profile holds a privileged container",
    ),
    "a profile without its name": ({"seccompProfile": {"type": "Localhost"}}, "/seccompProfile"),
    "a killer that no container listens to": (
        {
            "config": {"policy": {"mode": "enforce", "ladder": ["notify", "kill"]}},
            "appArmorProfile": {"type": "Localhost", "localhostProfile": "gpusteward"},
        },
        "with the step kill only RuntimeDefault or Unconfined",
    ),
    "a profile under which no process can be read": (
        {
            "nvml": {"access": "none"},
            "kernel": {"access": "drm"},
            "appArmorProfile": {"type": "Localhost", "localhostProfile": "gpusteward"},
        },
        "with kernel.access drm it is Unconfined",
    ),
    "TLS without a certificate": ({"web": {"tls": True}}, "web.tls wants web.secretName"),
    "two web configs": ({"web": {"secretName": "a"}, "config": {"web": {"config_file": "/b"}}}, "say the same"),
    "a label that breaks out of its quotes": (
        {"config": {"policy": {"namespaces": {"label": 'a=b" || "" == "'}}}},
        "/config/policy/namespaces/label",
    ),
    "consent by another mode than enforce": (
        {"config": {"policy": {"namespaces": {"label": "gpusteward.io/mode=Enforce"}}}},
        "config.policy.namespaces.label: expected gpusteward.io/mode=enforce or a label with another key",
    ),
    **{f"{key}, which is gone": (of_key(f"config.{key}", 3), f"config.{removed(key)}") for key in REMOVED},
    "a condition without a chart above": ({"enabled": False}, "enabled is the condition of a chart above"),
    "two who collect": (
        {"podMonitor": {"enabled": True}, "podMonitoring": {"enabled": True}},
        "podMonitor and podMonitoring: each would collect each series",
    ),
    "two of the operator's who collect": (
        {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}},
        "podMonitor and serviceMonitor: each would collect each series",
    ),
    "a timeout beyond its interval": (
        {"podMonitor": {"interval": "1m", "scrapeTimeout": "1m1ms"}},
        "podMonitor: the timeout 1m1ms is longer than the interval 1m",
    ),
    "a timeout beyond its interval at Google": (
        {"podMonitoring": {"interval": "5s", "timeout": "10s"}},
        "podMonitoring: the timeout 10s is longer than the interval 5s",
    ),
    "an interval with a fraction": ({"podMonitor": {"interval": "1.5m"}}, "/podMonitor/interval"),
    "an interval that is empty": ({"serviceMonitor": {"interval": ""}}, "/serviceMonitor/interval"),
    "a duration without a number": ({"config": {"policy": {"grace": "..s"}}}, "/config/policy/grace"),
    "a label that selects pods": (
        {"commonLabels": {"app.kubernetes.io/name": "x"}},
        "/commonLabels/app.kubernetes.io~1name",
    ),
    "a label of pods that selects them": (
        {"podLabels": {"app.kubernetes.io/component": "x"}},
        "/podLabels/app.kubernetes.io~1component",
    ),
    "a quota for no class": (
        {"priorityClass": {"name": "", "resourceQuota": {"create": True}}},
        "set priorityClass.name, or resourceQuota.create=false",
    ),
    "a monitor that is null": ({"podMonitor": None}, "missing property 'podMonitor'"),
    "a monitoring of another kind": ({"podMonitoring": {"kind": "PodMonitor"}}, "/podMonitoring/kind"),
    "an argument that is no text": ({"extraArgs": [1]}, "/extraArgs"),
    "rules that are not there": ({"prometheusRule": {"enabled": True}}, "brings no alerts"),
    "runbooks at no address": (
        {"prometheusRule": {"runbookUrl": "wiki"}},
        "prometheusRule.runbookUrl: expected an address that ends with /, such as https://git.example/",
    ),
    "Grafana at no address": ({"prometheusRule": {"grafanaUrl": "grafana"}}, "grafanaUrl: expected an address such as"),
    "bytes with a unit that there is not": (
        {"config": {"policy": {"tolerance": {"bytes": "256MB"}}}},
        "config.policy.tolerance.bytes: expected bytes as a quantity such as 256Mi, got 256MB",
    ),
    "bytes that are thousandths": (
        {"config": {"policy": {"tolerance": {"per_process": "512m"}}}},
        "config.policy.tolerance.per_process: expected bytes as a quantity such as 256Mi, got 512m",
    ),
    "a ladder upside down": (
        {"config": {"policy": {"ladder": ["evict", "notify"]}}},
        "in this order, got evict, notify; fix: write [notify, evict]",
    ),
    "rounds that are hours apart": (
        {"config": {"sampling": {"interval": "5h"}}},
        "config.sampling.interval: expected a duration from 100ms to 60s, got 5h",
    ),
    "rounds without a pause": ({"config": {"sampling": {"interval": "0.05s"}}}, "from 100ms to 60s, got 0.05s"),
    "fast readings that are slow": (
        {"config": {"sampling": {"fast_interval": "6s"}}},
        "config.sampling.fast_interval: expected a duration from 50ms to the interval of 5s, got 6s",
    ),
    "names from no file": ({"config": {"names": {"source": "file"}}}, "/config/names"),
    "names from a file that is not mounted": (
        {"config": {"names": {"source": "file", "file": "/x/names.yaml"}}},
        "config.names.file: nothing is mounted at /x/names.yaml",
    ),
    "a web config that is not mounted": (
        {"config": {"web": {"config_file": "/x"}}},
        "config.web.config_file: nothing is mounted at /x in the daemon's container; fix: mount the file by",
    ),
    "a system that there is not": ({"config": {"limits": {"systems": ["foo"]}}}, "/config/limits/systems/0"),
    "all nodes of the cluster": ({"vendors": []}, "the daemon would run on each node of the cluster; fix: "),
    "alert that is not there": (alerts(GPUGone={"enabled": False}), "alerts.GPUGone: there is no such alert"),
    "threshold of an alert that has none": (alerts(GPULost={"threshold": 1}), "this alert has no threshold"),
    "threshold that is no number": (alerts(GPUThrottled={"threshold": "much"}), "/GPUThrottled/threshold"),
    "duration that is none": (alerts(GPUThrottled={"for": "5 min"}), "/prometheusRule/alerts/GPUThrottled/for"),
    "duration with a unit twice": (alerts(GPUThrottled={"for": "5m5m"}), "/prometheusRule/alerts/GPUThrottled/for"),
    "duration from short to long": (alerts(GPUThrottled={"for": "5m1h"}), "/prometheusRule/alerts/GPUThrottled/for"),
    "percent for a share": (alerts(GPUMemoryNearLimit={"threshold": 90}), "90 is above 1 (unit: share of the limit)"),
    "percent for another share, as text": (
        alerts(GPUIdleAllocation={"threshold": "5"}),
        "5 is above 1 (unit: SM usage",
    ),
    "label that is the metric's name": (all_alerts(__name__="x"), "'__name__' not allowed"),
    "label that our alerts have": (all_alerts(namespace="gpu"), "/prometheusRule/alertLabels/namespace"),
    "label of clusters": (all_alerts(cluster="a"), "/prometheusRule/alertLabels/cluster"),
    "label with a template that does not end": (all_alerts(team="{{ $labels.pod"), "/prometheusRule/alertLabels/team"),
    "key of an alert that is not there": (alerts(GPUThrottled={"window": "5m"}), "'window' not allowed"),
    "severity as a label": (alerts(GPUThrottled={"labels": {"severity": "page"}}), "/GPUThrottled/labels"),
    "group of ours": (groups("gpusteward.limits", "Mine"), "gpusteward.limits is a group of the chart"),
    "group twice": (groups("mine", "Mine", twice=True), "prometheusRule.groups: mine is there twice"),
    "rule without an expression": (
        {"prometheusRule": {"groups": [{"name": "mine", "rules": [{"alert": "Mine", "exp": "up"}]}]}},
        "missing property 'expr'",
    ),
    "rule that is neither": (
        {"prometheusRule": {"groups": [{"name": "mine", "rules": [{"expr": "up"}]}]}},
        "/prometheusRule/groups/0/rules/0",
    ),
    "alert that is not there, before the rules are": (
        {"prometheusRule": {"alerts": {"GPUGone": {"enabled": False}}}},
        "alerts.GPUGone: there is no such alert",
    ),
    "record of ours": (
        groups("mine", "subject:gpusteward_memory_limit:bytes", kind="record"),
        "the chart records subject:gpusteward_memory_limit:bytes itself",
    ),
    "alert of ours": (groups("mine", "GPULost"), "prometheusRule.alerts.GPULost.enabled=false"),
    "board of a kind that is not there": ({"dashboards": {"kind": "Secret"}}, "/dashboards/kind"),
    "dashboards that are not there": ({"dashboards": {"enabled": True}}, "brings no dashboards"),
    "a stop file in a folder of the system": (
        {"config": {"policy": {"stop_file": "/run/gpusteward-stop"}}},
        "config.policy.stop_file: /run is a folder of the system, or of the chart, and the file's folder is mounted",
    ),
    "a stop file in the folder of the config": (
        {"config": {"policy": {"stop_file": "/etc/gpusteward/stop"}}},
        "config.policy.stop_file: /etc/gpusteward is a folder of the system",
    ),
    "a stop file in the folder of the program": (
        {"config": {"policy": {"stop_file": "/opt/gpusteward/stop"}}},
        "config.policy.stop_file: /opt/gpusteward is a folder of the system",
    ),
    "a stop file below the folder of the program": (
        {"config": {"policy": {"stop_file": "/opt/x/../gpusteward/bin/stop"}}},
        "config.policy.stop_file: /opt/gpusteward/bin is a folder of the system",
    ),
    "first declarations among the node's programs": (
        {"config": {"limits": {"first_seen_file": "/usr/bin/first-seen.json"}}},
        "config.limits.first_seen_file: /usr/bin is a folder of the system",
    ),
    "a journal in a folder of the system": (
        {"config": {"policy": {"mode": "enforce", "journal": "/var/lib/x/../gpusteward-journal"}}},
        "fix: give it a folder of its own, such as /var/lib/gpusteward/journal",
    ),
    "first declarations in a folder of the system": (
        {"config": {"limits": {"first_seen_file": "/tmp/first-seen.json"}}},
        "config.limits.first_seen_file: /tmp is a folder of the system",
    ),
    "a DNS policy without its DNS": ({"dnsPolicy": "None"}, "/dnsPolicy"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_work_is_refused_before_it_is_installed(tmp_path: Path, what: str) -> None:
    """Helm refuses, and names the place; what a template refuses has a fix."""
    values, words = REFUSED[what]
    bare = chart.unpacked(tmp_path / "bare")
    if "brings no" in words:
        shutil.rmtree(bare / "alerts")
        shutil.rmtree(bare / "dashboards")
    with pytest.raises(chart.RefusedError) as caught:
        text(written(tmp_path, values), chart=bare)
    assert words in str(caught.value)
    assert "error calling fail" not in str(caught.value) or "fix: " in str(caught.value)


def test_each_refusal_of_a_template_says_what_to_do() -> None:
    """No `fail` without `fix:`."""
    files = [path.read_text() for path in (chart.CHART / "templates").rglob("*") if path.is_file()]
    lines = [line for one in files for line in one.splitlines()]
    refusals = [part for line in lines for part in line.split("{{ fail ")[1:] + line.split("{{- fail ")[1:]]
    assert len(refusals) > 30
    assert [one for one in refusals if "fix: " not in one.partition("}}")[0]] == []


def test_what_is_mounted_may_be_named(tmp_path: Path) -> None:
    """A file of a volume of the operator's own; sampling within its bounds; all nodes by a label."""
    values = {
        "config": {
            "web": {"config_file": "/web/web.yml"},
            "names": {"source": "file", "file": "/names/names.yaml"},
            "sampling": {"interval": "0.5m", "fast_interval": "1.5s"},
            "limits": {"systems": ["kai", "mine"], "rows": [{"system": "mine", "title": "Mine"}]},
            "policy": {"tolerance": {"bytes": 5000, "per_process": "0.5Gi"}},
        },
        "extraVolumeMounts": [{"name": "a", "mountPath": "/web/"}, {"name": "b", "mountPath": "/names/names.yaml"}],
        "extraVolumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "emptyDir": {}}],
        "vendors": [],
        "nodeSelector": {"kubernetes.io/os": "linux"},
    }
    assert config(build(tmp_path, values)).sampling.interval == 30.0


@pytest.mark.parametrize(
    "values",
    [
        {"config": {"policy": {"mode": "observe", "journal": "/var/log/gpusteward.log"}}},
        {"profile": "exporter", "config": {"policy": {"stop_file": "/run/gpusteward-stop"}}},
    ],
    ids=["a journal that no mode writes", "a stop file without an enforcer"],
)
def test_what_is_not_mounted_may_be_in_a_folder_of_the_system(tmp_path: Path, values: dict[str, Any]) -> None:
    """A path that the pod does not use brings in no folder, so nothing is refused."""
    assert not {"/run", "/var/log"} & set(mounts(build(tmp_path, values)))


def test_numbers_stay_whole(tmp_path: Path) -> None:
    """2000000000 is not written as 2e+09, which the daemon would refuse."""
    made = build(tmp_path, {"config": {"policy": {"protect": {"priority_at_least": 2000000000}}}})
    assert "priority_at_least: 2000000000\n" in made.config
    assert build(tmp_path, {"priorityClass": {"resourceQuota": {"create": True, "pods": 2000000}}}).only(
        "ResourceQuota"
    )["spec"]["hard"] == {"pods": "2000000"}


def test_another_release_has_other_names(tmp_path: Path) -> None:
    """Nothing in the cluster is shared by two releases but the admission policies, which name the daemon's account."""
    values = {"config": {"policy": {"mode": "enforce"}}, "evict": {"namespaces": ["team-a"]}}
    mine, other = build(tmp_path, values), build(tmp_path, values, release="t4", namespace="pool")

    def names(made: Rendered) -> set[tuple[str, str]]:
        return {(one["kind"], one["metadata"]["name"]) for one in made.objects}

    kind, both = "ValidatingAdmissionPolicy", ("gpusteward-evictions", "gpusteward-own-node")
    policies = {(f"{kind}{end}", name) for end in ("", "Binding") for name in both}
    assert names(mine) & names(other) == policies | {(f"{kind}Binding", "gpusteward-own-node-probe")}
    assert {one["metadata"].get("namespace", "pool") for one in other.objects} == {"pool", "team-a"}
    for policy in other.of(kind):
        expression = policy["spec"]["matchConditions"][0]["expression"]
        assert expression == 'request.userInfo.username == "system:serviceaccount:pool:t4-gpusteward"'
    probed = bindings(other)["gpusteward-own-node-probe"]["matchResources"]["namespaceSelector"]["matchExpressions"]
    assert [(one["key"], one["values"]) for one in probed] == [("kubernetes.io/metadata.name", ["pool"])]


@pytest.mark.parametrize("name", chart.VARIANTS)
def test_a_name_of_digits_stays_a_text(tmp_path: Path, name: str) -> None:
    """What has a name may be called 2024: where a text is expected, Kubernetes refuses the number 2024."""
    names = {
        "evict": {"namespaces": ["161803"]},
        "fullnameOverride": "141421",
        "serviceAccount": {"name": "173205"},
        "priorityClass": {"name": "223606", "resourceQuota": {"create": True}},
        "nvml": {"runtimeClass": "264575"},
        "web": {"secretName": "331662"},
    }
    shown = text(variant(name), written(tmp_path, names), release="271828", namespace="314159", tests=True)
    found = [one for made in chart.objects(shown) for one in leaves(made)]
    assert {"314159", "173205", "223606", "331662"} <= {*found}
    assert not [one for one in found if isinstance(one, int) and one > 100_000]


def leaves(value: Any) -> Iterator[Any]:
    """All values without parts."""
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from leaves(one)
    else:
        yield value


def test_a_release_that_is_lowered_keeps_the_policies_of_others(tmp_path: Path) -> None:
    """While other releases share the admission policies, the one that has them can go back to `observe`."""
    shares = {"admission": {"serviceAccounts": [{"namespace": "pool", "name": "t4-gpusteward"}]}}
    evicts = build(tmp_path, {**shares, "config": {"policy": {"mode": "enforce"}}})
    lowered, alone = build(tmp_path, shares), build(tmp_path, {})
    for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
        assert lowered.of(kind) == evicts.of(kind) != []
        assert alone.of(kind) == []


def bindings(made: Rendered) -> dict[str, dict[str, Any]]:
    """The bindings of the admission policies, by name."""
    return {one["metadata"]["name"]: one["spec"] for one in made.of("ValidatingAdmissionPolicyBinding")}


def test_consent_is_one_value() -> None:
    """The label by which a namespace consents is the daemon's and both admission policies' at the same time."""
    made = rendered("granted")
    spec, own_node = (one["spec"] for one in made.of("ValidatingAdmissionPolicy"))
    assert config(made).policy.namespaces.label == "example.com/gpu-policy=strict"
    consent = spec["validations"][-1]["expression"]
    assert 'labels["example.com/gpu-policy"] == "strict"' in consent and "gpusteward.io" not in consent
    accounts = [f"system:serviceaccount:{one}:gpusteward" for one in ("gpusteward", "gpus-t4")]
    for condition in (spec["matchConditions"][0], own_node["matchConditions"][0]):
        assert condition["expression"] == f'request.userInfo.username in ["{accounts[0]}", "{accounts[1]}"]'
    bound = {name: one.get("matchResources", {}).get("namespaceSelector") for name, one in bindings(made).items()}
    asked = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["gpusteward", "gpus-t4"]}
    assert bound == {
        "gpusteward-evictions": None,
        "gpusteward-own-node": {"matchLabels": {"example.com/gpu-policy": "strict"}},
        "gpusteward-own-node-probe": {"matchExpressions": [asked]},
    }


WAYS = {
    "observe": ("nvidia", {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "utility"}),
    "mig": (
        "nvidia",
        {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "utility", "NVIDIA_MIG_MONITOR_DEVICES": "all"},
    ),
    "management": (
        "nvidia",
        {"NVIDIA_VISIBLE_DEVICES": "management.nvidia.com/gpu=all", "NVIDIA_DRIVER_CAPABILITIES": "utility"},
    ),
    "cdi": (None, {}),
    "host-path": (None, {"LD_LIBRARY_PATH": "/usr/local/nvidia/lib64"}),
    "simulated": (None, {}),
    "drm": (None, {}),
}


@pytest.mark.parametrize("name", WAYS)
def test_the_ways_to_the_driver(name: str) -> None:
    """Runtime class and environment, or a CDI annotation, or the library's file of the host; never two of them."""
    made = rendered(name)
    runtime, environment = WAYS[name]
    assert made.pod.get("runtimeClassName") == runtime
    found = {one["name"]: one.get("value") for one in made.container["env"] if "value" in one}
    assert found == {"GPUSTEWARD_CONFIG": "/etc/gpusteward/config.yaml", **environment}
    annotations = made.only("DaemonSet")["spec"]["template"]["metadata"]["annotations"]
    device = annotations.get("nvidia.cdi.k8s.io/container.gpusteward")
    assert device == ("management.nvidia.com/gpu=all" if name == "cdi" else None)
    library = [one["mountPath"] for one in made.container["volumeMounts"] if one["name"] == "nvml"]
    assert library == (["/usr/local/nvidia/lib64/libnvidia-ml.so.1"] if name == "host-path" else [])


def test_the_nodes_of_each_vendor() -> None:
    """
    By the labels that vendors put there, and Node Feature Discovery: by vendor, or by class and vendor as it comes.

    A VGA controller of Intel is on any desktop, and makes no node of GPUs.
    """

    def keys(name: str) -> list[str]:
        affinity = rendered(name).pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        terms = [term["matchExpressions"][0]["key"] for term in affinity["nodeSelectorTerms"]]
        return [key.removeprefix("feature.node.kubernetes.io/") for key in terms]

    assert keys("observe") == [
        "nvidia.com/gpu.present",
        "pci-10de.present",
        "pci-0300_10de.present",
        "pci-0302_10de.present",
        "cloud.google.com/gke-accelerator",
    ]
    assert keys("drm") == [
        "amd-gpu",
        "pci-1002.present",
        *(f"pci-{kind}_1002.present" for kind in ("0300", "0302", "0380", "1200")),
        "intel.feature.node.kubernetes.io/gpu",
        "pci-0380_8086.present",
    ]


def test_another_library_beside_nvidias(tmp_path: Path) -> None:
    """For a library of another vendor, one variable names both folders, once."""
    both = {"name": "LD_LIBRARY_PATH", "value": "/usr/local/nvidia/lib64:/opt/dcmi"}
    made = build(tmp_path, {"nvml": {"access": "hostPath"}, "extraEnv": [both]})
    assert [one for one in made.container["env"] if one["name"] == "LD_LIBRARY_PATH"] == [both]


def test_the_daemon_knows_who_it_is() -> None:
    """Node, pod and namespace come from the downward API, so that the daemon protects itself."""
    found = {
        one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"]
        for one in rendered("evict").container["env"]
        if "valueFrom" in one
    }
    assert found == {
        "NODE_NAME": "spec.nodeName",
        "POD_NAME": "metadata.name",
        "POD_NAMESPACE": "metadata.namespace",
        "POD_UID": "metadata.uid",
    }


def test_what_an_operator_adds_is_there() -> None:
    """Labels, annotations, variables, another registry and a digest."""
    made = rendered("cdi")
    template = made.only("DaemonSet")["spec"]["template"]["metadata"]
    assert template["labels"].items() >= {"team": "infra", "cost-centre": "7"}.items()
    assert template["annotations"]["example.com/owner"] == "infra"
    assert all(one["metadata"]["labels"]["cost-centre"] == "7" for one in made.objects)
    assert {"name": "MALLOC_TRIM_THRESHOLD_", "value": "131072"} in rendered("granted").container["env"]
    assert made.container["image"].startswith("registry.example.com/infra/gpusteward@sha256:0123")
    assert made.pod["imagePullSecrets"] == [{"name": "pull"}]


def test_a_registry_for_all_charts_goes_first(tmp_path: Path) -> None:
    """global.imageRegistry takes the place of image.registry and leaves the repository; `helm test` has the same."""
    values = {
        "global": {"imageRegistry": "mirror.example.com", "other": 1},
        "image": {"registry": "registry.example.com"},
    }
    made = Rendered(chart.objects(text(written(tmp_path, values), tests=True)))
    images = {one["spec"]["containers"][0]["image"] for one in made.of("Pod")} | {made.container["image"]}
    assert {image.partition(":")[0] for image in images} == {"mirror.example.com/gpusteward"}


OWN = "sha256:" + "a" * 64
MINE = "sha256:" + "b" * 64


@pytest.mark.parametrize(
    ("values", "image"),
    [
        ({}, f"ghcr.io/team/gpusteward@{OWN}"),
        ({"global": {"imageRegistry": "mirror.my.org"}}, f"mirror.my.org/team/gpusteward@{OWN}"),
        ({"image": {"tag": "1.2.3"}}, "ghcr.io/team/gpusteward:1.2.3"),
        ({"image": {"digest": MINE}}, f"ghcr.io/team/gpusteward@{MINE}"),
        ({"image": {"repository": "gpusteward"}}, "ghcr.io/gpusteward:{}"),
        ({"image": {"registry": "", "repository": "my.org/gpusteward"}}, "my.org/gpusteward:{}"),
        ({"image": {"registry": "my.org", "digest": MINE}}, f"my.org/team/gpusteward@{MINE}"),
    ],
)
def test_a_published_chart_names_its_image_until_a_value_does(
    tmp_path: Path, values: dict[str, Any], image: str
) -> None:
    """The release's digest belongs to the release's image: it is laid over no registry, repository or tag of a user."""
    made = chart.unpacked(tmp_path / "made")
    publish(made, "ghcr.io/team", OWN)
    version = yaml.safe_load((made / "Chart.yaml").read_text())["appVersion"]
    got = Rendered(chart.objects(text(written(tmp_path, values), chart=made, tests=True)))
    assert {got.container["image"], got.only("Pod")["spec"]["containers"][0]["image"]} == {image.format(version)}


@pytest.mark.parametrize("enabled", [True, False])
def test_a_chart_above_has_it_as_a_dependency(tmp_path: Path, enabled: bool) -> None:
    """By the usual condition, `gpusteward.enabled`, and with what it shares below `global`."""
    chart.unpacked(tmp_path / "above" / "charts")
    dependency = {"name": "gpusteward", "version": ">=0.0.0", "repository": "", "condition": "gpusteward.enabled"}
    about = {"apiVersion": "v2", "name": "above", "version": "1.0.0", "dependencies": [dependency]}
    (tmp_path / "above" / "Chart.yaml").write_text(yaml.safe_dump(about))
    shared = {"imageRegistry": "mirror.example.com", "storageClass": "fast"}
    values = {"global": shared, "gpusteward": {"enabled": enabled, "podMonitor": {"enabled": True}}}
    made = Rendered(chart.objects(text(written(tmp_path, values), chart=tmp_path / "above")))
    assert [one["metadata"]["name"] for one in made.of("PodMonitor")] == ["gpusteward"] * enabled
    assert not enabled or made.container["image"].startswith("mirror.example.com/gpusteward:")


def test_arguments_and_dns_are_the_operators(tmp_path: Path) -> None:
    """extraArgs stand behind ours, as they are written; without a DNS policy the cluster's holds."""
    made = build(tmp_path, {"extraArgs": ["--log.level=debug", "--x=a, b: c"], "dnsPolicy": "Default"})
    assert made.container["args"] == ["run", "--config=/etc/gpusteward/config.yaml", "--log.level=debug", "--x=a, b: c"]
    assert made.pod["dnsPolicy"] == "Default" and "dnsPolicy" not in rendered("observe").pod


def test_openshift_gets_the_binding_that_is_named(tmp_path: Path) -> None:
    """A RoleBinding to OpenShift's role of that name, in the daemon's namespace alone; without a name there is none."""
    (one,) = build(tmp_path, {"openshift": {"scc": "privileged"}}).of("RoleBinding")
    assert one["roleRef"]["name"] == "system:openshift:scc:privileged" and one["metadata"]["namespace"] == RELEASE
    assert not rendered("observe").of("RoleBinding")


def test_without_the_policy_there_is_no_canary(tmp_path: Path) -> None:
    """Without the admission policy, the daemon gets no right in its own namespace."""
    policy = {"mode": "enforce", "admission": "ignore"}
    made = build(tmp_path, {"config": {"policy": policy}, "admission": {"create": False}})
    assert made.granted() == READS | TELLS
    assert not made.of("RoleBinding") and not made.of("ValidatingAdmissionPolicy")


@pytest.mark.parametrize(("name", "kind"), [("monitored", "PodMonitor"), ("service-monitor", "ServiceMonitor")])
def test_workloads_keep_their_names_when_scraped(name: str, kind: str) -> None:
    """honorLabels: namespace, pod and container are the workload's; instance is the node."""
    spec = rendered(name).only(kind)["spec"]
    (endpoint,) = spec.get("podMetricsEndpoints") or spec["endpoints"]
    assert endpoint["honorLabels"] is True
    first = endpoint["relabelings"][0]
    assert (first["sourceLabels"], first["targetLabel"]) == (["__meta_kubernetes_pod_node_name"], "instance")
    labels = rendered(name).only("DaemonSet")["spec"]["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize("kind", ["podMonitor", "serviceMonitor"])
def test_the_daemons_pod_is_on_no_series_where_prometheus_would_write_it(tmp_path: Path, kind: str) -> None:
    """
    With the exported labels a new pod of the daemon makes no new series.

    Otherwise each restart would begin each `for` anew, and GPUIdleAllocationLong would seldom last a day.
    """

    def actions(names: str) -> list[tuple[str, str]]:
        values = {"config": {"metrics": {"workload_labels": names}}, kind: {"enabled": True}}
        spec = build(tmp_path, values).only(f"{kind[0].upper()}{kind[1:]}")["spec"]
        (endpoint,) = spec.get("podMetricsEndpoints") or spec["endpoints"]
        return [(one["action"], one.get("regex", "")) for one in endpoint["relabelings"]]

    assert actions("plain") == [("replace", "")]
    assert actions("exported") == [("replace", ""), ("labeldrop", "pod|container")]


MONITORED = {
    "podMonitor": "PodMonitor",
    "serviceMonitor": "ServiceMonitor",
    "podMonitoring": "ClusterPodMonitoring",
    "prometheusRule": "PrometheusRule",
}


@pytest.mark.parametrize("value", MONITORED)
def test_one_value_labels_all_that_prometheus_looks_for(tmp_path: Path, value: str) -> None:
    """
    monitoring has labels and annotations of each monitor and of the rules.

    A label of the object itself goes before one of these, and that before one of commonLabels; no key is there twice.
    """
    values = {
        "commonLabels": {"release": "none", "team": "common", "cost": "7"},
        "monitoring": {"labels": {"release": "kps", "team": "all"}, "annotations": {"sync-wave": "5"}},
        value: {"enabled": True, "labels": {"team": "own"}},
    }
    made = build(tmp_path, values)
    about = made.only(MONITORED[value])["metadata"]
    assert about["labels"].items() >= {"release": "kps", "team": "own", "cost": "7"}.items()
    assert about["annotations"] == {"sync-wave": "5"}
    assert made.only("DaemonSet")["metadata"]["labels"]["release"] == "none"
    assert "annotations" not in made.only("DaemonSet")["metadata"]


def test_maps_of_the_values_meet_without_a_key_twice(tmp_path: Path) -> None:
    """Labels and annotations of pods and boards: the one that is nearer to the object holds."""
    values = {
        "commonLabels": {"team": "common", "grafana_dashboard": "0"},
        "podLabels": {"team": "pods"},
        "podAnnotations": {"kubectl.kubernetes.io/default-container": "mine"},
        "dashboards": {"enabled": True},
    }
    made = build(tmp_path, values)
    template = made.only("DaemonSet")["spec"]["template"]["metadata"]
    assert template["labels"]["team"] == "pods"
    assert template["annotations"]["kubectl.kubernetes.io/default-container"] == "mine"
    boards = [one for one in made.of("ConfigMap") if "config.yaml" not in one["data"]]
    assert {one["metadata"]["labels"]["grafana_dashboard"] for one in boards} == {"1"}


def test_a_value_that_is_left_empty_is_none(tmp_path: Path) -> None:
    """A key with nothing behind it, as where all lines below it are comments: no template fails."""
    nothing = ("commonLabels", "podLabels", "podAnnotations", "nodeSelector", "tolerations", "monitoring", "extraEnv")
    empty: dict[str, Any] = dict.fromkeys((*nothing, "podMonitoring", "appArmorProfile", "seccompProfile", "affinity"))
    rule = dict.fromkeys(("alerts", "alertLabels", "groups", "labels", "dcgm", "grafanaUrl", "runbookUrl"))
    monitor = dict.fromkeys(("labels", "relabelings", "scrapeTimeout", "tlsConfig"))
    on = {"enabled": True}
    values = {
        **empty,
        "prometheusRule": {**on, **rule},
        "podMonitor": {**on, **monitor},
        "dashboards": {**on, "labels": None},
    }
    assert build(tmp_path, values).kinds() == build(tmp_path, {key: on for key in values if key not in empty}).kinds()


@pytest.mark.parametrize("kind", ["podMonitor", "serviceMonitor"])
def test_the_options_of_a_monitor_reach_it(tmp_path: Path, kind: str) -> None:
    """What is empty is not written, so that the operator's own defaults hold."""
    options = {
        "jobLabel": "app.kubernetes.io/name",
        "podTargetLabels": ["team"],
        "sampleLimit": 5000,
        "scrapeClass": "mesh",
    }
    name = f"{kind[0].upper()}{kind[1:]}"
    spec = build(tmp_path, {kind: {"enabled": True, **options}}).only(name)["spec"]
    assert spec.items() >= options.items()
    assert not options.keys() & build(tmp_path, {kind: {"enabled": True}}).only(name)["spec"].keys()


@pytest.mark.parametrize("kind", ["ClusterPodMonitoring", "PodMonitoring"])
def test_googles_monitor_writes_nothing_over_the_workload(tmp_path: Path, kind: str) -> None:
    """No label of the daemon's own pod is set, but the namespace, which PodMonitoring always sets."""
    made = build(tmp_path, {"podMonitoring": {"enabled": True, "kind": kind}}).only(kind)
    assert made["spec"]["targetLabels"] == {"metadata": []}
    assert made["spec"]["endpoints"] == [{"port": "metrics", "path": "/metrics", "scheme": "http", "interval": "30s"}]
    assert ("namespace" in made["metadata"]) is (kind == "PodMonitoring")
    labels = rendered("observe").only("DaemonSet")["spec"]["template"]["metadata"]["labels"]
    assert made["spec"]["selector"]["matchLabels"].items() <= labels.items()


def probes(made: Rendered) -> list[dict[str, Any]]:
    return [made.container[f"{one}Probe"]["httpGet"] for one in ("liveness", "readiness")]


def test_with_tls_probes_and_monitors_speak_it(tmp_path: Path) -> None:
    """The kubelet asks for /healthz and /readyz by HTTPS."""
    made = build(tmp_path, {"web": {"secretName": "gpusteward-web", "tls": True}})
    assert [(one["path"], one["port"], one["scheme"]) for one in probes(made)] == [
        ("/healthz", "metrics", "HTTPS"),
        ("/readyz", "metrics", "HTTPS"),
    ]
    assert config(made).web.config_file == Path("/etc/gpusteward-web/web-config.yml")
    (endpoint,) = rendered("mutual-tls").only("PodMonitor")["spec"]["podMetricsEndpoints"]
    assert endpoint["scheme"] == "https" and endpoint["tlsConfig"]["serverName"] == "gpusteward"


def test_with_client_certificates_the_probes_have_a_port(tmp_path: Path) -> None:
    """The kubelet has no certificate: it asks a plain port, which the daemon opens for the probes alone."""
    made = rendered("mutual-tls")
    assert [(one["port"], one["scheme"]) for one in probes(made)] == [("probes", "HTTP")] * 2
    ports = {port["name"]: port["containerPort"] for port in made.container["ports"]}
    assert (ports["metrics"], ports["probes"]) == (9479, 9480)
    assert config(made).web.probe_address == ":9480"
    web = {"secretName": "gpusteward-web", "tls": True, "clientCertificates": True}
    assert config(build(tmp_path, {"web": web})).web.probe_address == ":9479"


def test_who_may_scrape_is_said(tmp_path: Path) -> None:
    """Only named peers reach the metrics port, without a further switch; a policy without names admits no peer."""
    spec = rendered("monitored").only("NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress"]
    ((port,),) = (one["ports"] for one in spec["ingress"])
    assert port == {"port": "metrics", "protocol": "TCP"}
    closed = build(tmp_path, {"networkPolicy": {"enabled": True}}).only("NetworkPolicy")["spec"]
    assert closed["policyTypes"] == ["Ingress"] and "ingress" not in closed
    peers: list[dict[str, Any]] = [{"podSelector": {}}]
    assert not build(tmp_path, {"networkPolicy": {"enabled": False, "from": peers}}).of("NetworkPolicy")
    assert not build(tmp_path, {}).of("NetworkPolicy")


def test_an_open_port_is_warned_of(tmp_path: Path) -> None:
    """The notes say that every pod reaches the port, and what to set; with a policy they do not."""
    assert "NO NETWORK POLICY" in chart.notes(tmp_path, {})
    named: dict[str, Any] = {"networkPolicy": {"from": [{"podSelector": {}}]}}
    assert "NO NETWORK POLICY" not in chart.notes(tmp_path, named)


def test_boards_without_the_rules_that_they_draw_are_warned_of(tmp_path: Path) -> None:
    """Half of the panels would be empty, and nothing else would say why."""
    boards = {"dashboards": {"enabled": True}}
    assert "WITHOUT RECORDING RULES" in chart.notes(tmp_path, boards)
    assert "WITHOUT RECORDING RULES" not in chart.notes(tmp_path, {**boards, "prometheusRule": {"enabled": True}})
    assert "WITHOUT RECORDING RULES" not in chart.notes(tmp_path, {})


def test_namespaces_without_a_right_to_act_there_are_noted(tmp_path: Path) -> None:
    """In mode observe no RoleBinding is made; with the right ahead of the mode it is."""
    named: dict[str, Any] = {"evict": {"namespaces": ["team-a"]}}
    assert "evict.namespaces has no effect" in chart.notes(tmp_path, named)
    assert "has no effect" not in chart.notes(tmp_path, {**named, "rights": ["events", "evict"]})
    assert "has no effect" not in chart.notes(tmp_path, {**named, "config": {"policy": {"mode": "enforce"}}})


def test_boards_and_alerts_are_taken_as_they_are(tmp_path: Path) -> None:
    """What Grafana and Prometheus write in braces is theirs, and stays."""
    made = chart.unpacked(tmp_path / "made")
    for folder in ("alerts", "dashboards"):
        shutil.rmtree(made / folder)
    board = '{"title": "{{pod}} ${datasource}"}\n'
    (made / "dashboards").mkdir()
    (made / "dashboards" / "node.json").write_text(board)
    rule = {
        "alert": "A", "expr": "up == 0", "labels": {"severity": "info"}, "annotations": {
            "summary": "{{ $labels.pod }}", "runbook_url": "https://a.example", "dashboard_url": "https://b.example",
        },
    }  # fmt: skip
    groups = [{"name": "theirs", "rules": [rule]}]
    (made / "alerts").mkdir()
    (made / "alerts" / "gpu.yaml").write_text(yaml.safe_dump({"groups": groups}))
    values = {"dashboards": {"enabled": True, "namespace": "grafana"}, "prometheusRule": {"enabled": True}}
    got = Rendered(chart.objects(text(written(tmp_path, values), chart=made)))
    (boards,) = (one for one in got.of("ConfigMap") if one["metadata"]["namespace"] == "grafana")
    assert boards["data"] == {"node.json": board}
    assert boards["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert got.only("PrometheusRule")["spec"]["groups"] == groups


def test_the_chart_brings_the_alerts() -> None:
    """Those of alerts/, word by word, before the groups of the values."""
    files = sorted((chart.DEPLOY.parent / "alerts").glob("*.yaml"))
    groups = [group for file in files for group in yaml.safe_load(file.read_text())["groups"]]
    *others, own = rendered("monitored").only("PrometheusRule")["spec"]["groups"]
    assert own["name"] == "gpusteward.own" and groups and others == groups


def test_links_are_absolute_and_lead_where_the_values_say(tmp_path: Path) -> None:
    """Runbooks of the project's repository, or of one's own; boards of a Grafana that has to be named."""
    home = yaml.safe_load((chart.CHART / "Chart.yaml").read_text())["home"]
    project = tomllib.loads((chart.DEPLOY.parent / "pyproject.toml").read_text())["project"]
    assert project["urls"]["Repository"] == home

    def urls(kind: str, **values: object) -> list[str]:
        given = {"prometheusRule": {"enabled": True, **values}}
        groups = build(tmp_path, given).only("PrometheusRule")["spec"]["groups"]
        return [rule["annotations"][kind] for group in groups for rule in group["rules"] if "alert" in rule]

    runbooks, base = urls("runbook_url"), f"{home}/blob/main/"
    assert all((chart.DEPLOY.parent / one.removeprefix(base)).is_file() for one in runbooks)
    mine = "https://git.example/gpusteward/blob/main/"
    assert urls("runbook_url", runbookUrl=mine) == [mine + one.removeprefix(base) for one in runbooks]
    boards, base = urls("dashboard_url"), "https://grafana.example.com/d/gpusteward-"
    assert all(one.startswith(base) for one in boards)
    for grafana in ("https://grafana.my.org/at", "https://grafana.my.org/at/"):
        wanted = [f"https://grafana.my.org/at/d/gpusteward-{one.removeprefix(base)}" for one in boards]
        assert urls("dashboard_url", grafanaUrl=grafana) == wanted


def test_a_disabled_alert_may_be_replaced_by_ones_own(tmp_path: Path) -> None:
    """Then the name is there once, with the user's expression; all other groups stay."""
    mine = groups("mine", "GPULost")["prometheusRule"]
    values = {**mine, "alerts": {"GPULost": {"enabled": False}}}
    got = build(tmp_path, {"prometheusRule": values}).only("PrometheusRule")["spec"]["groups"]
    named = [rule for group in got for rule in group["rules"] if rule.get("alert") == "GPULost"]
    ours = len(list((chart.DEPLOY.parent / "alerts").glob("*.yaml")))
    assert [one["expr"] for one in named] == ["vector(1)"] and len(got) == ours + 1


def test_rules_have_the_labels_of_all_monitoring(tmp_path: Path) -> None:
    """By monitoring.labels a stock Prometheus finds them; their own labels win."""
    both = {"monitoring": {"labels": {"release": "stack", "a": "of all"}}}
    rule = build(tmp_path, {**both, "prometheusRule": {"enabled": True, "labels": {"a": "own"}}}).only("PrometheusRule")
    assert {"release": "stack", "a": "own"}.items() <= rule["metadata"]["labels"].items()


def test_boards_for_grafana_operator(tmp_path: Path) -> None:
    """The same boards as GrafanaDashboard, with the fields of grafana-operator's v1beta1; and no ConfigMap of them."""
    values = {
        "enabled": True,
        "kind": "GrafanaDashboard",
        "folder": "GPUs",
        "instanceSelector": {"matchLabels": {"dashboards": None, "grafana": "main"}},
    }
    made, maps = build(tmp_path, {"dashboards": values}), build(tmp_path, {"dashboards": {"enabled": True}})
    boards, others = made.of("GrafanaDashboard"), maps.of("ConfigMap")
    by_file = {key: text for one in others for key, text in one["data"].items() if key.endswith(".json")}
    assert [one["spec"].pop("json") for one in boards] == list(by_file.values()) and len(boards) == 7
    for one in boards:
        assert one["apiVersion"] == "grafana.integreatly.org/v1beta1"
        selector = {"matchLabels": {"grafana": "main"}}
        assert one["spec"] == {"instanceSelector": selector, "allowCrossNamespaceImport": True, "folder": "GPUs"}
    assert len(made.of("ConfigMap")) == len(others) - len(boards)


@pytest.mark.parametrize(("value", "name"), [(True, "rules.yaml"), ("4.8", "rules.yaml"), ("4.9", "rules-4.9.yaml")])
@pytest.mark.parametrize("labels", ["plain", "exported"])
def test_the_names_of_dcgm_are_there_when_wanted(value: object, name: str, labels: str, tmp_path: Path) -> None:
    """prometheusRule.dcgm adds the group of one generation; without it nothing is recorded under others' names."""
    file = chart.DEPLOY.parent / "alerts" / ("" if labels == "plain" else labels) / "dcgm" / name
    config = {"config": {"metrics": {"workload_labels": labels}}}
    wanted = build(tmp_path, {**config, "prometheusRule": {"enabled": True, "dcgm": value}}).only("PrometheusRule")[
        "spec"
    ]
    plain = build(tmp_path, {**config, "prometheusRule": {"enabled": True}}).only("PrometheusRule")["spec"]
    assert wanted["groups"] == [*plain["groups"], *yaml.safe_load(file.read_text())["groups"]]
    assert "DCGM" not in str(plain)


def test_the_notes_say_the_mode_loudly(tmp_path: Path) -> None:
    """Enforce in capitals, with where, and how to stop it; what is read-only says so, too."""

    def said(**policy: object) -> str:
        return chart.notes(tmp_path, {"config": {"policy": policy}, "evict": {"namespaces": ["team-a"]}})

    loud = said(mode="enforce")
    assert "MODE ENFORCE" in loud and "ACTS ON PODS" in loud and "KILLS" not in loud
    assert "Where: team-a" in loud and "touch /run/gpusteward/stop" in loud
    assert "IT KILLS CONTAINERS" in said(mode="enforce", ladder=["notify", "kill"])
    for mode in ("off", "observe", "warn", "dry-run"):
        quiet = said(mode=mode)
        assert f"MODE {mode.upper()}" in quiet and "ENFORCE" not in quiet and "acts on no pod" in quiet
    assert "READ-ONLY" in chart.notes(tmp_path, {"profile": "exporter"})


def test_lint_is_content() -> None:
    """Helm's own lint finds nothing to warn of in any variant."""
    chart.lint()


def test_helm_renders_it_without_a_word_about_kubernetes() -> None:
    """`helm template` as a reader types it: our Helm takes a Kubernetes for the cluster's that the chart supports."""
    command = [str(build_program("helm")), "template", "x", str(chart.CHART)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "kind: DaemonSet" in done.stdout, done.stderr


def test_both_ends_of_what_is_supported_render_the_same() -> None:
    """What needs no newer Kubernetes is the same on the oldest; what is older than the oldest is refused."""
    assert rendered("monitored", OLDEST) == rendered("monitored")
    with pytest.raises(chart.RefusedError, match="kubeVersion"):
        rendered("observe", "1.24.0")


@pytest.mark.parametrize("name", chart.VARIANTS)
def test_only_what_needs_a_newer_kubernetes_asks_for_it(name: str) -> None:
    """Before 1.30 evictions and profiles of AppArmor are refused with what to do; all other variants render."""
    if name not in chart.NOT_ON_OLD_ONES:
        assert rendered(name, "1.29.0").of("DaemonSet")
        return
    with pytest.raises(chart.RefusedError, match=r"wants? Kubernetes 1\.30 or later, and this is v1\.29\.0: .*; fix: "):
        rendered(name, "1.29.0")
