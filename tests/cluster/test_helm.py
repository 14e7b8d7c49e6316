"""
Installed as a user installs it: by helm, or by kubectl from the plain manifests; its pod runs this checkout's image.

In: the chart and the manifests that deploy/ ships, with values that lend the fake driver. Out: what the daemon's own
pod exports and does with its own token and rights, and what is left in the cluster when it is gone: nothing.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from cluster.bed import NODE_NAME, Bed
from cluster.client import Object, until
from cluster.installed import (
    Installed,
    Release,
    gpu_node,
    objects,
    released,
    same_objects,
    values,
)
from cluster.manifests import disruption_budget
from cluster.overlays import overlay
from cluster.stage import NAMESPACE, Stage, ready_pods, truth
from cluster.stories import emptied, evictable, slow
from cluster.test_decide import CONSENT, bare, create, declaring, deployment, label, lives, pods_of
from deploy.chart import packed
from driver.node import GiB
from journals import decided
from scraped import series

pytestmark = [pytest.mark.cluster, pytest.mark.versions]

CAP_KILL = 1 << 5


@pytest.fixture
async def release(cluster: Bed, stage: Stage, image: str, tmp_path: Path) -> AsyncIterator[Release]:
    """A namespace in which helm may install the chart."""
    async with released(cluster, stage.api, tmp_path) as made:
        yield made


@pytest.fixture
async def stubborn(stage: Stage) -> AsyncIterator[str]:
    """A namespace for pods that do not go by themselves."""
    async with emptied(stage) as name:
        yield name


def used(page: str, namespace: str) -> dict[str, float]:
    """Bytes by pod, as the page has them."""
    found = series(page, "container_memory_used_bytes", "namespace", "pod")
    return {pod: size for (where, pod), size in found.items() if where == namespace and size}


def workloads(page: str, namespace: str) -> set[str]:
    """Names of what controls the pods."""
    return {name for where, _, name in series(page, "pod_info", "namespace", "pod", "workload") if where == namespace}


def config_of(release: Release) -> Object:
    """What a person who edits the ConfigMap sees."""
    path = "-o=jsonpath={.data.config\\.yaml}"
    return dict(yaml.safe_load(release.bed.kubectl("-n", release.namespace, "get", "configmap", release.account, path)))


def sees_its_leaf(release: Release, pod: Object) -> bool:
    """Whether its container sees its own cgroup in the host's tree, which it cannot write in."""
    say = """
import os
print(*(line for line in open("/proc/self/mountinfo") if line.split()[4] == "/host/sys/fs/cgroup"))
print(*(folder for folder, _, _ in os.walk("/host/sys/fs/cgroup")), sep="\\n")
"""
    mount, *folders = release.inside(say).strip().splitlines()
    assert "ro" in mount.split()[5].split(","), mount
    (status,) = pod["status"]["containerStatuses"]
    leaf = f"/pod{pod['metadata']['uid']}/{status['containerID'].removeprefix('containerd://')}"
    return any(folder.endswith(leaf) for folder in folders)


async def test_install_upgrade_rollback_uninstall(release: Release, stage: Stage, namespace: str, image: str) -> None:
    """
    Installed, it names the workloads, and has the host's cgroups where that was asked for, read-only. The pod of
    `helm test` reaches it over the pod network.

    A mode that wants no more of the pod needs no new pod; one that does gets one.

    Rolled back it is as it was; uninstalled, every object of the cluster is as before, and no workload noticed.
    """
    await create(stage, namespace, deployment("train", "1GiB", "2Gi"), bare("serve", "2GiB", "4Gi"))
    pods = await ready_pods(stage, namespace, 2)
    expected = {name: size for (_, name, _), size in (await truth(stage, namespace)).items()}
    before = await objects(stage.api)
    notes = release.helm("install", values=values(stage.bed, image, {}, hostCgroups=True))
    assert "MODE OBSERVE" in notes
    first = await release.pod()
    assert sees_its_leaf(release, first)
    await release.shows(lambda page: used(page, namespace) == expected or None, "the workloads by name")
    assert release.capabilities() == 0
    said = release.helm("test", "--logs", wait=False)
    assert "Phase:          Succeeded" in said and f"\n{NODE_NAME}: ready\n" in said, said
    await release.shows(lambda page: "train" in workloads(page, namespace) or None, "the Deployment behind its pod")

    release.helm("upgrade", values=values(stage.bed, image, {"mode": "warn"}, hostCgroups=True))
    await release.mode("warn")
    assert lives([await release.pod()]) == lives([first]), "told by the ConfigMap"

    enforcing = values(stage.bed, image, {"mode": "enforce"}, evict={"namespaces": [namespace]}, hostCgroups=True)
    release.helm("upgrade", values=enforcing)
    second = await release.pod(besides=first["metadata"]["uid"])
    await release.mode("enforce")

    release.helm("rollback", "1")
    await release.pod(besides=second["metadata"]["uid"])
    await release.mode("observe")
    assert not await release.refused()

    release.helm("uninstall")
    await same_objects(stage.api, before)
    assert lives(await pods_of(stage, namespace)) == lives(pods)


