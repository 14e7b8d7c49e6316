"""
JSON lists of devices, as vendors of other accelerators write them.

What comes in: MetaX' `[[{"uuid": ..., "compute": ..., "vRam": MiB}]]`, one inner list a container; Ascend's
`[{"UUID": ..., "memory": MiB, "core": ...}]`; Cambricon's `<index>_<vcore>_<vmemory>`. What goes out: amounts.

Sources: Project-HAMi/HAMi pkg/device/{metax,ascend,cambricon}, Cambricon/cambricon-k8s-device-plugin.
"""

from collections.abc import Iterable
from typing import Any

from exporter.limits.decoding import (
    MOST,
    Amount,
    Asked,
    DeclarationError,
    Where,
    json_list,
    json_number,
    number,
    shown,
    whole,
)
from exporter.limits.rows import What


def metax(text: str, asked: Asked) -> Iterable[Amount]:
    """Read MetaX: one list per container, empty for those without devices."""
    regular = [container for container in asked.pod.containers if not container.init]
    segments = json_list(text)
    containers = next((each for each in (asked.pod.containers, regular) if len(each) == len(segments)), None)
    if containers is None:
        raise DeclarationError(f"{len(segments)} lists do not match {len(regular)} containers")
    key = "compute" if asked.row.what is What.COMPUTE else "vRam"
    found: list[Amount] = []
    for segment, container in zip(segments, containers, strict=True):
        found += [
            Amount(json_number(device.get(key), key), container=container.name, where=_uuid(device, "uuid"))
            for device in _objects(segment)
        ]
    return found


def ascend(text: str, asked: Asked) -> Iterable[Amount]:
    """Read Ascend: the devices of the one container that asks for them."""
    container = _only_one(asked, "huawei.com/")
    key = "core" if asked.row.what is What.COMPUTE else "memory"
    return [
        Amount(json_number(device[key], key), container=container, where=_uuid(device, "UUID"))
        for device in _objects(json_list(text))
        if key in device
    ]


def cambricon(text: str, asked: Asked) -> Iterable[Amount]:
    """Read Cambricon: index, percent of the cores, units of memory."""
    parts = text.split("_")
    if len(parts) != 3:  # noqa: PLR2004
        raise DeclarationError(f"{shown(text)!r} is not index_vcore_vmemory")
    amount = parts[1] if asked.row.what is What.COMPUTE else parts[2]
    where = Where(index=whole(parts[0], "index"))
    return [Amount(number(amount), container=_only_one(asked, "cambricon.com/"), where=where)]


def _only_one(asked: Asked, prefix: str) -> str:
    asking = [each.name for each in asked.pod.containers if any(key.startswith(prefix) for key in each.resources())]
    if len(asking) != 1:
        raise DeclarationError(f"{len(asking)} containers ask for such devices, and the text names none")
    return asking[0]


def _objects(found: object) -> list[dict[str, Any]]:
    if not isinstance(found, list) or len(found) > MOST or not all(isinstance(each, dict) for each in found):
        raise DeclarationError("not a list of objects")
    return found


def _uuid(device: dict[str, Any], key: str) -> Where:
    uuid = device.get(key)
    if not isinstance(uuid, str) or not uuid:
        raise DeclarationError(f"a device has no {key}")
    return Where(uuid=uuid)
