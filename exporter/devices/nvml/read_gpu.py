"""
Reads one GPU once.

What comes in: a GPU that was found. What goes out: its `GpuSample`, and the cursor for its next utilization samples.

The rule: process lists are read directly after the memory, so that the accounts can close. If a list could not be read,
`processes` is None, because half a list would hide a process. The memory is reported all the same.
"""

from dataclasses import dataclass, replace

from exporter.devices.device_faults import DeviceFaults
from exporter.devices.errors import CallError, NoPermissionError, UnsupportedError
from exporter.devices.nvml.gpm import Gpm
from exporter.devices.nvml.hardware import HardwareReader
from exporter.devices.nvml.health import read_health
from exporter.devices.nvml.inventory import FoundDevice, FoundGpu, Identity, find_devices, mig_enabled
from exporter.devices.nvml.library import Library
from exporter.devices.nvml.processes import ProcessLists
from exporter.devices.nvml.utilization import ProcessRatios, ProcessUtilizations, read_utilization
from exporter.model import (
    ALL_ON,
    Collector,
    DeviceKey,
    Gpu,
    GpuInstance,
    GpuProcess,
    GpuSample,
    Memory,
    Off,
    Utilization,
)

MICROSECONDS = 1_000_000
NEEDS_MONITOR = (
    "let the daemon's container open the device of the driver's capability mig/monitor, /dev/nvidia-caps/nvidia-cap2: "
    "with the chart's nvml.visibleDevices (management.nvidia.com/gpu=all) or nvml.mig NVIDIA's runtime brings it"
)
"""No capability of Linux replaces it: osRmCapAcquire in open-gpu-kernel-modules, arch/nvalloc/unix/src/os.c."""


@dataclass(frozen=True, slots=True)
class Driver:
    """What holds while the driver stays loaded: its version, and the reader of its process lists."""

    version: str
    lists: ProcessLists


class _Devices:
    """
    The devices of one GPU.

    `processes` is None as soon as one list is missing. `unified`: the driver answers that there is no memory.
    """

    def __init__(self, library: Library, driver: Driver, faults: DeviceFaults) -> None:
        self._library = library
        self._driver = driver
        self._faults = faults
        self.processes: tuple[GpuProcess, ...] | None = ()
        self.unified = False
        self._refused = False

    def find(self, gpu: FoundGpu, *, mig: bool) -> tuple[FoundDevice, ...]:
        """Find the devices; without them no process is known."""
        try:
            return find_devices(self._library, gpu, mig=mig)
        except CallError as error:
            self.processes = None
            self._faults.add(error, "its MIG instances could not be listed")
            return ()

    def read(self, device: FoundDevice) -> Memory | None:
        """Read the memory of a device and, directly after it, its processes."""
        memory = None
        try:
            memory = self._library.memory(device.handles[0])
            self.unified = memory is None
        except CallError as error:
            self._unread(device.key, error, "memory of {} could not be read")
        try:
            processes = self._driver.lists.read(self._library, device.key, device.handles)
        except CallError as error:
            self.processes = None
            supported = not isinstance(error, UnsupportedError)
            self._unread(device.key, error, "processes of {} could not be listed", incomplete=supported)
        else:
            # `()` + a tuple is that tuple itself: without MIG, the same object as long as the lists say the same.
            self.processes = None if self.processes is None else self.processes + processes
        return memory

    def _unread(self, key: DeviceKey, error: CallError, what: str, *, incomplete: bool = True) -> None:
        """Add a fault. A missing right for MIG instances is one fault of the GPU, not two of each instance."""
        if key.gpu_instance is None or not isinstance(error, NoPermissionError):
            name = "the GPU" if key.gpu_instance is None else f"GPU instance {key.gpu_instance}"
            self._faults.add(error, what.format(name), incomplete=incomplete)
        elif not self._refused:
            self._refused = True
            self._faults.add(error, "the use of its MIG instances is not known", advice=f"; {NEEDS_MONITOR}")


def read_gpu(
    library: Library,
    driver: Driver,
    gpm: Gpm,
    gpu: FoundGpu,
    identity: Identity,
    *,
    by_process: ProcessUtilizations,
    hardware: HardwareReader,
    cursor: int,
    now: float,
    off: Off = ALL_ON,
) -> tuple[GpuSample, int]:
    """
    Read the figures of one GPU at the time `now` (Unix time), without those of the collectors that are `off`.

    Raises DeviceLostError when the GPU as a whole does not answer, and CallError when it does not say if MIG is on.
    """
    mig = mig_enabled(library, gpu.handle)
    faults = DeviceFaults(f"GPU {gpu.index}", gpu.uuid, off)
    reader = _Devices(library, driver, faults)
    devices = reader.find(gpu, mig=mig)
    memories = [reader.read(device) for device in devices]
    gpm.keep(devices, gpu.uuid)
    driver.lists.keep(gpu.uuid, {device.key for device in devices})
    sms = [faults.collected(Collector.GPM, gpm.sm, gpu, device) for device in devices]
    utilization, processes = Utilization(), ProcessRatios(None, 0, cursor)
    if mig:  # then GPM is the only utilization, for the device and by process
        memory = faults.figure(library.memory, gpu.handle)
    else:
        memory = memories[0]
        utilization = replace(read_utilization(library, gpu.handle, faults), sm=sms[0])
        microseconds = int(now * MICROSECONDS)
        processes = (
            faults.collected(Collector.PROCESS_UTILIZATION, by_process.read, gpu, cursor, microseconds) or processes
        )
    divided = mig and bool(devices)
    health = replace(
        read_health(library, gpu.handle, identity.known_throttles, faults),
        memory_temperature_celsius=hardware.memory_temperature(gpu, faults, divided=divided),
    )
    sample = GpuSample(
        gpu=Gpu(
            uuid=gpu.uuid,
            index=gpu.index,
            model=identity.model,
            pci_bus_id=identity.pci_bus_id,
            minor=identity.minor,
            unified=reader.unified and not mig,
            driver_version=driver.version,
            mig=mig,
            memory=memory,
            utilization=utilization,
            health=health,
            hardware=hardware.read(gpu, faults, divided=divided),
            instances=tuple(
                GpuInstance(number, device.profile, device.mig_uuids, held, Utilization(sm=sm))
                for device, held, sm in zip(devices, memories, sms, strict=True)
                if (number := device.key.gpu_instance) is not None
            ),
        ),
        sampled_at=now,
        processes=reader.processes,
        utilization=processes.processes,
        dropped_utilization=processes.dropped,
        faults=faults.all(),
    )
    return sample, processes.cursor
