"""
Mode enforce on a node with cgroup v2 and systemd: the daemon in its own pod evicts, is blocked, and kills by pidfd.

In: the shipped chart and its defaults, but for times. Out: the journal on the node, the audit log, the pods that live.
The rule: a pod that is not over its limit lives.
"""

from __future__ import annotations

import pytest

from cluster.client import Object, until
from hosts.bed import GuestBed
from hosts.release import GuestRelease, values
from hosts.test_attribution import used
from hosts.workloads import Workloads, box, deployment, pod

pytestmark = pytest.mark.hosts

FORKING = """
trap '' TERM
/bin/workload "alloc visible 3GiB" &
n=0
while :; do
  n=$((n + 1))
  (sleep 1 & sleep 1 & sleep 1) &
  /bin/workload --name $WORKLOAD_NAME-$n "alloc visible 64MiB" "sleep 3000" exit &
  sleep 2
done
"""
"""Deaf to SIGTERM, with children that come and go and hold memory, too."""


async def test_it_evicts_and_kills(bed: GuestBed, release: GuestRelease, workloads: Workloads) -> None:
    """
    The pod that is over its limit is evicted. Where a budget blocks that, the container is killed after another grace.

    The kubelet starts it anew, and its memory is charged to the new container. Its init is deaf to SIGTERM, so that
    SIGKILL follows, and its processes fork all the time. The sidecar and the pods within their limits are not touched.
    """
    await workloads.consent()
    await workloads.keep("forking")
    policy = {
        "mode": "enforce",
        "ladder": ["notify", "evict", "kill"],
        "when_blocked": "kill",
        "budgets": {"node": "20/10m", "namespace": "20/24h"},
    }
    release.helm("install", values=values(policy, evict={"namespaces": [workloads.namespace]}))
    forking = pod("forking", box("main", script=FORKING), box("side", script="sleep 86400", gpu=False), limit="1Gi")
    await workloads.create(
        deployment(pod("greedy", box("main", "alloc visible 3GiB"), limit="1Gi")),
        deployment(forking),
        pod("quiet", box("main", "alloc visible 1GiB"), limit="2Gi"),
    )
    before = await workloads.ready("greedy", "forking", "quiet")
    uids = {name: one["metadata"]["uid"] for name, one in before.items()}

    # An emulated kubelet may need more than the two minutes after which the journal says that the pod lingers.
    await release.ends(uids["greedy"], "evict", "verified", "lingers")
    assert release.told(uids["greedy"])[0][:3] == ("evict", "sent", "accepted")
    assert release.asked_to_evict(workloads.namespace)[before["greedy"]["metadata"]["name"]] == [201]
    await release.tells(uids["forking"], ("evict", "sent", "blocked", "blocked"))
    await release.ends(uids["forking"], "kill", "verified")
    killed = before["forking"]["metadata"]["name"]
    assert set(release.asked_to_evict(workloads.namespace)[killed]) == {429}

    async def restarted() -> Object | None:
        now = await workloads.api.get(f"{workloads.pods}/{killed}")
        assert now["metadata"]["uid"] == uids["forking"]
        states = {one["name"]: (one["restartCount"], one["ready"]) for one in now["status"]["containerStatuses"]}
        return now if states == {"main": (1, True), "side": (0, True)} else None

    await until(restarted, "the kubelet to start the container anew")
    await release.shows(
        lambda page: used(page, workloads.namespace).get((killed, "main")) or None, "what the new container holds"
    )
    after = await workloads.ready("greedy", "forking", "quiet")
    assert after["greedy"]["metadata"]["uid"] != uids["greedy"], "in place of the one that is gone"
    assert after["quiet"]["metadata"]["uid"] == uids["quiet"]
    assert [one["restartCount"] for one in after["quiet"]["status"]["containerStatuses"]] == [0]
    assert not release.told(uids["quiet"])
    assert not release.refused()
