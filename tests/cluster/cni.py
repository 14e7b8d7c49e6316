"""
The pods' network: CNI's ptp, and after it a step of ours that lets pods reach one another, as in every cluster.

In: the bed's addresses. Out: a folder of plugins and a folder with their list. Law: pods have routes to the bed's own
addresses alone. The machine's `ip_forward` stays as it is: the kernel asks the interface at which a packet arrives
whether that one forwards. It is the pod's end on the node, and goes with the pod.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

PLUGINS = Path("/usr/lib/cni")  # Debian's containernetworking-plugins
USED = ("ptp", "host-local", "loopback")
FORWARD = "gpusteward-forward"
VERSION = "0.4.0"


def write(folder: Path, *, pods: str, reach: Sequence[str], addresses: Path) -> tuple[Path, Path]:
    """Folder of the plugins and folder of their list; pods have addresses of `pods`, and reach these networks."""
    programs, lists = folder / "bin", folder / "net.d"
    for made in (programs, lists):
        made.mkdir(parents=True)
    for name in USED:
        (programs / name).symlink_to(PLUGINS / name)
    ours = programs / FORWARD
    ours.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S {shlex.quote(__file__)} "$@"\n')
    ours.chmod(0o755)
    routes = [{"dst": one} for one in reach]  # ptp itself adds one to the pods
    ipam = {"type": "host-local", "subnet": pods, "dataDir": str(addresses), "routes": routes}
    plugins = [{"type": "ptp", "ipMasq": False, "ipam": ipam}, {"type": FORWARD}]
    config = {"cniVersion": VERSION, "name": "bed", "plugins": plugins}
    (lists / "10-bed.conflist").write_text(json.dumps(config))
    return programs, lists


def main(command: str) -> None:
    """Be the plugin FORWARD: what CNI asks for is in the environment and in the standard input."""
    if command == "VERSION":
        print(json.dumps({"cniVersion": VERSION, "supportedVersions": [VERSION]}))
    if command != "ADD":
        return  # with the pod its interface goes, too
    before = json.load(sys.stdin)["prevResult"]
    (host,) = (one["name"] for one in before["interfaces"] if not one.get("sandbox"))
    Path("/proc/sys/net/ipv4/conf", host, "forwarding").write_text("1")
    print(json.dumps(before))


if __name__ == "__main__":
    main(os.environ["CNI_COMMAND"])
