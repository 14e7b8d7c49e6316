"""
The devices of one vendor's library. All of this runs on its thread.

What comes in: the devices to read, and those known to the last accepted round. What goes out: one answer.

The rule: a device is identified by its name. This class keeps only facts that stay true when an answer is thrown away.
These are the names while the list of devices stays, and that the PIDs are the host's, which is a fact of the library.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from exporter.devices import DevicesSample
from exporter.devices.errors import REFUSED, CallError
from exporter.devices.open_nodes import OpenNodes
from exporter.devices.session import Knowledge
from exporter.devices.vendor_libs.native import known
from exporter.devices.vendor_libs.reader import Identity, NamedDevice, Reader, read_device
from exporter.model import ALL_ON, DeviceKey, Fault, GpuSample, GpuUuid, Memory, Off


class VendorDevices:
    """`Devices` of a reader. `nodes` proves that the PIDs are the host's; `clock` is Unix time; `off`: not read."""

    def __init__(self, reader: Reader[Any], nodes: OpenNodes, clock: Callable[[], float], off: Off = ALL_ON) -> None:
        self.driver = f"{reader.title}: the driver"
        self._reader = reader
        self._nodes = nodes
        self._clock = clock
        self._off = off
        self._version = ""
        self._identities: dict[int, Identity] = {}
        self._indices: tuple[int, ...] = ()
        self._shared: set[GpuUuid] = set()
        self._proven = False

    def start(self) -> None:
        """Initialise the library, and read the driver's version."""
        self._reader.start()
        self._version = known(self._reader.driver_version) or ""

    def stop(self) -> None:
        """Release the library and forget all that was read through it."""
        self._identities.clear()
        self._reader.stop()

    def memory(self, only: Collection[GpuUuid]) -> Iterator[tuple[DeviceKey, Memory]]:
        """Read the memory of some devices, or of the parts of a divided one; one that does not answer is missing."""
        for device in self._find()[0]:
            if (uuid := device.identity.uuid) in only:
                try:
                    instances = self._reader.instances(device.handle)
                    whole = None if instances else self._reader.memory(device.handle)
                except REFUSED:
                    continue
                parts = [(DeviceKey(uuid, part.id), part.memory) for part in instances] or [(DeviceKey(uuid), whole)]
                yield from ((key, memory) for key, memory in parts if memory is not None)

    def sample(self, only: Collection[GpuUuid] | None, before: Knowledge) -> tuple[DevicesSample, Knowledge]:
        """Read all devices, or those in `only`."""
        devices, faults = self._find()
        samples: list[GpuSample] = []
        for device in devices:
            if only is not None and device.identity.uuid not in only:
                continue
            try:
                samples.append(read_device(self._reader, device, self._version, self._clock(), self._off))
            except REFUSED as error:
                message = f"{self._reader.title} {device.index} does not answer: {error}"
                faults.append(Fault("devices", error.reason, message, device.identity.uuid))
        # A device that did not return its name this time counts under the name that its index had before.
        nameless = {fault.subject for fault in faults}
        kept = {uuid: index for uuid, index in before.present.items() if f"{self._reader.name}/{index}" in nameless}
        present = {**kept, **{device.identity.uuid: device.index for device in devices}}
        return DevicesSample(present, tuple(self._proving(samples)), tuple(faults)), Knowledge(present)

    def _find(self) -> tuple[list[NamedDevice], list[Fault]]:
        """Open and name the devices; one that does not return its name is a fault."""
        named: list[NamedDevice] = []
        faults: list[Fault] = []
        indices = tuple(self._reader.indices())
        if indices != self._indices:  # a device that came or went may have changed the indices
            self._indices = indices
            self._identities.clear()
        for index in indices:
            try:
                handle = self._reader.open(index)
                if index not in self._identities:
                    self._identities[index] = self._reader.identify(handle, index)
                named.append(NamedDevice(index, handle, self._identities[index]))
            except REFUSED as error:
                self._identities.pop(index, None)
                message = f"{self._reader.title} {index} does not say what it is: {error}"
                faults.append(Fault("devices", error.reason, message, f"{self._reader.name}/{index}"))
        names = Counter(device.identity.uuid for device in named)
        self._shared |= {uuid for uuid, number in names.items() if number > 1}
        told_apart, nameless = self._told_apart(named)
        return told_apart, [*faults, *nameless]

    def _told_apart(self, named: Sequence[NamedDevice]) -> tuple[list[NamedDevice], list[Fault]]:
        """
        Add its PCI address to a name that several devices have: the chips of one board share its serial number.

        A device without an address of its own is left out: its figures could be another's.
        """
        places = Counter((device.identity.uuid, device.identity.pci_bus_id) for device in named)
        told_apart: list[NamedDevice] = []
        nameless: dict[GpuUuid, list[int]] = {}
        for device in named:
            name, place = device.identity.uuid, device.identity.pci_bus_id
            if name not in self._shared:
                told_apart.append(device)
            elif place and places[name, place] == 1:
                identity = replace(device.identity, uuid=GpuUuid(f"{name}-{place}"))
                told_apart.append(replace(device, identity=identity))
            else:
                nameless.setdefault(name, []).append(device.index)
        faults = []
        for name, indices in nameless.items():
            numbers = ", ".join(map(str, indices))
            message = f"{self._reader.title} {numbers}: several have the name {name}, and no place tells them apart"
            faults.append(Fault("devices", CallError.reason, message, name))
        return told_apart, faults

    def _proving(self, samples: list[GpuSample]) -> list[GpuSample]:
        """Prove by open device nodes that the PIDs are the host's; once is enough."""
        unproven = [process.pid for sample in samples if not sample.pids_proven for process in sample.processes or ()]
        if unproven and not self._proven:
            self._proven = self._nodes.held_by_all(unproven)
        return [replace(sample, pids_proven=True) for sample in samples] if self._proven else samples
