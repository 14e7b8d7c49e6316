"""
Processes of the host, as the kernel shows them.

Every root is an argument. Files that need SYS_PTRACE (fd, maps, environ) are not read.
"""

from collections.abc import Collection
from typing import Protocol

from exporter.model import HostSample


class HostSource(Protocol):
    """The interface to the kernel."""

    def sample(self, pids: Collection[int], *, want_living: bool = False) -> HostSample:
        """Identify each raw PID. `want_living` also reads the owners of all living processes of the node."""
        ...
