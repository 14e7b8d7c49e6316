"""What this machine must have before a bed can start, and what to do about what it lacks.

In: the machine as it is. Out: sentences; an empty list when all is there.
Law: programs are looked for, not packages, so a containerd from elsewhere serves as well as Debian's.
"""

from __future__ import annotations

import os
import shlex
import shutil
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

from cluster import build

SBIN = "/usr/local/sbin:/usr/sbin:/sbin"  # not on every user's PATH
PT_INTERP = 3


@dataclass(frozen=True, slots=True)
class Need:
    """A file that must be there, the package of Debian that has it, and whether only beds with a node want it."""

    program: str
    package: str
    node: bool = True


NEEDS = (
    Need("etcd", "etcd-server", node=False),
    Need("containerd", "containerd"),
    Need("ctr", "containerd"),
    Need("runc", "runc"),
    Need("/usr/lib/cni/ptp", "containernetworking-plugins"),
    Need("ip", "iproute2"),
    Need("/bin/busybox", "busybox-static"),
    Need("gcc", "gcc"),  # for the fake driver
    Need("/usr/include/stdio.h", "libc6-dev"),
)
PROMETHEUS = (
    Need("prometheus", "prometheus"),
    Need("promtool", "prometheus"),
    Need("prometheus-alertmanager", "prometheus-alertmanager"),
    Need("prometheus-node-exporter", "prometheus-node-exporter"),
)
BROWSER = (Need("chromium", "chromium"),)
APPARMOR = (Need("apparmor_parser", "apparmor"),)
READER = (Need("jq", "jq"), Need("curl", "curl"))
"""What the commands of the pages use."""
IMAGE = (Need("buildah", "buildah"), Need("mmdebstrap", "mmdebstrap"))
GUEST = (
    Need("qemu-system-x86_64", "qemu-system-x86"),
    Need("qemu-img", "qemu-utils"),
    Need("mke2fs", "e2fsprogs"),
    Need("mmdebstrap", "mmdebstrap"),
)
RELEASE = (*IMAGE, Need("git", "git"), Need("qemu-aarch64-static", "qemu-user-static"))


def missing(*, node: bool) -> list[str]:
    """What keeps a bed (with a node, or the API server alone) from starting here."""
    found = [
        f"{need.program} is missing (Debian's {need.package})" for need in lacking(*NEEDS) if node or not need.node
    ]
    if found:
        found.append(f"`PYTHONPATH=tests {shlex.quote(sys.executable)} -m cluster.install` installs Debian's packages")
    if node and os.geteuid() != 0:
        found.append("root is needed for containers, mounts and cgroups")
    wanted = ["kube-apiserver", "kube-controller-manager"]
    if node:
        wanted += ["kube-scheduler", "kubelet", "containerd", "containerd-shim-runc-v2", "ctr"]
        wanted += ["nvidia-container-runtime", "nvidia-cdi-hook"]
    if not all(build.assets(program) for program in wanted) and (problem := build.go_problem()):
        found.append(problem)
    return found


def missing_for_guest() -> list[str]:
    """What keeps a node in a virtual machine from starting here."""
    return [f"{need.program} is missing (Debian's {need.package})" for need in lacking(*GUEST)]


def missing_for_image() -> list[str]:
    """What keeps the daemon's image from being built here."""
    found = [f"{need.program} is missing (Debian's {need.package})" for need in lacking(*IMAGE)]
    if os.geteuid() != 0:
        found.append("root is needed to build an image")
    return found


def missing_for_release() -> list[str]:
    """What keeps a release from being made here, and its image for another platform from being started."""
    found = [f"{need.program} is missing (Debian's {need.package})" for need in lacking(*RELEASE)]
    if not Path(sys.executable).with_name("cyclonedx-py").exists():
        found.append("cyclonedx-py is missing (`make .venv/.release`)")
    return found


def missing_for_reader() -> list[str]:
    """What keeps the commands of the pages from running here."""
    return [f"{need.program} is missing (Debian's {need.package})" for need in lacking(*READER)]


def lacking(*needs: Need) -> list[Need]:
    """Those whose program is not here."""
    return [need for need in needs if not _there(need)]


def _there(need: Need) -> bool:
    if need.program == "etcd" and build.assets("etcd"):
        return True
    path = shutil.which(need.program, path=f"{os.environ.get('PATH', '')}:{SBIN}")
    if need.package == "busybox-static":  # the package busybox has the same path, and does not run in an empty image
        return path is not None and is_static(Path(path))
    return path is not None or (need.program.startswith("/") and Path(need.program).exists())


def is_static(program: Path) -> bool:
    """Whether a 64-bit ELF file asks for no dynamic loader (elf(5))."""
    with program.open("rb") as file:
        header = file.read(64)
        (offset,) = struct.unpack_from("<Q", header, 32)
        size, count = struct.unpack_from("<HH", header, 54)
        file.seek(offset)
        return all(struct.unpack_from("<I", file.read(size))[0] != PT_INTERP for _ in range(count))
