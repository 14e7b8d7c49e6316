"""
Sums over time: how much memory and time of each device was used, and by which container.

What comes in: nothing. What goes out: the sums of one device, in whole numbers, with their values in base units.

The rule: **the sums close exactly.** They are integers of bytes x nanoseconds, so that no rounding adds up: the parts
of a device's memory are its capacity x the observed time, and its containers are the part `containers`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

NANOSECONDS = 10**9
HALVES = 2 * NANOSECONDS
"""A byte-second in the unit of the sums. They count half byte-nanoseconds: each reading stands for half an interval."""

Holder = tuple[str, str, str]
"""Namespace, pod, container: what a container is called in labels. A container that restarts keeps its sums."""


class MemoryPart(StrEnum):
    """The parts of a device's memory. `unknown`: used, by which container or process is unknown."""

    CONTAINERS = "containers"
    GHOST = "ghost"
    HOST = "host"
    UNATTRIBUTED = "unattributed"
    RESERVED = "reserved"
    FREE = "free"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ContainerIntegral:
    """
    The sums of one container on one device.

    Attributes:
        memory: half byte-nanoseconds; None if its memory was never known.
        sm: seconds, as the SM utilization's ratio x time; None if the driver never reported it.
        allocated: seconds of the device by resource; half of them while it holds two of four replicas.

    """

    memory: int | None = None
    sm: float | None = None
    allocated: Mapping[str, float] = field(default_factory=dict)

    @property
    def memory_byte_seconds(self) -> float | None:
        """The memory that it held, summed over time."""
        return None if self.memory is None else self.memory / HALVES


@dataclass(frozen=True, slots=True)
class DeviceIntegral:
    """
    The sums of one device and of the containers on it.

    Attributes:
        observed: nanoseconds between readings.
        unknown: nanoseconds in which it was not read, although the daemon ran.
        memory: half byte-nanoseconds of each part; empty for a device without memory of its own.
        containers: those of the last reading, and those that ended in the last minutes.
        index: of its GPU, which may have gone since.

    """

    observed: int = 0
    unknown: int = 0
    memory: Mapping[MemoryPart, int] = field(default_factory=dict)
    containers: Mapping[Holder, ContainerIntegral] = field(default_factory=dict)
    index: int = 0

    @property
    def observed_seconds(self) -> float:
        """The observed time."""
        return self.observed / NANOSECONDS

    @property
    def unknown_seconds(self) -> float:
        """The time in which it was not read."""
        return self.unknown / NANOSECONDS

    @property
    def memory_byte_seconds(self) -> Mapping[MemoryPart, float]:
        """Its memory by part, summed over time."""
        return {part: amount / HALVES for part, amount in self.memory.items()}
