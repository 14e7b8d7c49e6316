"""
One round, and its beat.

What comes in: the three sources. What goes out: a snapshot a round, published as the latest.

The law: rounds follow one another, never side by side. A full round reads everything once an interval. In between,
devices that several containers share and that are nearly full are looked at faster: their memory alone, some 12
microseconds a device. When such a look shows that something moved, a round begins early and reads the moved GPUs anew,
at most once a second, because a process list takes milliseconds and stalls the applications. Exclusive devices are
never looked at in between.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import structlog

from exporter.accounts.accounting import GpuAccounts, Peaks, account, new_peaks
from exporter.accounts.attribution import Living, Names, Sightings, attribute, believed, needs_living
from exporter.accounts.queue_evictions import Evictions, advance
from exporter.accounts.snapshot import holders, join
from exporter.base.clock import Clock
from exporter.devices import DeviceError, DeviceSource, DevicesSample
from exporter.host import HostSource
from exporter.kube import InventorySource
from exporter.model import DeviceKey, Fault, Gpu, GpuSample, GpuUuid, HostSample, Inventory, Memory, Sharing, Snapshot
from exporter.rounds.latest import Latest
from exporter.rounds.limits import Limiting

log = structlog.get_logger()

NEARLY_FULL = 0.9
"""Used share of a device from which on a neighbour's next allocation may fail."""
MOVED = 2 * 2**20
"""Bytes: the driver hands out memory in pages of 2 MiB."""
LISTS_APART = 1.0
"""Seconds between two reads of the process lists, at the least."""
PAUSE = 0.001
"""Seconds after each GPU, of which one with 128 processes takes some 5 ms: a scrape needs several turns of the loop."""
HEARTBEAT = 1.0
"""Seconds after which the beat is renewed while nothing is due."""


@dataclass(frozen=True, slots=True)
class Beat:
    """How often: seconds between full rounds, and between looks at nearly full shared devices."""

    interval: float = 5.0
    fast_interval: float = 0.5


@dataclass(frozen=True, slots=True)
class _Read:
    """One GPU as it was last read, with the faults of that reading."""

    accounts: GpuAccounts
    host: HostSample


@dataclass(frozen=True, slots=True)
class _Remembered:
    """What outlives a reading of a GPU, also while it does not answer. MIG ids name somebody else after a change."""

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


