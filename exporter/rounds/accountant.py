"""
What is carried from round to round of each GPU, and the accounts that are made with it.

What comes in: the GPUs that were sampled, and the inventory. What goes out: a reading of each GPU: its accounts, and
what the host said of its processes.

The rule: what was remembered of a MIG instance is forgotten with it. Its id may be another instance's after a change.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from exporter.accounts.accounting import GpuAccounts, Peaks, account, new_peaks
from exporter.accounts.attribution import Names, Sightings, attribute, believed, living_subjects, needs_living
from exporter.accounts.queue_evictions import Evictions, advance
from exporter.accounts.snapshot import holders
from exporter.base.clock import Clock
from exporter.host import HostSource
from exporter.model import DeviceKey, Gpu, GpuSample, GpuUuid, HostSample, Inventory, Subject

PAUSE = 0.001
"""
Seconds between two parts of a round, of which a GPU with 128 processes takes some 3 ms: a scrape needs several turns of
the event loop.
"""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU as it was last read, with what the host said of its processes."""

    accounts: GpuAccounts
    host: HostSample

    @property
    def gpu(self) -> Gpu:
        """The GPU."""
        return self.accounts.sample.gpu


@dataclass(frozen=True, slots=True)
class _Remembered:
    """What outlives a reading of a GPU, also while it does not answer."""

    sightings: Sightings = field(default_factory=dict)
    peaks: Peaks = field(default_factory=dict)
    evictions: Evictions = field(default_factory=Evictions)
    instances: Mapping[DeviceKey, tuple[str, ...]] = field(default_factory=dict)

    def of(self, gpu: Gpu) -> "_Remembered":
        """Forget what was remembered of instances that are gone, or are others under the same id."""
        now = {DeviceKey(gpu.uuid, instance.id): instance.mig_uuids for instance in gpu.instances}
        gone = {key for key, uuids in self.instances.items() if now.get(key) != uuids}
        return _Remembered(
            {entry: seen for entry, seen in self.sightings.items() if entry[0] not in gone},
            {entry: peak for entry, peak in self.peaks.items() if entry[1] not in gone},
            self.evictions.without(gone) if gone else self.evictions,
            now,
        )


class Accountant:
    """Attributes and accounts what was sampled. One task uses it."""

    def __init__(self, host: HostSource, clock: Clock) -> None:
        self._host = host
        self._clock = clock
        self._remembered: dict[GpuUuid, _Remembered] = {}
        self._depth: int | None = None

    async def account(self, samples: Collection[GpuSample], inventory: Inventory) -> dict[GpuUuid, GpuReading]:
        """Attribute and account each GPU that was sampled."""
        handed_out = holders(inventory)
        names = Names.of(inventory, self._depth)
        exist = names.containers.keys() if inventory.live else None
        living: frozenset[Subject] | None = None
        readings = {}
        for sample in samples:
            before = self._remembered.get(sample.gpu.uuid, _Remembered()).of(sample.gpu)
            # Beside the event loop: 128 processes take 3 ms and more, and the kernel may let a reader wait.
            host = await asyncio.to_thread(self._host.sample, {process.pid for process in sample.processes or ()})
            names = names.seeing(process.owner for process in host.processes.values())
            proven = believed(sample, host, names, handed_out)
            if living is None and needs_living((proven,), host, before.sightings):
                # All of /proc, some 30 microseconds a process: once a round.
                all_processes = await asyncio.to_thread(self._host.sample, (), want_living=True)
                living = living_subjects(all_processes, names)
            attributed, sightings = attribute(proven, host, names, living or frozenset(), before.sightings)
            evictions = advance(before.evictions, attributed, exist, self._clock.monotonic())
            accounts = account(attributed, before.peaks, handed_out, evictions.totals)
            peaks = new_peaks(before.peaks, accounts.usages, exist)
            self._remembered[sample.gpu.uuid] = replace(before, sightings=sightings, peaks=peaks, evictions=evictions)
            readings[sample.gpu.uuid] = GpuReading(accounts, host)
            await self._clock.sleep(PAUSE)
        self._depth = names.depth
        return readings
