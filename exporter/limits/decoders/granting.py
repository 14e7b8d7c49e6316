"""
Counts that hand out devices: a whole one, a MIG instance, a replica, an equal share.

What comes in: requests such as `nvidia.com/gpu: 1`. What goes out: the memory of the handed-out device if it is
separated from other containers; else an amount without a value.

The rule: a replica (time-slicing) declares no memory. Only MPS gives it a share, or the operator's choice `fair_share`.

Sources: NVIDIA/k8s-device-plugin api/config/v1, cmd/mps-control-daemon/mps; GoogleCloudPlatform/
container-engine-accelerators pkg/gpu/nvidia/manager.go; NVIDIA/go-nvlib pkg/nvlib/device/mig_profile.go.
"""

from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction

from exporter.limits.decoding import Amount, Asked, quantity
from exporter.limits.devices import LeafDevice, Place, device_name
from exporter.limits.node_devices import is_mig, labelled_instance, node_number, replicas_of
from exporter.model import DeviceKey

_MIB = 2**20
_GKE_CLIENTS = "cloud.google.com/gke-max-shared-clients-per-gpu"


def granted(text: str, asked: Asked) -> Iterable[Amount]:
    """Return devices without an amount: replicas, vGPUs of machines, devices of other vendors."""
    return [Amount(None, place=place) for place, _, _ in _handed_out(text, asked)]


def whole_device(text: str, asked: Asked) -> Iterable[Amount]:
    """Return whole devices: their memory is the limit, and the hardware enforces it."""
    return [
        Amount(None, place=place, shared=True, note="the device has several replicas: no memory is declared")
        if device is not None and device.replicas > 1
        else Amount(_memory(device), place=place)
        for place, device, _ in _handed_out(text, asked)
    ]


def instance(text: str, asked: Asked) -> Iterable[Amount]:
    """Return MIG instances: their memory comes from the driver or the node's labels, never from their name."""
    if asked.key.endswith(".shared") or replicas_of(asked.scene.node, asked.key) > 1:
        return [Amount(None, place=place, shared=True) for place, _, _ in _handed_out(text, asked)]
    return [_instance(asked, place, device) for place, device, _ in _handed_out(text, asked)]


def mps_share(text: str, asked: Asked) -> Iterable[Amount]:
    """
    Give each process of an MPS client its share of the device, as NVIDIA's plugin does.

    The share is total / replicas in whole MiB, whatever the number of replicas held. Of the threads it is
    100 / replicas in whole percent.
    """
    return [
        Amount(_share(asked, device, _replicas(asked, device), 1), place=place)
        for place, device, _ in _handed_out(text, asked)
    ]


def gke_share(text: str, asked: Asked) -> Iterable[Amount]:
    """Give each process of GKE's MPS its share of the device; it grows with the number of replicas held."""
    clients = node_number(asked.scene.node, _GKE_CLIENTS)
    held = int(quantity(text))
    return [
        Amount(_share(asked, device, clients or _replicas(asked, device), held), place=place)
        for place, device, _ in _handed_out(text, asked)
    ]


def fair_share(text: str, asked: Asked) -> Iterable[Amount]:
    """Give a container its replicas' part of the device: gpusteward's own policy, for systems that declare nothing."""
    if not asked.scene.options.fair_share:
        return
    for place, device, held in _handed_out(text, asked):
        replicas = _replicas(asked, device)
        if replicas > 1 and (place is not None or held == 1):
            yield Amount(_share(asked, device, replicas, held), place=place)


def visible(text: str, _asked: Asked) -> Iterable[Amount]:
    """Read a pod's NVIDIA_VISIBLE_DEVICES: devices without a declaration, unless it names none."""
    if text.strip() in {"", "none", "void"}:
        return []
    return [Amount(None, note="devices from the environment, without an amount of memory")]


def slices(text: str, asked: Asked) -> Iterable[Amount]:
    """Read nos' `nvidia.com/gpu-<N>gb`: a number of slices of N GB each."""
    size = quantity(asked.stars[0]) if asked.stars else Fraction(0)
    return [Amount(size * quantity(text))]


def _handed_out(text: str, asked: Asked) -> list[tuple[Place | None, LeafDevice | None, int]]:
    """
    List (device, its facts, replicas held) as the kubelet reports them; else one entry without a device.

    That entry has facts, too, if all devices are alike.
    """
    count = quantity(text)
    if count == 0 or count.denominator != 1:
        return []  # fractions (Huawei CCE) have a row of their own
    by_key = {device.key: device for device in asked.scene.devices if device.key is not None}
    held: dict[DeviceKey, int] = defaultdict(int)
    for grant in asked.scene.pod.held:
        matches = (
            asked.container is not None and grant.container == asked.container.name and grant.resource == asked.key
        )
        if asked.row.kubelet and matches:
            held[grant.device] += grant.replicas
    if held:
        return [(Place(device_name(key), key), by_key.get(key), replicas) for key, replicas in sorted(held.items())]
    devices = asked.scene.devices
    if is_mig(asked.key):
        # A whole GPU does not show the size of its instances; without a driver, the labels of their profile do.
        instances = tuple(device for device in devices if device.mig)
        devices = instances or (labelled_instance(asked.scene.node, asked.key),)
    alike = {(device.memory, device.replicas) for device in devices}
    return [(None, devices[0] if len(alike) == 1 else None, int(count))]


def _instance(asked: Asked, place: Place | None, device: LeafDevice | None) -> Amount:
    if device is not None and device.replicas > 1:
        return Amount(None, place=place, shared=True, note="the instance has several replicas: no memory is declared")
    if place is not None:
        return Amount(_memory(device), place=place)
    labelled = _memory(labelled_instance(asked.scene.node, asked.key))
    return Amount(labelled, note="" if labelled else f"its memory is unknown: the node has no label {asked.key}.memory")


def _memory(device: LeafDevice | None) -> Fraction | None:
    return Fraction(device.memory) if device is not None and device.memory is not None else None


def _replicas(asked: Asked, device: LeafDevice | None) -> int:
    if device is not None and device.replicas > 1:
        return device.replicas
    return replicas_of(asked.scene.node, asked.key)


def _share(asked: Asked, device: LeafDevice | None, replicas: int, held: int) -> Fraction | None:
    if replicas < 1:
        return None
    held = min(held, replicas)
    if asked.compute:
        return Fraction(100 * held // replicas)
    memory = _memory(device)
    return None if memory is None else Fraction(int(memory) * held // replicas // _MIB * _MIB)
