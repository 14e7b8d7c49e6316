"""
A driver's library from its initialisation to its loss, and the device source made of it.

What comes in: the devices of one library (`Devices`). What goes out: a `DeviceSource` with a thread of its own. Its
answers come within the deadline, whatever hangs, with a fault for what is missing. Nothing is logged here.

The rule: initialise once, not in every round. With the driver gone, drop everything and try again, ever less often.
Nothing that a round learned for the next one is kept below `LibrarySource`, so that a late answer can be thrown away.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from exporter.devices import DevicesSample
from exporter.devices.errors import LibraryError, LibraryGoneError
from exporter.devices.opening import Opening
from exporter.devices.thread import DEADLINE, DriverHungError, DriverThread
from exporter.model import DeviceKey, Fault, GpuUuid, Memory

Beat = Callable[[str], None]
"""Announces a call to the thread, so that a hanging call has a name."""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What a round hands to the next: devices that were there (uuid to index), utilization cursors (microseconds)."""

    present: Mapping[GpuUuid, int] = field(default_factory=dict)
    cursors: Mapping[GpuUuid, int] = field(default_factory=dict)


class Devices(Protocol):
    """
    The devices of one library. All methods run on its thread, and raise LibraryError.

    Attributes:
        driver: how messages call the driver, such as `the NVIDIA driver`.

    """

    driver: str

    def start(self) -> None:
        """Load and initialise the library. A failed attempt leaves nothing behind."""

    def stop(self) -> None:
        """Let go of the library, and forget what was read through it."""

    def sample(self, only: Collection[GpuUuid] | None, before: Knowledge) -> tuple[DevicesSample, Knowledge]:
        """Read all devices, or those in `only`."""
        ...

    def memory(self, only: Collection[GpuUuid]) -> Iterator[tuple[DeviceKey, Memory]]:
        """Read the memory of some GPUs; a device that does not answer is left out."""
        ...


class Session:
    """One user of a library; runs on its thread. `monotonic` paces the attempts to initialise."""

    def __init__(self, devices: Devices, monotonic: Callable[[], float]) -> None:
        self._devices = devices
        self._opening = Opening(devices.start, LibraryError, monotonic)

    def open(self) -> None:
        """Initialise unless done. Raises LibraryError when that fails; the same again, untried, until it is time."""
        self._opening.open()

    def close(self) -> None:
        """Let go of the library."""
        if self._opening.close():
            self._devices.stop()

    def sample(self, only: Collection[GpuUuid] | None, before: Knowledge) -> tuple[DevicesSample, Knowledge]:
        """Read all devices, or those in `only`. A library that is gone gives a fault; the last known stay present."""
        try:
            self.open()
            return self._devices.sample(only, before)
        except LibraryError as error:
            if isinstance(error, LibraryGoneError):
                self.close()
            fault = Fault("devices", error.reason, f"{self._devices.driver} does not answer: {error}")
            return DevicesSample(before.present, faults=(fault,)), before

    def memory(self, only: Collection[GpuUuid]) -> dict[DeviceKey, Memory]:
        """Read the memory of some GPUs; what does not answer is missing."""
        known: dict[DeviceKey, Memory] = {}
        try:
            self.open()
            known.update(self._devices.memory(only))  # one by one: what came before a loss is kept
        except LibraryGoneError:
            self.close()
        except LibraryError:
            pass  # the next sample reports it
        return known


class LibrarySource:
    """All devices of one library on this node; `make` gets the beat of the thread. One caller at a time."""

    def __init__(
        self,
        name: str,
        make: Callable[[Beat], Devices],
        *,
        deadline: float = DEADLINE,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._thread = DriverThread(deadline, name)
        self._devices = make(self._thread.beat)
        self._session = Session(self._devices, monotonic)
        self._known = Knowledge()

    async def sample(self, only: Collection[GpuUuid] | None = None) -> DevicesSample:
        """Read everything about all devices, or about those in `only`."""
        known = self._known
        try:
            sample, self._known = await self._thread.run(lambda: self._session.sample(only, known))
        except DriverHungError as error:
            fault = Fault("devices", "driver_hung", f"{self._devices.driver} hangs: {error}")
            return DevicesSample(known.present, faults=(fault,))
        return sample

    async def memory(self, only: Collection[GpuUuid]) -> Mapping[DeviceKey, Memory]:
        """Read the memory of some GPUs; what does not answer is missing, all while a call hangs."""
        try:
            return await self._thread.run(lambda: self._session.memory(only))
        except DriverHungError:
            return {}

    async def close(self) -> None:
        """Shut down, or leave a hanging library behind; within a second."""
        await self._thread.close(self._session.close)
