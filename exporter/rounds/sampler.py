"""
One round, and its beat: sample, attribute, account, make the snapshot, publish.

What comes in: the three sources. What goes out: a snapshot a round, published as the latest.

The rule: rounds follow one another, never side by side. A full round reads everything once an interval. In between,
devices that several containers share and that are nearly full are looked at faster: their memory alone, some 12
microseconds a device. When such a look shows that something moved, a round begins early and reads the moved GPUs anew,
at most once a second, because a process list takes milliseconds and stalls the applications. A device that one pod
has for itself is never looked at in between.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import structlog

from exporter.accounts.snapshot import make_snapshot
from exporter.base.clock import Clock
from exporter.devices import DeviceError, DeviceSource, DevicesSample
from exporter.host import HostSource
from exporter.kube import InventorySource
from exporter.model import DeviceKey, Fault, GpuUuid, Memory, Sharing, Snapshot
from exporter.rounds.accountant import Accountant, GpuReading
from exporter.rounds.latest import Latest
from exporter.rounds.limit_facts import with_claims
from exporter.rounds.limits import Limiting

log = structlog.get_logger()

NEARLY_FULL = 0.9
"""Used share of a device from which on a neighbour's next allocation may fail."""
MOVED = 2 * 2**20
"""Bytes: the driver hands out memory in pages of 2 MiB."""
LISTS_APART = 1.0
"""Seconds between two reads of the process lists, at the least."""
HEARTBEAT = 1.0
"""Seconds after which the beat is renewed while nothing is due."""

_SHARED = frozenset({Sharing.TIME_SLICING, Sharing.MPS, Sharing.DRA, Sharing.SHARED})


@dataclass(frozen=True, slots=True)
class Beat:
    """How often: seconds between full rounds, and between looks at nearly full shared devices."""

    interval: float = 5.0
    fast_interval: float = 0.5


class Sampler:
    """Drives the sources. One task calls `run`, others may ask for a `fresh` round."""

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
        """Faults of the daemon itself, in each snapshot until they are fixed."""
        self._node = node
        self._devices = devices
        self._host = host
        self._clock = clock
        self._accountant = Accountant(host, clock)
        self._limiting = limiting or Limiting(())
        self._keep = keep
        self._readings: Mapping[GpuUuid, GpuReading] = {}
        self._present: Mapping[GpuUuid, int] = {}
        self._device_faults: tuple[Fault, ...] = ()
        self._rounds = 0
        self._turn = asyncio.Lock()

    async def run(self, latest: Latest) -> None:
        """Make rounds until cancelled. A failed round is counted and logged; a driver that is lost for good raises."""
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
        Make a round of some GPUs as soon as the present one has ended, for a caller that cannot wait for the next one.

        None when the round failed. Raises DeviceError.
        """
        return await self._publish(latest, only)

    async def round(self, only: Collection[GpuUuid] | None = None, latest: Latest | None = None) -> Snapshot:
        """
        Read the sources once and join their answers.

        `only` names the GPUs to read anew; the others keep what was read of them before (see `Device.sampled_at`).
        """
        began, taken_at = self._clock.monotonic(), self._clock.time()
        self._rounds += 1
        answer = await self._answer(latest, only)
        kept = {uuid: reading for uuid, reading in self._readings.items() if only is not None and uuid not in only}
        gpus = (*(reading.gpu for reading in kept.values()), *(sample.gpu for sample in answer.samples))
        inventory = self._limiting.marked(self.inventory.inventory(gpus))
        fresh = await self._accountant.account(answer.samples, inventory)
        # Only now, in one step: a round that fails half-way leaves the last readings as they were.
        self._readings = {**kept, **fresh}
        if only is None:
            self._present = answer.present
        known_faults = (fault for fault in self._device_faults if only is not None and fault.subject not in only)
        self._device_faults = (*known_faults, *answer.faults)
        readings = self._readings.values()
        for _ in self._limiting.refresh(inventory, [reading.gpu for reading in readings], self._present):
            await self._clock.sleep(0)
        limits = self._limiting.limits(inventory, [usage for reading in readings for usage in reading.accounts.usages])
        snapshot = make_snapshot(
            number=self._rounds,
            node=self._node,
            taken_at=taken_at,
            monotonic=began,
            gpus_present=self._present,
            gpus_read=fresh.keys(),
            accounts={uuid: reading.accounts for uuid, reading in self._readings.items()},
            hosts=[reading.host for reading in readings] or [self._host.sample(())],
            inventory=inventory,
            limits=limits.limits,
            memory_declared=limits.memory_declared,
            xid_errors=answer.xid_errors,
            devices_up={
                "devices": not any(fault.incomplete and not fault.subject for fault in answer.faults),
                **answer.sources_up,
            },
            faults=(*self.standing, *self._device_faults),
        )
        snapshot = with_claims(snapshot, self._limiting.tolerance)
        return replace(snapshot, duration=self._clock.monotonic() - began)  # with the time that the joining took

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

    async def _publish(self, latest: Latest, only: Collection[GpuUuid] | None) -> Snapshot | None:
        async with self._turn:  # rounds follow one another, also those that are asked for
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
            reading = self._readings.get(key.uuid)
            if reading is None or now - reading.accounts.sample.sampled_at < LISTS_APART:
                continue
            known = {account.device: account.memory for account in reading.accounts.accounts}
            if _differ(known.get(key), memory.get(key)):
                moved.add(key.uuid)
        return moved


def crowded(snapshot: Snapshot | None) -> frozenset[DeviceKey]:
    """Name the devices to look at faster: shared by several containers or made to be shared, and nearly full."""
    keys = set()
    for device in snapshot.devices if snapshot else ():
        shared = device.sharing in _SHARED or device.replicas > 1
        memory = device.account.memory
        if device.sharing is Sharing.EXCLUSIVE or memory is None or memory.total == 0:
            continue
        if (shared or (device.containers or 0) > 1) and memory.used + memory.reserved >= NEARLY_FULL * memory.total:
            keys.add(device.key)
    return frozenset(keys)


def _differ(known: Memory | None, seen: Memory | None) -> bool:
    return known is not None and seen is not None and abs(known.free - seen.free) >= MOVED
