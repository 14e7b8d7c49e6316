"""
The daemon on a node as production has it: cgroup v2 alone, systemd's cgroup driver, crun, kernel 6.12, its own pod.

In: a virtual machine with a real kubelet and containerd, the shipped chart. Out: the containers that memory is
charged to.
"""

from __future__ import annotations

import pytest

from cluster.client import Object
from driver.node import GiB, MiB
from hosts.bed import GuestBed
from hosts.release import GuestRelease, values
from hosts.workloads import Workloads
from scraped import series

pytestmark = pytest.mark.hosts


def used(page: str, namespace: str) -> dict[tuple[str, str], float]:
    """Bytes by pod and container."""
    found = series(page, "container_memory_used_bytes", "namespace", "pod", "container")
    return {(pod, box): size for (where, pod, box), size in found.items() if where == namespace and size}


def cgroup_of_container(pod: Object, box: str) -> str:
    """Name the folders of a container as systemd's driver does."""
    (id_,) = (one["containerID"] for one in pod["status"]["containerStatuses"] if one["name"] == box)
    uid = pod["metadata"]["uid"].replace("-", "_")
    scope = f"cri-containerd-{id_.removeprefix('containerd://')}.scope"
    return f"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{uid}.slice/{scope}"


async def test_memory_is_charged_to_the_byte(bed: GuestBed, release: GuestRelease, workloads: Workloads) -> None:
    """
    Each container has what its process allocated, by the folders that systemd's driver makes.

    The daemon runs in its own pod, with the rights that the chart gives it.
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
