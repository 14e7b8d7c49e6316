"""
The daemon on a node as production has it: cgroup v2 alone, systemd's cgroup driver, crun, kernel 6.12, its own pod.

In: a virtual machine with a real kubelet and containerd, the shipped chart. Out: the containers that memory is
charged to, and the pods that are evicted and killed.
"""

from __future__ import annotations

import json

import pytest

from cluster.bed import GPUS
from cluster.client import Object, until
from cluster.manifests import disruption_budget
from driver.node import GiB, MiB
from hosts.bed import GuestBed
from hosts.contents import STATE
from hosts.guest import PROGRAMS
from hosts.release import GuestRelease, values
from hosts.workloads import PATIENT, Workloads
from scraped import series

pytestmark = pytest.mark.hosts

CONSENT = {"gpusteward.io/mode": "enforce"}
LIMIT = "nvidia.com/container.main.gpu-memory.limit"
SHARED_GPU = GPUS[1].uuid
FORGER = 1000
WORKLOAD = f"{PROGRAMS}/bin/workload"


def used(page: str, namespace: str) -> dict[tuple[str, str], float]:
    """Bytes by pod and container."""
    found = series(page, "container_memory_used_bytes", "namespace", "pod", "container")
    return {(pod, box): size for (where, pod, box), size in found.items() if where == namespace and size}


def hosts(page: str) -> float:
    """Bytes that processes of the host hold of the shared GPU."""
    return series(page, "device_memory_host_bytes", "uuid", "gpu_instance")[SHARED_GPU, ""]


def service(bed: GuestBed, name: str, size: str, folder: str = "", *, user: int = 0) -> None:
    """Start a service of systemd that holds memory; in a cgroup below its own, with this path, if one is given."""
    own = f"/sys/fs/cgroup/system.slice/{name}.service"
    enter = f"mkdir -p {own}/{folder}; echo $$ > {own}/{folder}/cgroup.procs; " if folder else ""
    command = f"{enter}exec {WORKLOAD} --name {name} 'alloc {SHARED_GPU} {size} compute'"
    bed.guest.run(
        "systemd-run", f"--unit={name}", f"--uid={user}", "--property=Delegate=yes",
        f"--setenv=FAKE_NVML_STATE={STATE}", "/bin/sh", "-ec", command,
    )  # fmt: skip
    bed.guest.shell(f"until grep -q '\"ready\": *true' {STATE}/says/{name}; do sleep 0.2; done")


def cgroup_of_container(pod: Object, box: str) -> str:
    """Name the folders of a container as systemd's driver does."""
    (id_,) = (one["containerID"] for one in pod["status"]["containerStatuses"] if one["name"] == box)
    uid = pod["metadata"]["uid"].replace("-", "_")
    scope = f"cri-containerd-{id_.removeprefix('containerd://')}.scope"
    return f"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{uid}.slice/{scope}"


async def test_memory_is_charged_to_the_byte(bed: GuestBed, release: GuestRelease, workloads: Workloads) -> None:
    """
    Each container has what its processes say that they hold, also by `kubectl exec` and in a cgroup of its own.

    A service of systemd, and a user's process in a cgroup that is called like a container's, are the host's.
    """
    assert bed.guest.run("stat", "-fc", "%T", "/sys/fs/cgroup").strip() == "cgroup2fs"
    await workloads.create("pair", f"{GiB}", f"{2 * GiB + 4096}")
    await workloads.create("single", f"{1536 * MiB}")
    release.helm("install", values=values({}))
    pods = await workloads.ready("pair", "single")
    where = cgroup_of_container(pods["pair"], "main")
    assert bed.guest.run("ls", f"/sys/fs/cgroup/{where}"), "systemd's names"
    expected = {("pair", "main"): GiB, ("pair", "second"): 2 * GiB + 4096, ("single", "main"): 1536 * MiB}
    await release.shows(lambda page: used(page, workloads.namespace) == expected or None, f"{expected}")

    started = f"WORKLOAD_NAME=extra /bin/workload 'alloc visible {256 * MiB} compute' >/dev/null 2>&1 </dev/null &"
    bed.kubectl("-n", workloads.namespace, "exec", "single", "--", "/bin/sh", "-c", started)
    service(bed, "plain", f"{512 * MiB}")
    service(bed, "forger", f"{768 * MiB}", where, user=FORGER)
    expected["single", "main"] += 256 * MiB
    try:
        await release.shows(
            lambda page: (used(page, workloads.namespace), hosts(page)) == (expected, 1280 * MiB) or None,
            f"{expected}, and 1280 MiB of the host",
        )
    finally:
        bed.guest.shell("systemctl stop plain forger")


