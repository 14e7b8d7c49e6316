"""
The second disk of a guest: all of a node that is the same for each cluster.

In: the fake driver, images. Out: a folder that becomes the disk: containerd and the kubelet as units of systemd, their
settings, the device plugin and its Python packages, the images. And how a guest that has booted is made ready to join.

The rule: settings are those of a production node: systemd's cgroup driver, cgroup v2, crun, AppArmor as Debian has it.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster import build, device_plugin, kubelet_pb2
from cluster.bed import GPUS, WORKLOAD
from cluster.versions import VERSIONS
from containers import images
from driver.node import FakeNode
from hosts.agent import Agent
from hosts.guest import PROGRAMS

VERSION = "1.37"
"""Of Kubernetes: its kubelet refuses cgroup v1."""
NODE = "gpu-vm"
KUBELET_PORT = 10250
STATE = device_plugin.STATE_IN_CONTAINER
"""Of the fake driver, in the guest as in its containers."""
OFFERED = {
    "nvidia.com/gpu": [f"{GPUS[0].uuid}::{replica}" for replica in range(2)],
    "nvidia.com/gpu.shared": [f"{GPUS[1].uuid}::{replica}" for replica in range(20)],
}
"""Of the fake GPUs, by the device plugin."""
INVENTORY = "/run/bed-inventory.json"
LIBRARY = f"{PROGRAMS}/lib/libnvidia-ml.so.1"
UNITS = ("containerd", "kubelet", "device-plugin")
BINARIES = ("containerd", "containerd-shim-runc-v2", "ctr", "kubelet")
PACKAGES = ("grpclib", "h2", "hpack", "hyperframe", "multidict", "google")
"""Of the device plugin. Each is plain Python, or has an extension for all versions of it."""
RUNSC = "/etc/runsc.toml"
"""Settings of gVisor's shim."""
PATH = f"{PROGRAMS}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PODS = "10.88.0.0/24"
"""Addresses of pods: inside of the guest alone, which masquerades them."""
JOINED = "/etc/bed"
"""Folder of what differs from cluster to cluster, see `hosts.joining`."""


def fill(folder: Path, driver: FakeNode, archives: Sequence[Path]) -> None:
    """Write everything into an empty folder."""
    for name in ("bin", "etc/cni", "units", "python/cluster", "images", "lib"):
        (folder / name).mkdir(parents=True)
    for program in BINARIES:
        shutil.copy2(build.program(program, VERSION), folder / "bin" / program)
    _python(folder / "python")
    _images(folder / "images", driver, archives)
    shutil.copy2(driver.workload_binary, folder / "bin/workload")
    shutil.copy2(driver.library(), folder / "lib" / Path(LIBRARY).name)
    shutil.copytree(driver.folder, folder / "driver")
    (folder / "etc/inventory.json").write_text(json.dumps(OFFERED))
    _containerd(folder / "etc")
    (folder / "etc/kubelet.json").write_text(json.dumps(_settings()))
    for name, text in _units().items():
        (folder / "units" / f"{name}.service").write_text(text)


def prepare(agent: Agent) -> None:
    """Do in a guest what needs no cluster: containerd runs and has the images, the fake driver is there."""
    agent.shell(
        f"mkdir -p /etc/static-pods {JOINED}; cp -a {PROGRAMS}/driver {STATE}; "
        f"cp {PROGRAMS}/etc/inventory.json {INVENTORY}; "
        f"systemctl link --quiet {' '.join(f'{PROGRAMS}/units/{unit}.service' for unit in UNITS)}; "
        "systemctl start containerd"
    )
    for tar in agent.shell(f"ls {PROGRAMS}/images/*.tar").split():
        agent.shell(f"{PROGRAMS}/bin/ctr -n k8s.io images import --local {tar}")
    # Read once from the disk, so that its pages are in memory when it starts.
    agent.shell(f"{PROGRAMS}/bin/kubelet --version; sync")


