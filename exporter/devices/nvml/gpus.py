"""
The NVIDIA GPUs of this node, read through NVML. All of this runs on the driver thread.

What comes in: the GPUs to read, and the knowledge of the last accepted round. What goes out: one answer, and the
knowledge for the next round. This class keeps only facts that stay true when an answer is thrown away: the library's
state, the samples of its counters, and facts that do not change.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator

from exporter.devices import DeviceError, DevicesSample
from exporter.devices.errors import REFUSED, CallError, DeviceLostError, LibraryError
from exporter.devices.nvml.errors import GpuNotFoundError
from exporter.devices.nvml.gpm import Gpm
from exporter.devices.nvml.hardware import HardwareReader
from exporter.devices.nvml.inventory import FoundGpu, Identity, find_devices, find_gpus, identify, mig_enabled
from exporter.devices.nvml.library import Library
from exporter.devices.nvml.processes import ProcessLists, versions
from exporter.devices.nvml.read_gpu import Driver, read_gpu
from exporter.devices.nvml.utilization import ProcessUtilizations
from exporter.devices.session import Knowledge
from exporter.model import ALL_ON, Collector, DeviceKey, Fault, GpuSample, GpuUuid, Memory, Off


class NvmlGpus:
    """
    `Devices` of NVML.

    `clock` is Unix time. `monotonic` measures the time between two samples of GPM, and two readings of the hardware or
    of the processes' utilization. Collectors that are `off` are not read.
    """

    driver = "the NVIDIA driver"

    def __init__(
        self, library: Library, clock: Callable[[], float], monotonic: Callable[[], float], off: Off = ALL_ON
    ) -> None:
        self._library = library
        self._clock = clock
        self._off = off
        self._gpm = Gpm(library, monotonic)
        self._by_process = ProcessUtilizations(library, monotonic)
        self._hardware = HardwareReader(library, monotonic, off)
        self._driver = Driver("", ProcessLists(()))
        self._identities: dict[GpuUuid, Identity] = {}

    def start(self) -> None:
        """Initialise, and read the facts that hold while the driver stays loaded."""
        self._library.start()
        try:
            self._driver = Driver(self._library.driver_version(), ProcessLists(versions(self._library)))
        except (LibraryError, DeviceError):
            self._library.stop()  # NVML counts its users: each failed attempt would add one for good
            raise

    def stop(self) -> None:
        """Release the library and forget all that was read through it."""
        self._identities.clear()
        self._hardware.close()
        self._gpm.close()
        self._by_process.keep(())
        self._library.stop()

    def memory(self, only: Collection[GpuUuid]) -> Iterator[tuple[DeviceKey, Memory]]:
        """Read the memory of the devices of some GPUs; a GPU that does not answer is missing."""
        for gpu in find_gpus(self._library, {}).gpus:
            if gpu.uuid in only:
                with contextlib.suppress(*REFUSED):
                    mig = mig_enabled(self._library, gpu.handle)
                    for device in find_devices(self._library, gpu, mig=mig):
                        if memory := self._library.memory(device.handles[0]):
                            yield device.key, memory

    def sample(self, only: Collection[GpuUuid] | None, before: Knowledge) -> tuple[DevicesSample, Knowledge]:
        """Read all GPUs, or those in `only`."""
        listing = find_gpus(self._library, before.present)
        asked = [gpu for gpu in listing.gpus if only is None or gpu.uuid in only]
        results = {gpu.uuid: self._gpu(gpu, before) for gpu in asked}
        if vanished := {uuid for uuid, (_, error) in results.items() if isinstance(error, GpuNotFoundError)}:
            listing = find_gpus(self._library, before.present)
            again = {gpu.uuid: self._gpu(gpu, before) for gpu in listing.gpus if gpu.uuid in vanished}
            results = {uuid: result for uuid, result in results.items() if uuid not in vanished} | again

        lost = {uuid for uuid, (_, error) in results.items() if isinstance(error, DeviceLostError)}
        self._keep({gpu.uuid for gpu in listing.gpus} - lost)
        samples, faults, cursors = [], list(listing.faults), dict(before.cursors)
        for uuid, (answer, error) in results.items():
            if answer is not None:
                samples.append(answer[0])
                cursors[uuid] = answer[1]
            if error is not None:
                message = f"GPU {listing.present.get(uuid)} does not answer: {error}"
                faults.append(Fault("devices", error.reason, message, uuid))
        cursors = {uuid: cursor for uuid, cursor in cursors.items() if uuid in listing.present}
        return DevicesSample(listing.present, tuple(samples), tuple(faults)), Knowledge(listing.present, cursors)

    def _keep(self, there: Collection[GpuUuid]) -> None:
        """Forget the others: a GPU may come back in another slot, with other facts and with new counters."""
        self._hardware.keep(there)
        self._gpm.keep_gpus(there)
        self._by_process.keep(there)
        self._identities = {uuid: identity for uuid, identity in self._identities.items() if uuid in there}

    def _gpu(
        self, gpu: FoundGpu, before: Knowledge
    ) -> tuple[tuple[GpuSample, int] | None, CallError | DeviceLostError | None]:
        """Read one GPU: its sample and cursor, or the error. One lost GPU leaves the others working."""
        try:
            identity = self._identities.get(gpu.uuid)
            if identity is None:
                identity = self._identities[gpu.uuid] = identify(
                    self._library, gpu.handle, throttles=Collector.THROTTLING not in self._off
                )
            cursor, now = before.cursors.get(gpu.uuid, 0), self._clock()
            sample = read_gpu(
                self._library,
                self._driver,
                self._gpm,
                gpu,
                identity,
                by_process=self._by_process,
                hardware=self._hardware,
                cursor=cursor,
                now=now,
                off=self._off,
            )
        except REFUSED as error:
            return None, error
        return sample, None
