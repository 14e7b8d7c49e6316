"""
The ids of GPUs, devices, pods and containers; and the fault.

What comes in: nothing. What goes out: types that the rest of the model is built on.
"""

from dataclasses import dataclass
from typing import NewType

GpuUuid = NewType("GpuUuid", str)
PodUid = NewType("PodUid", str)
ContainerId = NewType("ContainerId", str)
"""64 hex characters, without the runtime's `containerd://`."""


@dataclass(frozen=True, slots=True, order=True)
class DeviceKey:
    """
    A device, for which memory is counted: a GPU with MIG off, or one MIG instance.

    Ids of MIG instances are reused when MIG is set up anew; `GpuInstance.mig_uuids` tells two generations apart.
    """

    uuid: GpuUuid
    gpu_instance: int | None = None

    def __hash__(self) -> int:
        """Return the hash of the GPU: it is known already, and a GPU has seven instances at most."""
        return hash(self.uuid)


@dataclass(frozen=True, slots=True)
class Fault:
    """
    A source gave no answer, or only a part, in this round.

    Attributes:
        reason: one word for metrics (`rounds_incomplete_total{reason}`).
        message: one sentence for people.
        subject: what failed, such as a GPU's UUID or a path; empty for the whole source.
        incomplete: False if the fault is reported, but leaves the round complete.

    """

    source: str
    reason: str
    message: str
    subject: str = ""
    incomplete: bool = True
