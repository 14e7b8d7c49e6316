"""
A container that gVisor sandboxes: its pod is known and its container is not, and no other container pays for it.

In: a pod of the handler `runsc`; GPU memory that its sandbox holds, as the real one does for the container (nvproxy).
Out: the page. The rule: what is not known of a container is not guessed.
"""

from __future__ import annotations

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cluster import build
from driver.node import GiB, MiB
from hosts.bed import GuestBed
from hosts.contents import RUNSC
from hosts.guest import HOST
from hosts.release import GuestRelease, values
from hosts.test_attribution import SHARED_GPU, hold, used
from hosts.workloads import Workloads, box, held, on_the_node, pod

pytestmark = pytest.mark.hosts

PROGRAMS = {"runsc": "runsc", "shim": "containerd-shim-runsc-v1"}
SETTINGS = """
[runsc_config]
  platform = "systrap"
  systemd-cgroup = "true"
"""


class Quiet(SimpleHTTPRequestHandler):
    """A file server that writes no log."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def gvisor(bed: GuestBed) -> str:
    """Give the guest gVisor's programs; the name of the handler."""
    folder = build.program("runsc").parent
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name, there in PROGRAMS.items():
            url = f"http://{HOST}:{server.server_address[1]}/{name}"
            get = f"import urllib.request as u; u.urlretrieve('{url}', '/usr/bin/{there}')"
            bed.guest.shell(f'python3 -c "{get}"; chmod 755 /usr/bin/{there}')
        server.shutdown()
    bed.guest.write(RUNSC, SETTINGS.encode())
    return "runsc"


async def test_a_sandbox_is_charged_to_its_pod_and_to_no_container(
    bed: GuestBed, release: GuestRelease, workloads: Workloads, gvisor: str
) -> None:
    """
    Memory of gVisor's own process counts for the pod, with an empty container name.

    The fake driver knows a holder by a lock of its file, which gVisor keeps to itself. So a process in the sandbox's
    cgroup holds the memory in its place.
    """
    await workloads.runtime_class(gvisor)
    release.helm("install", values=values({}))
    await workloads.create(
        pod("sandboxed", box("main", script="sleep 86400", gpu=False), runtimeClassName=gvisor),
        pod("neighbour", box("main", hold(GiB))),
    )
    uid = (await workloads.ready("sandboxed", "neighbour"))["sandboxed"]["metadata"]["uid"].replace("-", "_")
    seen = workloads.execute("sandboxed", "main", "cat /proc/version")
    assert seen.startswith("Linux version") and seen != bed.guest.run("cat", "/proc/version"), "gVisor's own kernel"
    pids = bed.guest.run("pgrep", "-f", "^runsc-sandbox").split()
    (cgroup,) = {bed.guest.run("cat", f"/proc/{pid}/cgroup").strip() for pid in pids}
    assert uid in cgroup, cgroup
    allocate = on_the_node("nvproxy", f"alloc {SHARED_GPU} {512 * MiB}")
    procs = f"/sys/fs/cgroup{cgroup.removeprefix('0::')}/cgroup.procs"
    bed.guest.shell(f"(echo $(sh -c 'echo $PPID') > {procs}; exec setsid {allocate}) </dev/null >/dev/null 2>&1 &")
    assert held(bed, ("nvproxy",)) == {"nvproxy": 512 * MiB}
    expected = {("sandboxed", ""): 512 * MiB, ("neighbour", "main"): GiB}
    await release.shows(lambda page: used(page, workloads.namespace) == expected or None, f"{expected}")
