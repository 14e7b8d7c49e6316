"""
A node in a virtual machine, and the control plane that it belongs to, from `start()` to `stop()`.

In: nothing. Out: a cluster whose one node has another kernel than this machine: cgroup v2 alone, and systemd.

The rule: the control plane runs on this machine, because emulated it would take minutes to answer. The kubelet, the
containers, the fake driver and the device plugin run in the guest. After `stop()` nothing of it is here.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from cluster import build, leftovers
from cluster.bed import GPUS, run
from cluster.client import Api
from cluster.control_plane import ControlPlane
from cluster.leftovers import Record
from cluster.networks import Claim, claim
from cluster.processes import Processes, StartError, listens
from containers.cgroupfs import new_token
from driver import node as driver
from hosts import contents
from hosts.agent import Agent, GuestError
from hosts.contents import KUBELET_PORT, NODE, OFFERED, VERSION
from hosts.joining import join
from hosts.machine import Machine
from hosts.suspended import suspended
from patience import PATIENCE

NETWORKS = range(128, 256)


class GuestBed:
    """A cluster with a node in a guest; a context manager. `archives`: docker-archives that the node gets."""

    def __init__(self, archives: Sequence[Path] = ()) -> None:
        self.token = new_token()
        self._archives = archives
        self._record: Record | None = None
        self._claim: Claim | None = None
        self._machine: Machine | None = None

    def __enter__(self) -> Self:
        leftovers.remove_stale()
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def folder(self) -> Path:
        """Of this machine, for what belongs to the bed."""
        if self._record is None:
            raise StartError("the bed was not started")
        return Path(self._record.folder)

    @property
    def guest(self) -> Agent:
        """Runs commands on the node."""
        if self._machine is None:
            raise StartError("the bed was not started")
        return self._machine.agent

    @property
    def kubeconfig(self) -> Path:
        """For kubectl and helm, as admin."""
        return self.folder / "kubeconfig"

    def api(self) -> Api:
        """A client with the admin's credentials, to be entered."""
        return Api(self.control_plane.admin)

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl as admin; its standard output."""
        return run([str(build.program("kubectl")), f"--kubeconfig={self.kubeconfig}", *words], stdin)

    def helm(self, *words: str) -> str:
        """Run helm as admin; its standard output."""
        return run([str(build.program("helm")), f"--kubeconfig={self.kubeconfig}", *words])

    def stop(self) -> None:
        """End everything. Safe twice, and after a failure."""
        if self._machine is not None:
            self._machine.stop()
        if self._record is not None:
            self._processes.stop()
            leftovers.remove(self._record)
        if self._claim is not None:
            self._claim.release()
        self._machine = self._record = None

    def _start(self) -> None:
        folder = Path(tempfile.gettempdir(), f"gpusteward-cluster-{self.token}")
        pid, _, serial = self.token.split("-")
        self._claim = claim(NETWORKS)
        interface, network = f"gpu{pid}n{serial}", self._claim.network
        self._record = Record(self.token, str(folder), interface, (), by_hand=False)
        leftovers.write(self._record)
        folder.mkdir(mode=0o755)
        self._processes = Processes(folder / "logs", self.token)
        node = driver.FakeNode(folder / "driver", driver.build(build.cache()))
        node.write(GPUS)
        contents.fill(folder / "programs", node, self._archives)
        drives = suspended(folder / "programs", contents.prepare, self.token)
        self.control_plane = ControlPlane(
            folder,
            self._processes,
            port=None,
            services=network.services,
            service_address=network.api_service,
            version=VERSION,
        )
        self.control_plane.admin.kubeconfig(self.kubeconfig)
        self.control_plane.start()
        self._machine = Machine(folder / "machine", drives, self.token)
        port = self._machine.forward(KUBELET_PORT)
        self._machine.start()
        self._reach_kubelet(interface, network.node, port)
        join(self.guest, self.control_plane, network)
        self._wait_until_ready()

    def _reach_kubelet(self, interface: str, address: str, port: int) -> None:
        """
        Let the API server reach the kubelet at the node's address, which is one of this machine's.

        Not by QEMU alone: it would pass on the address of the caller, which is the node's own. The guest drops that.
        """
        _ip("link", "add", interface, "type", "veth", "peer", "name", f"{interface}p")
        for end in (interface, f"{interface}p"):
            _ip("link", "set", end, "up")
        _ip("address", "add", f"{address}/32", "dev", interface)
        command = [sys.executable, "-m", "cluster.forward", address, KUBELET_PORT, "127.0.0.1", port]
        path = {"PYTHONPATH": str(Path(__file__).parents[1])}
        self._processes.start("kubelet-port", command, lambda: listens(KUBELET_PORT, address), environment=path)

    def _wait_until_ready(self) -> None:
        try:
            self.kubectl("wait", "--for=create", f"node/{NODE}", f"--timeout={PATIENCE:.0f}s")
            self.kubectl("wait", "--for=condition=Ready", f"node/{NODE}", f"--timeout={PATIENCE:.0f}s")
            for resource, ids in OFFERED.items():
                path = "{.status.allocatable." + resource.replace(".", "\\.") + "}"
                wanted = f"--for=jsonpath={path}={len(ids)}"
                self.kubectl("wait", wanted, f"node/{NODE}", f"--timeout={PATIENCE:.0f}s")
        except subprocess.CalledProcessError as error:
            said = self.guest.try_run("journalctl", "--no-pager", "-n", "60", "-u", "kubelet", "-u", "device-plugin")
            raise GuestError(f"the node is not ready: {error.stderr}\n{said.output}") from error


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise StartError(f"ip {' '.join(words)}: {done.stderr.strip()}")


__all__ = ["GuestBed"]
