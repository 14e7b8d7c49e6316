"""
Utilization of the device as a whole, and of each process on it.

What comes in: a handle, and the cursor up to which a GPU's samples were read. What goes out: ratios, and the next
cursor.

The rule: each GPU has one cursor, in microseconds. In milliseconds it would bring the whole buffer of some 10 s again
and again. "Nothing found" means that every process was idle, which is an answer: an empty tuple. Right after another
reading it would mean nothing. A driver without the figure gives None. Figures above 100 % occur; they are dropped, and
their samples counted. A process of which no other figure is known is not idle: its figure is None.
"""

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from exporter.devices.device_faults import DeviceFaults
from exporter.devices.errors import NotFoundError, UnsupportedError
from exporter.devices.nvml.arrays import Entry
from exporter.devices.nvml.inventory import FoundGpu
from exporter.devices.nvml.library import Handle, Library
from exporter.model import Collector, GpuUuid, ProcessUtilization, Utilization

APART = 0.5
"""Seconds after a reading in which nothing found means nothing: NVIDIA's driver adds only a few samples a second."""
FULL = 100
_RATIOS = {percent: percent / FULL for percent in range(FULL + 1)}
"""The driver mostly returns one sample of a process. Its ratios are these objects, which take no memory."""


@dataclass(frozen=True, slots=True)
class ProcessRatios:
    """Utilization by process (None: the driver does not know), samples dropped, and the cursor for the next reading."""

    processes: tuple[ProcessUtilization, ...] | None
    dropped: int
    cursor: int


def read_utilization(library: Library, handle: Handle, faults: DeviceFaults) -> Utilization:
    """Read the ratios of a GPU. With MIG on the driver has none of them."""
    busy, memory_controller = faults.collected(Collector.UTILIZATION, library.busy, handle) or (None, None)
    return Utilization(
        busy=busy,
        memory_controller=memory_controller,
        encoder=faults.collected(Collector.UTILIZATION, library.encoder, handle),
        decoder=faults.collected(Collector.UTILIZATION, library.decoder, handle),
    )


class ProcessUtilizations:
    """The last utilization of each GPU by process. On the driver thread only; `monotonic` returns seconds."""

    def __init__(self, library: Library, monotonic: Callable[[], float]) -> None:
        self._library = library
        self._monotonic = monotonic
        self._last: dict[GpuUuid, tuple[float, tuple[ProcessUtilization, ...] | None]] = {}

    def read(self, gpu: FoundGpu, cursor: int, now: int) -> ProcessRatios:
        """Read the samples after `cursor`, as `read_process_utilization`; without a new one the last ratios stay."""
        at, last = self._last.get(gpu.uuid, (-math.inf, ()))
        ratios, moment = read_process_utilization(self._library, gpu.handle, cursor, now), self._monotonic()
        if ratios.processes == () and moment - at < APART:
            return replace(ratios, processes=last)
        self._last[gpu.uuid] = moment, ratios.processes
        return ratios

    def keep(self, there: Collection[GpuUuid]) -> None:
        """Forget all other GPUs."""
        self._last = {uuid: last for uuid, last in self._last.items() if uuid in there}


def read_process_utilization(library: Library, handle: Handle, cursor: int, now: int) -> ProcessRatios:
    """
    Read the samples after `cursor`. Both are microseconds since the epoch; a cursor of 0 reads the whole buffer.

    A cursor in the future is set back to now. Otherwise a clock that was set back, or one wrong timestamp, would
    silence the GPU.
    """
    cursor = min(cursor, now)
    try:
        entries = library.process_samples(handle, cursor)
    except NotFoundError:
        return ProcessRatios((), 0, cursor)
    except UnsupportedError:
        return ProcessRatios(None, 0, cursor)
    return summarize(entries, cursor)


def summarize(entries: Iterable[Entry], cursor: int) -> ProcessRatios:
    """Average the samples of each PID: (PID, microseconds, SM, memory controller, encoder, decoder percent)."""
    samples: dict[int, list[tuple[int, ...]]] = {}
    dropped, newest = 0, cursor
    for pid, at, sm, memory, encoder, decoder in entries:
        newest = max(newest, at)
        if at > cursor:
            dropped += max(sm, memory, encoder, decoder) > FULL
            samples.setdefault(pid, []).append((sm, memory, encoder, decoder))
    processes = tuple(
        ProcessUtilization(pid, *(map(_RATIOS.get, mine[0]) if len(mine) == 1 else map(_mean, *mine)))
        for pid, mine in sorted(samples.items())
    )
    return ProcessRatios(processes, dropped, newest)


def _mean(*percents: int) -> float | None:
    """Average one figure over the samples of a process; None if the driver claimed an impossible value each time."""
    possible = [percent for percent in percents if percent <= FULL]
    return sum(possible) / len(possible) / FULL if possible else None
