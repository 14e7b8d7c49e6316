"""
JSON lists of devices, as schedulers and vendors of other accelerators write them.

What comes in: annotations of a pod; each function shows its form. What goes out: one amount per device, and per
container if the text separates containers.

Sources: Project-HAMi/HAMi pkg/device/{metax,ascend,cambricon}, Cambricon/cambricon-k8s-device-plugin;
koordinator-sh/koordinator apis/extension/device_share.go; for ACK pkg/scheduler/plugins/ack/gpushare there, and the
vendor's documentation.
"""

from collections.abc import Iterable
from typing import Any

from exporter.limits.decoders.containers import all_or_regular, asking, one_each
from exporter.limits.decoding import (
    MOST,
    Amount,
    Asked,
    DeclarationError,
    Where,
    json_list,
    json_number,
    json_object,
    number,
    shown,
    whole,
)

_MEMORY = "koordinator.sh/gpu-memory"
_CORE = "koordinator.sh/gpu-core"


def koordinator(text: str, asked: Asked) -> Iterable[Amount]:
    """
    Read `scheduling.koordinator.sh/device-allocated`: `{"gpu": [{"minor": 0, "resources": {...}}]}`.

    The amounts are for the whole pod, one per device. Devices are named by their minor numbers.
    """
    gpus = json_object(text).get("gpu", [])
    if not isinstance(gpus, list) or len(gpus) > MOST:
        raise DeclarationError('"gpu" is not a list of devices')
    key = _CORE if asked.compute else _MEMORY
    for gpu in gpus:
        if not isinstance(gpu, dict):
            raise DeclarationError('an entry of "gpu" is not an object')
        minor, resources = gpu.get("minor"), gpu.get("resources")
        if isinstance(minor, bool) or not isinstance(minor, int) or minor < 0 or not isinstance(resources, dict):
            raise DeclarationError('an entry of "gpu" lacks minor or resources')
        if key in resources:
            yield Amount(json_number(resources[key], key), where=Where(minor=minor))


def ack(text: str, asked: Asked) -> Iterable[Amount]:
    """
    Read `scheduler.framework.gpushare.allocation`: `{"<container index>": {"<device index>": GiB}}`.

    Containers are numbered as in the spec, without init containers.
    """
    regular = asked.scene.pod.regular
    count = 0
    for position, devices in json_object(text).items():
        index = whole(position, "container index")
        if index >= len(regular):
            raise DeclarationError(f"names container {index}, and the pod has {len(regular)}")
        if not isinstance(devices, dict) or (count := count + len(devices)) > MOST:
            raise DeclarationError(f"devices of container {shown(position)} are not an object of index and amount")
        for device, amount in devices.items():
            where = Where(index=whole(device, "device index"))
            yield Amount(json_number(amount, "memory"), container=regular[index].name, where=where)


def metax(text: str, asked: Asked) -> Iterable[Amount]:
    """Read MetaX' `[[{"uuid": ..., "compute": ..., "vRam": MiB}]]`: one inner list per container."""
    lists = json_list(text)
    key = "compute" if asked.compute else "vRam"
    for devices, container in one_each(lists, all_or_regular(asked.scene.pod, lists), "lists"):
        for device in _objects(devices):
            yield Amount(json_number(device.get(key), key), container=container, where=_uuid(device, "uuid"))


def ascend(text: str, asked: Asked) -> Iterable[Amount]:
    """Read Ascend's `[{"UUID": ..., "memory": MiB, "core": ...}]`, for the one container that asks for such devices."""
    container = _only_one(asked, "huawei.com/")
    key = "core" if asked.compute else "memory"
    return [
        Amount(json_number(device[key], key), container=container, where=_uuid(device, "UUID"))
        for device in _objects(json_list(text))
        if key in device
    ]


def cambricon(text: str, asked: Asked) -> Iterable[Amount]:
    """Read Cambricon's `<index>_<vcore>_<vmemory>`: percent of the cores, units of memory."""
    parts = text.split("_")
    if len(parts) != 3:  # noqa: PLR2004
        raise DeclarationError(f"{shown(text)!r} is not index_vcore_vmemory")
    amount = parts[1] if asked.compute else parts[2]
    where = Where(index=whole(parts[0], "index"))
    return [Amount(number(amount), container=_only_one(asked, "cambricon.com/"), where=where)]


def _only_one(asked: Asked, prefix: str) -> str:
    containers = asking(asked.scene.pod, prefix)
    if len(containers) != 1:
        raise DeclarationError(f"{len(containers)} containers ask for such devices, and the text names none")
    return containers[0].name


def _objects(data: object) -> list[dict[str, Any]]:
    if not isinstance(data, list) or len(data) > MOST or not all(isinstance(item, dict) for item in data):
        raise DeclarationError("not a list of objects")
    return data


def _uuid(device: dict[str, Any], key: str) -> Where:
    uuid = device.get(key)
    if not isinstance(uuid, str) or not uuid:
        raise DeclarationError(f"a device has no {key}")
    return Where(uuid=uuid)
