"""What the fake GPUs are: frozen facts go in, the text of the state folder's `node` file comes out. Sizes in bytes.

Law: None means "this GPU does not have it", and the library answers NOT_SUPPORTED for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Final, Literal

MiB: Final = 1 << 20
GiB: Final = 1 << 30

Percent = int | Literal["auto"]


class Kind(StrEnum):
    """Which of the driver's process lists an allocation puts its process on."""

    COMPUTE = "compute"
    GRAPHICS = "graphics"
    MPS = "mps"


@dataclass(frozen=True, slots=True)
class FakeComputeInstance:
    """One MIG device as NVML shows it: a compute instance in a slot of its GPU."""

    uuid: str
    slot: int
    id: int = 0
    sms: int = 14
    slices: int = 1


@dataclass(frozen=True, slots=True)
class FakeGpuInstance:
    """A MIG GPU instance: the memory pool that its compute instances share."""

    id: int
    memory: int
    computes: tuple[FakeComputeInstance, ...]
    profile: str = "1g.5gb"
    reserved: int = 0
    sms: int = 14
    slices: int = 1


@dataclass(frozen=True, slots=True)
class FakeProcess:
    """A list entry without a real process: garbage, duplicates, benchmarks.

    `bytes=None` is 2^64-1; `charged`: its bytes count in the device's used memory.
    """

    pid: int
    bytes: int | None
    kinds: tuple[Kind, ...] = (Kind.COMPUTE,)
    sm: int = 0
    mem: int = 0
    enc: int = 0
    dec: int = 0
    device: str | None = None
    charged: bool = True


@dataclass(frozen=True, slots=True)
class FakeSample:
    """One utilization sample as it stands: time in µs since the epoch, or `age_us` before the moment of the call."""

    pid: int
    sm: int = 0
    mem: int = 0
    enc: int = 0
    dec: int = 0
    time_us: int | None = None
    age_us: int | None = None


ALL_LINKS: Final = 2**32 - 1
"""The scope of a field that counts for all links of NVLink 5."""
NVML_SUCCESS: Final = 0


@dataclass(frozen=True, slots=True)
class FakeField:
    """One field of `nvmlDeviceGetFieldValues`, by its number in nvml.h. A field that is not listed is NOT_SUPPORTED.

    `type`: NVML's number of the value's type; `result`: the field's own return code; `silent`: the driver leaves the
    entry as it was.
    """

    id: int
    value: int = 0
    scope: int = 0
    type: int = 1
    result: int = NVML_SUCCESS
    silent: bool = False


def fields_of(values: Mapping[int, int]) -> tuple[FakeField, ...]:
    """Fields with plain values."""
    return tuple(FakeField(number, value) for number, value in values.items())


A100_FIELDS: Final = fields_of(
    {
        82: 38,  # memory temperature
        94: 0,  # PCIe replays
        **dict.fromkeys((142, 143, 144, 145), 0),  # remapped rows: correctable, uncorrectable; pending, failed
        **dict.fromkeys((38, 45, 52, 59, 160), 0),  # NVLink, all links: CRC of flits, of data; replays, recoveries, ECC
        230: 0,  # recovery action: none
    }
)
"""What a GPU of Ampere has. It has no retired pages: rows are remapped instead."""


