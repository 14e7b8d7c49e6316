"""
Records the answers of the sources while a sampler reads them.

What comes in: the three sources. What goes out: three sources with the same answers, and after each round its answers.

The rule: a recording causes no extra read of a source. A round begins with the read of the driver. The answers of a
failed round are dropped with the next one.
"""

from collections.abc import Collection, Mapping, Sequence

from exporter.devices import DeviceSource, DevicesSample, Identify
from exporter.host import HostSource
from exporter.kube import InventorySource
from exporter.model import DeviceKey, Gpu, GpuUuid, HostSample, Inventory, Memory, Snapshot
from exporter.recording import HostRead, RecordedRound


class Tape:
    """Wraps the sources: give `devices`, `host` and `inventory` to a sampler, and call `round` after each round."""

    def __init__(self, devices: DeviceSource, host: HostSource, inventory: InventorySource) -> None:
        self.host = _Host(host)
        self.devices = _Devices(devices, self.host)
        self.inventory = _Names(inventory)

    def round(self, snapshot: Snapshot) -> RecordedRound:
        """Return the answers of the round that has just ended with this snapshot."""
        answer = self.devices.answer
        return RecordedRound(
            snapshot.round,
            snapshot.taken_at,
            snapshot.monotonic,
            snapshot.duration,
            self.devices.only,
            answer.present,
            answer.samples,
            answer.faults,
            tuple(self.host.reads),
            self.inventory.answer,
            answer.xid_errors,
            snapshot.by_time,
        )


class _Host:
    def __init__(self, source: HostSource) -> None:
        self.reads: list[HostRead] = []
        self._source = source

    def sample(self, pids: Collection[int], *, want_living: bool = False) -> HostSample:
        answer = self._source.sample(pids, want_living=want_living)
        self.reads.append(HostRead(frozenset(pids), answer, want_living))
        return answer


class _Devices:
    def __init__(self, source: DeviceSource, host: _Host) -> None:
        self.name = source.name
        self.only: frozenset[GpuUuid] | None = None
        self.answer = DevicesSample()
        self._source = source
        self._host = host

    async def sample(self, only: Collection[GpuUuid] | None = None, identify: Identify | None = None) -> DevicesSample:
        self._host.reads.clear()
        self.only = None if only is None else frozenset(only)
        self.answer = await self._source.sample(only, identify)
        return self.answer

    async def memory(self, only: Collection[GpuUuid]) -> Mapping[DeviceKey, Memory]:
        return await self._source.memory(only)

    async def close(self) -> None:
        await self._source.close()


class _Names:
    def __init__(self, source: InventorySource) -> None:
        self.answer = Inventory()
        self._source = source

    async def run(self) -> None:
        await self._source.run()

    def inventory(self, gpus: Sequence[Gpu]) -> Inventory:
        self.answer = self._source.inventory(gpus)
        return self.answer
