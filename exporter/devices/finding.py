"""
Finds the device sources of a node.

What comes in: the sources that the operator named, and the node's files. What goes out: one source, which may join
several.

The rule: `auto` takes all sources that exist, and never none: without any device it fails, and names a fix. A source
that the config names must exist. A node whose NVIDIA driver does not work must not look like a node without NVIDIA
GPUs, so `auto` fails there, too. Integrated graphics drive the screen, so they are read only if the config names their
source. A source that hangs at the start is opened all the same, and reported as hung until it answers. A device that
appears later is not looked for.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from exporter.devices import NAMES, DeviceError, DeviceSource, vendor_libs
from exporter.devices.kernel import Counting, KernelSource, Roots, counts_memory, may_look
from exporter.devices.nvml import NvmlSource
from exporter.devices.several import Several
from exporter.devices.thread import DEADLINE, DriverHungError
from exporter.model import ALL_ON, Off

NVML, KFD, DRM = "nvml", "kfd", "drm"
_NVIDIA = "0x10de"
_NOBODY: frozenset[str] = frozenset()
_DISPLAY = "0x03"
"""Class of a PCI device that is a GPU, with a screen (0x0300) or without one (0x0302)."""


@dataclass(frozen=True, slots=True)
class Finder:
    """
    Opens the sources that exist.

    Attributes:
        roots: the node's files.
        host_root: the mount point of the host's file system; libraries look for device nodes there.
        deadline: seconds for one call of a driver.
        events: listen to XID errors.
        off: collectors that are not read.

    """

    roots: Roots
    host_root: Path
    clock: Callable[[], float]
    monotonic: Callable[[], float]
    deadline: float = DEADLINE
    events: bool = False
    off: Off = ALL_ON

    async def open(self, wanted: Collection[str] | None) -> DeviceSource:
        """Open the sources that are `wanted`, of `NAMES`, or (None) all that exist. Raises DeviceError."""
        async with AsyncExitStack() as opened:
            sources: list[DeviceSource] = []

            def keep(source: DeviceSource) -> None:
                opened.push_async_callback(source.close)
                sources.append(source)

            missing = DeviceError(
                "no source of devices is configured", fix=f"set devices to auto, or to {', '.join(NAMES)}"
            )
            if wanted is None or NVML in wanted:
                try:
                    keep(await self._nvml())
                except DeviceError as error:
                    if wanted is not None or await asyncio.to_thread(has_nvidia, self.roots.sys):
                        raise
                    missing = DeviceError("no GPU was found", cause=error.reason, fix=error.fix)
            if (kernel := await self._kernel(wanted)) is not None:
                keep(kernel)
            for source in await vendor_libs.present(
                clock=self.clock, monotonic=self.monotonic, host_root=self.host_root, wanted=wanted, off=self.off
            ):
                keep(source)
            if not sources:
                raise missing
            counts = await asyncio.to_thread(counts_memory, self.roots.cgroup)
            opened.pop_all()
            source = sources[0] if len(sources) == 1 else Several(sources)
            return Counting(source, self.roots.cgroup, self.deadline, self.roots.pods) if counts else source

    async def _nvml(self) -> NvmlSource:
        return await NvmlSource.open(
            deadline=self.deadline, clock=self.clock, monotonic=self.monotonic, events=self.events, off=self.off
        )

    async def _kernel(self, wanted: Collection[str] | None) -> KernelSource | None:
        """
        Open the source that reads the kernel's files.

        If the kernel hangs, its GPUs are named once it answers again.
        """
        if wanted is not None:
            name = DRM if DRM in wanted else KFD if KFD in wanted else None
            if name is None:
                return None
            source = self._files(name, integrated=True)
            if await _vendors(source) == _NOBODY:
                await source.close()
                drivers = "amdgpu, xe or i915" if name == DRM else "amdgpu"
                raise DeviceError(
                    f"devices: {name} cannot be used",
                    cause=f"no GPU of {drivers} in {self.roots.sys}/class/drm",
                    fix=f"load the driver on the node, or remove {name} from devices",
                )
            return source
        source = self._files(DRM, integrated=False)
        vendors = await _vendors(source)
        # Without the right to read descriptors, KFD is the only source for AMD. Intel has no second source.
        if vendors == frozenset({"amd"}) and not may_look(self.roots.proc):
            await source.close()
            source = self._files(KFD, integrated=False)
        if vendors is None or vendors:
            return source
        await source.close()
        return None

    def _files(self, name: str, *, integrated: bool) -> KernelSource:
        return KernelSource(
            self.roots,
            name=name,
            integrated=integrated,
            deadline=self.deadline,
            clock=self.clock,
            monotonic=self.monotonic,
            off=self.off,
        )


async def _vendors(source: KernelSource) -> frozenset[str] | None:
    """Name the vendors of the kernel's GPUs; None while the kernel hangs."""
    try:
        return await source.vendors()
    except DriverHungError:
        return None


def has_nvidia(sys: Path) -> bool:
    """Say whether the PCI bus has a GPU of NVIDIA's, with or without a driver."""
    for device in (sys / "bus/pci/devices").glob("*"):
        try:
            vendor, kind = (device / "vendor").read_text(), (device / "class").read_text()
        except OSError:
            continue
        if vendor.strip() == _NVIDIA and kind.startswith(_DISPLAY):
            return True
    return False
