"""
The addresses of the test beds: a bed has those of its network for itself.

In: the numbers to choose from. Out: a network, claimed until it is given back, or until this process ends.
Law: a number belongs to one bed at a time. Beds begin at the same time, and a bed adds its addresses to the machine
only after its control plane has started. With one network for two of them, the pods of one ask the other's API server,
whose certificate they rightly refuse.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.processes import StartError


@dataclass(frozen=True, slots=True)
class Network:
    """The addresses of one bed, of 198.18.0.0/15, which is set aside for tests and routed nowhere (RFC 2544)."""

    number: int

    @property
    def services(self) -> str:
        return f"198.18.{self.number}.0/24"

    @property
    def api_service(self) -> str:
        """Address of the Service `kubernetes`: the first of its network."""
        return f"198.18.{self.number}.1"

    @property
    def node(self) -> str:
        return f"198.19.{self.number}.1"

    @property
    def pods(self) -> str:
        return f"198.19.{self.number}.128/25"


@dataclass(frozen=True, slots=True)
class Claim:
    """A network that no other bed gets until `release`."""

    network: Network
    _holder: socket.socket

    def release(self) -> None:
        """Give it back. Safe to call twice."""
        self._holder.close()


def claim(numbers: Sequence[int] = range(256)) -> Claim:
    """
    Claim a network whose addresses no program here has, also no killed bed. Raises StartError when all are taken.

    The claim is the name of a socket in the kernel's abstract namespace: one process can have it, and it is free again
    when that process ends.
    """
    there = Path("/proc/net/fib_trie").read_text()
    for number in random.sample(numbers, len(numbers)):
        if f" 198.19.{number}." in there:
            continue
        holder = socket.socket(socket.AF_UNIX)
        try:
            holder.bind(f"\0gpusteward-network-{number}")
        except OSError:
            holder.close()
            continue
        return Claim(Network(number), holder)
    raise StartError("no free network for a test bed: 198.19.0.0/16 is taken")