def _python(folder: Path) -> None:
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            shutil.copytree(place, folder / name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    for module in (device_plugin, kubelet_pb2):
        shutil.copy2(str(module.__file__), folder / "cluster")


def _images(folder: Path, driver: FakeNode, archives: Sequence[Path]) -> None:
    images.sandbox_image(folder / "sandbox.tar")
    images.busybox_image(folder / "workload.tar", name=WORKLOAD, files={"bin/workload": driver.workload_binary})
    for archive in archives:
        shutil.copy2(archive, folder)


def _containerd(folder: Path) -> None:
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    lines = ["version = 2", f"[{cri}]", f'sandbox_image = "{images.SANDBOX}"']
    lines += [f"[{cri}.containerd]", 'default_runtime_name = "crun"']
    for runtime in ("crun", "runc"):
        place = f"{cri}.containerd.runtimes.{runtime}"
        lines += [f"[{place}]", 'runtime_type = "io.containerd.runc.v2"']
        lines += [f"[{place}.options]", f'BinaryName = "/usr/bin/{runtime}"', "SystemdCgroup = true"]
    # gVisor's, of which a test brings the programs.
    place = f"{cri}.containerd.runtimes.runsc"
    lines += [f"[{place}]", 'runtime_type = "io.containerd.runsc.v1"', f"[{place}.options]"]
    lines += ['TypeUrl = "io.containerd.runsc.v1.options"', f'ConfigPath = "{RUNSC}"']
    lines += [f"[{cri}.cni]", 'bin_dir = "/usr/lib/cni"', f'conf_dir = "{PROGRAMS}/etc/cni"', ""]
    (folder / "containerd.toml").write_text("\n".join(lines))
    ipam = {"type": "host-local", "subnet": PODS, "routes": [{"dst": "0.0.0.0/0"}]}
    plugins = [{"type": "ptp", "ipMasq": True, "ipam": ipam}]
    (folder / "cni/10-bed.conflist").write_text(json.dumps({"cniVersion": "0.4.0", "name": "bed", "plugins": plugins}))


def _settings() -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "port": KUBELET_PORT,
        "tlsCertFile": f"{JOINED}/serving.crt",
        "tlsPrivateKeyFile": f"{JOINED}/serving.key",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{JOINED}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "systemd",
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "staticPodPath": "/etc/static-pods",
        "fileCheckFrequency": "5s",
        "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1Mi", "imagefs.available": "1Mi"},
        "evictionPressureTransitionPeriod": "1s",
        "imageGCHighThresholdPercent": 100,
        "syncFrequency": "10s",
        "nodeStatusUpdateFrequency": "5s",
        "featureGates": dict(VERSIONS[VERSION].gates),
    }


def _units() -> Mapping[str, str]:
    place = f"{PROGRAMS}/etc"
    kubelet = f"--config={place}/kubelet.json --kubeconfig={JOINED}/kubeconfig --hostname-override={NODE}"
    return {
        "containerd": _unit(
            f"{PROGRAMS}/bin/containerd --config={place}/containerd.toml",
            "Type=notify", "Delegate=yes", "KillMode=process", "OOMScoreAdjust=-999", f"Environment=PATH={PATH}",
        ),
        "kubelet": _unit(
            f"{PROGRAMS}/bin/kubelet {kubelet} --node-ip=${{NODE_IP}} $MORE",
            "KillMode=process", f"EnvironmentFile={JOINED}/kubelet.env",
        ),
        "device-plugin": _unit(
            f"/usr/bin/python3 -m cluster.device_plugin {INVENTORY} {STATE}",
            f"Environment=PYTHONPATH={PROGRAMS}/python MULTIDICT_NO_EXTENSIONS=1 LOOK_EVERY_S=2",
        ),
    }  # fmt: skip


def _unit(command: str, *more: str) -> str:
    return "\n".join(["[Service]", f"ExecStart={command}", "Restart=always", "RestartSec=1", *more, ""])


__all__ = [
    "INVENTORY",
    "JOINED",
    "KUBELET_PORT",
    "LIBRARY",
    "NODE",
    "OFFERED",
    "STATE",
    "UNITS",
    "VERSION",
    "fill",
    "prepare",
]