async def test_helm_test_says_why_no_daemon_runs(release: Release, stage: Stage, image: str) -> None:
    """
    `helm test` fails, and the log of its pod names the cause: no node fits, or Pod Security refuses the pods.

    The pod that failed stays for its log; nothing else of the test does.
    """

    def tested() -> str:
        with pytest.raises(subprocess.CalledProcessError):
            release.helm("test", "--timeout=2m", wait=False)  # Helm waits so long, also where the pod has failed
        return release.bed.kubectl("-n", release.namespace, "logs", f"{release.account}-test")

    given = values(stage.bed, image, {})
    release.helm("install", values={**given, "nodeSelector": {"nope": "x"}}, wait=False)
    assert f"DaemonSet {release.account}: no node fits: by node selector {{" in tested()

    enforce = {"pod-security.kubernetes.io/enforce": "baseline"}
    await stage.api.patch(f"/api/v1/namespaces/{release.namespace}", {"metadata": {"labels": enforce}})
    release.helm("upgrade", values=given, wait=False)
    said = tested()
    assert "0 of 1 pods exist: " in said and 'violates PodSecurity "baseline:latest": ' in said
    assert f"fix: kubectl label --overwrite namespace {release.namespace} pod-security" in said
    names = release.bed.kubectl("-n", release.namespace, "get", "pods,roles,rolebindings,serviceaccounts", "-o=name")
    assert [one for one in names.split() if one.endswith("-test")] == [f"pod/{release.account}-test"]


async def test_what_the_cluster_lacks_or_has_already_is_said(release: Release, stage: Stage, image: str) -> None:
    """Helm asks the cluster before it installs: for the operator's kinds, namespaces, classes, policies of another."""

    def refused(name: str, **more: object) -> str:
        file = release.folder / "refused.json"
        file.write_text(json.dumps(values(stage.bed, image, {"mode": "enforce"}, **more)))
        with pytest.raises(subprocess.CalledProcessError) as caught:
            stage.bed.helm("install", name, str(packed()), f"--namespace={release.namespace}", f"--values={file}")
        return str(caught.value.stderr)

    told = refused("fleet", podMonitor={"enabled": True})
    assert "podMonitor.enabled: this cluster has no kind PodMonitor" in told and "fix: install the operator" in told
    assert "this cluster has no namespace nope; fix: " in refused("fleet", evict={"namespaces": ["nope"]})
    told = refused("fleet", nvml={"access": "runtimeClass", "runtimeClass": "nvidai"})
    assert "no RuntimeClass nvidai" in told and "fix: correct nvml.runtimeClass" in told

    release.helm("install", values=values(stage.bed, image, {"mode": "enforce"}), wait=False)
    told = refused("other")
    assert f"belong to the release fleet in the namespace {release.namespace}; fix: set admission.create=false" in told


