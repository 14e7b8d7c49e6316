"""
What the tests of observation share: the workload as a container, and the daemon's answer beside the workloads' own.

In: the container bed, the fake node, the daemon. Out: bytes by name, from both sides.
Law: what a workload says that it holds is the truth; the daemon has to agree to the byte.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from containers import images
from containers.cgroupfs import below
from containers.pods import Bed, Container
from containers.specs import ContainerSpec, HostPath
from daemon.running import Daemon
from driver.node import FakeNode, Workload

WORKLOAD = "gpusteward.test/workload:latest"
STATE = "/run/fake-nvml"

Held = dict[tuple[str, str, str, str], int]
"""(namespace, pod, container, GPU uuid) to bytes."""


def import_workload(bed: Bed, node: FakeNode, folder: Path) -> None:
    """Make the image of the workload from its static binary, with busybox beside it for exec."""
    tar = images.busybox_image(folder / "workload.tar", name=WORKLOAD, files={"bin/workload": node.workload_binary})
    bed.containerd.import_image(tar, WORKLOAD)


def container(name: str, node: FakeNode, *commands: str, instance: str = "") -> tuple[ContainerSpec, str]:
    """Ask for a container whose first process is the workload; also the name under which it speaks."""
    speaks_as = f"{name}{instance}-{uuid.uuid4().hex[:6]}"
    spec = ContainerSpec(
        name,
        image=WORKLOAD,
        command=["/bin/workload", "--name", speaks_as, *commands],
        mounts=[HostPath(node.folder, at=STATE)],
    )
    return spec, speaks_as


@contextmanager
def private_view(bed: Bed) -> Iterator[dict[str, Any]]:
    """Put the daemon where an unprivileged pod on cgroup v2 is: in a pod's cgroup, seen from a namespace of its own."""
    pod = f"/kubepods/besteffort/pod{uuid.uuid4()}"
    path = f"{pod}/{uuid.uuid4().hex * 2}"
    cgroups = bed.containerd.cgroups
    cgroups.make(pod)
    cgroups.make(path)
    try:
        yield {"enter": ("unshare", "--cgroup"), "cgroups": [below(root, path) for root in cgroups.mounts.kubelet]}
    finally:
        cgroups.remove(path)
        cgroups.remove(pod)


def held(snapshot: dict[str, Any]) -> Held:
    """Read what containers hold, as the daemon reports it."""
    return {
        (c["namespace"], c["pod"], c["container"], c["uuid"]): c["memory_used_bytes"] for c in snapshot["containers"]
    }


def told(found: Container, workload: Workload) -> Held:
    """Read what a container holds, as its workload reports it."""
    names = (found.pod.namespace, found.pod.name, found.spec.name)
    return {(*names, gpu): size for gpu, size in workload.says().held.items() if size}


def agree(daemon: Daemon, expected: Callable[[], Held], what: str) -> dict[str, Any]:
    """Wait until daemon and workloads agree in a complete round; that snapshot."""

    def same(snapshot: dict[str, Any]) -> dict[str, Any] | None:
        now = {key: size for key, size in held(snapshot).items() if size != 0}
        return snapshot if now == expected() and snapshot["complete"] else None

    try:
        return daemon.until(same, what)
    except AssertionError as error:
        raise AssertionError(f"{what}: daemon {held(daemon.snapshot())}, workloads {expected()}\n{error}") from error


def closes(snapshot: dict[str, Any]) -> Iterator[bool]:
    """Law 2, device by device."""
    for device in snapshot["devices"]:
        parts = [device[f"memory_{part}_bytes"] for part in ("attributed", "ghost", "host", "unattributed")]
        yield None not in parts and sum(parts) == device["memory_used_bytes"]
