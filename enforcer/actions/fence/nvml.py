"""
The NVIDIA driver's memory limits of a cgroup on a GPU (R615 and later).

What comes in: a GPU, and a cgroup of the unified hierarchy by its path in the mounted file system. What goes out: the
driver's limits and usage of that cgroup, and new limits. Sources: nvml.h of API 13.615, structs
nvmlSetMemoryLimits_v1_t and nvmlGetMemoryLimits_v1_t;
https://docs.nvidia.com/deploy/mps/latest/mpsv3-memory-partitioning.html.

The rule: **this is the one file that writes to the driver**, so no part of the exporter imports it. It has a thread of
its own, which starts with the first call, so that the thread that reads never waits for it. No call was made on
hardware yet. Where the documents leave a choice, this code takes the one that changes nothing.
"""

from collections.abc import Callable
from typing import TypeVar

import pynvml

from enforcer.actions.fence.driver import CgroupLimits, LimitsDeniedError, LimitsError, LimitsHungError
from exporter.devices import DeviceError, errors
from exporter.devices.nvml.library import Handle, Library
from exporter.devices.thread import DEADLINE, DriverHungError, DriverThread
from exporter.model import GpuUuid

T = TypeVar("T")

FIRST_DRIVER = 615
NONE = 2**64 - 1
"""NVML_DEVICE_MEMORY_LIMIT_MAX: no hard limit."""
_SET, _GET = "nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetMemoryLimits_v1"


class _Limits(Library):
    """The library with the two calls for limits."""

    def gpu_of(self, uuid: GpuUuid) -> Handle:
        return Handle(self._call("nvmlDeviceGetHandleByUUID", uuid))

    def limits(self, handle: Handle, cgroup: str) -> CgroupLimits:
        wanted = pynvml.c_nvmlGetMemoryLimits_v1_t(nameSpace=cgroup.encode())
        try:
            self._call(_GET, handle, wanted)
        except (errors.NotFoundError, errors.UnsupportedError):
            return (
                CgroupLimits()
            )  # one of the driver's two back ends answers so while no limit is set; one that cannot be set is not
        hard = int(wanted.hardLimit)
        return CgroupLimits(int(wanted.softLimit), None if hard == NONE else hard, int(wanted.currentUsed))

    def set_hard(self, handle: Handle, cgroup: str, hard: int | None) -> None:
        value = NONE if hard is None else hard
        self._call(_SET, handle, pynvml.c_nvmlSetMemoryLimits_v1_t(cgroup.encode(), 0, value))


class NvmlLimits:
    """Reads and sets limits. Calls run one after the other; each returns by its deadline, even if the driver hangs."""

    def __init__(self, *, deadline: float = DEADLINE) -> None:
        self._thread = DriverThread(deadline)
        self._library = _Limits(self._thread.beat)
        self._started = False

    async def impossible(self) -> str | None:
        """Say why this driver cannot limit cgroups; None where it can. Sets nothing. Raises LimitsError."""
        if not (hasattr(pynvml, _SET) and hasattr(pynvml, _GET)):
            return "this nvidia-ml-py knows no limits of cgroups: version 13.615 and later do"
        return await self._do(self._impossible)

    async def read(self, gpu: GpuUuid, cgroup: str) -> CgroupLimits:
        """Read the limits and the usage of a cgroup. Raises LimitsError."""
        return await self._do(lambda: self._library.limits(self._library.gpu_of(gpu), cgroup))

    async def limit(self, gpu: GpuUuid, cgroup: str, hard: int | None) -> None:
        """
        Set the hard limit in bytes, or remove both limits (None). The soft one becomes 0 in either case.

        Raises LimitsDeniedError, LimitsHungError (it may be set), or LimitsError (it certainly is not).
        """
        await self._do(lambda: self._library.set_hard(self._library.gpu_of(gpu), cgroup, hard))

    async def close(self) -> None:
        """Let go of the driver, or abandon its thread if it hangs."""
        await self._thread.close(self._stop)

    async def _do(self, work: Callable[[], T]) -> T:
        try:
            return await self._thread.run(lambda: self._started_and(work))
        except DriverHungError as error:
            raise LimitsHungError(f"the NVIDIA driver hangs: {error}") from error
        except errors.NoPermissionError as error:
            raise LimitsDeniedError(str(error)) from error
        except (errors.LibraryError, DeviceError) as error:
            raise LimitsError(str(error)) from error

    def _started_and(self, work: Callable[[], T]) -> T:
        try:
            if not self._started:
                self._library.start()
                self._started = True
            return work()
        except errors.LibraryGoneError:
            self._stop()
            raise

    def _stop(self) -> None:
        if self._started:
            self._started = False
            with self._thread.whole():
                self._library.stop()

    def _impossible(self) -> str | None:
        if not (self._library.has(_SET) and self._library.has(_GET)):
            return f"the driver's library has no {_SET}: R{FIRST_DRIVER} and later have it"
        version = self._library.driver_version()
        major = version.partition(".")[0]
        if not major.isdecimal() or int(major) < FIRST_DRIVER:
            return f"driver {version} limits no cgroups: R{FIRST_DRIVER} and later do"
        modes = [self._mig(index) for index in range(self._library.count())]
        return "all GPUs are in MIG mode, which has no limits of cgroups" if modes and all(modes) else None

    def _mig(self, index: int) -> bool:
        try:
            return self._library.mig_enabled(self._library.gpu(index))
        except errors.CallError:
            return False
