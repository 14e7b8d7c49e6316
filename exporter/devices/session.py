"""
A driver's library from its initialisation to its loss, and the device source made of it.

What comes in: the devices of one library (`Devices`). What goes out: a `DeviceSource` with a thread of its own. Its
answers come within the deadline, whatever hangs, with a fault for each missing figure. Nothing is logged here.

The rule: initialise once, not in every round. When the driver is gone, drop everything and try again, with growing
pauses. The knowledge of a round for the next one is kept only in `LibrarySource`, so that a late answer can be thrown
away.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Protocol

from exporter.devices import DevicesSample, Identify
from exporter.devices.errors import LibraryError, LibraryGoneError
from exporter.devices.opening import Opening
from exporter.devices.thread import DEADLINE, DriverHungError, DriverThread
from exporter.model import DeviceKey, Fault, GpuUuid, Memory

Beat = Callable[[str], None]
"""Announces a call to the thread, so that a hanging call has a name."""
LOOK = "a look at a process in /proc"
"""The name of what is no call of the driver's."""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """
    The knowledge of a round for the next one.

    Attributes:
        present: devices that were there (UUID to index).
        cursors: utilization cursors (microseconds).

    """

    present: Mapping[GpuUuid, int] = field(default_factory=dict)
    cursors: Mapping[GpuUuid, int] = field(default_factory=dict)


class Devices(Protocol):
    """
    The devices of one library. All methods run on its thread, and raise LibraryError.

    Attributes:
        driver: the driver's name in messages, such as `the NVIDIA driver`.

    """

    driver: str

    def start(self) -> None:
        """Load and initialise the library. A failed attempt leaves nothing open."""

    def stop(self) -> None:
        """Release the library, and forget what was read through it."""

    def sample(self, only: Collection[GpuUuid] | None, before: Knowledge) -> tuple[DevicesSample, Knowledge]:
        """Read all devices, or those in `only`."""
        ...

    def memory(self, only: Collection[GpuUuid]) -> Iterator[tuple[DeviceKey, Memory]]:
        """Read the memory of some GPUs; a device that does not answer is left out."""
        ...


class Session:
    """
    One user of a library; runs on its thread. `monotonic` paces the attempts to initialise.

    Opening and closing are done in `whole`: a library that was initialised too late for a round is ready for the next.
    """

    def __init__(
        self, devices: Devices, monotonic: Callable[[], float], whole: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._devices = devices
        self._whole = whole
        self._opening = Opening(devices.start, LibraryError, monotonic)

    def open(self) -> None:
        """
        Initialise unless done.

        Raises LibraryError when that fails; until the next attempt is due, the same one again.
        """
        with self._whole():
            self._opening.open()

    def close(self) -> None:
        """Release the library."""
        with self._whole():
            if self._opening.close():
                self._devices.stop()

    def sample(self, only: Collection[GpuUuid] | None, before: Knowledge) -> tuple[DevicesSample, Knowledge]:
        """Read all devices, or those in `only`. A lost library gives a fault; its last known devices stay present."""
        try:
            self.open()
            return self._devices.sample(only, before)
        except LibraryError as error:
            if isinstance(error, LibraryGoneError):
                self.close()
            fault = Fault("devices", error.reason, f"{self._devices.driver} does not answer: {error}")
            return DevicesSample(before.present, faults=(fault,)), before

    def memory(self, only: Collection[GpuUuid]) -> dict[DeviceKey, Memory]:
        """Read the memory of some GPUs; a GPU that does not answer is missing."""
        known: dict[DeviceKey, Memory] = {}
        try:
            self.open()
            known.update(self._devices.memory(only))  # one by one: devices that answered before a loss are kept
        except LibraryGoneError:
            self.close()
        except LibraryError:
            pass  # the next sample reports it
        return known


class _Announced(Collection[int]):
    """PIDs, each of which is announced before it is looked at: the deadline is for one process, not for all."""

    def __init__(self, pids: Collection[int], beat: Beat) -> None:
        self._pids, self._beat = pids, beat

    def __iter__(self) -> Iterator[int]:
        for pid in self._pids:
            self._beat(LOOK)
            yield pid

    def __len__(self) -> int:
        return len(self._pids)

    def __contains__(self, pid: object) -> bool:
        return pid in self._pids


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
        self._session = Session(self._devices, monotonic, self._thread.whole)
        self._known = Knowledge()

    async def sample(self, only: Collection[GpuUuid] | None = None, identify: Identify | None = None) -> DevicesSample:
        """Read everything about all devices, or about those in `only`; then `identify` the processes."""
        known = self._known

        def read() -> tuple[DevicesSample, Knowledge]:
            sample, now = self._session.sample(only, known)
            if identify is not None:
                sample = replace(sample, host=identify(_Announced(sample.pids, self._thread.beat)))
            return sample, now

        try:
            sample, self._known = await self._thread.run(read)
        except DriverHungError as error:
            who = "the kernel" if str(error).startswith(LOOK) else self._devices.driver
            fault = Fault("devices", "driver_hung", f"{who} hangs: {error}")
            return DevicesSample(known.present, faults=(fault,))
        return sample

    async def memory(self, only: Collection[GpuUuid]) -> Mapping[DeviceKey, Memory]:
        """Read the memory of some GPUs; one that does not answer is missing. While a call hangs, all are missing."""
        try:
            return await self._thread.run(lambda: self._session.memory(only))
        except DriverHungError:
            return {}

    async def close(self) -> None:
        """Shut down within a second; a hanging library is left behind."""
        await self._thread.close(self._session.close)
