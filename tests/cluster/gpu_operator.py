"""
What NVIDIA's GPU operator runs on a node for pods that ask for the driver by an annotation: its container toolkit.

In: a bed, the namespaces that may ask. Out: a CDI specification that containerd reads, an NRI plugin at its socket.
Law: toolkit, specification, hook and plugin are NVIDIA's own; made here is what they find on the node, the driver's
root: the fake library under a driver's version, and device files, each with the numbers of /dev/null.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from cluster import build
from cluster.bed import Bed
from cluster.toolkit import LIBRARY, MONITOR
from containers.containerd import BedError

NAMESPACE = "gpu-operator"
"""Where the operator's own pods are: they may always ask."""
DEVICES = ("/dev/nvidia0", "/dev/nvidiactl", MONITOR)
_NAME = "nvidia-toolkit"


@contextmanager
def serving(bed: Bed, *namespaces: str) -> Iterator[Path]:
    """Let pods of these namespaces have the driver by annotation. Gives the toolkit's log."""
    folder = bed.folder / "nvidia-toolkit"
    log = bed.folder / "logs" / f"{_NAME}.log"
    log.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    _driver_root(folder / "root", bed.driver.library())

    def ready() -> bool:  # its last line, once containerd has let it in
        return log.exists() and "Started plugin" in log.read_text()

    bed.node.run(_NAME, _command(bed, folder, namespaces), ready)
    try:
        yield log
    finally:
        bed.node.end(_NAME)


def _command(bed: Bed, folder: Path, namespaces: Sequence[str]) -> list[object]:
    containerd = bed.node.containerd
    if containerd is None:
        raise BedError("the node has no containerd")
    programs = folder / "source" / "usr" / "bin"
    programs.mkdir(parents=True)
    programs.joinpath("nvidia-cdi-hook").symlink_to(build.program("nvidia-cdi-hook"))
    return [
        build.program("nvidia-ctk-installer"),
        "--runtime=containerd",
        "--no-runtime-config",
        "--ignore-errors",  # of what is not built from Go: the runtime's libraries
        f"--toolkit-source-root={programs.parents[1]}",
        f"--toolkit-install-dir={folder / 'installed'}",
        f"--pid-file={folder / 'toolkit.pid'}",
        f"--driver-root={folder / 'root'}",
        f"--driver-root-ctr-path={folder / 'root'}",
        "--cdi-enabled",
        "--create-device-nodes=none",
        f"--cdi-output-dir={containerd.cdi}",
        "--enable-nri-plugin",
        f"--nri-socket={containerd.nri_socket}",
        f"--nri-namespace={NAMESPACE}",
        *(f"--nri-management-cdi-device-namespaces={name}" for name in namespaces),
    ]


def _driver_root(root: Path, library: Path) -> None:
    version = "580.95.05"
    libraries = root / Path(LIBRARY).parent.relative_to("/")
    libraries.mkdir(parents=True)
    shutil.copy(library, libraries / f"libnvidia-ml.so.{version}")
    (libraries / f"libcuda.so.{version}").touch()  # its name tells the toolkit the driver's version
    numbers = Path("/dev/null").stat().st_rdev
    for device in DEVICES:
        file = root / device.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.mknod(file, 0o666 | stat.S_IFCHR, numbers)
