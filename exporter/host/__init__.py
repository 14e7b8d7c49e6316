"""What the kernel says. Every root is an argument; nothing is read that would need SYS_PTRACE (fd, maps, environ)."""

from collections.abc import Collection
from typing import Protocol

from exporter.model import HostSample


class HostSource(Protocol):
    """The seam to the kernel."""

    def sample(self, pids: Collection[int], *, want_living: bool = False) -> HostSample:
        """Say of each raw pid who it is. `want_living` also reads the owners of all living processes of the node."""
        ...