async def test_it_evicts_from_its_own_pod_and_hands_over(
    release: Release, stage: Stage, stubborn: str, image: str
) -> None:
    """
    The pod that is over is evicted with the daemon's own token. Before it is gone the daemon is replaced.

    Its successor finds the action in the journal of the node and sees it to its end; it was asked for once. An edit of
    the ConfigMap counts then without a new pod.
    """
    namespace = stubborn
    await label(stage, namespace, CONSENT)
    greedy = declaring(slow("greedy"), "1Gi")
    await create(stage, namespace, greedy, bare("quiet", "1GiB", "2Gi"))
    pods = await ready_pods(stage, namespace, 2)
    (victim,) = (one["metadata"] for one in pods if one["metadata"]["labels"]["app"] == "greedy")
    before = await objects(stage.api, but=namespace)
    policy = {"mode": "enforce", "trigger": "limit"}
    given = values(stage.bed, image, policy, evict={"namespaces": [namespace]}, rights=["events", "evict"])
    release.helm("install", values=given)
    first = await release.pod()
    await release.mode("enforce")
    stage.bed.driver.workload(victim["uid"]).alloc("visible", 3 * GiB)
    await release.told(victim["uid"], "intent", "sent", "acked accepted")

    release.helm("upgrade", values={**given, "podAnnotations": {"example.com/rolled": "again"}})
    second = await release.pod(besides=first["metadata"]["uid"])
    await release.mode("enforce")
    stage.bed.driver.workload(victim["uid"]).exit()
    await release.told(victim["uid"], "intent", "sent", "acked accepted", "ended verified")
    assert [one["record"] for one in release.journal() if one["record"] in ("started", "stopped", "ended")] == [
        "started",
        "stopped",
        "started",
        "ended",
    ]
    path = f"/api/v1/namespaces/{namespace}/pods/{victim['name']}/eviction"
    assert release.asked_to_evict(namespace) == [(path, 201)]

    config = config_of(release)
    config["policy"]["mode"] = "observe"
    patch = json.dumps({"data": {"config.yaml": json.dumps(config)}})
    stage.bed.kubectl("-n", release.namespace, "patch", "configmap", release.account, "--type=merge", f"-p={patch}")
    await release.mode("observe")
    assert lives([await release.pod()]) == lives([second])
    assert not await release.refused()

    release.helm("uninstall")
    await same_objects(stage.api, before, but=namespace)
    (quiet,) = (one for one in pods if one["metadata"]["labels"]["app"] == "quiet")
    after = await stage.api.get(f"/api/v1/namespaces/{namespace}/pods/quiet")
    assert lives([after]) == lives([quiet])


async def test_the_plain_manifests_kill_where_a_budget_blocks(
    cluster: Bed, stage: Stage, namespace: str, image: str, tmp_path: Path
) -> None:
    """
    `kubectl apply -k` of the overlay `kill`: the eviction is blocked, and after another grace the container is killed.

    It runs as another user than the daemon, which has no capability but CAP_KILL. Deleted, the cluster is as before.
    """
    await label(stage, namespace, CONSENT)
    greedy = declaring(evictable("greedy"), "1Gi")
    greedy["spec"]["template"]["spec"]["securityContext"] = {"runAsUser": 65534}
    await create(stage, namespace, greedy, bare("quiet", "1GiB", "2Gi"))
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    await stage.api.create(budgets, disruption_budget("all", {"app": "greedy"}, min_available=1))
    pods = await ready_pods(stage, namespace, 2)
    (victim,) = (one["metadata"] for one in pods if one["metadata"]["labels"]["app"] == "greedy")
    files = str(overlay(tmp_path, image, "kill", evicts=namespace, policy={"trigger": "limit"}))
    cluster.kubectl("delete", "-k", files, "--ignore-not-found", "--wait")  # what other tests applied of it
    before = await objects(stage.api, but=namespace)
    daemon = Installed(cluster, stage.api, NAMESPACE, account="gpusteward")
    async with gpu_node(cluster, stage.api):
        cluster.kubectl("apply", "-k", files)
        try:
            await daemon.mode("enforce")
            assert daemon.capabilities() == CAP_KILL
            stage.bed.driver.workload(victim["uid"]).alloc("visible", 3 * GiB)

            async def restarted() -> bool:
                found = await stage.api.get(f"/api/v1/namespaces/{namespace}/pods/{victim['name']}")
                (state,) = found["status"]["containerStatuses"]
                return bool(state["restartCount"]) and found["metadata"]["uid"] == victim["uid"]

            try:
                await until(restarted, "the kubelet to start the container anew")
            except TimeoutError as error:
                error.add_note(daemon.log())
                raise
            rungs = [one["action"]["rung"] for one in decided(daemon.journal()) if one["record"] == "intent"]
            assert rungs[-2:] == ["evict", "kill"]
            assert {code for _, code in daemon.asked_to_evict(namespace)} == {429}
            (quiet,) = (one for one in pods if one["metadata"]["labels"]["app"] == "quiet")
            after = await stage.api.get(f"/api/v1/namespaces/{namespace}/pods/quiet")
            assert lives([after]) == lives([quiet])
        finally:
            cluster.kubectl("delete", "-k", files, "--ignore-not-found", "--wait")
    await same_objects(stage.api, before, but=namespace)
