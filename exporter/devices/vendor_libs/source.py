"""
A vendor's library as a device source: behind a thread of its own.

What comes in: the sampler's questions. What goes out: answers within the deadline, whatever hangs, with a fault for
what is missing. Nothing is logged here.

A library that is there but cannot be initialised is a fault (`library_gone`), tried again ever less often: its driver
may be loaded later, and the other sources of the node go on.
"""

import time
from collections.abc import Callable, Collection, Mapping

from exporter.devices import DevicesSample
from exporter.devices.thread import DriverHungError, DriverThread
from exporter.devices.vendor_libs.holders import OpenNodes
from exporter.devices.vendor_libs.read_device import Reader
from exporter.devices.vendor_libs.session import Session
from exporter.model import DeviceKey, Fault, GpuUuid, Memory

DEADLINE = 5.0
"""Seconds for one call."""
_GOODBYE = 0.4
"""Seconds for shutting down; the whole daemon has one."""

Make = Callable[[Callable[[str], None], OpenNodes], Reader]
"""Makes a reader that announces its calls, and may look who has device nodes open."""


class LibrarySource:
    """All devices of one library on this node. One caller at a time."""

    def __init__(
        self,
        name: str,
        make: Make,
        nodes: OpenNodes,
        *,
        deadline: float = DEADLINE,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._thread = DriverThread(deadline, name)
        nodes = nodes.told_to(self._thread.beat)
        self._reader = make(self._thread.beat, nodes)
        self._session = Session(self._reader, nodes, clock, monotonic)
        self._present: Mapping[GpuUuid, int] = {}

    async def sample(self, only: Collection[GpuUuid] | None = None) -> DevicesSample:
        """Read everything about all devices, or about those in `only`."""
        present = self._present
        try:
            sample = await self._thread.run(lambda: self._session.sample(only, present))
        except DriverHungError as error:
            message = f"{self._reader.title}: the driver hangs: {error}"
            return DevicesSample(present, faults=(Fault("devices", "driver_hung", message),))
        self._present = sample.present
        return sample

    async def memory(self, only: Collection[GpuUuid]) -> Mapping[DeviceKey, Memory]:
        """Read the memory of the leaf devices of some; what does not answer is missing, all while a call hangs."""
        try:
            return await self._thread.run(lambda: self._session.memory(only))
        except DriverHungError:
            return {}

    async def close(self) -> None:
        """Shut down, or leave a hanging library behind; within a second."""
        await self._thread.close(self._session.close, _GOODBYE)
