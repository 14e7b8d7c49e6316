"""
Several device sources as one: a node may have GPUs of several vendors.

What comes in: sources. What goes out: their joined answers.

The rule: a failed source is a fault, and never ends the others; each is reported as up or not by its name. Only errors
that need a new process (`DriverReplacedError`, `DriverAccessLostError`) end the daemon, as with a single source.
Sources are read at the same time, since each has a thread of its own. A GPU belongs to the source that named it first.
Its index is its own driver's, so two vendors may both have a GPU 0: the UUID distinguishes them.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from exporter.devices import (
    DeviceError,
    DeviceSource,
    DevicesSample,
    DriverAccessLostError,
    DriverReplacedError,
    Identify,
)
from exporter.model import DeviceKey, Fault, GpuSample, GpuUuid, Memory, XidCounts


class Several:
    """A `DeviceSource` that joins others."""

    def __init__(self, sources: Sequence[DeviceSource]) -> None:
        self._sources = tuple(sources)
        self.name = ",".join(source.name for source in sources)
        self._last: dict[str, DevicesSample] = {}  # by source; a round for some GPUs does not ask all of them

    async def sample(self, only: Collection[GpuUuid] | None = None, _identify: Identify | None = None) -> DevicesSample:
        """Read all sources, or those that have a GPU in `only`."""
        asked = [source for source in self._sources if only is None or self._mine(source, only)]
        answers = await asyncio.gather(*(self._ask(source, only) for source in asked))
        self._last |= {source.name: answer for source, answer in zip(asked, answers, strict=True)}
        present: dict[GpuUuid, int] = {}
        xid_errors: XidCounts = {}
        samples: list[GpuSample] = []
        faults: list[Fault] = []
        for source in self._sources:
            answer = self._answer(source)
            new = answer.present.keys() - present.keys()
            present |= {uuid: answer.present[uuid] for uuid in new}
            xid_errors = {**xid_errors, **answer.xid_errors}
            if source in asked:
                samples += [sample for sample in answer.samples if sample.gpu.uuid in new]
                faults += answer.faults
        up = {name: answer.answered for name, answer in self._last.items()}
        return DevicesSample(present, tuple(samples), tuple(faults), xid_errors, up)

    async def memory(self, only: Collection[GpuUuid]) -> Mapping[DeviceKey, Memory]:
        """Read the memory of the devices of some GPUs."""
        answers = await asyncio.gather(
            *(source.memory(mine) for source in self._sources if (mine := self._mine(source, only))),
            return_exceptions=True,
        )
        return {
            key: memory for answer in answers if not isinstance(answer, BaseException) for key, memory in answer.items()
        }

    async def close(self) -> None:
        """Close all sources."""
        await asyncio.gather(*(source.close() for source in self._sources), return_exceptions=True)

    def _mine(self, source: DeviceSource, only: Collection[GpuUuid]) -> frozenset[GpuUuid]:
        return frozenset(only) & self._answer(source).present.keys()

    def _answer(self, source: DeviceSource) -> DevicesSample:
        return self._last.get(source.name, DevicesSample())

    async def _ask(self, source: DeviceSource, only: Collection[GpuUuid] | None) -> DevicesSample:
        try:
            return await source.sample(None if only is None else self._mine(source, only))
        except (DriverReplacedError, DriverAccessLostError):
            raise
        except DeviceError as error:
            reason, message = "source_lost", str(error)
        except Exception as error:  # noqa: BLE001  (a bug in one source leaves the GPUs of the others visible)
            reason, message = "source_failed", f"{type(error).__name__}: {error}"
        fault = Fault("devices", reason, f"{source.name}: {message}")
        return replace(self._answer(source), samples=(), faults=(fault,))