class Sampler:
    """Drives the sources. One task calls `run`, others may ask for a `fresh` round; nobody else touches them."""

    def __init__(
        self,
        *,
        node: str,
        devices: DeviceSource,
        host: HostSource,
        inventory: InventorySource,
        beat: Beat,
        clock: Clock,
        limiting: Limiting | None = None,
        keep: Callable[[Snapshot], None] | None = None,
    ) -> None:
        """Make a sampler. `keep` gets each snapshot before the next round begins; what it raises ends the sampler."""
        self.beat = beat
        self.inventory = inventory
        self.standing: tuple[Fault, ...] = ()
        """Faults of the daemon itself, told in each snapshot until they are mended."""
        self._node = node
        self._devices = devices
        self._host = host
        self._clock = clock
        self._limiting = limiting or Limiting(())
        self._keep = keep
        self._read: Mapping[GpuUuid, _Read] = {}
        self._remembered: dict[GpuUuid, _Remembered] = {}
        self._present: Mapping[GpuUuid, int] = {}
        self._device_faults: tuple[Fault, ...] = ()
        self._depth: int | None = None
        self._rounds = 0
        self._turn = asyncio.Lock()

    async def run(self, latest: Latest) -> None:
        """Make rounds until cancelled. A failed round is counted and told; a driver that is lost for good raises."""
        while True:
            began = self._clock.monotonic()
            await self._publish(latest, None)
            while (rest := began + self.beat.interval - self._clock.monotonic()) > 0:
                latest.beat = self._clock.monotonic()
                watched = crowded(latest.snapshot)
                if not watched:
                    await self._clock.sleep(min(rest, HEARTBEAT))
                    continue
                await self._clock.sleep(min(rest, self.beat.fast_interval))
                if moved := await self._moved(watched):
                    await self._publish(latest, moved)

    async def fresh(self, only: Collection[GpuUuid], latest: Latest) -> Snapshot | None:
        """
        Make a round of some GPUs as soon as the present one has ended; for who must know before the next one is due.

        None when the round failed. Raises DeviceError.
        """
        return await self._publish(latest, only)

    async def round(self, only: Collection[GpuUuid] | None = None, latest: Latest | None = None) -> Snapshot:
        """
        Read the sources once and join their answers.

        `only` names the GPUs to read anew; the others keep what was read of them before (`Device.sampled_at` tells).
        """
        began, taken_at = self._clock.monotonic(), self._clock.time()
        self._rounds += 1
        answer = await self._answer(latest, only)
        kept = {uuid: read for uuid, read in self._read.items() if only is not None and uuid not in only}
        gpus = [read.accounts.attributed.sample.gpu for read in kept.values()]
        inventory = self.inventory.inventory([*gpus, *(sample.gpu for sample in answer.samples)])
        fresh = await self._account(answer.samples, inventory)
        # Only now, in one step: a round that fails half-way leaves the last readings as they were.
        self._read = {**kept, **fresh}
        if only is None:
            self._present = answer.present
        self._device_faults = (
            *(fault for fault in self._device_faults if only is not None and fault.subject not in only),
            *answer.faults,
        )
        for _ in self._limiting.refresh(inventory, self._gpus(), self._present):
            await self._clock.sleep(0)
        usages = [usage for read in self._read.values() for usage in read.accounts.usages]
        limits = self._limiting.limits(inventory, usages)
        hosts = [read.host for read in self._read.values()] or [self._host.sample(())]
        proven = all(host.pid_domain_proven for host in hosts)
        faults = (*self.standing, *self._device_faults, *(fault for host in hosts for fault in host.faults))
        snapshot = join(
            Snapshot(
                round=self._rounds,
                taken_at=taken_at,
                monotonic=began,
                node=self._node,
                gpus_present=self._present,
                gpus_read=frozenset(fresh),
                sources_up={
                    "devices": not any(fault.incomplete and not fault.subject for fault in answer.faults),
                    **answer.sources_up,
                    "host": proven,
                    "names": inventory.live,
                },
                pid_domain_proven=proven,
            ),
            {uuid: read.accounts for uuid, read in self._read.items()},
            inventory,
            dict.fromkeys(faults),
        )
        return replace(
            snapshot,
            limits=limits.limits,
            memory_declared=limits.memory_declared,
            xid_errors=answer.xid_errors,
            duration=self._clock.monotonic() - began,
        )

    def _gpus(self) -> list[Gpu]:
        return [read.accounts.attributed.sample.gpu for read in self._read.values()]

    async def _answer(self, latest: Latest | None, only: Collection[GpuUuid] | None) -> DevicesSample:
        """Ask the driver, and keep the beat meanwhile: calls that are slow one by one are no reason to be restarted."""
        asking = asyncio.ensure_future(self._devices.sample(only))
        try:
            while not (await asyncio.wait({asking}, timeout=HEARTBEAT))[0]:
                if latest is not None:
                    latest.beat = self._clock.monotonic()
        except asyncio.CancelledError:
            asking.cancel()
            raise
        return asking.result()

    async def _account(self, samples: Collection[GpuSample], inventory: Inventory) -> dict[GpuUuid, _Read]:
        """Attribute and account each GPU that was read."""
        handed_out = holders(inventory)
        names = Names.of(inventory, self._depth)
        exist = names.containers.keys() if inventory.live else None
        living: Living | None = None
        found = {}
        for sample in samples:
            before = self._remembered.get(sample.gpu.uuid, _Remembered()).of(sample.gpu)
            host = self._host.sample({process.pid for process in sample.processes or ()})
            names = names.seeing(process.owner for process in host.processes.values())
            sample = believed(sample, host, names, handed_out)  # noqa: PLW2901
            if living is None and needs_living((sample,), host, before.sightings):
                # All of /proc, some 30 microseconds a process: once a round, and beside the event loop.
                everybody = await asyncio.to_thread(self._host.sample, (), want_living=True)
                living = Living.of(everybody, names)
            attributed, sightings = attribute(sample, host, names, living or Living(None), before.sightings)
            evictions = advance(before.evictions, attributed, exist, self._clock.monotonic())
            accounts = account(attributed, before.peaks, handed_out, evictions.totals)
            peaks = new_peaks(before.peaks, accounts.usages, exist)
            self._remembered[sample.gpu.uuid] = replace(before, sightings=sightings, peaks=peaks, evictions=evictions)
            found[sample.gpu.uuid] = _Read(accounts, host)
            await self._clock.sleep(PAUSE)
        self._depth = names.depth
        return found

    async def _publish(self, latest: Latest, only: Collection[GpuUuid] | None) -> Snapshot | None:
        async with self._turn:  # rounds follow one another, whoever asks for them
            latest.beat = self._clock.monotonic()
            try:
                snapshot = await self.round(only, latest)
            except DeviceError:
                raise
            except Exception:
                # A bug of ours must not end the daemon that keeps neighbours alive: this round is lost, and counted.
                log.exception("sampling.round_failed", round=self._rounds)
                latest.tally = latest.tally.after_failure()
                return None
            if self._keep is not None:
                self._keep(snapshot)
            latest.beat = self._clock.monotonic()
            await latest.publish(snapshot, latest.tally.after(snapshot))
            return snapshot

    async def _moved(self, watched: Collection[DeviceKey]) -> Collection[GpuUuid]:
        """Look at the memory of `watched` devices; name the GPUs that are due for a reading of their lists."""
        now = self._clock.time()
        memory = await self._devices.memory({key.uuid for key in watched})
        moved = set()
        for key in watched:
            read = self._read.get(key.uuid)
            if read is None or now - read.accounts.attributed.sample.sampled_at < LISTS_APART:
                continue
            known = {account.device: account.memory for account in read.accounts.accounts}
            if _differ(known.get(key), memory.get(key)):
                moved.add(key.uuid)
        return moved


def crowded(snapshot: Snapshot | None) -> frozenset[DeviceKey]:
    """Name the leaf devices to look at faster: shared by several containers or made to be shared, and nearly full."""
    found = set()
    for device in snapshot.devices if snapshot else ():
        shared = device.sharing in {Sharing.TIME_SLICING, Sharing.MPS, Sharing.DRA} or device.replicas > 1
        memory = device.account.memory
        if device.sharing is Sharing.EXCLUSIVE or memory is None or memory.total == 0:
            continue
        if (shared or (device.containers or 0) > 1) and memory.used + memory.reserved >= NEARLY_FULL * memory.total:
            found.add(device.key)
    return frozenset(found)


def _differ(known: Memory | None, seen: Memory | None) -> bool:
    return known is not None and seen is not None and abs(known.free - seen.free) >= MOVED