@dataclass(frozen=True, slots=True)
class FakeGpu:
    """One GPU. `other`: memory no process owns (managed memory); "auto": the sum of its processes."""

    uuid: str = "GPU-00000000-0000-4000-8000-000000000000"
    name: str = "NVIDIA A100-SXM4-40GB"
    pci: str = "00000000:3B:00.0"
    minor: int = 0
    total: int | None = 40 * GiB
    reserved: int = 0
    other: int = 0
    mig: Literal["unsupported", "off", "on"] = "off"
    mig_pending: Literal["off", "on"] | None = None
    mig_slots: int = 7
    power_mw: int | None = 61_000
    energy_mj: int | None = 1_234_567_890
    temperature: int | None = 41
    clock_graphics: int | None = 1410
    clock_sm: int | None = 1410
    clock_memory: int | None = 1215
    clock_video: int | None = 1275
    throttle: int | None = 0
    ecc_corrected: int | None = 0
    ecc_uncorrected: int | None = 0
    util_gpu: Percent | None = "auto"
    util_memory: Percent | None = "auto"
    util_encoder: Percent | None = "auto"
    util_decoder: Percent | None = "auto"
    compute_mode: int | None = 0
    persistence: int | None = 1
    gpm: Literal[0, 1] | None = None
    """None: NOT_SUPPORTED; 0: supported is 0, another way of the driver to say so."""
    events: Literal[0, 1] = 1
    vbios: str | None = "92.00.19.00.13"
    power_limit_mw: int | None = 400_000
    power_default_mw: int | None = 400_000
    limit_shutdown: int | None = 92
    limit_slowdown: int | None = 89
    limit_memory_max: int | None = 95
    limit_gpu_max: int | None = 85
    banks: tuple[int, int, int, int, int] | None = (640, 0, 0, 0, 0)
    """Banks of memory with all, most, some, few and none of their spare rows left."""
    fields: tuple[FakeField, ...] = A100_FIELDS
    instances: tuple[FakeGpuInstance, ...] = ()
    processes: tuple[FakeProcess, ...] = ()
    samples: tuple[FakeSample, ...] = ()


def gpus(count: int, model: FakeGpu | None = None, /, **changes: object) -> list[FakeGpu]:
    """`count` GPUs like `model`, with `changes` to its fields; uuid, PCI address and minor number differ."""
    base = replace(model or FakeGpu(), **changes)  # type: ignore[arg-type]
    return [
        replace(base, uuid=f"GPU-{i:08x}-0000-4000-8000-{i:012x}", pci=f"00000000:{0x10 + i:02X}:00.0", minor=i)
        for i in range(count)
    ]


def render(cards: Sequence[FakeGpu], driver: str, nvml: str, cuda: int, sample_period_us: int) -> str:
    """The text of the `node` file."""
    head = [f"driver = {driver}", f"nvml = {nvml}", f"cuda = {cuda}", f"sample_period_us = {sample_period_us}"]
    return "\n".join([*head, *(line for card in cards for line in _card(card))]) + "\n"


def _card(card: FakeGpu) -> Iterator[str]:
    yield "[gpu]"
    for field in fields(card):
        value = getattr(card, field.name)
        if field.name not in ("instances", "processes", "samples", "fields", "banks") and value is not None:
            yield f"{field.name} = {value}"
    if card.banks is not None:
        names = ("max", "high", "partial", "low", "none")
        yield "banks = " + " ".join(f"{name}={count}" for name, count in zip(names, card.banks, strict=True))
    for one in card.fields:
        yield (
            f"field = id={one.id} value={one.value} scope={one.scope} type={one.type} result={one.result} "
            f"silent={int(one.silent)}"
        )
    for gi in card.instances:
        yield (
            f"gi = id={gi.id} profile={gi.profile} memory={gi.memory} reserved={gi.reserved} "
            f"sms={gi.sms} slices={gi.slices}"
        )
        for ci in gi.computes:
            yield f"ci = slot={ci.slot} gi={gi.id} id={ci.id} uuid={ci.uuid} sms={ci.sms} slices={ci.slices}"
    for process in card.processes:
        size = "unknown" if process.bytes is None else process.bytes
        device = f" device={process.device}" if process.device else ""
        yield (
            f"process = pid={process.pid} bytes={size} kinds={'+'.join(process.kinds)}{device} sm={process.sm} "
            f"mem={process.mem} enc={process.enc} dec={process.dec} charged={'yes' if process.charged else 'no'}"
        )
    for sample in card.samples:
        when = f"time_us={sample.time_us}" if sample.time_us is not None else f"age_us={sample.age_us or 0}"
        yield f"sample = pid={sample.pid} {when} sm={sample.sm} mem={sample.mem} enc={sample.enc} dec={sample.dec}"
