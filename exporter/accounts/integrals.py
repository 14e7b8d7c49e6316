"""
Advances the sums over time of each device by one round.

What comes in: the sums so far with the last reading of each device, and the snapshot of the round. What goes out: the
new sums. Times are those of the monotonic clock, because Unix time may jump.

The rule: **nothing is interpolated.** Each moment since a device was first read is either observed or unknown.

- Time between two readings is observed. Each of them stands for the half of it that is nearer. So memory counts as the
  mean of both, which favours no side: rounds come at random times. The rule is linear, so sums of parts stay exact.
- A round that a change of memory began (`by_time` is False) comes right after the change. There the earlier reading
  stands for all of the time. With the mean, memory that is given back on a nearly full GPU would count too little.
- The SM utilization of a driver describes the time before its reading. It counts for all of that time.
- If the driver does not answer for a device, the time since its last reading is unknown. It grows with each round until
  the next reading.
- Time is unknown, too, if the last reading is older than `MOST` intervals: the daemon was stopped or starved. The same
  applies if the device has become another one, because MIG was set up anew.
- A round that reads some GPUs changes the sums of these alone.
- A device that is gone (not counted by the driver any more) has no time. Its sums stay for `KEPT` seconds, as those of
  a container do that has ended: as long as a scraper needs to see the last value.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from exporter.accounts.device_reading import Reading, readings
from exporter.model import (
    HALVES,
    NANOSECONDS,
    ContainerIntegral,
    DeviceIntegral,
    DeviceKey,
    GpuUuid,
    Holder,
    MemoryPart,
    Snapshot,
)

MOST = 3
"""Intervals between two readings above which the time is unknown; as many as make a snapshot stale."""
KEPT = 300 * NANOSECONDS
"""Time for which the sums of an ended container stay: five times Prometheus's default between two scrapes."""
MOST_ENDED = 256
"""Ended containers whose sums stay, per device: a job that fails and starts anew each second must not fill the page."""


@dataclass(frozen=True, slots=True)
class Tracked:
    """
    The sums of a device, and what the next round needs.

    Attributes:
        counted: until when its time was counted, in nanoseconds on the monotonic clock.
        last: its last reading; None if it did not answer since.
        ended: since when each ended container is missing.
        gone: since when the driver does not count the device; None while it does.

    """

    sums: DeviceIntegral
    counted: int
    last: Reading | None
    ended: Mapping[Holder, int] = field(default_factory=dict)
    gone: int | None = None


Known = Mapping[DeviceKey, Tracked]
Weights = tuple[int, int]
"""How many halves of the time the earlier and the later of two readings stand for."""
MEAN: Weights = (1, 1)
BEFORE: Weights = (2, 0)


def advance(before: Known, snapshot: Snapshot, *, asked: Collection[GpuUuid] | None, interval: float) -> Known:
    """
    Add one round.

    Args:
        before: the result of the last round.
        snapshot: of this round.
        asked: the GPUs that the round was to read; None for all.
        interval: seconds between two full rounds, on average.

    """
    longest, now = int(MOST * interval * NANOSECONDS), round(snapshot.monotonic * NANOSECONDS)
    weights = MEAN if snapshot.by_time else BEFORE
    read = dict(readings(snapshot, interval))
    listed = {device.key for device in snapshot.devices if device.key.uuid in snapshot.gpus_read}
    complete = {key.uuid for key in listed} | _without_devices(snapshot)
    after = dict(before)
    for key, reading in read.items():
        known = before.get(key)
        after[key] = _first(reading) if known is None else _read(known, reading, longest, weights)
    for key, known in before.items():
        if key in read or (asked is not None and key.uuid not in asked):
            continue
        there = key in listed or (key.uuid in snapshot.gpus_present and key.uuid not in complete)
        if (silent := _silent(known, now, there=there)) is None:
            del after[key]
        else:
            after[key] = silent
    return after


