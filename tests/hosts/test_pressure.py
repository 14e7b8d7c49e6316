"""
The kubelet evicts pods itself when the node is short of memory: the daemon does not take that for its own doing.

In: the shipped chart in mode enforce, a kubelet whose threshold is above what the node has free. Out: the pods that the
kubelet ended, the journal, the page. The rule: what the daemon did not do is not in its journal.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.client import Object, until
from driver.node import GiB
from hosts.bed import GuestBed
from hosts.contents import JOINED, NODE
from hosts.release import GuestRelease, values
from hosts.test_attribution import hold, used
from hosts.workloads import Workloads, box, pod
from patience import PATIENCE

pytestmark = pytest.mark.hosts

FREE = "awk '/MemAvailable/ {print $2}' /proc/meminfo"


@pytest.fixture
def squeezed(bed: GuestBed) -> Iterator[None]:
    """Let the kubelet, once it restarts, want more free memory than there is; afterwards as before."""
    file = f"{JOINED}/kubelet.env"
    before = bed.guest.run("cat", file)
    above = int(bed.guest.shell(FREE)) + 100 * 1024
    bed.guest.write(file, f"{before}MORE=--eviction-hard=memory.available<{above}Ki\n".encode())
    yield
    bed.guest.write(file, before.encode())
    bed.guest.shell("systemctl restart kubelet device-plugin")
    bed.kubectl("wait", "--for=condition=MemoryPressure=False", f"node/{NODE}", f"--timeout={PATIENCE:.0f}s")


async def test_what_the_kubelet_evicts_is_not_the_daemons(
    bed: GuestBed, release: GuestRelease, workloads: Workloads, squeezed: None
) -> None:
    """
    A pod over its limit is in its grace when the kubelet evicts it for the node's sake, and another pod with it.

    Their memory is gone from the page, no action is in the journal, and the daemon, whose priority is higher, runs on.
    """
    await workloads.consent()
    policy = {"mode": "enforce", "grace": "10m"}
    release.helm("install", values=values(policy, evict={"namespaces": [workloads.namespace]}))
    await workloads.create(
        pod("over", box("main", hold(3 * GiB)), limit="1Gi"),
        pod("within", box("main", hold(GiB)), limit="2Gi"),
    )
    await workloads.ready("over", "within")
    expected = {("over", "main"): 3 * GiB, ("within", "main"): GiB}
    await release.shows(lambda page: used(page, workloads.namespace) == expected or None, "both")
    daemon = await release.pod()
    bed.guest.shell("systemctl restart kubelet device-plugin")

    async def evicted() -> bool:
        found: list[Object] = (await workloads.api.get(workloads.pods))["items"]
        return {one["status"].get("reason") for one in found} == {"Evicted"}

    await until(evicted, "the kubelet to evict both")
    await release.shows(lambda page: not used(page, workloads.namespace) or None, "that both are gone")
    assert not release.told((await workloads.api.get(f"{workloads.pods}/over"))["metadata"]["uid"])
    assert not [one for one in release.journal() if "decision" in one]
    assert (await release.pod())["metadata"]["uid"] == daemon["metadata"]["uid"]
