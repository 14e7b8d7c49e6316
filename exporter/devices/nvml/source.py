"""
The device source of the daemon: NVML behind its thread.

What comes in: the sampler's questions. What goes out: answers within the deadline, whatever hangs, with a fault for
what is missing. Nothing is logged here.

When the daemon has to end (`DeviceError`), and when not:

| the driver | here |
|---|---|
| cannot be initialised at the start | `DeviceError`: what to do |
| hangs, at the start or later | fault `driver_hung`, until the call returns |
| was unloaded | fault `driver_gone`; initialised again when it is back |
| was upgraded under us | `DriverReplacedError`: only a new process can load the new library |
| lets nobody in any more | fault `access_lost`; `DriverAccessLostError` after three full rounds in which all say so |
| lost one GPU | fault `gpu_lost` for this one |

`DriverAccessLostError` is for access that was there before: a new container gets its device files back. Where no GPU
ever answered, ending would help nobody, and the faults stay.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Self

from exporter.devices import DeviceError, DevicesSample, DriverAccessLostError
from exporter.devices.nvml.errors import AccessLostError, NvmlError
from exporter.devices.nvml.events import XidListener
from exporter.devices.nvml.library import Library
from exporter.devices.nvml.session import Knowledge, Session
from exporter.devices.thread import DriverHungError, DriverThread
from exporter.model import DeviceKey, Fault, GpuUuid, Memory

DEADLINE = 5.0
"""Seconds for one driver call. A process list takes some 5 ms; the first initialisation may take seconds."""
ACCESS_LOST_ROUNDS = 3
_GOODBYE = 0.4
_LAST_EVENT = 0.6
"""
Seconds of the one who reads and of the one who listens, side by side, for shutting down: a user of NVML that was killed
has frozen a GPU's firmware (dcgm-exporter#84). The whole daemon has one.
"""


class NvmlSource:
    """All NVIDIA GPUs of this node. Made with `open`; one caller at a time."""

    name = "nvml"

    def __init__(
        self,
        *,
        deadline: float = DEADLINE,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        events: bool = False,
    ) -> None:
        self._thread = DriverThread(deadline)
        self._session = Session(Library(self._thread.beat), clock, monotonic)
        self._xids = XidListener(deadline, clock) if events else None
        self._known = Knowledge()
        self._had_access = False
        self._rounds_without_access = 0

    @classmethod
    async def open(
        cls,
        *,
        deadline: float = DEADLINE,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        events: bool = False,
    ) -> Self:
        """
        Load the driver's library and initialise it; with `events`, listen to XID errors from now on.

        Raises DeviceError when that fails, with what to do. A driver that hangs is no failure: the samples say so, and
        a restart would only add a second stuck thread.
        """
        source = cls(deadline=deadline, clock=clock, monotonic=monotonic, events=events)
        try:
            await source._thread.run(source._session.open)
        except DriverHungError:
            pass
        except DeviceError:
            await source.close()
            raise
        except NvmlError as error:
            await source.close()
            kind = DriverAccessLostError if isinstance(error, AccessLostError) else DeviceError
            raise kind(f"the NVIDIA driver cannot be used: {error}; {error.advice}") from error
        if source._xids is not None:
            source._xids.start()
        return source

    async def sample(self, only: Collection[GpuUuid] | None = None) -> DevicesSample:
        """
        Read everything about all GPUs, or about those in `only`.

        Raises DriverReplacedError and DriverAccessLostError, see the table above.
        """
        known = self._known
        try:
            sample, self._known = await self._thread.run(lambda: self._session.sample(only, known))
        except DriverHungError as error:
            fault = Fault("devices", "driver_hung", f"the NVIDIA driver hangs: {error}")
            return self._with_xids(DevicesSample(known.present, faults=(fault,)))
        if only is None:
            self._watch_access(sample)
        return self._with_xids(sample)

    async def memory(self, only: Collection[GpuUuid]) -> Mapping[DeviceKey, Memory]:
        """Read the memory of the leaf devices of some GPUs; what does not answer is missing, all while a call hangs."""
        try:
            return await self._thread.run(lambda: self._session.memory(only))
        except DriverHungError:
            return {}

    async def close(self) -> None:
        """Shut down, or leave a hanging driver behind; within a second."""
        async with asyncio.TaskGroup() as both:
            both.create_task(self._thread.close(self._session.close, _GOODBYE))
            if self._xids is not None:
                both.create_task(self._xids.close(_LAST_EVENT))

    def _with_xids(self, sample: DevicesSample) -> DevicesSample:
        """Add what was heard; that a driver which answers nothing is not heard either needs no telling."""
        if self._xids is None:
            return sample
        silent = any(fault.incomplete and not fault.subject for fault in sample.faults)
        faults = () if silent else self._xids.faults()
        return replace(sample, faults=(*sample.faults, *faults), xid_errors=self._xids.counts)

    def _watch_access(self, sample: DevicesSample) -> None:
        if not _without_access(sample):
            self._had_access = True
            self._rounds_without_access = 0
            return
        self._rounds_without_access += 1
        if self._had_access and self._rounds_without_access >= ACCESS_LOST_ROUNDS:
            raise DriverAccessLostError(
                f"no GPU could be opened in {self._rounds_without_access} rounds, though one could before: the "
                "container has lost its device files (systemctl daemon-reload on the node does that); start it anew"
            )


def _without_access(sample: DevicesSample) -> bool:
    faults = [*sample.faults, *(fault for gpu in sample.samples for fault in gpu.faults)]
    refused = {fault.subject for fault in faults if fault.reason == AccessLostError.reason and fault.incomplete}
    return "" in refused or (bool(sample.present) and sample.present.keys() <= refused)
