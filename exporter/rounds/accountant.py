"""
The accounts of each GPU, and the facts about a GPU that one round hands to the next.

What comes in: samples of GPUs, and the inventory. What goes out: a reading of each GPU: its accounts, and the host's
facts about its processes.

The rule: when a MIG instance is removed, the facts about it are dropped, because a new instance may get its id. While
the instances cannot be listed, none of them is known to be removed.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from exporter.accounts.accounting import GpuAccounts, Peaks, account, new_peaks
from exporter.accounts.attribution import (
    Names,
    Sightings,
    attribute,
    believed,
    living_subjects,
    missed,
    needs_living,
)
from exporter.accounts.grouping import Groups, grouped
from exporter.accounts.queue_evictions import Evictions, advance
from exporter.accounts.snapshot import Holders, holders
from exporter.accounts.unchanged import same_accounts, unchanged
from exporter.base.clock import Clock
from exporter.devices import DevicesSample
from exporter.host import HostSource
from exporter.model import DeviceKey, Gpu, GpuSample, GpuUuid, HostSample, Inventory, Subject

PAUSE = 0.001
"""Seconds between two parts of a round, because a scrape needs several turns of the event loop."""
MANY = 256
"""Processes that are accounted between two pauses, in about 1 ms. A pause costs 0.1 to 0.5 ms of CPU itself."""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU as last read, with the host's facts about its processes."""

    accounts: GpuAccounts
    host: HostSample

    @property
    def gpu(self) -> Gpu:
        """The GPU of the sample."""
        return self.accounts.sample.gpu


@dataclass(frozen=True, slots=True)
class _Remembered:
    """The facts about a GPU that stay between readings, also while it does not answer."""

    sightings: Sightings = field(default_factory=dict)
    peaks: Peaks = field(default_factory=dict)
    evictions: Evictions = field(default_factory=Evictions)
    instances: Mapping[DeviceKey, tuple[str, ...]] = field(default_factory=dict)
    accounts: GpuAccounts | None = None
    """The last ones. What follows is what they and their attribution were made of."""
    groups: Groups | None = None
    host: HostSample = field(default_factory=HostSample)
    names: Names | None = None
    handed_out: Holders | None = None

    def of(self, sample: GpuSample) -> "_Remembered":
        """Drop the facts about instances that were removed, or replaced by another one with the same id."""
        gpu = sample.gpu
        if not sample.devices_known:
            return self
        now = {DeviceKey(gpu.uuid, instance.id): instance.mig_uuids for instance in gpu.instances}
        gone = {key for key, uuids in self.instances.items() if now.get(key) != uuids}
        if not gone and now == self.instances:
            return self
        return _Remembered(
            {entry: seen for entry, seen in self.sightings.items() if entry[0] not in gone},
            {entry: peak for entry, peak in self.peaks.items() if entry[1] not in gone},
            self.evictions.without(gone) if gone else self.evictions,
            now,
        )


class Accountant:
    """Attributes the memory of samples, and makes the accounts. Only one task may use it."""

    def __init__(self, host: HostSource, clock: Clock) -> None:
        self._host = host
        self._clock = clock
        self._remembered: dict[GpuUuid, _Remembered] = {}
        self._inventory = Inventory()
        self._names = Names.of(self._inventory)
        self._handed_out: Holders = {}

    async def account(
        self, answer: DevicesSample, inventory: Inventory, only: Collection[GpuUuid] | None = None
    ) -> dict[GpuUuid, GpuReading]:
        """Return a reading of each sampled GPU. `only`: the GPUs that were asked; None: all."""
        read = {sample.gpu.uuid for sample in answer.samples}
        for uuid, known in self._remembered.items():
            if uuid not in read and (only is None or uuid in only):
                self._remembered[uuid] = replace(known, sightings=missed(known.sightings), accounts=None)
        names = self._named(inventory)
        if (now := holders(inventory)) != self._handed_out:
            self._handed_out = now
        handed_out = self._handed_out
        exist = names.containers.keys() if inventory.live else None
        living: frozenset[Subject] | None = None
        readings = {}
        # In a thread: 1,000 processes take 8 ms and more, and the kernel may block a reader.
        host = answer.host
        if host is None:
            host = await asyncio.to_thread(self._host.sample, answer.pids)
        handled = 0
        for sample in answer.samples:
            before = self._remembered.get(sample.gpu.uuid, _Remembered()).of(sample)
            sightings, groups, last = before.sightings, before.groups, before.accounts
            attributed = (
                unchanged(last.attributed, before.host, sample, host) if last and before.names is names else None
            )
            if attributed is None:
                last = None
                proven = believed(sample, host, names, handed_out)
                if living is None and needs_living((proven,), host, before.sightings):
                    # All of /proc, about 30 microseconds per process: at most once per round.
                    all_processes = await asyncio.to_thread(self._host.sample, (), want_living=True)
                    living = living_subjects(all_processes, names)
                attributed, sightings = attribute(proven, host, names, living or frozenset(), before.sightings)
                groups = grouped(attributed.placed or ())
            evictions = advance(before.evictions, attributed, names, self._clock.monotonic(), live=inventory.live)
            accounts = None
            if last and before.handed_out is handed_out and before.evictions.totals == evictions.totals:
                accounts = same_accounts(last, attributed)
            if accounts is None:
                accounts = account(attributed, before.peaks, handed_out, groups)
                if evictions.totals:
                    accounts = replace(accounts, usages=evictions.of(accounts.usages, names))
            peaks = new_peaks(before.peaks, accounts.usages, exist)
            self._remembered[sample.gpu.uuid] = _Remembered(
                sightings, peaks, evictions, before.instances, accounts, groups, host, names, handed_out
            )
            readings[sample.gpu.uuid] = GpuReading(accounts, host)
            handled += len(sample.processes or ())
            if handled >= MANY:
                await self._clock.sleep(PAUSE)
                handled = 0
        return readings

    def _named(self, inventory: Inventory) -> Names:
        """Index the inventory, once for as long as its pods and containers are equal: Kubernetes' are made anew."""
        last = self._inventory
        if inventory.pods != last.pods or inventory.containers != last.containers:
            self._names = Names.of(inventory)
        self._inventory = inventory
        return self._names