async def test_the_pod_over_its_limit_is_evicted(release: GuestRelease, workloads: Workloads) -> None:
    """It is warned, and evicted after its grace; the pod beside it lives."""
    namespace = workloads.namespace
    await workloads.api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": CONSENT}})
    await workloads.create("greedy", f"{3 * GiB}", annotations={LIMIT: "1Gi"})
    await workloads.create("quiet", f"{GiB}", annotations={LIMIT: "2Gi"})
    policy = {"mode": "enforce", "trigger": "limit"}
    release.helm("install", values=values(policy, evict={"namespaces": [namespace]}, rights=["events", "evict"]))
    before = await workloads.ready("greedy", "quiet")

    async def gone() -> bool:
        return await workloads.api.missing(f"{workloads.pods}/greedy")

    try:
        await until(gone, "the pod to be evicted", PATIENT)
    except TimeoutError as error:
        error.add_note(f"{json.dumps(release.journal()[-5:])}\n{release.log()}")
        raise
    actions = [one["action"] for one in release.journal() if one["record"] == "intent"]
    assert [(one["rung"], one["pod"]) for one in actions] == [("evict", "greedy")]
    after = await workloads.api.get(f"{workloads.pods}/quiet")
    assert after["metadata"]["uid"] == before["quiet"]["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0


async def test_a_container_whose_eviction_is_blocked_is_killed(release: GuestRelease, workloads: Workloads) -> None:
    """A budget blocks the eviction. The container is killed with its child, and systemd's scope of it ends."""
    namespace = workloads.namespace
    await workloads.api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": CONSENT}})
    await workloads.create("greedy", f"{2 * GiB}", annotations={LIMIT: "1Gi"})
    await workloads.create("quiet", f"{GiB}", annotations={LIMIT: "2Gi"})
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    await workloads.api.create(budgets, disruption_budget("all", {"app": "greedy"}, min_available=1))
    before = await workloads.ready("greedy", "quiet")
    workloads.command(f"{namespace}.greedy.main", "fork stay")
    policy = {"mode": "enforce", "trigger": "limit", "ladder": ["notify", "evict", "kill"]}
    rights = ["events", "evict", "kill"]
    release.helm("install", values=values(policy, evict={"namespaces": [namespace]}, rights=rights))

    async def restarted() -> bool:
        found = await workloads.api.get(f"{workloads.pods}/greedy")
        (status,) = found["status"]["containerStatuses"]
        same = found["metadata"]["uid"] == before["greedy"]["metadata"]["uid"]
        return bool(same and status["restartCount"] and status["lastState"]["terminated"]["exitCode"] in (137, 143))

    try:
        await until(restarted, "the container to be killed and started anew", 2 * PATIENT)
    except TimeoutError as error:
        error.add_note(f"{json.dumps(release.journal()[-5:])}\n{release.log()}")
        raise
    actions = [one["action"] for one in release.journal() if one["record"] == "intent"]
    assert [(one["rung"], one["pod"]) for one in actions][-2:] == [("evict", "greedy"), ("kill", "greedy")]
    after = await workloads.api.get(f"{workloads.pods}/quiet")
    assert after["metadata"]["uid"] == before["quiet"]["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0
