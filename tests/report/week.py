"""
A week of three nodes, as blocks of Prometheus' own database, and what a report about it has to say.

In: the schedule below. Out: a folder that Prometheus serves.
Law: the expected figures are computed from the schedule, never from the program.

- `steady`: two GPUs of 80 GiB for the whole week. GPU 0: `train` holds 40 GiB, half of the SMs are in use. GPU 1:
  `notebook` has it allocated and idles; on day 2 its driver does not answer for 6 hours.
- `broken`: one GPU, shared by `llm` (two of four replicas, SMs unknown). Its daemon is killed at day 3, and starts 12
  hours later.
- `removed`: one GPU with two MIG instances of 10 GiB and 20 GiB of 40 GiB; `small` has the first. The node ends after
  day 2.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path

from prometheus.scraping import program

GIB = 2**30
START = 1_700_006_400
DAY, HOUR, STEP = 86_400, 3_600, 240
END = START + 7 * DAY

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Box:
    """A container on a device: bytes held, share of the device allocated, share of the SMs used (None: unknown)."""

    namespace: str
    pod: str
    container: str
    workload: str
    held: int
    share: float
    sm: float | None
    limit: int | None = None
    hourly: bool = False
    """The SMs are in use in every other hour only, twice as much."""


@dataclass(frozen=True)
class Device:
    """A device of a node, and what is on it all the time."""

    node: str
    uuid: str
    model: str
    size: int
    gpu_size: int
    boxes: tuple[Box, ...]
    instance: str = ""
    ghost: int = 0
    since: int = START
    until: int = END
    silent: range = field(default_factory=lambda: range(0))
    """Seconds in which the driver does not answer for it."""
    dead: Collection[int] = field(default_factory=lambda: range(0))
    """Seconds in which the daemon is not there; its counters begin at 0 afterwards."""


DEVICES = (
    Device(
        "steady", "GPU-0", "NVIDIA H100", 80 * GIB, 80 * GIB,
        (Box("team-a", "train-0", "main", "train", 40 * GIB, 1.0, 0.5, 60 * GIB),), ghost=2 * GIB,
    ),
    Device(
        "steady", "GPU-1", "NVIDIA H100", 80 * GIB, 80 * GIB,
        (Box("team-b", "notebook-0", "main", "notebook", 0, 1.0, 0.0),),
        silent=range(START + 2 * DAY, START + 2 * DAY + 6 * HOUR),
    ),
    Device(
        "broken", "GPU-2", "NVIDIA A100", 40 * GIB, 40 * GIB,
        (Box("team-b", "llm-0", "main", "llm", 30 * GIB, 0.5, None, 32 * GIB),),
        dead=range(START + 3 * DAY, START + 3 * DAY + 12 * HOUR),
    ),
    Device(
        "removed", "GPU-3", "NVIDIA A100", 10 * GIB, 40 * GIB,
        (Box("team-a", "small-0", "main", "small", 5 * GIB, 1.0, 0.25),), instance="1", until=START + 2 * DAY,
    ),
    Device("removed", "GPU-3", "NVIDIA A100", 20 * GIB, 40 * GIB, (), instance="2", until=START + 2 * DAY),
)  # fmt: skip


def samples(devices: Iterable[Device] = DEVICES) -> Iterator[tuple[str, Labels, int, float]]:
    """Each sample of the week: name, labels, Unix time, value."""
    for device in devices:
        counters: dict[tuple[str, Labels], float] = defaultdict(float)
        where = (("node", device.node), ("gpu", "0"), ("uuid", device.uuid), ("gpu_instance", device.instance))
        for at in range(device.since, device.until + 1, STEP):
            if at in device.dead:
                counters.clear()
                continue
            answers = at not in device.silent
            for name, labels, per_second in _rates(device, where, at, answers=answers):
                if at != device.since and (at - STEP) not in device.dead:
                    counters[name, labels] += per_second * STEP
                else:
                    counters[name, labels] += 0.0
            for (name, labels), value in counters.items():
                yield name, labels, at, value
            gpu = where[:1] + where[1:3]
            yield "gpusteward_snapshot_timestamp_seconds", where[:1], at, at
            if answers:
                described = (("model", device.model), ("mig", str(bool(device.instance)).lower()))
                yield "gpusteward_gpu_info", (*gpu, *described), at, 1
                yield "gpusteward_gpu_memory_total_bytes", gpu, at, device.gpu_size
                yield "gpusteward_device_memory_total_bytes", where, at, device.size
            for box in device.boxes:
                pod = (*where[:1], ("namespace", box.namespace), ("pod", box.pod))
                yield "gpusteward_pod_info", (*pod, ("workload_kind", "Job"), ("workload", box.workload)), at, 1
                if box.limit is not None:
                    labels = (("namespace", box.namespace), ("pod", box.pod), ("container", box.container), *where)
                    yield "gpusteward_container_memory_limit_bytes", labels, at, box.limit
                    if answers:
                        yield "gpusteward_container_memory_used_bytes", labels, at, box.held


def _rates(device: Device, where: Labels, at: int, *, answers: bool) -> Iterator[tuple[str, Labels, float]]:
    held = sum(box.held for box in device.boxes)
    parts = {"containers": held, "ghost": device.ghost, "free": device.size - held - device.ghost}
    for part, size in parts.items():
        yield "gpusteward_device_memory_byte_seconds_total", (*where, ("part", part)), size if answers else 0
    yield "gpusteward_device_observed_seconds_total", where, float(answers)
    yield "gpusteward_device_unknown_seconds_total", where, float(not answers)
    for box in device.boxes:
        labels = (("namespace", box.namespace), ("pod", box.pod), ("container", box.container), *where)
        yield "gpusteward_container_memory_byte_seconds_total", labels, box.held if answers else 0
        yield (
            "gpusteward_container_allocated_seconds_total",
            (*labels, ("resource", "nvidia.com/gpu")),
            box.share if answers else 0,
        )
        if box.sm is not None:
            busy = 1 if not box.hourly else 2 * ((at - 1) // HOUR % 2)
            yield "gpusteward_container_sm_seconds_total", labels, box.sm * busy if answers else 0.0


def blocks(folder: Path, made: Iterable[tuple[str, Labels, int, float]] | None = None) -> Path:
    """Write samples (by default the week) as Prometheus keeps them; the folder is for `--storage.tsdb.path`."""
    source, data = folder / "week.om", folder / "data"
    with source.open("w") as file:
        for name, labels, at, value in sorted(samples() if made is None else made, key=itemgetter(2)):
            told = ",".join(f'{key}="{text}"' for key, text in labels if text)
            file.write(f"{name}{{{told}}} {value!r} {at}\n")
        file.write("# EOF\n")
    # A few blocks instead of 84, for each of which promtool reads the file anew. Within one, time has to be in order.
    longer = "--max-block-duration=162h"
    command = [program("promtool"), "tsdb", "create-blocks-from", longer, "openmetrics", str(source), str(data)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return data
