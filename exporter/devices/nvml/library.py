"""
The typed border to pynvml: one method for each question to the driver.

What comes in: handles. What goes out: our units and our exceptions (`errors`); `Any` does not leave this file. Arrays
(process lists, utilization samples) are read with calls of our own on the same library (`arrays`), and so are events.
pynvml calls twice for an array, for the size and for the data, and fails when samples arrive between its two calls. It
also lacks the 16-byte entries of drivers before R450. This file is long because each question to NVML is here and
nowhere else.
"""

import contextlib
import ctypes
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NewType

import pynvml

from exporter.devices import DeviceError
from exporter.devices.errors import LibraryError, OtherVersionError, UnsupportedError
from exporter.devices.nvml.arrays import Arrays, Entry, believed
from exporter.devices.nvml.errors import meaning, refusal
from exporter.devices.nvml.fields import Field, read_fields
from exporter.model import Memory

Handle = NewType("Handle", object)
"""A GPU or a MIG device, as long as the library stays initialised."""

GpmSample = NewType("GpmSample", object)
"""A buffer of the library, until it is freed."""
EventSet = NewType("EventSet", object)
"""The library's set of received events, until it is freed."""
Event = tuple[Handle, int, int]
"""GPU, XID, MIG GPU instance or `NO_INSTANCE`."""

SONAME = "libnvidia-ml.so.1"
MOST_GPUS = 256
MOST_SLOTS = 64
"""GPUs of a node and MIG slots of a GPU that are believed. Boards have 16 and 7; each one costs a call."""

NO_INSTANCE = 0xFFFFFFFF
"""The value of an event that belongs to no MIG GPU instance."""

_CLOCKS = {
    "graphics": pynvml.NVML_CLOCK_GRAPHICS,
    "sm": pynvml.NVML_CLOCK_SM,
    "memory": pynvml.NVML_CLOCK_MEM,
    "video": pynvml.NVML_CLOCK_VIDEO,
}
CLOCKS = tuple(_CLOCKS)
_ECC = {
    "corrected": pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED,
    "uncorrected": pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
}
ECC = tuple(_ECC)
_THRESHOLDS = {
    "shutdown": pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN,
    "slowdown": pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN,
    "memory_max": pynvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX,
    "gpu_max": pynvml.NVML_TEMPERATURE_THRESHOLD_GPU_MAX,
}
THRESHOLDS = tuple(_THRESHOLDS)


