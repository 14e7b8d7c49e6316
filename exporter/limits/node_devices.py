"""
The devices of a node, as its own labels and annotations list them.

What comes in: a node's facts, or the text of an annotation such as `hami.io/node-nvidia-register`. What goes out:
devices, or UUID and bytes of each; and the names of missing labels.

The rule: every client that may patch nodes can write these texts. So unreadable text counts as absent, and raises no
error.

Sources: Project-HAMi/HAMi pkg/device/devices.go (JSON since 2.5, before that
`uuid,split,MiB,cores,type,numa,health,index,mode:`, the last two since 2.4); volcano-sh/volcano
pkg/scheduler/api/devices/nvidia/vgpu/utils.go (`uuid,split,MiB,type,health,mode:`); NVIDIA/k8s-device-plugin
internal/lm/resource.go (the labels of GPU feature discovery).
"""

import json
from collections.abc import Iterator, Sequence
from itertools import islice

from exporter.limits.devices import LeafDevice
from exporter.model import DeclaredContainer, DeclaredPod, DeviceKey, GpuUuid, NodeFacts, Sharing

_MIB = 2**20
_FIELDS = 3
_MOST = 64
_LARGEST_FACTOR = 1024
_MODES = frozenset({"hami-core", "mig", "mps"})
_REGISTER = "hami.io/node-nvidia-register"
_COUNT, _MEMORY = "nvidia.com/gpu.count", "nvidia.com/gpu.memory"
_REPLICAS, _STRATEGY = "nvidia.com/gpu.replicas", "nvidia.com/gpu.sharing-strategy"
_GPUS = {"nvidia.com/gpu", "nvidia.com/gpu.shared"}
_MIG, _SHARED = "nvidia.com/mig-", ".shared"


def devices_of(node: NodeFacts) -> tuple[LeafDevice, ...]:
    """
    List a node's devices without a driver, for `explain -f`; empty if the node does not list them.

    HAMi registers UUIDs and MiB. GPU feature discovery labels a count and MiB.
    """
    if devices := registered(node.annotations.get(_REGISTER, "")):
        return tuple(
            LeafDevice(DeviceKey(GpuUuid(uuid)), index, memory=memory) for index, (uuid, memory) in enumerate(devices)
        )
    count, memory = node_number(node, _COUNT), node_number(node, _MEMORY)
    if not count or not memory or count > _MOST:
        return ()
    replicas = max(1, node_number(node, _REPLICAS))
    strategies = {kind.value: kind for kind in (Sharing.TIME_SLICING, Sharing.MPS)}
    sharing = strategies.get(node.labels.get(_STRATEGY, ""), Sharing.NONE)
    return tuple(
        LeafDevice(None, index, memory=memory * _MIB, sharing=sharing, replicas=replicas) for index in range(count)
    )


def labelled_instance(node: NodeFacts | None, resource: str) -> LeafDevice:
    """Describe the MIG instance that a resource such as `nvidia.com/mig-1g.10gb` hands out, by the node's labels."""
    profile = resource.removesuffix(_SHARED)
    memory = node_number(node, f"{profile}.memory") * _MIB or None
    return LeafDevice(None, 0, memory=memory, replicas=max(1, replicas_of(node, resource)))


def replicas_of(node: NodeFacts | None, resource: str) -> int:
    """Read the number of replicas per device of a resource; 0 without a label."""
    return node_number(node, f"{resource.removesuffix(_SHARED)}.replicas" if is_mig(resource) else _REPLICAS)


def is_mig(resource: str) -> bool:
    """Return whether a resource hands out MIG instances under their profile's name."""
    return resource.startswith(_MIG)


def missing_sizes(
    node: NodeFacts, devices: Sequence[LeafDevice], pods: Sequence[DeclaredPod], *, fair_share: bool
) -> Iterator[str]:
    """Name each size that is missing on the node, and the effect on these pods."""
    if not devices:
        yield (
            f"the node does not say how large its devices are ({_absent(node)}, or what HAMi registers): units are not "
            "checked, and a share of a device has no amount"
        )
    asked = {key for pod in pods for container in pod.containers for key in container.resources()}
    for profile in sorted({key.removesuffix(_SHARED) for key in asked if is_mig(key)}):
        if not node_number(node, f"{profile}.memory"):
            yield f"the node has no label {profile}.memory: the size of such an instance is not known"
        elif fair_share and not node_number(node, f"{profile}.replicas"):
            yield f"the node has no label {profile}.replicas: a fair share of such an instance is not known"
    labelled = all(device.key is None for device in devices)
    if fair_share and labelled and not asked.isdisjoint(_GPUS) and not node_number(node, _REPLICAS):
        yield f"the node has no label {_REPLICAS}: a fair share of a GPU is not known"
    if fair_share and any(_several_replicas(node, container) for pod in pods for container in pod.containers):
        yield "only the kubelet knows of which devices a container's several replicas are: they get no fair share here"


def _several_replicas(node: NodeFacts, container: DeclaredContainer) -> bool:
    return any(
        (key in _GPUS or is_mig(key)) and _number(text) > 1 and replicas_of(node, key) > 1
        for key, text in container.resources().items()
    )


def _absent(node: NodeFacts) -> str:
    names = [label for label in (_COUNT, _MEMORY) if not node_number(node, label)] or [_COUNT, _MEMORY]
    return f"label{'' if len(names) == 1 else 's'} {' and '.join(names)}"


def node_number(node: NodeFacts | None, label: str) -> int:
    """Read a whole number from a node's label; 0 without one."""
    return _number(node.labels.get(label, "")) if node else 0


def registered(text: str) -> tuple[tuple[str, int], ...]:
    """List (UUID, bytes) of the devices in a text. Bytes are as the system hands them out, scaled or not."""
    entries = ((uuid, _number(memory) * _MIB) for uuid, memory, _ in _entries(text))
    return tuple((uuid, memory) for uuid, memory in entries if uuid and memory)[:_MOST]


def memory_factor(text: str) -> int:
    """
    Read the factor that a system writes on its node; 0 without one.

    vgpu-manager's `nvidia.com/node-config-info` is `{"deviceSplit": 10, "memoryFactor": 1, ...}`.
    Source: coldzerofear/vgpu-manager 3d7f66d pkg/device/types.go, pkg/util/consts.go.
    """
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return 0
    factor = said.get("memoryFactor") if isinstance(said, dict) else None
    return factor if type(factor) is int and 0 < factor <= _LARGEST_FACTOR else 0


def registered_modes(text: str) -> dict[str, str]:
    """Map UUIDs in a text to modes (`hami-core`, `mig`, `mps`). Texts of older plugins have no modes."""
    return {uuid: mode for uuid, _, mode in islice(_entries(text), _MOST) if uuid and mode}


def _entries(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield UUID, memory and mode. HAMi writes the mode as the ninth field, Volcano's plugin as the sixth."""
    if not text.startswith("["):
        rows = (entry.split(",") for entry in text.split(":") if entry)
        for row in (row for row in rows if len(row) >= _FIELDS):
            yield row[0], row[2], next((field for field in row[_FIELDS:] if field in _MODES), "")
        return
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError):
        return
    for entry in listed:
        if isinstance(entry, dict):
            yield str(entry.get("id", "")), str(entry.get("devmem", "")), str(entry.get("mode", ""))


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0  # noqa: PLR2004
