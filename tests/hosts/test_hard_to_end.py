"""
Containers that are hard to end: frozen, in a user namespace, of another runtime, out of AppArmor's profile.

In: the shipped chart in mode enforce, its container under the seccomp profile for `kill`. Out: the journal on the
node, the containers that ran on. The rule: the daemon ends what is over its limit, or says why it cannot; it waits for
none of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.client import until
from hosts.bed import GuestBed
from hosts.release import GuestRelease, values
from hosts.workloads import Workloads, box, cgroup_of, deployment, pod

pytestmark = pytest.mark.hosts

SECCOMP = Path(__file__).parents[2] / "deploy/profiles/gpusteward-kill.json"
ENOUGH = "20/10m"
OVER = "alloc visible 1GiB"
EVICTED, BLOCKED = ("evict", "sent", "accepted", "verified"), ("evict", "sent", "blocked", "blocked")
KILLED = ("kill", "sent", "accepted", "verified")
INSISTED = ("kill", "sent", "accepted", "accepted", "verified")
"""SIGTERM, which a frozen process does not get, and SIGKILL, which it does."""


async def test_each_is_ended_or_it_is_said_why_not(bed: GuestBed, release: GuestRelease, workloads: Workloads) -> None:
    """
    A frozen pod is evicted, and a frozen container is killed, as one of runc and one in a user namespace are.

    A container that is out of AppArmor's profile gets no signal: the profile of the daemon's container forbids it. The
    journal says so, and the container runs on. The others are not kept waiting.
    """
    bed.guest.shell("mkdir -p /var/lib/kubelet/seccomp")
    bed.guest.write(f"/var/lib/kubelet/seccomp/{SECCOMP.name}", SECCOMP.read_bytes())
    policy = {"mode": "enforce", "ladder": ["notify", "evict", "kill"], "when_blocked": "kill"}
    more = {
        "evict": {"namespaces": [workloads.namespace]},
        "seccompProfile": {"type": "Localhost", "localhostProfile": SECCOMP.name},
    }
    await workloads.runtime_class("runc")
    await workloads.consent()
    await workloads.keep("frozen", "remapped", "other", "unconfined")
    release.helm("install", values=values({**policy, "budgets": {"node": ENOUGH, "namespace": ENOUGH}}, **more))
    free = {"appArmorProfile": {"type": "Unconfined"}}
    made = {
        "leaving": pod("leaving", box("main", OVER), limit="256Mi"),
        "frozen": pod("frozen", box("main", OVER), limit="256Mi"),
        "remapped": pod("remapped", box("main", OVER), limit="256Mi", hostUsers=False),
        "other": pod("other", box("main", OVER), limit="256Mi", runtimeClassName="runc"),
        "unconfined": pod("unconfined", box("main", OVER, securityContext=free), limit="256Mi"),
    }
    await workloads.create(*map(deployment, made.values()))
    before = await workloads.ready(*made)
    for name in ("leaving", "frozen"):
        bed.guest.shell(f"echo 1 > /sys/fs/cgroup/{cgroup_of(before[name], 'main')}/cgroup.freeze")
    uids = {name: one["metadata"]["uid"] for name, one in before.items()}
    await release.close("blast_radius")  # all five are over at once
    await release.tells(uids["leaving"], EVICTED)
    for name, end in {"remapped": KILLED, "other": KILLED, "frozen": INSISTED}.items():
        await release.tells(uids[name], BLOCKED, end)

        async def again(path: str = f"{workloads.pods}/{before[name]['metadata']['name']}") -> bool:
            (now,) = (await workloads.api.get(path))["status"]["containerStatuses"]
            return bool(now["restartCount"] == 1 and now["ready"])

        await until(again, f"{name} to be started anew")
    await release.tells(uids["unconfined"], BLOCKED, ("kill", "sent", "refused", "refused"))
    after = (await workloads.ready(*made))["unconfined"]
    assert [one["restartCount"] for one in after["status"]["containerStatuses"]] == [0]
    (pid,) = bed.guest.run("pgrep", "-f", "^/opt/gpusteward/bin/python").split()
    assert "Seccomp:\t2\n" in bed.guest.run("cat", f"/proc/{pid}/status")
    assert "not implemented" not in release.log()
