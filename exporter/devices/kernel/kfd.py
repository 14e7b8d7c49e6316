"""
The processes that hold memory by ROCm: `/sys/class/kfd/kfd`.

What comes in: a sysfs. What goes out: nodes, and bytes by process and GPU.

The rule: only files are opened. A process that opens `/dev/kfd` is itself listed for life. The PIDs are the host's. A
file `vram_<gpu id>` exists for each GPU that a process may open, used or not. So a process uses a GPU where it holds
bytes or has a queue. `sdma_*` and `cu_occupancy` are not read: they make the kernel work inside of the process.
`evicted_ms` is a number that the kernel has at hand (kfd_procfs_stats_show in kfd_process.c).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.devices.kernel.topology import Node, parse
from exporter.devices.kernel.tree import Tree

KFD = "class/kfd/kfd"
_VRAM = re.compile(r"vram_(\d+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Kfd:
    """
    One reading.

    Attributes:
        nodes: GPUs and partitions, by GPU id.
        held: GPU id to PID to bytes, of the processes that use the GPU; None where a number could not be read.
        evicted: GPU id to PID to seconds in which its queues were off the GPU. The kernel adds each pause at its end. A
            process without the figure is missing.
        denied: files of the topology that we may not read, because our own devices cgroup excludes the GPU.

    """

    nodes: Mapping[int, Node] = field(default_factory=dict)
    held: Mapping[int, Mapping[int, int | None]] = field(default_factory=dict)
    evicted: Mapping[int, Mapping[int, float]] = field(default_factory=dict)
    denied: tuple[str, ...] = ()


def read_kfd(sys: Tree) -> Kfd:
    """Read topology and processes; nothing where this kernel has no KFD."""
    numbers = sys.names(f"{KFD}/topology/nodes")
    if not numbers:
        return Kfd()
    before = len(sys.denied)
    nodes = [node for number in numbers if (node := _node(sys, f"{KFD}/topology/nodes/{number}"))]
    denied = tuple(sys.denied[before:])
    held: dict[int, dict[int, int | None]] = {}
    evicted: dict[int, dict[int, float]] = {}
    for pid in sys.names(f"{KFD}/proc"):
        if pid.isdecimal():
            folder = f"{KFD}/proc/{pid}"
            for gpu_id, size in _process(sys, folder).items():
                held.setdefault(gpu_id, {})[int(pid)] = size
                if (paused := sys.number(f"{folder}/stats_{gpu_id}/evicted_ms")) is not None:
                    evicted.setdefault(gpu_id, {})[int(pid)] = paused / 1000
    return Kfd({node.gpu_id: node for node in nodes}, held, evicted, denied)


def _node(sys: Tree, folder: str) -> Node | None:
    gpu_id, properties = sys.text(f"{folder}/gpu_id"), sys.text(f"{folder}/properties")
    if gpu_id is None or properties is None:
        return None
    banks = (sys.text(f"{folder}/mem_banks/{bank}/properties") or "" for bank in sys.names(f"{folder}/mem_banks"))
    return parse(gpu_id, properties, tuple(banks))


def _process(sys: Tree, folder: str) -> dict[int, int | None]:
    """Return one process's bytes on each GPU that it uses. Its further contexts have folders of their own."""
    held: dict[int, int | None] = {}
    names = sys.names(folder)
    for context in (folder, *(f"{folder}/{name}" for name in names if name.startswith("context_"))):
        for name in names if context == folder else sys.names(context):
            if match := _VRAM.fullmatch(name):
                gpu_id, size = int(match[1]), sys.number(f"{context}/{name}")
                known = held.get(gpu_id, 0)
                held[gpu_id] = None if size is None or known is None else known + size
    queues = {sys.number(f"{folder}/queues/{queue}/gpuid") for queue in sys.names(f"{folder}/queues")}
    return {gpu_id: size for gpu_id, size in held.items() if size != 0 or gpu_id in queues}
