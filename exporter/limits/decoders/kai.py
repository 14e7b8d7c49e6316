"""
KAI and Run:ai: what a user asks of one GPU, in annotations of the pod.

What comes in: `gpu-memory: "4096"` (MiB) or `gpu-fraction: "0.5"`. What goes out: an amount of one container: the one
that `gpu-fraction-container-name` names, else the first.

Source: kai-scheduler/KAI-Scheduler pkg/common/resources/gpu_sharing.go, pkg/common/constants/constants.go,
docs/gpu-sharing/README.md.
"""

from collections.abc import Iterable
from fractions import Fraction
from math import ceil

from exporter.limits.decoding import Amount, Asked, DeclarationError, number, shown

_CONTAINER = "gpu-fraction-container-name"
_MIB = 2**20
_HUNDREDTHS = 100


def memory(text: str, asked: Asked) -> Iterable[Amount]:
    """Read MiB as KAI grants them: rounded up to whole hundredths of the device (4096 of a T4 are 27 %)."""
    value = number(text)
    memories = {device.memory for device in asked.devices}
    total = memories.pop() if len(memories) == 1 else None
    if total and value * _MIB <= total:
        value = Fraction(ceil(value * _MIB / total * _HUNDREDTHS), _HUNDREDTHS) * total / _MIB
    return [Amount(value, container=_container(asked))]


def fraction(text: str, asked: Asked) -> Iterable[Amount]:
    """Read a fraction of one GPU, above 0 and below 1."""
    value = number(text)
    if value >= 1:
        raise DeclarationError(f"{shown(text)!r} is not below 1")
    return [Amount(value, container=_container(asked))]


def _container(asked: Asked) -> str:
    wanted = asked.pod.annotations.get(_CONTAINER)
    if wanted is not None:
        if asked.pod.container(wanted) is None:
            raise DeclarationError(f"names the container {shown(wanted)!r}, which the pod does not have")
        return wanted
    first = next((container.name for container in asked.pod.containers if not container.init), None)
    if first is None:
        raise DeclarationError("the pod has no container")
    return first
