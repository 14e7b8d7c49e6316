"""
`make gpu`: what a real NVIDIA GPU says, beside what we expect it to say.

In: a node with a driver; neither a toolkit nor a network is needed. Of a GPU with MIG on, one instance is asked that is
there: nothing is divided or joined. Out: a page in Markdown on standard output, for
docs/devices.md. Exit code 0: all as expected; 1: something differs; 2: there is no GPU here to ask.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from exporter.devices import DeviceError
from exporter.devices.nvml import NvmlSource
from exporter.devices.nvml.read_gpu import NEEDS_MONITOR
from exporter.model import Gpu, GpuInstance, XidErrors
from gpu.costs import costs
from gpu.cuda import SONAME
from gpu.lab import Lab, Place, TenantError
from gpu.measuring import forks, killed, memory, neighbours
from gpu.naming import naming
from gpu.ratios import ratios
from gpu.sharing import limits, mps
from gpu.table import Row, Verdict, not_here, rendered

QUESTIONS: tuple[Callable[[Lab], Awaitable[list[Row]]], ...] = (
    *(memory, neighbours, naming, forks, ratios, killed),
    *(mps, limits),
)


def main(argv: Sequence[str]) -> int:
    """Measure, and print the page."""
    parser = argparse.ArgumentParser(prog="python -m gpu", description=__doc__.split("\n")[2])
    parser.add_argument("--gpu", type=int, default=0, help="index of the GPU (default: 0)")
    parser.add_argument("--instance", type=int, help="id of the MIG GPU instance (default: the first one)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of work for each SM ratio (default: 3)")
    parser.add_argument("--libcuda", default=SONAME, help=f"the CUDA library (default: {SONAME})")
    parser.add_argument("--cgroups", type=Path, default=Path("/sys/fs/cgroup"), help="the unified hierarchy")
    chosen = parser.parse_args(argv)
    try:
        page, differs = asyncio.run(measured(chosen))
    except (DeviceError, LookupError, TenantError) as problem:
        print(f"there is no GPU here to ask: {problem}", file=sys.stderr)
        return 2
    print(page)
    return int(differs)


async def measured(chosen: argparse.Namespace) -> tuple[str, bool]:
    """Ask everything of one device. Raises DeviceError, LookupError or TenantError when there is none."""
    gpu = await _chosen(chosen.gpu)
    place = Place(gpu.uuid, chosen.libcuda, chosen.cgroups, chosen.seconds, _instance(gpu, chosen.instance))
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        lab = await stack.enter_async_context(Lab.open(place, folder))
        rows: list[Row] = []
        for question in QUESTIONS:
            rows += await question(lab)
        table = await costs(lab)
        rows += _xids((await lab.source.sample()).xid_errors.get(gpu.uuid))
        page = rendered(_head(gpu, lab), rows, table, fake=lab.hello.fake)
    return page, any(row.verdict is Verdict.DIFFERS for row in rows)


async def _chosen(index: int) -> Gpu:
    source = await NvmlSource.open()
    try:
        answered = await source.sample()
    finally:
        await source.close()
    for sample in answered.samples:
        if sample.gpu.index == index:
            return sample.gpu
    raise LookupError(f"the driver has no GPU {index} that answers")


def _instance(gpu: Gpu, wanted: int | None) -> GpuInstance | None:
    """Choose an instance of a GPU with MIG on. Raises LookupError."""
    if not gpu.mig:
        if wanted is not None:
            raise LookupError(f"GPU {gpu.index} has no instances: MIG is off")
        return None
    found = next((one for one in gpu.instances if wanted in (None, one.id)), None)
    if found is None or not found.mig_uuids:
        raise LookupError(f"GPU {gpu.index} has MIG on, and no instance {'' if wanted is None else wanted}".rstrip())
    if found.memory is None:
        raise LookupError(f"what GPU instance {found.id} holds is not told: {NEEDS_MONITOR}")
    return found


def _head(gpu: Gpu, lab: Lab) -> list[tuple[str, str]]:
    instance = lab.place.instance
    whole = gpu.memory if instance is None else instance.memory
    return [
        ("GPU", gpu.model),
        *([] if instance is None else [("MIG instance", instance.profile)]),
        ("memory", "unknown" if whole is None else f"{whole.total / 2**30:.1f} GiB"),
        ("SMs", str(lab.hello.blocks)),
        ("driver", gpu.driver_version),
        ("CUDA", lab.hello.cuda),
        ("kernel", os.uname().release),
        ("day", time.strftime("%Y-%m-%d", time.gmtime())),
    ]


def _xids(heard: Mapping[int, XidErrors] | None) -> list[Row]:
    """Say which XIDs came while tenants were killed: a kill of ours is no fault of the GPU."""
    what = "XID errors during all of this"
    if heard is None:
        return [not_here(what, "the driver tells no events")]
    came = ", ".join(f"{code} × {one.count}" for code, one in sorted(heard.items()) if one.count)  # noqa: RUF001
    return [Row(what, "none, or 43 and 45 for the killed", came or "none")]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
