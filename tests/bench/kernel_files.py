"""
What a round over the kernel's files costs: `PYTHONPATH=tests .venv/bin/python -m bench.kernel_files`.

In: nothing. Out: a line for each source, which docs/performance.md keeps. Law: a large AMD node is made of files: 8
GPUs, and 550 processes with four descriptors and a cgroup each. The figure is the CPU time of whole rounds, the median
of some.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from exporter.devices.kernel import KernelSource
from sources.kernel import Node

GPUS, PROCESSES, HOLDERS = 8, 550, 70
ROUNDS = 15
GIB = 2**30


def node(root: Path) -> Node:
    """Make the files."""
    made = Node(root)
    for index in range(GPUS):
        figures: dict[str, str | int] = {"mem_info_vram_total": 192 * GIB, "mem_info_vram_used": GIB}
        figures |= {"gpu_busy_percent": 5, "mem_busy_percent": 5, "hwmon/hwmon1/power1_average": 5}
        made.card(f"0000:{0x60 + index:02x}:00.0", number=index, minor=128 + index, figures=figures)
        place = {"location_id": 0x60 + index << 8, "drm_render_minor": 128 + index}
        made.rocm_node(1 + index, 100 + index, domain=0, bank=192 * GIB, **place)
    regions = "".join(f"drm/0000:{0x60 + index:02x}:00.0/vram 4096\n" for index in range(GPUS))
    made.cgroup("", {"capacity": regions, "current": regions})
    for number in range(PROCESSES):
        pid, path = 1000 + number, f"kubepods/pod{number:08x}-0000-4000-8000-000000000001/{number:064x}"
        made.process(pid, cgroup=f"0::/{path}")
        made.cgroup(path, {"current": regions, "max": regions.replace("4096", "max")})
        for place_ in range(3):
            made.descriptor(pid, place_, "", name="/dev/null")
        if number < HOLDERS:
            client = f"drm-driver:\tamdgpu\ndrm-pdev:\t0000:60:00.0\ndrm-client-id:\t{pid}\ndrm-engine-gfx:\t5 ns"
            made.descriptor(pid, 7, f"{client}\ndrm-resident-vram:\t100 MiB\ndrm-shared-vram:\t0")
            made.rocm(pid, {100 + index: GIB for index in range(GPUS)}, queues=(100,))
    return made


async def measure(made: Node, name: str) -> float:
    """Give the CPU time of a round in milliseconds."""
    source = KernelSource(made.roots, name=name)
    await source.sample()
    taken = []
    for _ in range(ROUNDS):
        began = time.process_time()
        await source.sample()
        taken.append(time.process_time() - began)
    await source.close()
    return statistics.median(taken) * 1e3


async def main() -> None:
    """Print a line for each source."""
    with tempfile.TemporaryDirectory() as folder:
        made = node(Path(folder))
        for name in ("kfd", "drm"):
            print(f"{name}: {await measure(made, name):.0f} ms")


if __name__ == "__main__":
    asyncio.run(main())
