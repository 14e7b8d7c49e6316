"""
The rounds and their times: sample, attribute, account, make the snapshot, publish.

What comes in: the three sources. What goes out: one snapshot per round, published as the latest.

The rule: rounds follow one another, never in parallel. A full round reads everything once per interval. Each interval
is up to 20 % shorter or longer at random, so that no workload can stay in phase with the readings. Within these bounds,
a full round that would meet an expected scrape begins some milliseconds later.

Between full rounds, two kinds of devices are read more often (`watched`):
- GPUs on which a limit was exceeded are read about once a second, at irregular times, also without a change of memory.
  These readings measure how long an excess lasts.
- For nearly full shared devices, only the memory is read, in about 12 microseconds per device. If it changed, a round
  begins early and reads these GPUs. That happens at most once a second, because a process list takes milliseconds and
  stalls the applications.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random, SystemRandom

import structlog

from exporter.accounts import integrals
from exporter.accounts.snapshot import make_snapshot
from exporter.base.clock import Clock
from exporter.devices import DeviceError, DeviceSource
from exporter.devices.thread import ThreadEndedError
from exporter.host import HostSource
from exporter.kube import InventorySource
from exporter.model import DeviceKey, Fault, GpuUuid, Memory, Snapshot
from exporter.rounds.accountant import MANY, PAUSE, Accountant, GpuReading
from exporter.rounds.latest import Latest
from exporter.rounds.limit_facts import with_claims
from exporter.rounds.limits import Limiting
from exporter.rounds.watched import Suspects, crowded

log = structlog.get_logger()

MOVED = 2 * 2**20
"""Bytes of change that start an early round: the driver allocates memory in pages of 2 MiB."""
LISTS_APART = 1.0
"""Least seconds between two reads of the process lists."""
SUSPECT_JITTER = 0.5
"""The next reading of suspect GPUs comes earlier or later by at most this share of a second."""
LIGHT = 10.0
"""Between two readings of suspect GPUs is at least this multiple of a round's duration, to limit the load."""
HEARTBEAT = 5.0
"""Seconds after which the beat is renewed, and a changed interval takes effect, while no device is watched."""


@dataclass(frozen=True, slots=True)
class Beat:
    """
    The times at which the node is read.

    Attributes:
        interval: seconds between full rounds, on average.
        fast_interval: seconds between looks at crowded devices.
        jitter: the next full round comes earlier or later by at most this share of the interval.

    """

    interval: float = 5.0
    fast_interval: float = 0.5
    jitter: float = 0.2

    def wait(self, swing: float, lasted: float = 0.0) -> float:
        """
        Return the seconds from one full round to the next; `swing` is -1 for the earliest and 1 for the latest.

        `lasted` is the duration of the first. Rounds that take longer than an interval are as irregular as others.
        """
        jitter = self.interval * self.jitter
        return max(self.interval + jitter * swing, lasted + jitter * (1 + swing))

    def soon(self, swing: float, lasted: float) -> float:
        """Return the seconds to the next reading of suspect GPUs; `lasted` is the duration of the last round."""
        return max(min(LISTS_APART, self.interval) * (1 + SUSPECT_JITTER * swing), LIGHT * lasted)


