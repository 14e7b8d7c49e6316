"""
What the driver may keep a cgroup to: how much of a GPU's memory.

What comes in: nothing. What goes out: the words for it, and the seam to the code that sets it. No part of the exporter
uses them.
"""

from dataclasses import dataclass
from typing import Protocol

from exporter.model import GpuUuid


class LimitsError(Exception):
    """The driver did not as it was asked; unless a subclass says otherwise, nothing was set."""


class LimitsDeniedError(LimitsError):
    """This process may not set limits: that takes root."""


class LimitsHungError(LimitsError):
    """The driver has not answered: what was to be set may be set, or may still be."""


@dataclass(frozen=True, slots=True)
class CgroupLimits:
    """
    What is kept of a cgroup on a GPU, bytes.

    Attributes:
        soft: what is guaranteed to it; 0: nothing.
        hard: above which its allocations fail; None: there is none.
        used: all that the cgroup holds; None where the driver counts only while a limit is set.

    """

    soft: int = 0
    hard: int | None = None
    used: int | None = None

    @property
    def unset(self) -> bool:
        """Tell whether no limit is set."""
        return self.soft == 0 and self.hard is None


class MemoryLimits(Protocol):
    """Reads and sets limits, of a cgroup by its path in the mounted file system. Each call returns, whatever hangs."""

    async def impossible(self) -> str | None:
        """Say why no cgroup can be limited here; None: nothing speaks against it. Sets nothing. Raises LimitsError."""

    async def read(self, gpu: GpuUuid, cgroup: str) -> CgroupLimits:
        """Tell what is kept of a cgroup. Raises LimitsError."""

    async def limit(self, gpu: GpuUuid, cgroup: str, hard: int | None) -> None:
        """Set the hard limit in bytes, or take both limits away (None); the soft one becomes 0. Raises LimitsError."""

    async def close(self) -> None:
        """Let go of the driver."""
