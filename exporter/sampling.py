"""
One round, and its beat.

What comes in: the three sources. What goes out: a snapshot a round, published as the latest.

The law: rounds follow one another, never side by side. A full round reads everything once an interval. In between,
devices that several containers share and that are nearly full are looked at faster: their memory alone, some 12
microseconds a device. When such a look shows that something moved, a round begins early and reads the moved GPUs anew,
at most once a second, because a process list takes milliseconds and stalls the applications. Exclusive devices are
never looked at in between.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import structlog

from exporter.accounting import GpuAccounts, Peaks, account, new_peaks
from exporter.attribution import Living, Names, Sightings, attribute, needs_living
from exporter.clock import Clock
from exporter.devices import DeviceError, DeviceSource
from exporter.host import HostSource
from exporter.joining import Holders, holders, join
from exporter.kube import InventorySource
from exporter.latest import Latest
from exporter.model import DeviceKey, Fault, Gpu, GpuSample, GpuUuid, HostSample, Memory, Sharing, Snapshot

log = structlog.get_logger()

NEARLY_FULL = 0.9
"""Used share of a device from which on a neighbour's next allocation may fail."""
MOVED = 2 * 2**20
"""Bytes: the driver hands out memory in pages of 2 MiB."""
LISTS_APART = 1.0
"""Seconds between two reads of the process lists, at the least."""
HEARTBEAT = 1.0
"""Seconds after which the beat is renewed while nothing is due."""


@dataclass(frozen=True, slots=True)
class Beat:
    """How often: seconds between full rounds, and between looks at nearly full shared devices."""

    interval: float = 5.0
    fast_interval: float = 0.5


@dataclass(slots=True)
class _Held:
    """What is carried from round to round, per GPU. Lives as long as the GPU answers, or stays away for a while."""

    accounts: dict[GpuUuid, GpuAccounts] = field(default_factory=dict)
    sightings: dict[GpuUuid, Sightings] = field(default_factory=dict)
    peaks: dict[GpuUuid, Peaks] = field(default_factory=dict)
    present: Mapping[GpuUuid, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Known:
    """What the inventory of one round says, indexed."""

    names: Names
    holders: Holders


class Sampler:
    """Drives the sources. One task calls `run`; nobody else touches them."""

    def __init__(
        self,
        *,
        node: str,
        devices: DeviceSource,
        host: HostSource,
        inventory: InventorySource,
        beat: Beat,
        clock: Clock,
    ) -> None:
        self.beat = beat
        self.inventory = inventory
        self.standing: tuple[Fault, ...] = ()
        """Faults of the daemon itself, told in each snapshot until they are mended."""
        self._node = node
        self._devices = devices
        self._host = host
        self._clock = clock
        self._held = _Held()
        self._rounds = 0

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

    async def round(self, only: Collection[GpuUuid] | None = None) -> Snapshot:
        """
        Read the sources once and join their answers.

        `only` names the GPUs to read anew; the others keep what was read of them before (`Device.sampled_at` tells).
        """
        began, taken_at = self._clock.monotonic(), self._clock.time()
        self._rounds += 1
        answer = await self._devices.sample(only)
        inventory = self.inventory.inventory(self._gpus(answer.samples, only))
        known = _Known(Names.of(inventory), holders(inventory))
        if only is None:
            self._held.accounts = {}
            self._held.present = answer.present
        hosts = [] if answer.samples else [self._host.sample(())]
        for sample in answer.samples:
            hosts.append(self._account(sample, known))
            # A GPU with 128 processes takes some 5 ms: scrapes and probes are let in between.
            await self._clock.sleep(0)
        proven = all(host.pid_domain_proven for host in hosts)
        snapshot = join(
            Snapshot(
                round=self._rounds,
                taken_at=taken_at,
                monotonic=began,
                node=self._node,
                gpus_present=self._held.present,
                sources_up={
                    "devices": not any(fault.incomplete and not fault.subject for fault in answer.faults),
                    "host": proven,
                    "names": inventory.live,
                },
                pid_domain_proven=proven,
            ),
            self._held.accounts,
            inventory,
            dict.fromkeys((*self.standing, *answer.faults, *(fault for host in hosts for fault in host.faults))),
        )
        return replace(snapshot, duration=self._clock.monotonic() - began)

    def _gpus(self, samples: Collection[GpuSample], only: Collection[GpuUuid] | None) -> tuple[Gpu, ...]:
        """Name the GPUs of this round: those just read and, in an early round, those that were read before."""
        kept = {} if only is None else {uuid: a.attributed.sample.gpu for uuid, a in self._held.accounts.items()}
        return tuple((kept | {sample.gpu.uuid: sample.gpu for sample in samples}).values())

    def _account(self, sample: GpuSample, known: "_Known") -> HostSample:
        uuid, held = sample.gpu.uuid, self._held
        before, peaks = held.sightings.get(uuid, {}), held.peaks.get(uuid, {})
        pids = {process.pid for process in sample.processes or ()}
        host = self._host.sample(pids)
        if needs_living((sample,), host, before):
            host = self._host.sample(pids, want_living=True)
        living = Living.of(host, known.names)
        attributed, held.sightings[uuid] = attribute(sample, host, known.names, living, before)
        held.accounts[uuid] = account(attributed, peaks, known.holders)
        held.peaks[uuid] = new_peaks(peaks, held.accounts[uuid].usages, known.names.containers.keys())
        return host

    async def _publish(self, latest: Latest, only: Collection[GpuUuid] | None) -> None:
        latest.beat = self._clock.monotonic()
        try:
            snapshot = await self.round(only)
        except DeviceError:
            raise
        except Exception:
            # A bug of ours must not end the daemon that keeps neighbours alive: this round is lost, and counted.
            log.exception("sampling.round_failed", round=self._rounds)
            latest.tally = latest.tally.after_failure()
            return
        latest.beat = self._clock.monotonic()
        await latest.publish(snapshot, latest.tally.after(snapshot))

    async def _moved(self, watched: Collection[DeviceKey]) -> Collection[GpuUuid]:
        """Look at the memory of `watched` devices; name the GPUs that are due for a reading of their lists."""
        now = self._clock.time()
        memory = await self._devices.memory({key.uuid for key in watched})
        moved = set()
        for key in watched:
            accounts = self._held.accounts.get(key.uuid)
            if accounts is None or now - accounts.attributed.sample.sampled_at < LISTS_APART:
                continue
            known = {account.device: account.memory for account in accounts.accounts}
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