class Library:
    """The driver's library. All methods run on the driver thread; `beat` announces each call before it is made."""

    def __init__(self, beat: Callable[[str], None]) -> None:
        self._beat = beat
        self._own: ctypes.CDLL | None = None
        self._arrays = Arrays(beat)

    def start(self) -> None:
        """Load and initialise. May be called again after the driver went away."""
        self._call("nvmlInit")
        self._own = ctypes.CDLL(SONAME)  # the one that pynvml has just loaded by this name

    def stop(self) -> None:
        """Shut down, and ignore errors. The library stays loaded: pynvml never unloads it."""
        self._let_go("nvmlShutdown")

    def has(self, function: str) -> bool:
        """Say whether the library exports `function`."""
        return hasattr(self._own, function)

    # --- the node and its GPUs ---

    def driver_version(self) -> str:
        """Return the version of the driver."""
        return str(self._call("nvmlSystemGetDriverVersion"))

    def count(self) -> int:
        """Count the GPUs, including those that we may not open."""
        return believed("nvmlDeviceGetCount", int(self._call("nvmlDeviceGetCount")), MOST_GPUS)

    def gpu(self, index: int) -> Handle:
        """Open the GPU at `index`; the order of indices is not stable."""
        return Handle(self._call("nvmlDeviceGetHandleByIndex", index))

    def uuid(self, handle: Handle) -> str:
        """Return the UUID of a GPU or a MIG device."""
        return str(self._call("nvmlDeviceGetUUID", handle))

    def name(self, handle: Handle) -> str:
        """Return the model of a GPU; of a MIG device, the model and the profile."""
        return str(self._call("nvmlDeviceGetName", handle))

    def pci_bus_id(self, handle: Handle) -> str:
        """Return the PCI bus id of a GPU, as `00000000:3B:00.0`."""
        return str(self._call("nvmlDeviceGetPciInfo", handle, take=lambda info: info.busId))

    def minor(self, handle: Handle) -> int:
        """Return the number in `/dev/nvidia<minor>`."""
        return int(self._call("nvmlDeviceGetMinorNumber", handle))

    # --- MIG ---

    def mig_enabled(self, handle: Handle) -> bool:
        """Say whether MIG is on now; a pending mode does not count."""
        return bool(self._call("nvmlDeviceGetMigMode", handle)[0])

    def mig_slots(self, handle: Handle) -> int:
        """Count the slots for MIG devices of a GPU, empty ones included."""
        slots = int(self._call("nvmlDeviceGetMaxMigDeviceCount", handle))
        return believed("nvmlDeviceGetMaxMigDeviceCount", slots, MOST_SLOTS)

    def mig_device(self, handle: Handle, slot: int) -> Handle:
        """Open the MIG device (a compute instance) in `slot`."""
        return Handle(self._call("nvmlDeviceGetMigDeviceHandleByIndex", handle, slot))

    def gpu_instance_id(self, mig_device: Handle) -> int:
        """Return the id of the GPU instance to which a MIG device belongs."""
        return int(self._call("nvmlDeviceGetGpuInstanceId", mig_device))

    def slices(self, mig_device: Handle) -> tuple[int, int]:
        """Return (compute slices of the GPU instance, bytes of its memory) of a MIG device."""
        attributes = self._call("nvmlDeviceGetAttributes", mig_device)
        return int(attributes.gpuInstanceSliceCount), int(attributes.memorySizeMB) * 2**20

    # --- figures ---

    def memory(self, handle: Handle) -> Memory | None:
        """
        Return the memory of a GPU, or of the GPU instance of a MIG device (shared by all its compute instances).

        None if the GPU has no memory of its own (GB10, Thor). Used is total - free - reserved. The driver's own `used`
        is not read, because drivers differ in whether it includes `reserved`. Before R510 `reserved` is not reported:
        it counts as 0. The driver's own share is then part of used, and unattributed.
        """
        with contextlib.suppress(UnsupportedError):
            try:
                memory = self._call("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2)
            except OtherVersionError:
                memory = self._call("nvmlDeviceGetMemoryInfo", handle)
                return Memory(int(memory.total), int(memory.free))
            return Memory(int(memory.total), int(memory.free), int(memory.reserved))
        return None

    def busy(self, handle: Handle) -> tuple[float, float]:
        """Return the ratios of time in which (some kernel ran, the memory controller was busy)."""
        rates = self._call("nvmlDeviceGetUtilizationRates", handle)
        return rates.gpu / 100, rates.memory / 100

    def encoder(self, handle: Handle) -> float:
        """Return the ratio of time in which the video encoder was busy."""
        return float(self._call("nvmlDeviceGetEncoderUtilization", handle)[0] / 100)

    def decoder(self, handle: Handle) -> float:
        """Return the ratio of time in which the video decoder was busy."""
        return float(self._call("nvmlDeviceGetDecoderUtilization", handle)[0] / 100)

    def power(self, handle: Handle) -> float:
        """Return the power draw in watts."""
        return float(self._call("nvmlDeviceGetPowerUsage", handle) / 1000)

    def energy(self, handle: Handle) -> float:
        """Return the energy in joules since the driver was loaded."""
        return float(self._call("nvmlDeviceGetTotalEnergyConsumption", handle) / 1000)

    def temperature(self, handle: Handle) -> float:
        """Return the temperature of the GPU's die in degrees Celsius."""
        return float(self._call("nvmlDeviceGetTemperature", handle, pynvml.NVML_TEMPERATURE_GPU))

    def clock(self, handle: Handle, clock: str) -> float:
        """Return the present frequency in hertz of one of `CLOCKS`."""
        return float(self._call("nvmlDeviceGetClockInfo", handle, _CLOCKS[clock]) * 1_000_000)

    def ecc_errors(self, handle: Handle, severity: str) -> int:
        """Count the ECC errors of one of `ECC` since the driver was loaded."""
        return int(self._call("nvmlDeviceGetTotalEccErrors", handle, _ECC[severity], pynvml.NVML_VOLATILE_ECC))

    def clock_limits(self, handle: Handle) -> int:
        """Return the bit mask of the present reasons for lowered clocks. The newer name needs R535."""
        newer, older = "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
        return self._mask(newer, older, handle)

    def known_clock_limits(self, handle: Handle) -> int:
        """Return the bit mask of the reasons that this GPU can report in `clock_limits`."""
        newer, older = "nvmlDeviceGetSupportedClocksEventReasons", "nvmlDeviceGetSupportedClocksThrottleReasons"
        return self._mask(newer, older, handle)

    # --- the condition of the hardware ---

    def fields(self, handle: Handle, asked: Sequence[Field]) -> list[int | LibraryError]:
        """Read fields with one call; each has its own answer."""
        return read_fields(self._beat, self._own, handle, asked)

    def row_remap_banks(self, handle: Handle) -> dict[str, int]:
        """Count the banks of memory by how many of their spare rows are left, in NVML's words."""
        banks = self._call("nvmlDeviceGetRowRemapperHistogram", handle)
        return {name: int(getattr(banks, name)) for name, _ in banks._fields_}

    def power_limit(self, handle: Handle) -> float:
        """Return the power in watts that the driver keeps the GPU below, by the lowest of all limits that are set."""
        return float(self._call("nvmlDeviceGetEnforcedPowerLimit", handle) / 1000)

    def power_default_limit(self, handle: Handle) -> float:
        """Return the power limit in watts with which the GPU starts."""
        return float(self._call("nvmlDeviceGetPowerManagementDefaultLimit", handle) / 1000)

    def temperature_threshold(self, handle: Handle, threshold: str) -> float:
        """Return one of `THRESHOLDS` in degrees Celsius. NVML may drop this call for GPUs from Ada on."""
        return float(self._call("nvmlDeviceGetTemperatureThreshold", handle, _THRESHOLDS[threshold]))

    def vbios_version(self, handle: Handle) -> str:
        """Return the version of the GPU's firmware, such as `96.00.74.00.1A`."""
        return str(self._call("nvmlDeviceGetVbiosVersion", handle))

    # --- GPM: figures between two samples (Hopper and later, R525) ---

    def gpm_supported(self, handle: Handle) -> bool:
        """Say whether a GPU has GPM; the answer holds for its MIG instances, too."""
        return bool(self._call("nvmlGpmQueryDeviceSupport", handle).isSupportedDevice)

    def gpm_alloc(self) -> GpmSample:
        """Allocate a sample, to be freed with `gpm_free`."""
        return GpmSample(self._call("nvmlGpmSampleAlloc"))

    def gpm_free(self, sample: GpmSample) -> None:
        """Free a sample, and ignore errors: it is gone with the library."""
        self._let_go("nvmlGpmSampleFree", sample)

    def gpm_read(self, handle: Handle, gpu_instance: int | None, into: GpmSample) -> None:
        """Read the present counters of a GPU, or of one of its MIG GPU instances, into a sample."""
        if gpu_instance is None:
            self._call("nvmlGpmSampleGet", handle, into)
        else:
            self._call("nvmlGpmMigSampleGet", handle, gpu_instance, into)

    def gpm_sm(self, older: GpmSample, newer: GpmSample) -> float:
        """Return the percentage of SMs that were busy between two samples."""
        asked = pynvml.c_nvmlGpmMetricsGet_t(version=pynvml.NVML_GPM_METRICS_GET_VERSION, numMetrics=1)
        asked.sample1, asked.sample2 = older, newer
        asked.metrics[0].metricId = pynvml.NVML_GPM_METRIC_SM_UTIL
        self._call("nvmlGpmMetricsGet", asked)
        if (code := asked.metrics[0].nvmlReturn) != pynvml.NVML_SUCCESS:  # each metric has an answer of its own
            raise meaning("nvmlGpmMetricsGet", code)
        return float(asked.metrics[0].value)

    # --- events ---

    def event_set(self) -> EventSet:
        """Make a set of events, to be freed with `event_set_free`."""
        return EventSet(self._call("nvmlEventSetCreate"))

    def event_set_free(self, events: EventSet) -> None:
        """Free a set, and ignore errors: it is gone with the library."""
        self._let_go("nvmlEventSetFree", events)

    def register_xids(self, handle: Handle, events: EventSet) -> None:
        """Collect the XID errors of a GPU. Raises UnsupportedError where it has no such events."""
        if not self._call("nvmlDeviceGetSupportedEventTypes", handle) & pynvml.nvmlEventTypeXidCriticalError:
            raise meaning("nvmlDeviceGetSupportedEventTypes", pynvml.NVML_ERROR_NOT_SUPPORTED)
        self._call("nvmlDeviceRegisterEvents", handle, pynvml.nvmlEventTypeXidCriticalError, events)

    def wait(self, events: EventSet, milliseconds: int) -> Event | None:
        """
        Wait for an event; None when none came in time.

        pynvml raises an exception for each timeout, and nearly every wait ends so. A direct call takes a quarter less.
        """
        function, data = "nvmlEventSetWait_v2", pynvml.c_nvmlEventData_t()
        if (symbol := getattr(self._own, function, None)) is None:
            raise meaning(function, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        self._beat(function)
        code = symbol(events, ctypes.byref(data), ctypes.c_uint(milliseconds))
        if code == pynvml.NVML_ERROR_TIMEOUT:
            return None
        if code != pynvml.NVML_SUCCESS:
            raise meaning(function, code)
        return Handle(data.device), int(data.eventData), int(data.gpuInstanceId)

    def address(self, handle: Any) -> int:
        """
        Return the address of a handle, without asking the driver.

        One GPU has one address while the library stays initialised.
        """
        return ctypes.cast(handle, ctypes.c_void_p).value or 0

    # --- arrays ---

    def processes(self, function: str, entry: struct.Struct, handle: Handle) -> Iterable[Entry]:
        """Read a process list in the version of `function`, whose C structure is `entry`."""
        return self._arrays.read(self._own, function, entry, lambda call, array, count: call(handle, count, array))

    def process_samples(self, handle: Handle, since: int) -> Iterable[Entry]:
        """Read (pid, microseconds, sm, memory, encoder, decoder percent) of the samples later than `since`."""
        after = ctypes.c_ulonglong(since)
        return self._arrays.read(
            self._own,
            "nvmlDeviceGetProcessUtilization",
            struct.Struct("@IQ4I"),
            lambda call, array, count: call(handle, array, count, after),
        )

    def _mask(self, newer: str, older: str, handle: Handle) -> int:
        try:
            return int(self._call(newer, handle))
        except OtherVersionError:
            return int(self._call(older, handle))

    def _let_go(self, function: str, *arguments: object) -> None:
        with contextlib.suppress(LibraryError, DeviceError):
            self._call(function, *arguments)

    def _call(self, function: str, *arguments: object, take: Callable[[Any], Any] = lambda answer: answer) -> Any:
        """Call the driver, and `take` a part of the answer: pynvml decodes a text in a structure when it is read."""
        self._beat(function)
        try:
            return take(getattr(pynvml, function)(*arguments))
        except pynvml.NVMLError as error:
            code = error.value
        except pynvml.NVMLLibraryMismatchError:  # no NVMLError, but with the meaning of its FUNCTION_NOT_FOUND
            code = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
        except UnicodeDecodeError as error:  # pynvml reads every text of the driver as UTF-8
            raise refusal(function, pynvml.NVML_SUCCESS, f"an answer that is no text: {error.object!r}") from error
        raise meaning(function, code)
