"""
The device source of the daemon: NVML behind its thread.

What comes in: the sampler's questions. What goes out: answers within the deadline, whatever hangs, with a fault for
each missing figure. Nothing is logged here.

When the daemon has to end (`DeviceError`), and when not:

| the driver | here |
|---|---|
| cannot be initialised at the start | `DeviceError`, with the fix |
| hangs, at the start or later | fault `driver_hung`, until the call returns |
| was unloaded | fault `driver_gone`; initialised again when it is back |
| was upgraded while the daemon ran | `DriverReplacedError`: only a new process can load the new library |
| refuses access to all GPUs | fault `access_lost`; `DriverAccessLostError` after three full rounds of this |
| lost one GPU | fault `gpu_lost` for this one |

`DriverAccessLostError` needs access that existed before: a new container gets its device files back. If no GPU ever
answered, a restart would not help, and the faults stay.
"""

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Self

from exporter.devices import DeviceError, DevicesSample, DriverAccessLostError, Identify
from exporter.devices.errors import LibraryError
from exporter.devices.nvml.errors import AccessLostError, advice
from exporter.devices.nvml.events import XidListener
from exporter.devices.nvml.gpus import NvmlGpus
from exporter.devices.nvml.library import Library
from exporter.devices.session import LibrarySource
from exporter.devices.thread import DEADLINE, DriverHungError
from exporter.model import ALL_ON, Collector, GpuUuid, Off

ACCESS_LOST_ROUNDS = 3
_LAST_EVENT = 0.95
"""
Seconds for the event thread to shut down, beside the reading thread.

A user of NVML that was killed has frozen a GPU's firmware (dcgm-exporter#84). The whole daemon has one second.
"""


class NvmlSource(LibrarySource):
    """All NVIDIA GPUs of this node. Made with `open`; one caller at a time."""

    def __init__(
        self,
        *,
        deadline: float = DEADLINE,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        events: bool = False,
        off: Off = ALL_ON,
    ) -> None:
        super().__init__(
            "nvml", lambda beat: NvmlGpus(Library(beat), clock, monotonic, off), deadline=deadline, monotonic=monotonic
        )
        self._xids = XidListener(deadline, clock) if events and Collector.XID not in off else None
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
        off: Off = ALL_ON,
    ) -> Self:
        """
        Load the driver's library and initialise it; with `events`, listen to XID errors from now on.

        Figures of collectors that are `off` are not read.

        Raises DeviceError, with the fix, when that fails. A driver that hangs is no failure: the samples report it, and
        a restart would only add a second stuck thread.
        """
        source = cls(deadline=deadline, clock=clock, monotonic=monotonic, events=events, off=off)
        try:
            await source._thread.run(source._session.open)
        except DriverHungError:
            pass
        except DeviceError:
            await source.close()
            raise
        except LibraryError as error:
            await source.close()
            kind = DriverAccessLostError if isinstance(error, AccessLostError) else DeviceError
            raise kind("the NVIDIA driver cannot be used", cause=str(error), fix=advice(error)) from error
        if source._xids is not None:
            source._xids.start()
        return source

    async def sample(self, only: Collection[GpuUuid] | None = None, identify: Identify | None = None) -> DevicesSample:
        """
        Read everything about all GPUs, or about those in `only`; then `identify` the processes.

        Raises DriverReplacedError and DriverAccessLostError, see the table above.
        """
        sample = await super().sample(only, identify)
        if only is None and not any(fault.reason == "driver_hung" for fault in sample.faults):
            self._watch_access(sample)
        return self._with_xids(sample)

    async def close(self) -> None:
        """Shut down within a second; a hanging driver is left behind."""
        async with asyncio.TaskGroup() as both:
            both.create_task(super().close())
            if self._xids is not None:
                both.create_task(self._xids.close(_LAST_EVENT))

    def _with_xids(self, sample: DevicesSample) -> DevicesSample:
        """Add the XID errors. While the driver answers nothing at all, the listener's faults are left out."""
        if self._xids is None:
            return sample
        faults = self._xids.faults() if sample.answered else ()
        return replace(sample, faults=(*sample.faults, *faults), xid_errors=self._xids.counts)

    def _watch_access(self, sample: DevicesSample) -> None:
        if not _without_access(sample):
            self._had_access = True
            self._rounds_without_access = 0
            return
        self._rounds_without_access += 1
        if self._had_access and self._rounds_without_access >= ACCESS_LOST_ROUNDS:
            raise DriverAccessLostError(
                f"no GPU could be opened in {self._rounds_without_access} rounds, although one could before",
                cause="the container has lost its device files; systemctl daemon-reload on the node does that",
                fix="restart the container, as the kubelet does when the daemon ends: a new one has the files again",
            )


def _without_access(sample: DevicesSample) -> bool:
    faults = [*sample.faults, *(fault for gpu in sample.samples for fault in gpu.faults)]
    refused = {fault.subject for fault in faults if fault.reason == AccessLostError.reason and fault.incomplete}
    return "" in refused or (bool(sample.present) and sample.present.keys() <= refused)
