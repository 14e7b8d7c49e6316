"""
Claims (DRA): whole devices of a claim, and NVIDIA's opaque MPS settings.

What comes in: results of a claim's allocation and values of its configuration. What goes out: amounts per device.

Source: kubernetes-sigs/dra-driver-nvidia-gpu api/nvidia.com/resource/v1beta1/sharing.go, demo/specs;
ROCm/k8s-gpu-dra-driver cmd/gpu-kubeletplugin/deviceinfo.go, intel/intel-resource-drivers-for-kubernetes pkg/gpu/device.
"""

from collections.abc import Iterable
from fractions import Fraction

from exporter.limits.decoding import Amount, Asked, Where, json_number, json_object, locate, quantity, shown, whole
from exporter.model import ClaimedDevice
from exporter.model.vendors import claimed_id

_MIB = 2**20
_PARTITION = {"partitions"}
"""The capacity that a claim consumes of AMD's GPUs: a partition is a device of its own, separated by the kernel."""


def where_of(device: ClaimedDevice) -> Where:
    """Name a claimed device: by an id within its name, by the UUID of its ResourceSlice, or as `pool/device`."""
    name = f"{device.pool}/{device.device}"
    claimed = claimed_id(device.driver, device.device)
    if claimed is not None and claimed.name is not None:
        return Where(name=name, called=claimed.name)
    if claimed is not None and claimed.index is not None:
        return Where(name=name, index=claimed.index)
    if device.uuid is not None:
        return Where(uuid=device.uuid)
    if claimed is not None:
        return Where(minor=claimed.minor)
    return Where(name=name)


def device(_text: str, asked: Asked) -> Iterable[Amount]:
    """Yield the whole memory of each claimed device; no amount if the device is shared."""
    configured = any("sharing" in config.parameters for config in (asked.claim.configs if asked.claim else ()))
    devices = asked.scene.devices
    for claimed in asked.claimed:
        where = where_of(claimed)
        consumes = claimed.share_id is not None or bool(claimed.consumed)
        if configured or (consumes and claimed.consumed.keys() != _PARTITION):
            yield Amount(None, where=where, shared=True)
            continue
        place = locate(where, devices)
        memory = next((known.memory for known in devices if place.key and known.key == place.key), None)
        yield Amount(None if memory is None else Fraction(memory), where=where)


def pinned(text: str, asked: Asked) -> Iterable[Amount]:
    """Read `defaultPinnedDeviceMemoryLimit`: bytes per process, cut to whole MiB, for devices without their own."""
    value = _whole_mib(quantity(text))
    return [Amount(value, where=where_of(claimed)) for claimed in asked.claimed]


def pinned_per_device(text: str, asked: Asked) -> Iterable[Amount]:
    """Read `defaultPerDevicePinnedMemoryLimit`: UUID, or index within the claim, to quantity."""
    for name, value in json_object(text).items():
        amount = _whole_mib(json_number(value, f"the limit of {shown(name)}"))
        if not (name.isascii() and name.isdigit()):
            yield Amount(amount, where=Where(uuid=name))
        elif (index := whole(name, "index")) < len(asked.claimed):
            yield Amount(amount, where=where_of(asked.claimed[index]))


def threads(text: str, asked: Asked) -> Iterable[Amount]:
    """Read `defaultActiveThreadPercentage`: percent of the device's threads, for each process."""
    return [Amount(quantity(text), where=where_of(claimed)) for claimed in asked.claimed]


def _whole_mib(amount: Fraction) -> Fraction:
    return Fraction(amount // _MIB * _MIB)
