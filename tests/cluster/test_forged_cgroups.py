"""
A user of the node makes cgroups with pods' names and holds GPU memory there: the daemon is not deceived.

In: a cgroup that was delegated to a user, as systemd, LXC and Slurm do it. The daemon is in its own pod's cgroup, from
which it learns where the kubelet's are. Out: the page, the journal, the pods that live. Law: the daemon acts on the pod
that is over its limit. So it is seen that it spares the others.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from cluster.bed import GPUS, Bed
from cluster.client import Object
from cluster.stage import Stage, held, stage
from cluster.test_enforce import Scene, ended, enforcing, scene
from cluster.test_enforce import journal as decisions
from containers.cgroupfs import below, hierarchies, kubelet_paths
from daemon.running import Daemon
from driver.node import GiB, Workload
from scraped import series

__all__ = ["scene", "stage"]

pytestmark = pytest.mark.cluster

USER = 65534
SHARED_GPU = GPUS[1].uuid
DELEGATED = f"-user.slice/user-{USER}.slice/user@{USER}.service"
BECOME = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all")


def container_of(pod: Object) -> str:
    """Name the folders of a pod's container, as the kubelet and its runtime do."""
    (status,) = pod["status"]["containerStatuses"]
    return f"kubepods/besteffort/pod{pod['metadata']['uid']}/{status['containerID'].removeprefix('containerd://')}"


def into(roots: list[Path], folder: str = ".") -> tuple[str, ...]:
    """Words before a command that is to run in this folder of each hierarchy."""
    lines = [f"mkdir -p {root}/{folder}; echo $$ > {root}/{folder}/cgroup.procs" for root in roots]
    return ("sh", "-ec", "; ".join([*lines, 'exec "$@"']), "sh")


def own(stage: Stage) -> tuple[str, ...]:
    """Words before a daemon that is to run in the cgroup of the pod whose token it has."""
    assert stage.own_pod
    path = f"{stage.bed.node.cgroup_root}/{container_of(stage.own_pod)}"
    return into([below(root, path) for root in hierarchies().kubelet])


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
    # Root puts the user's first process there, as a session manager does. All else the user does.
    words = (*into(roots), *BECOME, *into(roots, container_of(pod)))
    program = bed.folder / "workload"  # where the user can reach it
    if not program.exists():
        shutil.copy(bed.driver.workload_binary, program)
    made = bed.driver.spawn(f"alloc {SHARED_GPU} {size}", prefix=words, binary=str(program))
    assert any(path.endswith(f"{DELEGATED}/{container_of(pod)}") for path in kubelet_paths(made.pid))
    return made


@pytest.mark.parametrize("rung", ["evict", "kill"])
async def test_no_cgroup_of_a_user_names_a_pod(scene: Scene, rung: str) -> None:
    """
    What the user holds below a delegated cgroup is the host's, whichever pod it is called after.

    A pod within its limit is not acted on for it. One over its limit is, and it is not protected by it. The user's own
    processes get no signal.
    """
    stage = scene.stage
    await stage.guard()
    await scene.play()
    pods = {one["metadata"]["name"]: one for one in scene.pods if one["metadata"]["namespace"] == scene.namespace}
    roots = delegated(stage.bed)
    users = [forged(stage.bed, roots, pods[name], size) for name, size in (("bystander", 4 * GiB), (scene.name, GiB))]

    def charged(daemon: Daemon) -> tuple[dict[str, int], float]:
        """What each pod holds of the GPU, and what the host's processes hold."""
        sizes = {pod: size for (where, pod, _), size in held(daemon.snapshot()).items() if where == scene.namespace}
        hosts = series(daemon.get("/metrics")[1], "device_memory_host_bytes", "uuid", "gpu_instance")
        return sizes, hosts[SHARED_GPU, ""]

    try:
        with enforcing(stage, ladder=["notify", rung], trigger="limit", enter=own(stage), learns=True) as daemon:
            daemon.until(lambda one: one["complete"] and one["names_live"] and held(one), "a complete round")
            assert '"own_pod"' in daemon.log
            assert charged(daemon) == ({"bystander": GiB, "neighbour": GiB, scene.name: 3 * GiB}, 5 * GiB)
            ended(daemon, "verified")
            intents = [one["action"] for one in decisions(stage) if one["record"] == "intent"]
            uid = scene.victim["metadata"]["uid"]
            assert [(one["rung"], one["pod_uid"], one["used"]) for one in intents] == [(rung, uid, 3 * GiB)]
            assert charged(daemon)[1] == 5 * GiB, "the user's processes live"
        assert [one.process and one.process.poll() for one in users] == [None, None]
    finally:
        for one in users:
            one.close()
