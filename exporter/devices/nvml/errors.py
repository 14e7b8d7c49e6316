"""
The meaning of NVML's return codes.

What comes in: a code, and the name of the call that returned it. What goes out: an exception of
`exporter.devices.errors`, or `DriverReplacedError` if only a new process helps. Some of NVML's codes have classes of
their own here. `advice` names the fix when an error happens at the start.
"""

import pynvml

from exporter.devices import DriverReplacedError, errors


class AccessLostError(errors.CallError):
    """The device files can no longer be opened, as after `systemctl daemon-reload` under some container runtimes."""

    reason = "access_lost"


class LibraryNotFoundError(errors.CallError):
    """This process finds no libnvidia-ml.so.1."""

    reason = "driver_gone"


class GpuNotFoundError(errors.DeviceLostError):
    """The handle is no longer valid for any GPU: enumerate again."""

    reason = "gpu_not_found"


class DriverGoneError(errors.LibraryGoneError):
    """The driver was unloaded, or the library reports that it is not initialised any more."""

    reason = "driver_gone"


_MEANING: dict[int, type[errors.LibraryError]] = {
    pynvml.NVML_ERROR_UNINITIALIZED: DriverGoneError,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: DriverGoneError,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: LibraryNotFoundError,
    pynvml.NVML_ERROR_INVALID_ARGUMENT: errors.InvalidArgumentError,
    pynvml.NVML_ERROR_NOT_SUPPORTED: errors.UnsupportedError,
    pynvml.NVML_ERROR_VGPU_ECC_NOT_SUPPORTED: errors.UnsupportedError,
    pynvml.NVML_ERROR_DEPRECATED: errors.UnsupportedError,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: errors.OtherVersionError,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: errors.OtherVersionError,
    pynvml.NVML_ERROR_NO_PERMISSION: errors.NoPermissionError,
    pynvml.NVML_ERROR_NOT_FOUND: errors.NotFoundError,
    pynvml.NVML_ERROR_INSUFFICIENT_SIZE: errors.InsufficientSizeError,
    pynvml.NVML_ERROR_GPU_IS_LOST: errors.DeviceLostError,
    pynvml.NVML_ERROR_RESET_REQUIRED: errors.DeviceLostError,
    pynvml.NVML_ERROR_GPU_NOT_FOUND: GpuNotFoundError,
    pynvml.NVML_ERROR_OPERATING_SYSTEM: AccessLostError,
    pynvml.NVML_ERROR_UNKNOWN: AccessLostError,
}
_DEVICE_FILES = (
    "give the daemon's container /dev/nvidiactl and /dev/nvidia* (runtimeClassName: nvidia, or privileged), "
    "and check that nvidia-smi works on the node"
)
_ADVICE: dict[type[errors.LibraryError], str] = {
    errors.NoPermissionError: _DEVICE_FILES,
    AccessLostError: _DEVICE_FILES,
    LibraryNotFoundError: "install the NVIDIA driver on the node, and give the daemon's pod its library "
    "(runtimeClassName: nvidia and NVIDIA_VISIBLE_DEVICES=all, or CDI; see docs/deploy.md)",
    DriverGoneError: "load the NVIDIA kernel module on the node (modprobe nvidia), then check that nvidia-smi works "
    "there",
}


def meaning(call: str, code: int) -> Exception:
    """Return the error of `call`, which returned `code`."""
    text = str(pynvml.NVMLError(code))
    if code == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return DriverReplacedError(
            f"{call}: {text} (NVML code {code})",
            cause="the driver was upgraded under the loaded library",
            fix="start the daemon anew, and if that does not help, reload the kernel modules or reboot the node",
        )
    return refusal(call, code, text, _MEANING.get(code, errors.CallError))


def refusal(call: str, code: int, text: str, kind: type[errors.LibraryError] = errors.CallError) -> errors.LibraryError:
    """Make the error of `call` from its name, code and text."""
    return kind(call, f"{text} (NVML code {code})")


def advice(error: errors.LibraryError) -> str:
    """Return the fix for an `error` at the start."""
    return _ADVICE.get(type(error), "look at what nvidia-smi says on the node")
