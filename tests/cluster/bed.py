"""A whole test bed: a control plane, and with it a node with fake GPUs, from `start()` to `stop()`.

In: nothing, or a port. Out: a cluster that is ready. Law: after `stop()` nothing of it is on the machine, also when
`start()` failed. The next `start()` removes what a killed bed left, and says so.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from cluster import build, leftovers, toolkit
from cluster.client import Api
from cluster.control_plane import CONTROLLERS_WITHOUT_NODES, ControlPlane
from cluster.leftovers import Record
from cluster.networks import Claim, Network, claim
from cluster.node import FOLDERS, Node
from cluster.processes import Processes, StartError
from containers import images
from containers.cgroupfs import new_token
from driver import node as driver

WORKLOAD = "gpusteward.test/workload:1"  # busybox and the fake driver's workload, /bin/workload
NODE_NAME = "gpu-node"

GPUS = driver.gpus(2)
MIG_GPU = replace(
    driver.gpus(3)[2],
    mig="on",
    instances=tuple(
        driver.FakeGpuInstance(
            id=number,
            profile="1g.10gb",
            memory=9856 * driver.MiB,
            computes=(
                driver.FakeComputeInstance(uuid=f"MIG-0000000{number}-0000-4000-8000-000000000002", slot=number),
            ),
        )
        for number in (1, 2)
    ),
)

# One GPU in two replicas, as time-slicing is most often set up. One in four under the name that `renameByDefault`
# gives. One in two MIG devices.
INVENTORY: Mapping[str, Sequence[str]] = {
    "nvidia.com/gpu": [f"{GPUS[0].uuid}::{replica}" for replica in range(2)],
    "nvidia.com/gpu.shared": [f"{GPUS[1].uuid}::{replica}" for replica in range(4)],
    "nvidia.com/mig-1g.10gb": [compute.uuid for instance in MIG_GPU.instances for compute in instance.computes],
}


class Bed:
    """A cluster for tests; also a context manager.

    node:    whether it has a node (wants root). Without one: etcd, the API server, and the controllers that need none.
    port:    of the API server; None: a free one.
    by_hand: whether `python -m cluster --stop` ends it.
    gpus, inventory: what the node has, and what of it the device plugin offers.
    limited: priority classes whose pods want a quota, see ControlPlane.
    version: of Kubernetes, see ControlPlane.
    """

    def __init__(
        self,
        *,
        node: bool = True,
        port: int | None = None,
        by_hand: bool = False,
        gpus: Sequence[driver.FakeGpu] = (*GPUS, MIG_GPU),
        inventory: Mapping[str, Sequence[str]] = INVENTORY,
        limited: Sequence[str] = (),
        version: str | None = None,
    ) -> None:
        self.token = new_token()
        self.removed_at_start: list[str] = []
        self._with_node = node
        self._port = port
        self._by_hand = by_hand
        self._gpus = gpus
        self._offered = inventory
        self._limited = limited
        self._version = version
        self._record: Record | None = None
        self._claim: Claim | None = None
        self._node: Node | None = None
        self._driver: driver.FakeNode | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def folder(self) -> Path:
        if self._record is None:
            raise StartError("the bed was not started")
        return Path(self._record.folder)

    @property
    def node(self) -> Node:
        if self._node is None:
            raise StartError("this bed has no node")
        return self._node

    @property
    def driver(self) -> driver.FakeNode:
        """The fake driver behind the node's device plugin."""
        if self._driver is None:
            raise StartError("this bed has no node")
        return self._driver

    @property
    def kubeconfig(self) -> Path:
        """For kubectl and helm, as admin."""
        return self.folder / "kubeconfig"

    def api(self) -> Api:
        """A client with the admin's credentials, to be entered."""
        return Api(self.control_plane.admin)

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl as admin; its standard output. Raises CalledProcessError with its complaint as a note."""
        return run([str(build.program("kubectl")), f"--kubeconfig={self.kubeconfig}", *words], stdin)

    def helm(self, *words: str) -> str:
        """Run helm as admin; its standard output. Raises CalledProcessError with its complaint as a note."""
        return run([str(build.program("helm")), f"--kubeconfig={self.kubeconfig}", *words])

    def set_inventory(self, inventory: Mapping[str, Sequence[str]]) -> None:
        """Change what the device plugin offers, for resources that it already serves."""
        draft = self.folder / "inventory.new"
        draft.write_text(json.dumps(inventory))
        draft.rename(self._inventory)

    def start(self) -> None:
        """Remove what stale beds left, start, and return when the cluster is ready. Raises StartError, BuildError."""
        self.removed_at_start = leftovers.remove_stale()
        for line in self.removed_at_start:
            print(f"left by a killed test bed, removed: {line}", flush=True)
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> list[str]:
        """End everything, in reverse order. Returns what had not ended by itself, which is nothing when all is well.

        Safe to call twice, or after a failure.
        """
        if self._record is None:
            return []
        self._processes.stop(down_to="mount-namespace")
        if self._node is not None:
            self._node.stop_containers()
        self._processes.stop()
        if self._driver is not None:
            self._driver.close()
        record, self._record, self._node, self._driver = self._record, None, None, None
        expected = {f"folder {folder}" for folder in (record.folder, *record.made)} | {f"interface {record.interface}"}
        left = [line for line in leftovers.remove(record) if line not in expected]
        if self._claim is not None:
            self._claim.release()
        return left

    @property
    def _inventory(self) -> Path:
        return self.folder / "inventory.json"

    def _start(self) -> None:
        folder = Path(tempfile.gettempdir(), f"gpusteward-cluster-{self.token}")
        self._claim = claim()
        network = self._claim.network
        pid, _, serial = self.token.split("-")
        interface = f"gpu{pid}n{serial}" if self._with_node else None
        made = tuple(sorted(_to_be_made())) if self._with_node else ()
        self._record = Record(self.token, str(folder), interface, made, self._by_hand)
        leftovers.write(self._record)
        folder.mkdir(mode=0o755)
        self._processes = Processes(folder / "logs", self.token)
        self.control_plane = ControlPlane(
            folder,
            self._processes,
            port=self._port,
            services=network.services,
            service_address=network.api_service,
            controllers=None if self._with_node else CONTROLLERS_WITHOUT_NODES,
            scheduler=self._with_node,
            limited=self._limited,
            version=self._version,
        )
        self.control_plane.admin.kubeconfig(self.kubeconfig)
        self.control_plane.start()
        if interface:
            self._start_node(folder, network, interface)

    def _start_node(self, folder: Path, network: Network, interface: str) -> None:
        self._node = Node(
            folder, self._processes, self.control_plane, name=NODE_NAME, network=network, interface=interface
        )
        self._node.start()
        self._driver = driver.FakeNode(folder / "driver", driver.build(build.cache()))
        self._driver.write(self._gpus)
        toolkit.install_driver(folder, library=self._driver.library(), gpus=self._gpus)
        tar = folder / "workload.tar"
        images.busybox_image(tar, name=WORKLOAD, files={"bin/workload": self._driver.workload_binary})
        self._node.import_image(tar, WORKLOAD)
        self.set_inventory(self._offered)
        self._node.start_device_plugin(self._inventory, self._driver.folder)


def run(command: list[str], stdin: str | None = None) -> str:
    """Run a program; its standard output. Raises CalledProcessError with its complaint as a note."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode:
        failure = subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
        failure.add_note(done.stderr)
        raise failure
    return done.stdout


def _to_be_made() -> set[str]:
    """Folders of the node that are not the machine's own: missing ones with those that lead there, and other beds'."""
    places = [path for place in map(Path, FOLDERS) for path in (place, *place.parents)]
    return {str(path) for path in places if not path.exists()} | leftovers.made_for_living()
