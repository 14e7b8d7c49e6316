"""
A library from its initialisation to its loss. All of this runs on its thread.

What comes in: who is asked for, and whom the last accepted round knew. What goes out: one answer. Nothing that a round
learned for the next one is kept here, so that an answer which comes too late can be thrown away whole; that the numbers
of processes are the host's is a fact of the library, and true whoever waits.

The law: initialise once, not in every round; with the driver gone, drop everything and try again, ever less often.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from exporter.devices import DevicesSample
from exporter.devices.opening import Opening
from exporter.devices.vendor_libs.errors import CallError, DeviceLostError, LibraryError, LibraryGoneError
from exporter.devices.vendor_libs.holders import OpenNodes
from exporter.devices.vendor_libs.read_device import Found, Identity, Reader, read_device
from exporter.model import DeviceKey, Fault, GpuSample, GpuUuid, Memory

Present = Mapping[GpuUuid, int]


class Session:
    """One user of a library. `clock` is Unix time, `monotonic` paces the attempts to initialise."""

    def __init__(
        self, reader: Reader, nodes: OpenNodes, clock: Callable[[], float], monotonic: Callable[[], float]
    ) -> None:
        self._reader = reader
        self._nodes = nodes
        self._clock = clock
        self._opening = Opening(self._start, LibraryError, monotonic)
        self._identities: dict[int, Identity] = {}
        self._indices: tuple[int, ...] = ()
        self._shared: set[GpuUuid] = set()
        self._proven = False

    def close(self) -> None:
        """Let go of the library and forget all that was read through it."""
        if self._opening.close():
            self._identities.clear()
            self._reader.stop()

    def sample(self, only: Collection[GpuUuid] | None, before: Present) -> DevicesSample:
        """Read all devices, or those in `only`. A library that is gone gives a fault, and whom it knew last."""
        try:
            return self._round(self._opening.open(), only, before)
        except LibraryError as error:
            if isinstance(error, LibraryGoneError):
                self.close()
            message = f"{self._reader.title}: the driver does not answer: {error}"
            return DevicesSample(before, faults=(Fault("devices", error.reason, message),))

    def memory(self, only: Collection[GpuUuid]) -> dict[DeviceKey, Memory]:
        """Read the memory of the leaf devices of some; what does not answer is missing."""
        known: dict[DeviceKey, Memory] = {}
        try:
            self._opening.open()
            for found in self._find()[0]:
                if found.identity.uuid in only:
                    known |= self._memory(found)
        except LibraryGoneError:
            self.close()
        except LibraryError:
            pass  # the next sample tells
        return known

    def _memory(self, found: Found) -> dict[DeviceKey, Memory]:
        uuid = found.identity.uuid
        try:
            if instances := self._reader.instances(found.handle):
                return {DeviceKey(uuid, one.id): one.memory for one in instances if one.memory is not None}
            memory = self._reader.memory(found.handle)
        except (CallError, DeviceLostError):
            return {}
        return {} if memory is None else {DeviceKey(uuid): memory}

    def _find(self) -> tuple[list[Found], list[Fault]]:
        """Open and name the devices; one that does not even say its name is a fault, and nobody's."""
        found: list[Found] = []
        faults: list[Fault] = []
        indices = tuple(self._reader.indices())
        if indices != self._indices:  # what came or went may have taken another's number
            self._indices = indices
            self._identities.clear()
        for index in indices:
            try:
                handle = self._reader.open(index)
                if index not in self._identities:
                    self._identities[index] = self._reader.identify(handle, index)
                found.append(Found(index, handle, self._identities[index]))
            except (CallError, DeviceLostError) as error:
                self._identities.pop(index, None)
                message = f"{self._reader.title} {index} does not say what it is: {error}"
                faults.append(Fault("devices", error.reason, message, f"{self._reader.name}/{index}"))
        names = Counter(one.identity.uuid for one in found)
        self._shared |= {uuid for uuid, number in names.items() if number > 1}
        told, nameless = self._told_apart(found)
        return told, [*faults, *nameless]

    def _told_apart(self, found: Sequence[Found]) -> tuple[list[Found], list[Fault]]:
        """
        Add its place to a name that several devices have: the chips of one board share its serial number.

        Without a place of its own a device is nobody: whose a figure is could not be said.
        """
        places = Counter((one.identity.uuid, one.identity.pci_bus_id) for one in found)
        told: list[Found] = []
        nameless: dict[GpuUuid, list[int]] = {}
        for one in found:
            name, place = one.identity.uuid, one.identity.pci_bus_id
            if name not in self._shared:
                told.append(one)
            elif place and places[name, place] == 1:
                told.append(replace(one, identity=replace(one.identity, uuid=GpuUuid(f"{name}-{place}"))))
            else:
                nameless.setdefault(name, []).append(one.index)
        faults = []
        for name, indices in nameless.items():
            numbers = ", ".join(map(str, indices))
            message = f"{self._reader.title} {numbers}: several have the name {name}, and no place tells them apart"
            faults.append(Fault("devices", CallError.reason, message, name))
        return told, faults

    def _round(self, driver: str, only: Collection[GpuUuid] | None, before: Present) -> DevicesSample:
        devices, faults = self._find()
        samples: list[GpuSample] = []
        for found in devices:
            if only is not None and found.identity.uuid not in only:
                continue
            try:
                samples.append(read_device(self._reader, found, driver, self._clock()))
            except (CallError, DeviceLostError) as error:
                message = f"{self._reader.title} {found.index} does not answer: {error}"
                faults.append(Fault("devices", error.reason, message, found.identity.uuid))
        # A device that did not say its name this time is counted under the name that its place had before.
        nameless = {fault.subject for fault in faults}
        kept = {uuid: index for uuid, index in before.items() if f"{self._reader.name}/{index}" in nameless}
        present = {**kept, **{found.identity.uuid: found.index for found in devices}}
        return DevicesSample(present, tuple(self._proving(samples)), tuple(faults))

    def _proving(self, samples: list[GpuSample]) -> list[GpuSample]:
        """Prove by open device nodes that the numbers are the host's; once is enough."""
        unproven = [process.pid for one in samples if not one.pids_proven for process in one.processes or ()]
        if unproven and not self._proven:
            self._proven = self._nodes.held_by_all(unproven)
        return [replace(one, pids_proven=True) for one in samples] if self._proven else samples

    def _start(self) -> str:
        """Initialise the library; the driver's version."""
        self._reader.start()
        try:
            return self._reader.driver_version()
        except CallError:
            return ""
