"""
What NVML's return codes mean to us.

What comes in: a code, and the name of the call that answered it. What goes out: an exception whose class says how far
the trouble reaches, which is all that the readers need to know:

- `CallError`: this figure, this time. The reader goes on without it.
- `GpuError`: this GPU. The others go on.
- `DriverGoneError`: the driver. State is dropped, and initialisation is tried again.
- `DriverReplacedError` (of `exporter.devices`): only a new process helps.
"""

import pynvml

from exporter.devices import DriverReplacedError

_DEVICE_FILES = (
    "let the daemon's container open /dev/nvidiactl and /dev/nvidia* (runtimeClassName: nvidia, or privileged), "
    "and see that nvidia-smi works on the node"
)


class NvmlError(Exception):
    """A call that NVML refused: `reason` is the word for metrics, `advice` what to do when it happens at the start."""

    reason = "driver_error"
    advice = "look at what nvidia-smi says on the node"

    def __init__(self, call: str, code: int, text: str) -> None:
        super().__init__(f"{call}: {text} (NVML code {code})")
        self.code = code


class CallError(NvmlError):
    """One call did not answer; everything else may."""


class UnsupportedError(CallError):
    """The GPU or the driver does not have this figure: it is absent, and that is no fault."""

    reason = "unsupported"


class VersionError(UnsupportedError):
    """The library does not know this version of the call: an older one may be known."""


class NotFoundError(CallError):
    """Nothing there: an empty MIG slot, or no sample since the last."""


class InvalidArgumentError(CallError):
    """The other answer for an empty MIG slot, and the answer for an instance that has just been destroyed."""


class InsufficientSizeError(CallError):
    """More entries came in than there was room for, again and again."""


class TimedOutError(CallError):
    """Nothing happened within the time given."""


class NoPermissionError(CallError):
    """This process may not ask that."""

    reason = "no_permission"
    advice = _DEVICE_FILES


class AccessLostError(CallError):
    """The device files can no longer be opened, as after `systemctl daemon-reload` under some container runtimes."""

    reason = "access_lost"
    advice = _DEVICE_FILES


class LibraryNotFoundError(CallError):
    """There is no libnvidia-ml.so.1 where this process looks for it."""

    reason = "driver_gone"
    advice = (
        "install the NVIDIA driver on the node, and let the container runtime bring its library into the daemon's pod "
        "(runtimeClassName: nvidia and NVIDIA_VISIBLE_DEVICES=all, or CDI; docs/deploy.md has the ways)"
    )


class GpuError(NvmlError):
    """The GPU as a whole does not answer."""


class GpuLostError(GpuError):
    """The GPU fell off the bus or needs a reset."""

    reason = "gpu_lost"


class GpuNotFoundError(GpuError):
    """The handle names no GPU any more: enumerate again."""

    reason = "gpu_not_found"


class DriverGoneError(NvmlError):
    """The driver was unloaded, or the library has forgotten that it was initialised."""

    reason = "driver_gone"
    advice = "load the NVIDIA kernel module on the node (modprobe nvidia), then see that nvidia-smi works there"


_MEANING: dict[int, type[NvmlError]] = {
    pynvml.NVML_ERROR_UNINITIALIZED: DriverGoneError,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: DriverGoneError,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: LibraryNotFoundError,
    pynvml.NVML_ERROR_INVALID_ARGUMENT: InvalidArgumentError,
    pynvml.NVML_ERROR_NOT_SUPPORTED: UnsupportedError,
    pynvml.NVML_ERROR_VGPU_ECC_NOT_SUPPORTED: UnsupportedError,
    pynvml.NVML_ERROR_DEPRECATED: UnsupportedError,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: VersionError,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: VersionError,
    pynvml.NVML_ERROR_NO_PERMISSION: NoPermissionError,
    pynvml.NVML_ERROR_NOT_FOUND: NotFoundError,
    pynvml.NVML_ERROR_INSUFFICIENT_SIZE: InsufficientSizeError,
    pynvml.NVML_ERROR_TIMEOUT: TimedOutError,
    pynvml.NVML_ERROR_GPU_IS_LOST: GpuLostError,
    pynvml.NVML_ERROR_RESET_REQUIRED: GpuLostError,
    pynvml.NVML_ERROR_GPU_NOT_FOUND: GpuNotFoundError,
    pynvml.NVML_ERROR_OPERATING_SYSTEM: AccessLostError,
    pynvml.NVML_ERROR_UNKNOWN: AccessLostError,
}


def meaning(call: str, code: int) -> Exception:
    """Name the error of `call`, which answered `code`."""
    text = str(pynvml.NVMLError(code))
    if code == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return DriverReplacedError(
            f"{call}: {text} (NVML code {code}): the driver was upgraded under the loaded library; start the daemon "
            "anew, and if that does not help, reload the kernel modules or reboot the node"
        )
    return _MEANING.get(code, CallError)(call, code, text)