def _without_devices(snapshot: Snapshot) -> set[GpuUuid]:
    """Name the GPUs that answered that they have no device now: with MIG on, and no instance. A fault is no answer."""
    doubtful = {fault.subject for fault in snapshot.faults if fault.incomplete}
    return {gpu.uuid for gpu in snapshot.gpus if gpu.uuid in snapshot.gpus_read and not gpu.leaves()} - doubtful


def _first(reading: Reading) -> Tracked:
    parts, containers = dict.fromkeys(reading.parts, 0), _containers({}, None, reading, MEAN)
    sums = DeviceIntegral(memory=parts, containers=containers, index=reading.index)
    return Tracked(sums, reading.at, reading)


def _read(known: Tracked, reading: Reading, longest: int, weights: Weights) -> Tracked:
    if reading.at < known.counted:
        reading = replace(reading, at=known.counted)
    last, sums = known.last, known.sums
    passed = reading.at - known.counted if known.gone is None else 0
    if last is not None and (last.device != reading.device or passed > longest):
        last = None
    containers = _containers(sums.containers, last, reading, weights)
    present = reading.holders
    ended = {holder: known.ended.get(holder, reading.at) for holder in containers if holder not in present}
    for holder in _outdated(ended, reading.at):
        del containers[holder], ended[holder]
    sums = DeviceIntegral(
        sums.observed + (passed if last else 0),
        sums.unknown + (0 if last else passed),
        _memory(sums.memory, last, reading, weights),
        containers,
        reading.index,
    )
    return Tracked(sums, reading.at, reading, ended)


def _silent(known: Tracked, now: int, *, there: bool) -> Tracked | None:
    """Count unknown time of a device without a reading. None if it is gone for long."""
    if known.gone is not None and not there:
        return known if now - known.gone <= KEPT else None
    passed = max(0, now - known.counted) if known.gone is None else 0
    sums = replace(known.sums, unknown=known.sums.unknown + passed)
    return Tracked(sums, max(now, known.counted), None, known.ended, None if there else now)


def _memory(
    before: Mapping[MemoryPart, int], last: Reading | None, reading: Reading, weights: Weights
) -> Mapping[MemoryPart, int]:
    passed, earlier = (0, reading) if last is None else (reading.at - last.at, last)
    was, now = weights
    sums = dict(before)
    for part, size in reading.parts.items():
        sums[part] = before.get(part, 0) + (was * earlier.parts[part] + now * size) * passed
    return sums


def _containers(
    before: Mapping[Holder, ContainerIntegral], last: Reading | None, reading: Reading, weights: Weights
) -> dict[Holder, ContainerIntegral]:
    passed, earlier = (0, reading) if last is None else (reading.at - last.at, last)
    was, now = weights
    after = dict(before)
    for holder in dict.fromkeys((*earlier.holders, *reading.holders)):
        known = before.get(holder, _NOTHING)
        memory, sm, allocated = known.memory, known.sm, known.allocated
        if holder in earlier.memory or holder in reading.memory:
            held = was * earlier.memory.get(holder, 0) + now * reading.memory.get(holder, 0)
            memory = (memory or 0) + held * passed
        if holder in reading.sm:
            sm = (sm or 0.0) + reading.sm[holder] * passed / NANOSECONDS
        old, new = earlier.shares.get(holder, {}), reading.shares.get(holder, {})
        for resource in {**old, **new}:
            share = was * old.get(resource, 0.0) + now * new.get(resource, 0.0)
            allocated = {**allocated, resource: allocated.get(resource, 0.0) + share * passed / HALVES}
        after[holder] = ContainerIntegral(memory, sm, allocated)
    return after


_NOTHING = ContainerIntegral()


def _outdated(ended: Mapping[Holder, int], now: int) -> Collection[Holder]:
    """Name the ended containers whose sums are dropped: those of longest ago."""
    kept = sorted((holder for holder, since in ended.items() if now - since <= KEPT), key=ended.__getitem__)
    return ended.keys() - set(kept[-MOST_ENDED:])
