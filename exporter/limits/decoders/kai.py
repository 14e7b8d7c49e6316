"""
KAI and Run:ai: a user's request for a part of one GPU, in annotations of the pod.

What comes in: `gpu-memory: "4096"` (MiB) or `gpu-fraction: "0.5"`. What goes out: an amount for one container: the one
in `gpu-fraction-container-name`, else the first.

Source: kai-scheduler/KAI-Scheduler pkg/common/resources/gpu_sharing.go, pkg/common/constants/constants.go,
docs/gpu-sharing/README.md.
"""

from collections.abc import Iterable
from fractions import Fraction
from math import ceil

from exporter.limits.decoders.containers import known
from exporter.limits.decoding import Amount, Asked, DeclarationError, number, shown
from exporter.model import DeclaredPod

_CONTAINER = "gpu-fraction-container-name"
_MIB = 2**20
_HUNDREDTHS = 100


def memory(text: str, asked: Asked) -> Iterable[Amount]:
    """Read MiB as KAI grants them: rounded up to whole percent of the device (4096 MiB of a T4 are 27 %)."""
    value = number(text)
    memories = {device.memory for device in asked.scene.devices}
    total = memories.pop() if len(memories) == 1 else None
    if total and value * _MIB <= total:
        value = Fraction(ceil(value * _MIB / total * _HUNDREDTHS), _HUNDREDTHS) * total / _MIB
    return [Amount(value, container=_container(asked.scene.pod))]


def fraction(text: str, asked: Asked) -> Iterable[Amount]:
    """Read a fraction of one GPU, above 0 and below 1."""
    value = number(text)
    if value >= 1:
        raise DeclarationError(f"{shown(text)!r} is not below 1")
    return [Amount(value, container=_container(asked.scene.pod))]


def _container(pod: DeclaredPod) -> str:
    if (wanted := pod.annotations.get(_CONTAINER)) is not None:
        return known(pod, wanted)
    if not pod.regular:
        raise DeclarationError("the pod has no container")
    return pod.regular[0].name
