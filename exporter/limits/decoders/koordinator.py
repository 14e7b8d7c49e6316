"""
Koordinator: the scheduler's JSON.

What comes in: `scheduling.koordinator.sh/device-allocated`, `{"gpu": [{"minor": 0, "resources": {...}}]}`. What goes
out: amounts per device, already divided, of the pod as a whole.

Source: koordinator-sh/koordinator apis/extension/device_share.go.
"""

from collections.abc import Iterable

from exporter.limits.decoding import (
    MOST,
    Amount,
    Asked,
    DeclarationError,
    Where,
    json_number,
    json_object,
)
from exporter.limits.rows import What

_MEMORY = "koordinator.sh/gpu-memory"
_CORE = "koordinator.sh/gpu-core"


def allocated(text: str, asked: Asked) -> Iterable[Amount]:
    """Read what the scheduler allocated: already divided, per device, named by its minor number."""
    gpus = json_object(text).get("gpu", [])
    if not isinstance(gpus, list) or len(gpus) > MOST:
        raise DeclarationError('"gpu" is not a list of devices')
    key = _CORE if asked.row.what is What.COMPUTE else _MEMORY
    found = []
    for gpu in gpus:
        if not isinstance(gpu, dict):
            raise DeclarationError('an entry of "gpu" is not an object')
        minor, resources = gpu.get("minor"), gpu.get("resources")
        if isinstance(minor, bool) or not isinstance(minor, int) or minor < 0 or not isinstance(resources, dict):
            raise DeclarationError('an entry of "gpu" lacks minor or resources')
        if key in resources:
            found.append(Amount(json_number(resources[key], key), where=Where(minor=minor)))
    return found
