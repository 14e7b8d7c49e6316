"""
The driver from its initialisation to its loss. All of this runs on the driver thread.

What comes in: who is asked for, and what the last accepted round knew. What goes out: one answer. Nothing that a
round learned for the next one is kept here, so that an answer which comes too late can be thrown away whole; what is
kept (the library's state, its counters of then, and facts that do not change) is true whoever waits.

The law: initialise once, not in every round; with the driver gone, drop everything and try again, ever less often.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from exporter.devices import DeviceError, DevicesSample
from exporter.devices.nvml.errors import CallError, DriverGoneError, GpuError, GpuNotFoundError, NvmlError
from exporter.devices.nvml.gpm import Gpm
from exporter.devices.nvml.inventory import FoundGpu, Identity, find_gpus, find_leaves, identify, mig_enabled
from exporter.devices.nvml.library import Library
from exporter.devices.nvml.memory import read_memory
from exporter.devices.nvml.processes import versions
from exporter.devices.nvml.read_gpu import Driver, read_gpu
from exporter.devices.opening import Opening
from exporter.model import DeviceKey, Fault, GpuSample, GpuUuid, Memory


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What one round hands to the next: who was there (uuid to index), utilization cursors (microseconds)."""

    present: Mapping[GpuUuid, int] = field(default_factory=dict)
    cursors: Mapping[GpuUuid, int] = field(default_factory=dict)


class Session:
    """One user of the library. `clock` is Unix time, `monotonic` paces the attempts to initialise."""

    def __init__(self, library: Library, clock: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._library = library
        self._clock = clock
        self._gpm = Gpm(library, monotonic)
        self._opening = Opening(self._start, NvmlError, monotonic)
        self._identities: dict[GpuUuid, Identity] = {}

    def open(self) -> Driver:
        """Initialise unless done. Raises NvmlError when that fails; the same again, untried, until it is time."""
        return self._opening.open()

    def close(self) -> None:
        """Let go of the library and forget all that was read through it."""
        if self._opening.close():
            self._identities.clear()
            self._gpm.close()
            self._library.stop()

    def sample(self, only: Collection[GpuUuid] | None, before: Knowledge) -> tuple[DevicesSample, Knowledge]:
        """Read all GPUs, or those in `only`. A driver that is gone gives a fault, and whom it knew last as present."""
        try:
            return self._round(self.open(), only, before)
        except NvmlError as error:
            if isinstance(error, DriverGoneError):
                self.close()
            fault = Fault("devices", error.reason, f"the NVIDIA driver does not answer: {error}")
            return DevicesSample(before.present, faults=(fault,)), before

    def memory(self, only: Collection[GpuUuid]) -> dict[DeviceKey, Memory]:
        """Read the memory of the leaf devices of some GPUs; what does not answer is missing."""
        known: dict[DeviceKey, Memory] = {}
        try:
            self.open()
            for gpu in find_gpus(self._library, {}).gpus:
                if gpu.uuid in only:
                    known |= self._memory(gpu)
        except DriverGoneError:
            self.close()
        except NvmlError:
            pass  # the next sample tells
        return known

    def _start(self) -> Driver:
        self._library.start()
        try:
            return Driver(self._library.driver_version(), versions(self._library))
        except (NvmlError, DeviceError):
            self._library.stop()  # NVML counts its users: each attempt that fails would leave it one more for good
            raise

    def _memory(self, gpu: FoundGpu) -> dict[DeviceKey, Memory]:
        known = {}
        try:
            mig = mig_enabled(self._library, gpu.handle)
            for leaf in find_leaves(self._library, gpu, mig=mig):
                if memory := read_memory(self._library, leaf.handles[0]):
                    known[leaf.key] = memory
        except (CallError, GpuError):
            return known
        return known

    def _round(
        self, driver: Driver, only: Collection[GpuUuid] | None, before: Knowledge
    ) -> tuple[DevicesSample, Knowledge]:
        found = find_gpus(self._library, before.present)
        asked = [gpu for gpu in found.gpus if only is None or gpu.uuid in only]
        results = {gpu.uuid: self._gpu(driver, gpu, before) for gpu in asked}
        if vanished := {uuid for uuid, (_, error) in results.items() if isinstance(error, GpuNotFoundError)}:
            found = find_gpus(self._library, before.present)
            again = {gpu.uuid: self._gpu(driver, gpu, before) for gpu in found.gpus if gpu.uuid in vanished}
            results = {uuid: result for uuid, result in results.items() if uuid not in vanished} | again

        samples, faults, cursors = [], list(found.faults), dict(before.cursors)
        for uuid, (answer, error) in results.items():
            if answer is not None:
                samples.append(answer[0])
                cursors[uuid] = answer[1]
            if error is not None:
                message = f"GPU {found.present.get(uuid)} does not answer: {error}"
                faults.append(Fault("devices", error.reason, message, uuid))
        known = Knowledge(found.present, {uuid: cursor for uuid, cursor in cursors.items() if uuid in found.present})
        return DevicesSample(found.present, tuple(samples), tuple(faults)), known

    def _gpu(
        self, driver: Driver, gpu: FoundGpu, before: Knowledge
    ) -> tuple[tuple[GpuSample, int] | None, CallError | GpuError | None]:
        """Read one GPU: its sample and cursor, or why there is none. One lost GPU leaves the others working."""
        try:
            identity = self._identities.get(gpu.uuid)
            if identity is None:
                identity = self._identities[gpu.uuid] = identify(self._library, gpu.handle)
            cursor = before.cursors.get(gpu.uuid, 0)
            return read_gpu(self._library, driver, self._gpm, gpu, identity, cursor=cursor, now=self._clock()), None
        except (CallError, GpuError) as error:
            return None, error
