"""
The second disk of a guest: what makes it a node of one bed.

In: a bed's folder and control plane, the fake driver, images. Out: a folder that becomes the disk: containerd and the
kubelet as units of systemd, their settings and certificates, the device plugin and its Python packages, the images.

The rule: settings are those of a production node: systemd's cgroup driver, cgroup v2, crun, AppArmor as Debian has it.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster import build, device_plugin, kubelet_pb2
from cluster.bed import INVENTORY as ALL
from cluster.bed import WORKLOAD
from cluster.control_plane import ControlPlane
from cluster.node import Network
from containers import images
from driver.node import FakeNode
from hosts.guest import HOST, PROGRAMS

NODE = "gpu-vm"
KUBELET_PORT = 10250
STATE = device_plugin.STATE_IN_CONTAINER
"""Of the fake driver, in the guest as in its containers."""
OFFERED = {name: ids for name, ids in ALL.items() if "mig" not in name}
"""Of the fake GPUs, by the device plugin."""
INVENTORY = "/run/bed-inventory.json"
LIBRARY = f"{PROGRAMS}/lib/libnvidia-ml.so.1"
UNITS = ("containerd", "kubelet", "device-plugin")
BINARIES = ("containerd", "containerd-shim-runc-v2", "ctr", "kubelet")
PACKAGES = ("grpclib", "h2", "hpack", "hyperframe", "multidict", "google")
"""Of the device plugin. Each is plain Python, or has an extension for all versions of it."""
PATH = f"{PROGRAMS}/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def fill(
    folder: Path,
    control_plane: ControlPlane,
    network: Network,
    driver: FakeNode,
    archives: Sequence[Path],
) -> None:
    """Write everything into an empty folder."""
    for name in ("bin", "etc", "etc/static", "etc/cni", "units", "python/cluster", "images", "lib"):
        (folder / name).mkdir(parents=True)
    for program in BINARIES:
        shutil.copy2(build.program(program, control_plane.version), folder / "bin" / program)
    _python(folder / "python")
    _images(folder / "images", driver, archives)
    shutil.copy2(driver.workload_binary, folder / "bin/workload")
    shutil.copy2(driver.library(), folder / "lib" / Path(LIBRARY).name)
    shutil.copytree(driver.folder, folder / "driver")
    (folder / "etc/inventory.json").write_text(json.dumps(OFFERED))
    _containerd(folder / "etc", network)
    _kubelet(folder / "etc", control_plane, network)
    for name, text in _units(network).items():
        (folder / "units" / f"{name}.service").write_text(text)


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


def _containerd(folder: Path, network: Network) -> None:
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    lines = ["version = 2", f"[{cri}]", f'sandbox_image = "{images.SANDBOX}"']
    lines += [f"[{cri}.containerd]", 'default_runtime_name = "crun"']
    for runtime in ("crun", "runc"):
        place = f"{cri}.containerd.runtimes.{runtime}"
        lines += [f"[{place}]", 'runtime_type = "io.containerd.runc.v2"']
        lines += [f"[{place}.options]", f'BinaryName = "/usr/bin/{runtime}"', "SystemdCgroup = true"]
    lines += [f"[{cri}.cni]", 'bin_dir = "/usr/lib/cni"', f'conf_dir = "{PROGRAMS}/etc/cni"', ""]
    (folder / "containerd.toml").write_text("\n".join(lines))
    ipam = {"type": "host-local", "subnet": network.pods, "routes": [{"dst": "0.0.0.0/0"}]}
    plugins = [{"type": "ptp", "ipMasq": True, "ipam": ipam}]
    (folder / "cni/10-bed.conflist").write_text(json.dumps({"cniVersion": "0.4.0", "name": "bed", "plugins": plugins}))


def _kubelet(folder: Path, control_plane: ControlPlane, network: Network) -> None:
    authority = control_plane.authority
    pairs = {
        "serving": authority.issue("kubelet", f"system:node:{NODE}", ["system:nodes"], [network.node, NODE]),
        "client": authority.issue("kubelet-client", f"system:node:{NODE}", ["system:nodes"]),
    }
    place = f"{PROGRAMS}/etc"
    shutil.copy2(authority.certificate, folder / "ca.crt")
    for name, pair in pairs.items():
        shutil.copy2(pair.certificate, folder / f"{name}.crt")
        shutil.copy2(pair.key, folder / f"{name}.key")
    cluster = {"server": f"https://{network.api_service}:443", "certificate-authority": f"{place}/ca.crt"}
    user = {"client-certificate": f"{place}/client.crt", "client-key": f"{place}/client.key"}
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "bed", "cluster": cluster}],
        "users": [{"name": "kubelet", "user": user}],
        "contexts": [{"name": "bed", "context": {"cluster": "bed", "user": "kubelet"}}],
        "current-context": "bed",
    }
    (folder / "kubeconfig").write_text(json.dumps(kubeconfig))
    (folder / "kubelet.json").write_text(json.dumps(_settings(place, control_plane.kubernetes.gates)))
    # No proxy runs: the guest itself sends what is for the API server's Service there.
    rule = f"ip daddr {network.api_service} tcp dport 443 dnat to {HOST}:{control_plane.port};"
    chains = [f"chain {hook} {{ type nat hook {hook} priority -100; {rule} }}" for hook in ("output", "prerouting")]
    (folder / "api.nft").write_text("\n".join(["table ip bed {", *chains, "}", ""]))


def _settings(place: str, gates: Mapping[str, bool]) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "port": KUBELET_PORT,
        "tlsCertFile": f"{place}/serving.crt",
        "tlsPrivateKeyFile": f"{place}/serving.key",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{place}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "systemd",
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "staticPodPath": "/etc/static-pods",
        "fileCheckFrequency": "1s",
        "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1Mi", "imagefs.available": "1Mi"},
        "imageGCHighThresholdPercent": 100,
        "syncFrequency": "2s",
        "nodeStatusUpdateFrequency": "2s",
        "featureGates": dict(gates),
    }


def _units(network: Network) -> Mapping[str, str]:
    place = f"{PROGRAMS}/etc"
    kubelet = f"--config={place}/kubelet.json --kubeconfig={place}/kubeconfig"
    return {
        "containerd": _unit(
            f"{PROGRAMS}/bin/containerd --config={place}/containerd.toml",
            "Type=notify", "Delegate=yes", "KillMode=process", "OOMScoreAdjust=-999", f"Environment=PATH={PATH}",
        ),
        "kubelet": _unit(
            f"{PROGRAMS}/bin/kubelet {kubelet} --hostname-override={NODE} --node-ip={network.node}", "KillMode=process"
        ),
        "device-plugin": _unit(
            f"/usr/bin/python3 -m cluster.device_plugin {INVENTORY} {STATE}",
            f"Environment=PYTHONPATH={PROGRAMS}/python MULTIDICT_NO_EXTENSIONS=1",
        ),
    }  # fmt: skip


def _unit(command: str, *more: str) -> str:
    return "\n".join(["[Service]", f"ExecStart={command}", "Restart=always", "RestartSec=1", *more, ""])


__all__ = ["INVENTORY", "KUBELET_PORT", "LIBRARY", "NODE", "OFFERED", "STATE", "UNITS", "fill"]
