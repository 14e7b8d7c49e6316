"""
The devices of a node, as its own labels and annotations list them.

What comes in: a node's facts, or the text of an annotation such as `hami.io/node-nvidia-register`. What goes out:
devices, or UUID and bytes of each.

The law: every client that may patch nodes can write it, so unreadable text counts as absent and is never an error.

Source: Project-HAMi/HAMi pkg/device/devices.go (JSON since 2.5, before that `uuid,split,MiB,cores,type,numa,health:`).
"""

import json
from collections.abc import Iterator

from exporter.limits.devices import LeafDevice
from exporter.model import DeviceKey, GpuUuid, NodeFacts, Sharing

_MIB = 2**20
_FIELDS = 3
_MOST = 64
_LARGEST_FACTOR = 1024
_REGISTER = "hami.io/node-nvidia-register"
_STRATEGY = "nvidia.com/gpu.sharing-strategy"


def devices_of(node: NodeFacts) -> tuple[LeafDevice, ...]:
    """
    List a node's devices without a driver, for `explain -f`; empty where the node does not say.

    HAMi registers UUIDs and MiB; GPU feature discovery labels a count and MiB.
    """
    if devices := registered(node.annotations.get(_REGISTER, "")):
        return tuple(
            LeafDevice(DeviceKey(GpuUuid(uuid)), index, memory=memory) for index, (uuid, memory) in enumerate(devices)
        )
    count, memory = node_number(node, "nvidia.com/gpu.count"), node_number(node, "nvidia.com/gpu.memory")
    if not count or not memory or count > _MOST:
        return ()
    replicas = max(1, node_number(node, "nvidia.com/gpu.replicas"))
    strategies = {kind.value: kind for kind in (Sharing.TIME_SLICING, Sharing.MPS)}
    sharing = strategies.get(node.labels.get(_STRATEGY, ""), Sharing.NONE)
    return tuple(
        LeafDevice(None, index, memory=memory * _MIB, sharing=sharing, replicas=replicas) for index in range(count)
    )


def node_number(node: NodeFacts | None, label: str) -> int:
    """Read a whole number out of a node's label; 0 where there is none."""
    return _number(node.labels.get(label, "")) if node else 0


def registered(text: str) -> tuple[tuple[str, int], ...]:
    """List (UUID, bytes) of the devices that a text registers; bytes are what the system hands out, scaled or not."""
    entries = ((uuid, _number(memory) * _MIB) for uuid, memory in _entries(text))
    return tuple((uuid, memory) for uuid, memory in entries if uuid and memory)[:_MOST]


def memory_factor(text: str) -> int:
    """
    Read the factor that a system says on its node; 0 where it says none.

    vgpu-manager's `nvidia.com/node-config-info` is `{"deviceSplit": 10, "memoryFactor": 1, ...}`.
    Source: coldzerofear/vgpu-manager 3d7f66d pkg/device/types.go, pkg/util/consts.go.
    """
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return 0
    factor = said.get("memoryFactor") if isinstance(said, dict) else None
    return factor if type(factor) is int and 0 < factor <= _LARGEST_FACTOR else 0


def _entries(text: str) -> Iterator[tuple[str, str]]:
    if not text.startswith("["):
        rows = (entry.split(",") for entry in text.split(":") if entry)
        yield from ((row[0], row[2]) for row in rows if len(row) >= _FIELDS)
        return
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError):
        return
    for entry in listed:
        if isinstance(entry, dict):
            yield str(entry.get("id", "")), str(entry.get("devmem", ""))


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0  # noqa: PLR2004
