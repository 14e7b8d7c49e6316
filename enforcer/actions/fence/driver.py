"""
The driver's memory limits of a cgroup on a GPU, as an interface.

What comes in: nothing. What goes out: the types, and the protocol that the code which sets limits implements.

The rule: no part of the exporter uses them.
"""

from dataclasses import dataclass
from typing import Protocol

from exporter.model import GpuUuid


class LimitsError(Exception):
    """The driver refused or failed; unless a subclass says otherwise, nothing was set."""


class LimitsDeniedError(LimitsError):
    """This process may not set limits: that takes root."""


class LimitsHungError(LimitsError):
    """The driver has not answered: the limit may be set already, or later."""


@dataclass(frozen=True, slots=True)
class CgroupLimits:
    """
    The limits and the usage of a cgroup on a GPU, in bytes.

    Attributes:
        soft: the memory guaranteed to it; 0: none.
        hard: the limit above which its allocations fail; None: there is none.
        used: its usage; None where the driver counts only while a limit is set.

    """

    soft: int = 0
    hard: int | None = None
    used: int | None = None

    @property
    def unset(self) -> bool:
        """Tell whether no limit is set."""
        return self.soft == 0 and self.hard is None


class MemoryLimits(Protocol):
    """Reads and sets limits of cgroups, named by path in the mounted file system. Each call returns, even on a hang."""

    async def impossible(self) -> str | None:
        """Say why no cgroup can be limited here; None: no reason is known. Sets nothing. Raises LimitsError."""

    async def read(self, gpu: GpuUuid, cgroup: str) -> CgroupLimits:
        """Read the limits and the usage of a cgroup. Raises LimitsError."""

    async def limit(self, gpu: GpuUuid, cgroup: str, hard: int | None) -> None:
        """Set the hard limit in bytes, or remove both limits (None); the soft one becomes 0. Raises LimitsError."""

    async def close(self) -> None:
        """Let go of the driver."""
