"""
Several device sources as one: a node may have GPUs of several vendors.

What comes in: sources. What goes out: their answers together.

The law: one source that fails is a fault, and never the end of the others; each is told as up or not by its name. Only
what a new process alone can cure (`DriverReplacedError`, `DriverAccessLostError`) ends the daemon, as without the
others. Sources are asked at once, since each has a thread of its own. A GPU belongs to the source that told of it
first; its index is its own driver's, so two vendors may both have a GPU 0: the UUID tells them apart.
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
    answered,
)
from exporter.model import DeviceKey, Fault, GpuUuid, Memory, XidCounts


class Several:
    """A `DeviceSource` of others."""

    def __init__(self, sources: Sequence[DeviceSource]) -> None:
        self._sources = tuple(sources)
        self.name = ",".join(source.name for source in sources)
        self._present: dict[str, Mapping[GpuUuid, int]] = {}
        self._up: dict[str, bool] = {}
        self._xids: XidCounts = {}  # of those who are not asked in an early round, too: see DevicesSample

    async def sample(self, only: Collection[GpuUuid] | None = None) -> DevicesSample:
        """Ask all, or those which have a GPU in `only`."""
        asked = [source for source in self._sources if only is None or self._mine(source, only)]
        answers = dict(zip(asked, await asyncio.gather(*(self._ask(source, only) for source in asked)), strict=True))
        present: dict[GpuUuid, int] = {}
        together = DevicesSample()
        for source in self._sources:
            answer = answers.get(source)
            own = self._present.get(source.name, {}) if answer is None else answer.present
            self._present[source.name] = own
            new = own.keys() - present.keys()
            present |= {uuid: own[uuid] for uuid in new}
            if answer is not None:
                together = replace(
                    together,
                    samples=(*together.samples, *(one for one in answer.samples if one.gpu.uuid in new)),
                    faults=(*together.faults, *answer.faults),
                )
                self._up[source.name] = answered(answer)
                self._xids = {**self._xids, **answer.xid_errors}
        return replace(together, present=present, xid_errors=self._xids, sources_up=dict(self._up))

    async def memory(self, only: Collection[GpuUuid]) -> Mapping[DeviceKey, Memory]:
        """Read the memory of the leaf devices of some GPUs."""
        answers = await asyncio.gather(
            *(source.memory(mine) for source in self._sources if (mine := self._mine(source, only))),
            return_exceptions=True,
        )
        return {
            key: memory for answer in answers if not isinstance(answer, BaseException) for key, memory in answer.items()
        }

    async def close(self) -> None:
        """Let go of all."""
        await asyncio.gather(*(source.close() for source in self._sources), return_exceptions=True)

    def _mine(self, source: DeviceSource, only: Collection[GpuUuid]) -> frozenset[GpuUuid]:
        return frozenset(only) & self._present.get(source.name, {}).keys()

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
        return DevicesSample(self._present.get(source.name, {}), faults=(fault,))
