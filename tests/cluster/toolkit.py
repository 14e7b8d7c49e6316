"""
NVIDIA's container runtime on the node, with the settings of its package; and the driver's root, in which it looks.

In: a bed's folder, the fake driver. Out: the program that containerd calls for the handler `nvidia`.
Law: the runtime and its hooks are NVIDIA's own, and decide what a container is given. Made here is what they find: the
fake library under a driver's version, device files with the numbers of /dev/null, the driver's list of MIG
capabilities. In runc's place below them is what `device_files` says.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from cluster import build, device_files
from driver.gpus import FakeGpu

HANDLER = "nvidia"
PROGRAM = "nvidia-container-runtime"
LIBRARY = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
STATE = device_files.STATE
MONITOR = "/dev/nvidia-caps/nvidia-cap2"
VERSION = "580.65.06"
"""Of the driver, as FakeNode.write has it; the toolkit takes it from the name of a library."""
_CONFIG, _MONITOR = 1, 2


def runtime(folder: Path, *, specifications: Path) -> None:
    """Write what containerd calls into a bed's folder; `specifications`: of CDI, for pods that ask by a full name."""
    settings = folder / "nvidia-container-runtime.toml"
    settings.write_text(
        "\n".join(
            [
                "[nvidia-container-cli]",
                f"root = {json.dumps(str(driver_root(folder)))}",
                "[nvidia-container-runtime]",
                f"debug = {json.dumps(str(folder / 'logs' / 'nvidia-container-runtime.log'))}",
                f"runtimes = {json.dumps([str(device_files.program(folder))])}",
                "[nvidia-container-runtime.modes.cdi]",
                f"spec-dirs = {json.dumps([str(specifications)])}",
                "[nvidia-ctk]",
                f"path = {json.dumps(str(build.program('nvidia-cdi-hook')))}",
                "",
            ]
        )
    )
    program = folder / PROGRAM
    variables = {
        "NVIDIA_CTK_CONFIG_FILE_PATH": settings,  # the others are what the library reads in the runtime's own process
        "FAKE_NVML_STATE": folder / "driver",
        "FAKE_NVML_CAPABILITIES": driver_root(folder) / "dev/nvidia-caps",
    }
    lines = ["#!/bin/sh", *(f"export {name}='{value}'" for name, value in variables.items())]
    program.write_text("\n".join([*lines, f"exec '{build.program(PROGRAM)}' \"$@\"", ""]))
    program.chmod(0o755)


def driver_root(folder: Path) -> Path:
    """Where a bed's driver is, as the GPU operator's driver container leaves one."""
    return folder / "driver-root"


def kernel_lists(folder: Path) -> Path:
    """What the node has at /proc/driver."""
    return driver_root(folder) / "proc/driver"


def install_driver(folder: Path, *, library: Path, gpus: Iterable[FakeGpu]) -> None:
    """Fill a bed's root of the driver."""
    link = driver_root(folder) / LIBRARY.lstrip("/")
    link.parent.mkdir(parents=True)
    shutil.copy(library, link.with_name(f"libnvidia-ml.so.{VERSION}"))
    link.with_name(f"libcuda.so.{VERSION}").touch()  # its name tells the toolkit the version
    link.symlink_to(f"libnvidia-ml.so.{VERSION}")
    make_devices(folder, gpus)
    minors = kernel_lists(folder) / "nvidia-caps/mig-minors"
    minors.parent.mkdir(parents=True)
    minors.write_text("".join(f"{name} {minor}\n" for name, minor in _capabilities().items()))


def make_devices(folder: Path, gpus: Iterable[FakeGpu]) -> None:
    """Make the device files of GPUs and of their instances, where they are missing."""
    numbers = Path("/dev/null").stat().st_rdev
    for device in ("/dev/nvidiactl", "/dev/nvidia-uvm", *_devices(gpus)):
        file = driver_root(folder) / device.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.mknod(file, 0o666 | stat.S_IFCHR, numbers)


def devices(folder: Path) -> set[str]:
    """All device files of a bed's driver."""
    root = driver_root(folder)
    return {f"/{file.relative_to(root)}" for file in (root / "dev").rglob("*") if file.is_char_device()}


def of_instance(gpu: FakeGpu, instance: int) -> set[str]:
    """The device files that a container with the first compute instance of a GPU instance is given beside nvidiactl."""
    return {f"/dev/nvidia{gpu.minor}", *(_device(gpu, one) for one in (f"gi{instance}", f"gi{instance}/ci0"))}


def _devices(gpus: Iterable[FakeGpu]) -> Iterator[str]:
    yield from (f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in (_CONFIG, _MONITOR))
    for gpu in gpus:
        yield f"/dev/nvidia{gpu.minor}"
        for gi in gpu.instances:
            yield _device(gpu, f"gi{gi.id}")
            yield from (_device(gpu, f"gi{gi.id}/ci{ci.id}") for ci in gi.computes)


def _device(gpu: FakeGpu, instance: str) -> str:
    return f"/dev/nvidia-caps/nvidia-cap{_capabilities()[f'gpu{gpu.minor}/{instance}/access']}"


@cache
def _capabilities() -> Mapping[str, int]:
    """Name to minor number, in the driver's order: 15 GPU instances a GPU, 8 compute instances each, there or not."""
    names = ["config", "monitor"]
    for gpu in range(32):
        for gi in range(15):
            place = f"gpu{gpu}/gi{gi}"
            names += [f"{place}/access", *(f"{place}/ci{ci}/access" for ci in range(8))]
    return {name: minor for minor, name in enumerate(names, _CONFIG)}
