"""
Kinds of pods and events of a node that change what the kernel shows: each byte stays with its container.

In: a static pod, a sidecar, a pod in a user namespace, runc beside crun. Then swap, memory pressure in a cgroup, a
reload of systemd, a kubelet that restarts. Out: the page of the daemon, which runs under the shipped AppArmor profile.

The rule: what the daemon says at first is what it says in the end, without a restart of its own.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster.client import Object, until
from driver.node import GiB, MiB
from hosts.bed import GuestBed
from hosts.contents import NODE, STATE
from hosts.release import GuestRelease, values
from hosts.test_attribution import hold, used
from hosts.workloads import Workloads, box, cgroup_of, pod

pytestmark = pytest.mark.hosts

PROFILE = Path(__file__).parents[2] / "deploy/profiles/gpusteward.apparmor"
FAKE = f"  {STATE}/** rwk,\n}}\n"
"""What the fake driver needs: the real one keeps no state in files."""
SMALL = {"limits": {"memory": "64Mi", "cpu": "100m"}, "requests": {"memory": "64Mi", "cpu": "50m"}}


@pytest.fixture
def profile(bed: GuestBed) -> Object:
    """Load the shipped AppArmor profile on the node; the value for the chart."""
    bed.guest.write("/etc/apparmor.d/gpusteward", (PROFILE.read_text().rstrip().removesuffix("}") + FAKE).encode())
    bed.guest.run("apparmor_parser", "--replace", "/etc/apparmor.d/gpusteward")
    return {"type": "Localhost", "localhostProfile": "gpusteward"}


@pytest.fixture
async def static(bed: GuestBed, workloads: Workloads) -> AsyncIterator[str]:
    """A pod that the kubelet takes from a file; the name of its mirror."""
    made = pod("static", box("main", hold(3 * GiB)))
    made["metadata"]["namespace"] = workloads.namespace
    bed.guest.write("/etc/static-pods/static.json", json.dumps(made).encode())
    yield f"static-{NODE}"
    bed.guest.run("rm", "/etc/static-pods/static.json")


async def test_check_passes_in_the_daemons_own_pod(release: GuestRelease) -> None:
    """`gpusteward check` passes beside the daemon, and knows how much of the cgroups it sees."""
    release.helm("install", values=values({}))
    assert "cgroup v2, a private cgroup namespace" in await release.check()


async def test_each_kind_of_pod_has_its_bytes(
    release: GuestRelease, workloads: Workloads, profile: Object, static: str
) -> None:
    """
    Static pods, sidecars, pods in a user namespace, containers of runc and those that share a PID namespace.

    Nothing changes when swap is on, when a container's memory is squeezed, when systemd reloads, or when the kubelet
    restarts. A container that the kernel killed for its memory is charged under its new id. All the time the daemon
    runs under the AppArmor profile of deploy/profiles.
    """
    bed = workloads.bed
    await workloads.runtime_class("runc")
    release.helm("install", values=values({}, appArmorProfile=profile))
    await workloads.create(
        pod("sidecar", box("main", hold(GiB)), initContainers=[box("helper", hold(256 * MiB), restartPolicy="Always")]),
        pod("remapped", box("main", hold(1280 * MiB)), hostUsers=False),
        pod("other", box("main", hold(1792 * MiB)), runtimeClassName="runc"),
        pod("together", box("main", hold(128 * MiB)), box("second", hold(192 * MiB)), shareProcessNamespace=True),
        pod("starved", box("main", hold(320 * MiB), resources=SMALL)),
    )
    names = ("sidecar", "remapped", "other", "together", "starved", "static")
    pods = await workloads.ready(*names)
    expected = {
        ("sidecar", "main"): GiB,
        ("sidecar", "helper"): 256 * MiB,
        ("remapped", "main"): 1280 * MiB,
        ("other", "main"): 1792 * MiB,
        ("together", "main"): 128 * MiB,
        ("together", "second"): 192 * MiB,
        ("starved", "main"): 320 * MiB,
        (static, "main"): 3 * GiB,
    }

    async def right(when: str) -> None:
        await release.shows(lambda page: used(page, workloads.namespace) == expected or None, f"{expected} {when}")

    await right("at first")
    daemon = await release.pod()
    labels = bed.guest.shell("cat /proc/[0-9]*/attr/current 2>/dev/null | sort -u || true")
    assert "gpusteward (enforce)" in labels, labels
    assert cgroup_of(pods["other"], "main") in bed.guest.shell("cat /proc/[0-9]*/cgroup 2>/dev/null || true")
    squeezed = f"/sys/fs/cgroup/{cgroup_of(pods['other'], 'main')}/memory.high"
    bed.guest.shell(f"fallocate -l 64M /swap; chmod 600 /swap; mkswap -q /swap; swapon /swap; echo 1M > {squeezed}")
    await killed_for_memory(workloads, "starved")
    bed.guest.shell("systemctl daemon-reload; systemctl restart kubelet device-plugin")
    await right("after swap, pressure, an OOM kill, a reload and a restart of the kubelet")
    now = await workloads.ready(*names)
    restarts = {
        name: sum(one["restartCount"] for one in each["status"]["containerStatuses"]) for name, each in now.items()
    }
    assert restarts == {**dict.fromkeys(names, 0), "starved": 1}
    after = await release.pod()
    assert after["metadata"]["uid"] == daemon["metadata"]["uid"]
    assert [one["restartCount"] for one in after["status"]["containerStatuses"]] == [0]
    denied = [
        line for line in bed.guest.run("dmesg").splitlines() if "DENIED" in line and 'profile="gpusteward"' in line
    ]
    assert not denied
    bed.guest.shell("swapoff /swap; rm /swap")


async def killed_for_memory(workloads: Workloads, name: str) -> None:
    """Let a container take more memory of the node than it may have; wait until the kubelet has started it anew."""
    with pytest.raises(subprocess.CalledProcessError):
        workloads.execute(name, "main", "tail /dev/zero")

    async def again() -> bool:
        (now,) = (await workloads.api.get(f"{workloads.pods}/{name}"))["status"]["containerStatuses"]
        reason = now["lastState"].get("terminated", {}).get("reason")
        return bool(now["restartCount"] == 1 and now["ready"] and reason == "OOMKilled")

    await until(again, f"{name} to be killed for its memory, and started anew")
