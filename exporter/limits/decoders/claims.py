"""
Claims (DRA): devices that a claim holds whole, and NVIDIA's opaque MPS settings.

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
"""What a claim consumes of AMD's GPUs: a partition is a device of its own, and the kernel keeps it apart."""


def where_of(device: ClaimedDevice) -> Where:
    """Name a claimed device: by the UUID of its ResourceSlice, by what is in its name, or just so."""
    name = f"{device.pool}/{device.device}"
    claimed = claimed_id(device.driver, device.device)
    if claimed is not None and claimed.name is not None:
        return Where(name=name, called=claimed.name)
    if device.uuid is not None:
        return Where(uuid=device.uuid)
    if claimed is not None:
        return Where(minor=claimed.minor)
    return Where(name=name)


def device(_text: str, asked: Asked) -> Iterable[Amount]:
    """Hand out a claimed device: its whole memory, unless it is shared in some way."""
    found = []
    for claimed in asked.claimed:
        where = where_of(claimed)
        if ((claimed.share_id is not None or claimed.consumed) and claimed.consumed.keys() != _PARTITION) or _shared(
            asked
        ):
            found.append(Amount(None, where=where, shared=True))
            continue
        place = locate(where, asked.devices)
        memory = next((each.memory for each in asked.devices if place.key and each.key == place.key), None)
        found.append(Amount(None if memory is None else Fraction(memory), where=where))
    return found


def pinned(text: str, asked: Asked) -> Iterable[Amount]:
    """Read `defaultPinnedDeviceMemoryLimit`: for each process, cut to whole MiB, where no device has its own."""
    value = Fraction(int(quantity(text)) // _MIB * _MIB)
    return [Amount(value, where=where_of(claimed)) for claimed in asked.claimed]


def pinned_per_device(text: str, asked: Asked) -> Iterable[Amount]:
    """Read `defaultPerDevicePinnedMemoryLimit`: UUID, or index within the claim, to quantity."""
    found = []
    for name, value in json_object(text).items():
        amount = Fraction(int(json_number(value, f"the limit of {shown(name)}")) // _MIB * _MIB)
        if name.isascii() and name.isdigit():
            index = whole(name, "index")
            if index < len(asked.claimed):
                found.append(Amount(amount, where=where_of(asked.claimed[index])))
        else:
            found.append(Amount(amount, where=Where(uuid=name)))
    return found


def threads(text: str, asked: Asked) -> Iterable[Amount]:
    """Read `defaultActiveThreadPercentage`: of the device's threads, for each process."""
    return [Amount(quantity(text), where=where_of(claimed)) for claimed in asked.claimed]


def _shared(asked: Asked) -> bool:
    configs = asked.claim.configs if asked.claim else ()
    return any("sharing" in config.parameters for config in configs)
