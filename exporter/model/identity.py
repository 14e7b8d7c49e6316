"""The identities, and the fault: what all other facts of the model are told of."""

from dataclasses import dataclass
from typing import NewType

GpuUuid = NewType("GpuUuid", str)
PodUid = NewType("PodUid", str)
ContainerId = NewType("ContainerId", str)
"""64 hex characters, without the runtime's `containerd://`."""


@dataclass(frozen=True, slots=True, order=True)
class DeviceKey:
    """
    A device, where memory is counted: a GPU with MIG off, or one MIG GPU instance.

    GPU-instance ids are reused when MIG is set up anew; `GpuInstance.mig_uuids` tells two generations apart.
    """

    uuid: GpuUuid
    gpu_instance: int | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """
    A source could not answer this round.

    `reason` is one word for metrics (`rounds_incomplete_total{reason}`), `message` one sentence for people;
    `subject` is what it is about (a GPU's UUID, a path), empty for the whole source. A fault with
    `incomplete=False` is told, but leaves the round complete.
    """

    source: str
    reason: str
    message: str
    subject: str = ""
    incomplete: bool = True