class Sampler:
    """Reads the sources in rounds. One task calls `run`; others may request a `fresh` round."""

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
        random: Random | None = None,
        scrape: Callable[[float], float] = lambda _: 0.0,
    ) -> None:
        """
        Make a sampler.

        Args:
            node, devices, host, inventory, beat, clock: the node's name, the sources, and the times of reading.
            limiting: resolves the limits; without it there are none.
            keep: gets each snapshot before the next round begins; its exceptions end the sampler.
            random: varies the times of rounds; by default tenants cannot predict it.
            scrape: gets the time; returns how long a full round waits for an expected scrape: milliseconds, mostly 0.

        """
        self.beat = beat
        self.inventory = inventory
        self.standing: tuple[Fault, ...] = ()
        """Faults of the daemon itself; they are in each snapshot until they are fixed."""
        self._node = node
        self._devices = devices
        self._host = host
        self._clock = clock
        self._accountant = Accountant(host, clock)
        self._limiting = limiting or Limiting(())
        self._keep = keep
        self._random = random or SystemRandom()
        self._scrape = scrape
        self._readings: Mapping[GpuUuid, GpuReading] = {}
        self._present: Mapping[GpuUuid, int] = {}
        self._tracked: integrals.Known = {}
        self._device_faults: tuple[Fault, ...] = ()
        self._rounds = 0
        self._suspects = Suspects()
        self._turn = asyncio.Lock()

    async def run(self, latest: Latest) -> None:
        """Make rounds until cancelled; failed ones are counted and logged. Raises DeviceError if the driver is lost."""
        while True:
            began, swing = self._clock.monotonic(), self._swing()
            await self._publish(latest, None, by_time=True)
            lasted, soon = self._clock.monotonic() - began, self._soon(latest)
            while (rest := began + self.beat.wait(swing, lasted) - (now := self._clock.monotonic())) > 0:
                latest.beat = now
                fast, suspects = crowded(latest.snapshot), self._suspects.at(now)
                pauses = (rest, self.beat.fast_interval if fast else HEARTBEAT, soon - now if suspects else rest)
                await self._clock.sleep(max(0.0, min(pauses)))
                if suspects and self._clock.monotonic() >= soon:
                    await self._publish(latest, suspects, by_time=True)
                    soon = self._soon(latest)
                elif fast and (moved := await self._moved(fast)):
                    await self._publish(latest, moved)
            await self._let_pass(began + self.beat.wait(1.0, lasted))

    async def _let_pass(self, latest_start: float) -> None:
        """Wait for an expected scrape, if the next full round may still begin after it."""
        now = self._clock.monotonic()
        wait = self._scrape(now)
        if wait and now + wait <= latest_start:
            await self._clock.sleep(wait)

    def _soon(self, latest: Latest) -> float:
        lasted = latest.snapshot.duration if latest.snapshot else 0.0
        return self._clock.monotonic() + self.beat.soon(self._swing(), lasted)

    def _swing(self) -> float:
        return self._random.uniform(-1.0, 1.0)

    async def fresh(self, only: Collection[GpuUuid], latest: Latest) -> Snapshot | None:
        """
        Make a round of some GPUs right after the present round, for a caller that cannot wait for the next one.

        Returns None if the round failed. Raises DeviceError.
        """
        return await self._publish(latest, only)

    async def round(
        self, only: Collection[GpuUuid] | None = None, latest: Latest | None = None, *, by_time: bool = True
    ) -> Snapshot:
        """
        Read the sources once and join their answers.

        `only` names the GPUs to read; the others keep their last reading (see `Device.sampled_at`). For `by_time` see
        `Snapshot.by_time`.
        """
        began, taken_at = self._clock.monotonic(), self._clock.time()
        self._rounds += 1
        with self._beating(latest):
            answer = await self._devices.sample(only, self._host.sample)
        kept = {uuid: reading for uuid, reading in self._readings.items() if only is not None and uuid not in only}
        gpus = (*(reading.gpu for reading in kept.values()), *(sample.gpu for sample in answer.samples))
        inventory = self._limiting.marked(self.inventory.inventory(gpus))
        fresh = await self._accountant.account(answer, inventory, only)
        # Only now, in one step: a round that fails half-way does not change the last readings.
        self._readings = {**kept, **fresh}
        if only is None:
            self._present = answer.present
        known_faults = (fault for fault in self._device_faults if only is not None and fault.subject not in only)
        self._device_faults = (*known_faults, *answer.faults)
        readings = self._readings.values()
        listed = [reading.gpu for reading in readings if reading.accounts.sample.devices_known]
        for _ in self._limiting.refresh(inventory, listed, self._present):
            await self._clock.sleep(0)
        limits = self._limiting.limits(inventory, [usage for reading in readings for usage in reading.accounts.usages])
        await self._pause()
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
            by_time=by_time,
            devices_up={
                "devices": not any(fault.incomplete and not fault.subject for fault in self._device_faults),
                **answer.sources_up,
            },
            faults=(*self.standing, *self._device_faults),
        )
        snapshot = with_claims(snapshot, self._limiting.tolerance)
        await self._pause()
        self._tracked = integrals.advance(self._tracked, snapshot, asked=only, interval=self.beat.interval)
        sums = {key: tracked.sums for key, tracked in self._tracked.items()}
        return replace(snapshot, integrals=sums, duration=self._clock.monotonic() - began)  # with the time of the join

    async def _pause(self) -> None:
        """Let other tasks run between two parts of a round. With few processes a part takes less than a pause."""
        if sum(len(reading.accounts.sample.processes or ()) for reading in self._readings.values()) >= MANY:
            await self._clock.sleep(PAUSE)

    @contextmanager
    def _beating(self, latest: Latest | None) -> Iterator[None]:
        """Renew the beat while the driver is read: slow calls of the driver must not cause a restart."""
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle

        def renew() -> None:
            nonlocal timer
            if latest is not None:
                latest.beat = self._clock.monotonic()
            timer = loop.call_later(HEARTBEAT, renew)

        timer = loop.call_later(HEARTBEAT, renew)
        try:
            yield
        finally:
            timer.cancel()

    async def _publish(
        self, latest: Latest, only: Collection[GpuUuid] | None, *, by_time: bool = False
    ) -> Snapshot | None:
        async with self._turn:  # rounds follow one another, also requested ones
            latest.beat = self._clock.monotonic()
            try:
                snapshot = await self.round(only, latest, by_time=by_time)
            except DeviceError:
                raise
            except ThreadEndedError:
                return None  # a caller of `fresh` asks while the daemon stops
            except Exception:
                # A bug of gpusteward must not end the daemon that protects neighbours: this round is lost, and counted.
                log.exception("sampling.round_failed", round=self._rounds)
                latest.tally = latest.tally.after_failure()
                return None
            await self._pause()
            self._suspects.see(snapshot)
            if self._keep is not None:
                self._keep(snapshot)
            latest.beat = self._clock.monotonic()
            latest.publish(snapshot, latest.tally.after(snapshot))
            return snapshot

    async def _moved(self, fast: Collection[DeviceKey]) -> Collection[GpuUuid]:
        """Read the memory of the devices in `fast`; return the GPUs whose process lists are due."""
        now = self._clock.time()
        memory = await self._devices.memory({key.uuid for key in fast})
        moved = set()
        for key in fast:
            reading = self._readings.get(key.uuid)
            if reading is None or now - reading.accounts.sample.sampled_at < LISTS_APART:
                continue
            known = {account.device: account.memory for account in reading.accounts.accounts}
            if _differ(known.get(key), memory.get(key)):
                moved.add(key.uuid)
        return moved


def _differ(known: Memory | None, seen: Memory | None) -> bool:
    return known is not None and seen is not None and abs(known.free - seen.free) >= MOVED
