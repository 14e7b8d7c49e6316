"""
What NVML's return codes mean to us.

What comes in: a code, and the name of the call that answered it. What goes out: an exception of
`exporter.devices.errors`, or `DriverReplacedError` where only a new process helps. Some answers of NVML's have classes
of their own here. `advice` says what to do when an error happens at the start.
"""

import pynvml

from exporter.devices import DriverReplacedError
from exporter.devices.errors import (
    CallError,
    DeviceLostError,
    InsufficientSizeError,
    InvalidArgumentError,
    LibraryError,
    LibraryGoneError,
    NoPermissionError,
    NotFoundError,
    OtherVersionError,
    UnsupportedError,
)


class TimedOutError(CallError):
    """Nothing happened within the time given."""


class AccessLostError(CallError):
    """The device files can no longer be opened, as after `systemctl daemon-reload` under some container runtimes."""

    reason = "access_lost"


class LibraryNotFoundError(CallError):
    """There is no libnvidia-ml.so.1 where this process looks for it."""

    reason = "driver_gone"


class GpuNotFoundError(DeviceLostError):
    """The handle names no GPU any more: enumerate again."""

    reason = "gpu_not_found"


class DriverGoneError(LibraryGoneError):
    """The driver was unloaded, or the library has forgotten that it was initialised."""

    reason = "driver_gone"


_MEANING: dict[int, type[LibraryError]] = {
    pynvml.NVML_ERROR_UNINITIALIZED: DriverGoneError,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: DriverGoneError,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: LibraryNotFoundError,
    pynvml.NVML_ERROR_INVALID_ARGUMENT: InvalidArgumentError,
    pynvml.NVML_ERROR_NOT_SUPPORTED: UnsupportedError,
    pynvml.NVML_ERROR_VGPU_ECC_NOT_SUPPORTED: UnsupportedError,
    pynvml.NVML_ERROR_DEPRECATED: UnsupportedError,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: OtherVersionError,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: OtherVersionError,
    pynvml.NVML_ERROR_NO_PERMISSION: NoPermissionError,
    pynvml.NVML_ERROR_NOT_FOUND: NotFoundError,
    pynvml.NVML_ERROR_INSUFFICIENT_SIZE: InsufficientSizeError,
    pynvml.NVML_ERROR_TIMEOUT: TimedOutError,
    pynvml.NVML_ERROR_GPU_IS_LOST: DeviceLostError,
    pynvml.NVML_ERROR_RESET_REQUIRED: DeviceLostError,
    pynvml.NVML_ERROR_GPU_NOT_FOUND: GpuNotFoundError,
    pynvml.NVML_ERROR_OPERATING_SYSTEM: AccessLostError,
    pynvml.NVML_ERROR_UNKNOWN: AccessLostError,
}
_DEVICE_FILES = (
    "let the daemon's container open /dev/nvidiactl and /dev/nvidia* (runtimeClassName: nvidia, or privileged), "
    "and see that nvidia-smi works on the node"
)
_ADVICE: dict[type[LibraryError], str] = {
    NoPermissionError: _DEVICE_FILES,
    AccessLostError: _DEVICE_FILES,
    LibraryNotFoundError: "install the NVIDIA driver on the node, and let the container runtime bring its library into "
    "the daemon's pod (runtimeClassName: nvidia and NVIDIA_VISIBLE_DEVICES=all, or CDI; docs/deploy.md has the ways)",
    DriverGoneError: "load the NVIDIA kernel module on the node (modprobe nvidia), then see that nvidia-smi works "
    "there",
}


def meaning(call: str, code: int) -> Exception:
    """Name the error of `call`, which answered `code`."""
    text = str(pynvml.NVMLError(code))
    if code == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return DriverReplacedError(
            f"{call}: {text} (NVML code {code}): the driver was upgraded under the loaded library; start the daemon "
            "anew, and if that does not help, reload the kernel modules or reboot the node"
        )
    return refusal(call, code, text, _MEANING.get(code, CallError))


def refusal(call: str, code: int, text: str, kind: type[LibraryError] = CallError) -> LibraryError:
    """Make the error of `call`, in our words."""
    return kind(call, f"{text} (NVML code {code})")


def advice(error: LibraryError) -> str:
    """Say what to do when `error` happens at the start."""
    return _ADVICE.get(type(error), "look at what nvidia-smi says on the node")
