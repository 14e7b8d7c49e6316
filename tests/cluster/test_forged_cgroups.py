"""
A user of the node makes cgroups with pods' names and holds GPU memory there: the daemon in its own pod is not deceived.

In: a cgroup that was delegated to a user, as systemd, LXC and Slurm do it; the chart in mode enforce. Out: the page,
the journal, who lives. Law: the daemon acts on the pod that is over its limit, so that it spares the others is seen.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cluster.bed import GPUS, Bed
from cluster.client import Object, until
from cluster.installed import PATIENT, Release, released, values
from cluster.stage import Stage, ready_pods
from cluster.test_decide import CONSENT, create, deployment, label, lives
from cluster.test_helm import used
from containers.cgroupfs import below, hierarchies, kubelet_paths
from driver.node import GiB, Workload
from scraped import series

pytestmark = pytest.mark.cluster

USER = 65534
SHARED_GPU = GPUS[1].uuid
DELEGATED = f"-user.slice/user-{USER}.slice/user@{USER}.service"
BECOME = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all")


@pytest.fixture
async def release(cluster: Bed, stage: Stage, image: str, tmp_path: Path) -> AsyncIterator[Release]:
    """A namespace in which helm may install the chart."""
    async with released(cluster, stage.api, tmp_path) as made:
        yield made


def container_of(pod: Object) -> str:
    """Name the folders of a pod's container, as the kubelet and its runtime do."""
    (status,) = pod["status"]["containerStatuses"]
    return f"kubepods/besteffort/pod{pod['metadata']['uid']}/{status['containerID'].removeprefix('containerd://')}"


def delegated(bed: Bed) -> list[Path]:
    """Give the user a cgroup in each hierarchy but cpuset, where no process can be without settings of its own."""
    assert bed.node.containerd
    bed.node.containerd.cgroups.make(path := f"{bed.node.cgroup_root}{DELEGATED}")
    roots = [below(root, path) for root in hierarchies().kubelet if root.name != "cpuset"]
    for root in roots:
        for file in (root, root / "cgroup.procs"):
            os.chown(file, USER, USER)
    return roots


def forged(bed: Bed, roots: list[Path], pod: Object, size: int) -> Workload:
    """Let the user hold memory in a cgroup that is called like the one of a pod's container."""
    folder = container_of(pod)
    # Root puts the user's first process there, as a session manager does. All else the user does.
    enter = [f"echo $$ > {root}/cgroup.procs" for root in roots]
    move = [f"mkdir -p {root}/{folder}; echo $$ > {root}/{folder}/cgroup.procs" for root in roots]
    as_root = ("sh", "-ec", "; ".join([*enter, 'exec "$@"']), "sh")
    as_user = ("sh", "-ec", "; ".join([*move, 'exec "$@"']), "sh")
    made = bed.driver.spawn(f"alloc {SHARED_GPU} {size}", prefix=(*as_root, *BECOME, *as_user))
    assert any(path.endswith(f"{DELEGATED}/{folder}") for path in kubelet_paths(made.pid))
    return made


@pytest.mark.parametrize("rung", ["evict", "kill"])
async def test_no_cgroup_of_a_user_names_a_pod(
    release: Release, stage: Stage, namespace: str, image: str, rung: str
) -> None:
    """
    What the user holds below a delegated cgroup is the host's, whichever pod it is called after.

    A pod within its limit is not acted on for it. One over its limit is, and it is not protected by it. The user's own
    processes get no signal.
    """
    bed = stage.bed
    await label(stage, namespace, CONSENT)
    await create(stage, namespace, deployment("greedy", "3GiB", "1Gi"), deployment("quiet", "1GiB", "2Gi"))
    pods = {one["metadata"]["labels"]["app"]: one for one in await ready_pods(stage, namespace, 2)}
    names = {app: one["metadata"]["name"] for app, one in pods.items()}
    with ExitStack() as stack:
        roots = delegated(bed)
        users = [forged(bed, roots, pods["quiet"], 4 * GiB), forged(bed, roots, pods["greedy"], 2 * GiB)]
        for one in users:
            stack.callback(one.exit)
        policy = {"mode": "enforce", "trigger": "limit", "ladder": ["notify", rung]}
        release.helm("install", values=values(bed, image, policy, evict={"namespaces": [namespace]}))
        expected = {names["greedy"]: 3 * GiB, names["quiet"]: 1 * GiB}
        await release.shows(lambda page: used(page, namespace) == expected or None, "what the pods hold, and no more")
        page = await release.page()
        assert series(page, "device_memory_host_bytes", "uuid")[SHARED_GPU,] == 6 * GiB

        uid = pods["greedy"]["metadata"]["uid"]

        async def acted() -> bool:
            return any(one.get("result") == "verified" for one in release.journal())

        try:
            await until(acted, "the action on the pod that is over its limit", PATIENT)
        except TimeoutError as error:
            release.explain(error)
            raise
        intents = [one["action"] for one in release.journal() if one["record"] == "intent"]
        assert [(one["rung"], one["pod_uid"], one["used"]) for one in intents] == [(rung, uid, 3 * GiB)]
        quiet = await stage.api.get(f"/api/v1/namespaces/{namespace}/pods/{names['quiet']}")
        assert lives([quiet]) == lives([pods["quiet"]])
        assert [one.process.poll() for one in users if one.process] == [None, None]
        await release.shows(
            lambda page: series(page, "device_memory_host_bytes", "uuid").get((SHARED_GPU,)) == 6 * GiB or None,
            "the user's memory, as before",
        )
