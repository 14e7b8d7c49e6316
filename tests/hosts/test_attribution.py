"""
The daemon on a node as production has it: cgroup v2 alone, systemd's cgroup driver, crun, AppArmor, its own pod.

In: a virtual machine with a real kubelet and containerd, the shipped chart. Out: the containers that memory is
charged to. The rule: a name that a process gave to a cgroup of its own charges no pod.
"""

from __future__ import annotations

import pytest

from cluster.bed import GPUS
from driver.node import GiB, MiB
from hosts.bed import GuestBed
from hosts.release import GuestRelease, values
from hosts.workloads import Workloads, background, box, cgroup_of, held, on_the_node, pod
from scraped import series

pytestmark = pytest.mark.hosts

SHARED_GPU = GPUS[1].uuid
USER = 1000
ADMIN = {"capabilities": {"add": ["SYS_ADMIN"]}, "appArmorProfile": {"type": "Unconfined"}}
"""What lets a container mount its cgroups, as systemd in a container does."""
BESIDE = {"service": GiB, "session": 640 * MiB}
"""What processes of the node hold."""
TIERS = {"cpu": "50m", "memory": "64Mi"}
NEST = 'mkdir -p "$to"; echo $$ > "$to/cgroup.procs"'


def hold(size: int) -> str:
    """Write the workload's command."""
    return f"alloc visible {size} compute"


def used(page: str, namespace: str) -> dict[tuple[str, str], float]:
    """Bytes by pod and container."""
    found = series(page, "container_memory_used_bytes", "namespace", "pod", "container")
    return {(pod, box): size for (where, pod, box), size in found.items() if where == namespace and size}


def of_the_host(page: str) -> float:
    """Bytes of the shared GPU that processes outside of pods hold."""
    return series(page, "device_memory_host_bytes", "uuid", "gpu_instance").get((SHARED_GPU, ""), 0)


def forge_on_the_node(bed: GuestBed, victim: str) -> int:
    """
    Hold memory in a systemd service and in a user's session, in cgroups that are called as a pod's container.

    Return the bytes. systemd delegates both cgroups; the user makes the folders without root's help.
    """
    here = f"to=/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/{victim}; {NEST}; exec "
    service, session = (f"{here}{on_the_node(name, f'alloc {SHARED_GPU} {size}')}" for name, size in BESIDE.items())
    shell = bed.guest.shell
    delegated = "--quiet --collect --expand-environment=no --property=Delegate=yes"
    shell(f"id -u visitor >/dev/null 2>&1 || useradd --uid {USER} visitor; systemctl start user@{USER}.service")
    bed.guest.run("systemd-run", *delegated.split(), "/bin/sh", "-euc", service)
    become = f"setpriv --reuid={USER} --regid={USER} --clear-groups env XDG_RUNTIME_DIR=/run/user/{USER}"
    bed.guest.run(*become.split(), "systemd-run", "--user", *delegated.split(), "/bin/sh", "-euc", session)
    assert held(bed, tuple(BESIDE)) == BESIDE
    where = shell("for pid in $(pidof workload); do cat /proc/$pid/cgroup; done").splitlines()
    assert [one for one in where if one.startswith("0::/system.slice/") and one.endswith(victim)], where
    assert [one for one in where if one.startswith(f"0::/user.slice/user-{USER}.slice/") and one.endswith(victim)], (
        where
    )
    return sum(BESIDE.values())


async def test_memory_is_charged_to_the_byte(bed: GuestBed, release: GuestRelease, workloads: Workloads) -> None:
    """
    Each container has what its processes allocated, also those that `kubectl exec` started.

    A container that makes cgroups below its own stays itself, whatever it calls them, in the host's cgroup namespace
    and in one of its own. A service of systemd and a user's session with such names are the host's. The daemon runs in
    its own pod, with the rights that the chart gives it.
    """
    assert bed.guest.run("stat", "-fc", "%T", "/sys/fs/cgroup").strip() == "cgroup2fs"
    release.helm("install", values=values({}))
    await workloads.create(
        pod("pair", box("main", hold(GiB)), box("second", hold(2 * GiB + 4096))),
        pod("guaranteed", box("main", hold(1536 * MiB), resources={"limits": TIERS, "requests": TIERS})),
        pod("privileged", box("main", resources={"requests": TIERS}, securityContext={"privileged": True})),
        pod("private", box("main", securityContext=ADMIN)),
    )
    pods = await workloads.ready("pair", "guaranteed", "privileged", "private")
    assert "cri-containerd.apparmor.d" in bed.guest.run("cat", "/sys/kernel/security/apparmor/profiles")
    for name, one in pods.items():
        assert bed.guest.run("ls", f"/sys/fs/cgroup/{cgroup_of(one, 'main')}"), f"systemd's names for {name}"
    victim = cgroup_of(pods["pair"], "main")
    own = f"to=/sys/fs/cgroup$(sed s/^0::// /proc/self/cgroup)/{victim}"
    mounted = f"mkdir -p /tmp/own; mount -t cgroup2 none /tmp/own; to=/tmp/own/{victim}"
    sizes = {"executed": 256 * MiB, "nested": 512 * MiB, "mounted": 768 * MiB}
    places = {
        "executed": ("guaranteed", ":"),
        "nested": ("privileged", f"{own}; {NEST}"),
        "mounted": ("private", f"{mounted}; {NEST}"),
    }
    for name, (where, first) in places.items():
        workloads.execute(where, "main", f"{first}; {background(name, hold(sizes[name]))}")
    assert await workloads.held(*sizes) == sizes
    beside = forge_on_the_node(bed, victim)
    expected = {
        ("pair", "main"): GiB,
        ("pair", "second"): 2 * GiB + 4096,
        ("guaranteed", "main"): 1792 * MiB,
        ("privileged", "main"): 512 * MiB,
        ("private", "main"): 768 * MiB,
    }

    def right(page: str) -> bool | None:
        return (used(page, workloads.namespace), of_the_host(page)) == (expected, beside) or None

    await release.shows(right, f"{expected} and {beside} of the host")
