"""
One GPU, read once.

What comes in: a GPU that was found. What goes out: its `GpuSample`, and the cursor for its next utilization samples.

The law: memory and process lists are read one right after the other, so that the accounts can close. A list that
could not be read makes `processes` None, for half a list would hide somebody; memory is reported all the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from exporter.devices.nvml.errors import CallError, NoPermissionError, UnsupportedError
from exporter.devices.nvml.figures import Figures
from exporter.devices.nvml.gpm import Gpm
from exporter.devices.nvml.health import read_health
from exporter.devices.nvml.inventory import FoundGpu, FoundLeaf, Identity, find_leaves, mig_enabled
from exporter.devices.nvml.library import Library
from exporter.devices.nvml.memory import read_memory
from exporter.devices.nvml.processes import Version, read_processes
from exporter.devices.nvml.utilization import ProcessReading, read_process_utilization, read_utilization
from exporter.model import DeviceKey, Fault, Gpu, GpuInstance, GpuProcess, GpuSample, Memory, Utilization

MICROSECONDS = 1_000_000
NEEDS_MONITOR = (
    "let the daemon's container open the device of the driver's capability mig/monitor, /dev/nvidia-caps/nvidia-cap2: "
    "with the chart's nvml.visibleDevices (management.nvidia.com/gpu=all) or nvml.mig NVIDIA's runtime brings it"
)
"""No capability of Linux replaces it: osRmCapAcquire in open-gpu-kernel-modules, arch/nvalloc/unix/src/os.c."""


@dataclass(frozen=True, slots=True)
class Driver:
    """What is known of the driver while it stays: its version, and the process lists to believe."""

    version: str
    lists: Sequence[Version]


class _Reader:
    """The reading of one GPU, and the faults that came up in it."""

    def __init__(self, library: Library, driver: Driver, gpu: FoundGpu) -> None:
        self._library = library
        self._driver = driver
        self._gpu = gpu
        self.faults: list[Fault] = []
        self.processes: list[GpuProcess] | None = []
        self._refused = False

    def leaves(self, *, mig: bool) -> tuple[FoundLeaf, ...]:
        """Find the leaf devices; without them nobody knows who is there."""
        try:
            return find_leaves(self._library, self._gpu, mig=mig)
        except CallError as error:
            self.processes = None
            self.fault(error, "its MIG instances could not be listed")
            return ()

    def leaf(self, leaf: FoundLeaf) -> Memory | None:
        """Read the memory of a leaf device and, at once, who holds it."""
        memory = None
        try:
            memory = read_memory(self._library, leaf.handles[0])
        except CallError as error:
            self._unread(leaf.key, error, "memory of {} could not be read")
        try:
            processes = read_processes(self._library, leaf.key, leaf.handles, self._driver.lists)
        except CallError as error:
            self.processes = None
            supported = not isinstance(error, UnsupportedError)
            self._unread(leaf.key, error, "processes of {} could not be listed", incomplete=supported)
        else:
            if self.processes is not None:
                self.processes.extend(processes)
        return memory

    def _unread(self, key: DeviceKey, error: CallError, what: str, *, incomplete: bool = True) -> None:
        """Remember it; what we may not know of MIG instances is one fault of the GPU, not two of each instance."""
        if key.gpu_instance is None or not isinstance(error, NoPermissionError):
            self.fault(error, what.format(_name(key)), incomplete=incomplete)
        elif not self._refused:
            self._refused = True
            message = f"GPU {self._gpu.index}: what its MIG instances hold is not told: {error}; {NEEDS_MONITOR}"
            self.faults.append(Fault("devices", error.reason, message, self._gpu.uuid))

    def fault(self, error: CallError, what: str, *, incomplete: bool = True) -> None:
        """Remember what could not be read."""
        message = f"GPU {self._gpu.index}: {what}: {error}"
        self.faults.append(Fault("devices", error.reason, message, self._gpu.uuid, incomplete=incomplete))


def read_gpu(
    library: Library, driver: Driver, gpm: Gpm, gpu: FoundGpu, identity: Identity, *, cursor: int, now: float
) -> tuple[GpuSample, int]:
    """
    Read all about one GPU at the time `now` (Unix time).

    Raises GpuError when the GPU as a whole does not answer, and CallError when it does not even say whether MIG is on.
    """
    mig = mig_enabled(library, gpu.handle)
    figures, reader = Figures(), _Reader(library, driver, gpu)
    leaves = reader.leaves(mig=mig)
    memories = [reader.leaf(leaf) for leaf in leaves]
    gpm.keep(leaves, gpu.uuid)
    sms = [figures(gpm.sm, gpu, leaf) for leaf in leaves]
    utilization, by_process = Utilization(), ProcessReading(None, 0, cursor)
    if mig:  # then the driver knows no utilization but GPM's, neither of the device nor by process
        memory = figures(read_memory, library, gpu.handle)
    else:
        memory = memories[0]
        utilization = replace(read_utilization(library, gpu.handle, figures), sm=sms[0])
        microseconds = int(now * MICROSECONDS)
        by_process = figures(read_process_utilization, library, gpu.handle, cursor, microseconds) or by_process
    health = read_health(library, gpu.handle, identity.known_throttles, figures)
    if figures.unread:
        words = "; ".join(map(str, figures.unread))
        message = f"GPU {gpu.index}: figures are missing: {words}"
        reader.faults.append(Fault("devices", "figures_unread", message, gpu.uuid, incomplete=False))
    sample = GpuSample(
        gpu=Gpu(
            uuid=gpu.uuid,
            index=gpu.index,
            model=identity.model,
            pci_bus_id=identity.pci_bus_id,
            minor=identity.minor,
            driver_version=driver.version,
            mig=mig,
            memory=memory,
            utilization=utilization,
            health=health,
            instances=tuple(
                GpuInstance(number, leaf.profile, leaf.mig_uuids, held, Utilization(sm=sm))
                for leaf, held, sm in zip(leaves, memories, sms, strict=True)
                if (number := leaf.key.gpu_instance) is not None
            ),
        ),
        sampled_at=now,
        processes=None if reader.processes is None else tuple(reader.processes),
        utilization=by_process.processes,
        dropped_utilization=by_process.dropped,
        faults=tuple(reader.faults),
    )
    return sample, by_process.cursor


def _name(key: DeviceKey) -> str:
    return "the GPU" if key.gpu_instance is None else f"GPU instance {key.gpu_instance}"
