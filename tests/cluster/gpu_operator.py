"""
What NVIDIA's GPU operator runs on a node for pods that ask for the driver by an annotation: its container toolkit.

In: a bed, the namespaces that may ask. Out: a CDI specification that containerd reads, an NRI plugin at its socket.
Law: toolkit, specification, hook and plugin are NVIDIA's own; what they find on the node is in `toolkit`.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster import build
from cluster.bed import Bed
from cluster.toolkit import driver_root
from containers.containerd import BedError, Containerd

NAMESPACE = "gpu-operator"
"""Where the operator's own pods are: they may always ask."""
_NAME = "nvidia-toolkit"


@contextmanager
def serving(bed: Bed, *namespaces: str) -> Iterator[Path]:
    """Let pods of these namespaces have the driver by annotation. Gives the toolkit's log."""
    log = bed.folder / "logs" / f"{_NAME}.log"
    log.unlink(missing_ok=True)

    def ready() -> bool:  # its last line, once containerd has let it in
        return log.exists() and "Started plugin" in log.read_text()

    asks = [
        "--enable-nri-plugin",
        f"--nri-socket={_containerd(bed).nri_socket}",
        f"--nri-namespace={NAMESPACE}",
        *(f"--nri-management-cdi-device-namespaces={name}" for name in namespaces),
    ]
    bed.node.run(_NAME, [*_command(bed), *asks], ready)
    try:
        yield log
    finally:
        bed.node.end(_NAME)


def specify(bed: Bed) -> None:
    """Write the specification alone, for pods that ask the runtime for management.nvidia.com/gpu=all."""
    subprocess.run([*_command(bed), "--no-daemon"], check=True, capture_output=True)


def _containerd(bed: Bed) -> Containerd:
    if bed.node.containerd is None:
        raise BedError("the node has no containerd")
    return bed.node.containerd


def _command(bed: Bed) -> list[str]:
    folder = bed.folder / "nvidia-toolkit"
    shutil.rmtree(folder, ignore_errors=True)
    programs = folder / "source" / "usr" / "bin"
    programs.mkdir(parents=True)
    programs.joinpath("nvidia-cdi-hook").symlink_to(build.program("nvidia-cdi-hook"))
    return [
        str(build.program("nvidia-ctk-installer")),
        "--runtime=containerd",
        "--no-runtime-config",
        "--ignore-errors",  # of what is not built from Go: the runtime's libraries
        f"--toolkit-source-root={programs.parents[1]}",
        f"--toolkit-install-dir={folder / 'installed'}",
        f"--pid-file={folder / 'toolkit.pid'}",
        f"--driver-root={driver_root(bed.folder)}",
        f"--driver-root-ctr-path={driver_root(bed.folder)}",
        "--cdi-enabled",
        "--create-device-nodes=none",
        f"--cdi-output-dir={_containerd(bed).cdi}",
    ]
