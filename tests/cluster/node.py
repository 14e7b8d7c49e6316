"""One node: containerd and a kubelet that see folders of the bed where a node has its own, and two addresses.

In: a control plane, a folder. Out: a node that is Ready, its sockets, `import_image`.
Law: the machine's own /var/lib/kubelet, /var/log, /run/containerd and kernel settings are never written to. The kubelet
and containerd live in a mount namespace; with its last process every mount of every pod is gone.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from cluster import build, cni, toolkit
from cluster.control_plane import ControlPlane
from cluster.networks import Network
from cluster.processes import Processes, StartError, answers, free_port, listens
from containers.cgroupfs import Hierarchies, hierarchies
from containers.containerd import BedError, Containerd

# What the node keeps in folders of its own: place on a node → folder of the bed.
FOLDERS = {
    "/var/lib/kubelet": "kubelet",
    "/var/log": "log",
    "/var/lib/cni": "cni-results",
    "/run/containerd": "run-containerd",
    "/var/lib/gpusteward": "gpusteward",
    "/run/gpusteward": "run-gpusteward",
}

# The kubelet sets these (setupKernelTunables), and CNI's ptp the last one. They write to copies.
SETTINGS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "net/ipv4/ip_forward",
)


class Node:
    """A kubelet and its containerd. `interface`: name of the network interface that carries the node's addresses."""

    def __init__(
        self,
        folder: Path,
        processes: Processes,
        control_plane: ControlPlane,
        *,
        name: str,
        network: Network,
        interface: str,
    ) -> None:
        self.folder = folder
        self.name = name
        self.network = network
        self.cgroup_root = f"/{interface}"  # pods are below <root>/kubepods, as in a cluster made by kind
        self.containerd: Containerd | None = None
        self._control_plane = control_plane
        self._processes = processes
        self._interface = interface

    @property
    def pod_resources_socket(self) -> Path:
        return self.folder / "kubelet" / "pod-resources" / "kubelet.sock"

    @property
    def kubelet_folder(self) -> Path:
        """What is /var/lib/kubelet to the node."""
        return self.folder / "kubelet"

    @property
    def static_pods(self) -> Path:
        """A manifest that is put here runs as a static pod."""
        return self.folder / "static-pods"

    @property
    def inside(self) -> Sequence[str]:
        """Words before a command that is to see the node's folders, not the machine's."""
        return tuple(self._inside)

    def start(self) -> None:
        """Start all, and return when the node is Ready. Raises StartError, BuildError."""
        self._add_interface()
        self._start_forwarding()
        inside = self._start_namespace()
        self._start_containerd(inside)
        self._start_kubelet(inside)

    def start_device_plugin(self, inventory: Path, state: Path) -> None:
        """Run the device plugin (see device_plugin) as the node's own; returns when the node counts its devices."""

        def counted() -> bool:  # also when it is started again, with another inventory by then
            wanted = {resource: len(ids) for resource, ids in json.loads(inventory.read_text()).items()}
            return self._offers(wanted)

        command = [*self._inside, sys.executable, "-m", "cluster.device_plugin", inventory, state]
        path = {"PYTHONPATH": str(Path(__file__).parents[1])}
        self._processes.start("device-plugin", command, counted, environment=path)

    def run(self, name: str, command: Sequence[object], ready: Callable[[], bool]) -> None:
        """Run a program as one of the node's own, until `end(name)`; returns when it is ready. Raises StartError."""
        self._processes.start(name, [*self._inside, *command], ready)

    def end(self, name: str) -> None:
        """End a program that `run` started."""
        self._processes.kill(name)

    def kill_kubelet(self) -> None:
        """End the kubelet as a crash does; `restart_kubelet` brings it back."""
        self._processes.kill("kubelet")

    def restart_kubelet(self) -> None:
        """Kill the kubelet and start it again; the pods run on. Returns when it answers.

        It empties the folder of device plugins when it starts, so the plugin is started anew too, as a DaemonSet would.
        """
        self._processes.start_again("kubelet")
        self._processes.start_again("device-plugin")

    def import_image(self, tar: Path, name: str) -> None:
        """Give the node an image from a file."""
        if self.containerd is None:
            raise StartError("the node was not started")
        self.containerd.import_image(tar, name)

    def stop_containers(self) -> None:
        """End every container and containerd; the kubelet must be gone by then."""
        if self.containerd is not None:
            self.containerd.stop()
            self.containerd = None

    def _add_interface(self) -> None:
        name, network = self._interface, self.network
        # A pair of virtual Ethernet ends, because pods need those anyway; a dummy interface is not in every kernel.
        _ip("link", "add", name, "type", "veth", "peer", "name", f"{name}p")
        for end in (name, f"{name}p"):
            _ip("link", "set", end, "up")
        for address in (network.node, network.api_service):
            _ip("address", "add", f"{address}/32", "dev", name)

    def _start_forwarding(self) -> None:
        to = ("127.0.0.1", str(self._control_plane.port))
        command = [sys.executable, "-m", "cluster.forward", self.network.api_service, "443", *to]
        path = {"PYTHONPATH": str(Path(__file__).parents[1])}
        self._processes.start("api-service", command, lambda: listens(443, self.network.api_service), environment=path)

    def _start_namespace(self) -> list[str]:
        settings = self.folder / "settings"
        # Slave to the machine, so that what is mounted and unmounted there is seen. Then shared among ourselves,
        # because containers ask for propagation from the node.
        lines = ["set -eu", "mount --make-rshared /"]
        for place, name in FOLDERS.items():
            (self.folder / name).mkdir(parents=True)
            Path(place).mkdir(parents=True, exist_ok=True)
            lines.append(f"mount --bind '{self.folder / name}' '{place}'")
        for setting in SETTINGS:
            original, copy = Path("/proc/sys", setting), settings / setting
            if original.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_text(original.read_text())
                lines.append(f"mount --bind '{copy}' '{original}'")
        kernel_lists = toolkit.kernel_lists(self.folder)
        kernel_lists.mkdir(parents=True)
        lines.append(f"mount --bind '{kernel_lists}' /proc/driver")
        ready = self.folder / "namespace-ready"
        lines += [f"touch '{ready}'", "exec sleep infinity"]
        command = ["unshare", "--mount", "--propagation", "slave", "sh", "-c", "\n".join(lines)]
        process = self._processes.start("mount-namespace", command, ready.exists)
        self._inside = ["nsenter", f"--mount=/proc/{process.pid}/ns/mnt", "--"]
        return self._inside

    def _start_containerd(self, inside: Sequence[str]) -> None:
        self.static_pods.mkdir()
        plugins, networks = cni.write(
            self.folder / "cni",
            pods=self.network.pods,
            reach=(f"{self.network.node}/32", self.network.services),
            addresses=self.folder / "cni-addresses",
        )
        self.containerd = Containerd(
            self.folder / "containerd",
            cni_bin_dir=plugins,
            cni_conf_dir=networks,
            runtimes={toolkit.HANDLER: self.folder / toolkit.PROGRAM},
            programs=build.program("containerd").parent,
            prefix=inside,
        )
        toolkit.runtime(self.folder, specifications=self.containerd.cdi)
        try:
            self.containerd.start()
        except BedError as error:
            raise StartError(str(error)) from error
        _enable_controllers(hierarchies())
        self.containerd.cgroups.make(self.cgroup_root)

    def _start_kubelet(self, inside: Sequence[str]) -> None:
        if self.containerd is None:
            raise StartError("containerd was not started")
        authority, kubernetes = self._control_plane.authority, self._control_plane.kubernetes
        serving = authority.issue(
            "kubelet", f"system:node:{self.name}", ["system:nodes"], [self.network.node, self.name]
        )
        client = self._control_plane.user(f"system:node:{self.name}", ["system:nodes"])
        kubeconfig = client.kubeconfig(self.folder / "kubelet.kubeconfig")
        config = self.folder / "kubelet.json"
        config.write_text(
            json.dumps(
                {
                    "apiVersion": "kubelet.config.k8s.io/v1beta1",
                    "kind": "KubeletConfiguration",
                    "address": self.network.node,
                    "port": free_port(),
                    "healthzPort": 0,
                    "tlsCertFile": str(serving.certificate),
                    "tlsPrivateKeyFile": str(serving.key),
                    "authentication": {
                        "anonymous": {"enabled": False},
                        "webhook": {"enabled": True},
                        "x509": {"clientCAFile": str(authority.certificate)},
                    },
                    "authorization": {"mode": "Webhook"},
                    "containerRuntimeEndpoint": f"unix://{self.containerd.socket}",
                    "cgroupDriver": "cgroupfs",
                    "cgroupRoot": self.cgroup_root,
                    "failSwapOn": False,
                    "makeIPTablesUtilChains": False,
                    "volumePluginDir": str(self.folder / "volume-plugins"),
                    "staticPodPath": str(self.static_pods),
                    "fileCheckFrequency": "1s",
                    # A developer's full disk is no reason to evict: evictions here are the tests' own.
                    "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1Mi", "imagefs.available": "1Mi"},
                    "imageGCHighThresholdPercent": 100,
                    # How soon a changed ConfigMap reaches its pods (default 1 min), changed devices the Node (10 s).
                    "syncFrequency": "2s",
                    "nodeStatusUpdateFrequency": "1s",
                    "nodeStatusReportFrequency": "5m",  # of a status that has not changed
                    "maxPods": 110,
                    "featureGates": dict(kubernetes.gates),
                    **(kubernetes.on_v1 if hierarchies().v1 else {}),
                }
            )
        )
        command = [
            *inside,
            self._control_plane.program("kubelet"),
            f"--config={config}",
            f"--kubeconfig={kubeconfig}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.network.node}",
        ]
        self._processes.start("kubelet", command, self._ready)

    def _ready(self) -> bool:
        if not answers(self.pod_resources_socket):  # the Node may still say Ready of a kubelet that was killed
            return False
        try:
            node = self._control_plane.admin.get(f"/api/v1/nodes/{self.name}")
        except OSError:
            return False
        tainted = any(taint["key"] == "node.kubernetes.io/not-ready" for taint in node["spec"].get("taints", ()))
        return not tainted and any(
            condition["type"] == "Ready" and condition["status"] == "True" for condition in node["status"]["conditions"]
        )

    def _offers(self, wanted: dict[str, int]) -> bool:
        offered = self._control_plane.admin.get(f"/api/v1/nodes/{self.name}")["status"]["allocatable"]
        return all(offered.get(resource) == str(count) for resource, count in wanted.items())


def _enable_controllers(mounts: Hierarchies) -> None:
    """On a machine that has only cgroup v2, what the kubelet wants must be handed down from the top."""
    if mounts.v1 or mounts.v2 is None:
        return
    for controller in ("cpuset", "cpu", "memory", "pids", "io", "hugetlb"):
        if controller in (mounts.v2 / "cgroup.controllers").read_text().split():
            (mounts.v2 / "cgroup.subtree_control").write_text(f"+{controller}")


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise StartError(f"ip {' '.join(words)}: {done.stderr.strip()}")
