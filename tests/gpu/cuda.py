"""
As much of CUDA as it takes to hold memory and to keep SMs busy: the driver API through ctypes, without a toolkit.

What comes in: the library's name. What goes out: contexts, memory, kernels; or `CudaError` with the name of the call
and of the code. Symbols and numbers are those of cuda.h (https://docs.nvidia.com/cuda/cuda-driver-api/); the names with
`_v2` are what every driver since R340 exports.

The law: this file knows nothing of what is measured. Handles belong to the thread that made the context.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

SONAME = "libcuda.so.1"
FAKE = "gpusteward_fake_cuda"
"""A symbol that only the stand-in of c/cuda.c has."""
_MULTIPROCESSORS = 16
"""CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT."""
THREADS = 128
"""Of a block. One block keeps one SM's counters busy."""

SPIN = """\
.version 6.0
.target sm_50
.address_size 64

.visible .entry spin(.param .u64 nanoseconds)
{
    .reg .u64 %begin, %now, %passed, %wanted;
    .reg .pred %more;
    ld.param.u64 %wanted, [nanoseconds];
    mov.u64 %begin, %globaltimer;
AGAIN:
    mov.u64 %now, %globaltimer;
    sub.u64 %passed, %now, %begin;
    setp.lt.u64 %more, %passed, %wanted;
    @%more bra AGAIN;
    ret;
}
"""
"""
Busy for a given time by the GPU's own clock. It is PTX, so that the driver of each GPU compiles it. The ptxas of CUDA
12.9 and of 13.5 did so, for sm_75, sm_80, sm_90 and sm_100.
"""


class CudaError(Exception):
    """A call that CUDA refused."""


@dataclass(frozen=True, slots=True)
class Block:
    """Memory on the device."""

    address: int
    size: int


class Cuda:
    """The driver API on one device, known by the UUID that NVML prints for it."""

    def __init__(self, uuid: str, library: str = SONAME) -> None:
        """Load and initialise. Raises OSError without a library, CudaError without a driver or such a device."""
        self._library = ctypes.CDLL(library)
        self.fake = hasattr(self._library, FAKE)
        self._call("cuInit", 0)
        self._device = self._find(uuid)
        self._spin = ctypes.c_void_p()
        self.multiprocessors = self._attribute(_MULTIPROCESSORS)

    def version(self) -> str:
        """Give the CUDA version that the driver supports."""
        number = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"

    def context(self) -> None:
        """Make a context for this thread, which itself takes some hundred MiB."""
        made = ctypes.c_void_p()
        self._call("cuCtxCreate_v2", ctypes.byref(made), 0, self._device)

    def allocate(self, size: int) -> Block:
        """Take memory of the device."""
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return Block(address.value, size)

    def free(self, block: Block) -> None:
        """Give it back."""
        self._call("cuMemFree_v2", ctypes.c_uint64(block.address))

    def spin(self, nanoseconds: int, blocks: int) -> None:
        """Keep as many SMs busy as there are blocks, for so long; return when it is over."""
        if not self._spin:
            module = ctypes.c_void_p()
            self._call("cuModuleLoadData", ctypes.byref(module), SPIN.encode() + b"\0")
            self._call("cuModuleGetFunction", ctypes.byref(self._spin), module, b"spin")
        wanted = ctypes.c_uint64(nanoseconds)
        parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(wanted), ctypes.c_void_p))
        self._call("cuLaunchKernel", self._spin, blocks, 1, 1, THREADS, 1, 1, 0, None, parameters, None)
        self._call("cuCtxSynchronize")

    def _find(self, uuid: str) -> ctypes.c_int:
        count, device, raw = ctypes.c_int(), ctypes.c_int(), (ctypes.c_ubyte * 16)()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        for index in range(count.value):
            self._call("cuDeviceGet", ctypes.byref(device), index)
            self._call("cuDeviceGetUuid_v2", raw, device)
            if bytes(raw).hex() == uuid.removeprefix("GPU-").removeprefix("MIG-").replace("-", ""):
                return device
        raise CudaError(f"CUDA sees {count.value} devices, of which none is {uuid}")

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), number, self._device)
        return value.value

    def _call(self, function: str, *arguments: object) -> None:
        code = getattr(self._library, function)(*arguments)
        if code:
            name = ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(name))
            raise CudaError(f"{function}: {(name.value or b'unknown').decode()} ({code})")
