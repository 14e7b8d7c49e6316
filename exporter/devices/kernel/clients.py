"""
The processes that hold each DRM client, each client counted once.

What comes in: the descriptors of a node's processes. What goes out: one `Held` for each process and device.

The rule: one open file is seen through several descriptors and, after a fork, through several processes. Its bytes
count once, for the process that started first. If its holders are in different containers, its owner is unknown: then
no container surely holds it. A client is identified by device and client id, because some kernels count the ids for
each device.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from exporter.devices.kernel.fdinfo import Client
from exporter.devices.kernel.sums import known_sum
from exporter.model import DeviceKey, Owner

RENDER = 226
"""Major number of DRM's devices; its render nodes are the minors from 128 on. Accelerators (261) are not among them."""


@dataclass(frozen=True, slots=True)
class Holder:
    """
    A process that has a device open.

    `start_ticks` distinguishes processes of one PID, and shows which is the oldest.
    """

    pid: int
    start_ticks: int
    owner: Owner | None = None


@dataclass(frozen=True, slots=True)
class Descriptor:
    """One descriptor of a device: its node (major, minor), and the driver's text about it, if any."""

    holder: Holder
    node: tuple[int, int] | None
    client: Client | None


ClientKey = tuple[DeviceKey, int]


@dataclass(frozen=True, slots=True)
class Held:
    """
    One process's usage of one device.

    Attributes:
        clients: those that count here; shared ones may count for another process.
        disputed: those of the clients that another container holds, too.
        blind: it has a descriptor about which the driver reports nothing, or no client id.
        problems: a word for each value that breaks the format.

    """

    clients: Mapping[ClientKey, Client] = field(default_factory=dict)
    disputed: frozenset[ClientKey] = frozenset()
    blind: bool = False
    problems: frozenset[str] = frozenset()

    @property
    def memory(self) -> int | None:
        """Bytes; None where a part of them is unknown."""
        return None if self.blind else known_sum((client.memory for client in self.clients.values()), 0)

    @property
    def memory_sure(self) -> int | None:
        """Bytes that surely belong to the process: a lower bound of `memory`."""
        sure = (0 if key in self.disputed else client.memory_sure for key, client in self.clients.items())
        return None if self.memory is None else known_sum(sure, 0)


@dataclass(slots=True)
class _Seen:
    """One process on one device, as seen so far; `clients` are those that count for it."""

    clients: dict[ClientKey, Client] = field(default_factory=dict)
    blind: bool = False
    problems: set[str] = field(default_factory=set)


def holdings(
    descriptors: Iterable[Descriptor], device_of: Callable[[Descriptor], DeviceKey | None]
) -> Mapping[DeviceKey, Mapping[int, Held]]:
    """Count each client once. `device_of` names the device of a descriptor; None: it is not one of this source."""
    seen: dict[DeviceKey, dict[int, _Seen]] = {}
    clients: dict[ClientKey, Client] = {}
    holders: dict[ClientKey, set[Holder]] = {}
    for descriptor in descriptors:
        device, client = device_of(descriptor), descriptor.client
        if device is None:
            continue
        process = seen.setdefault(device, {}).setdefault(descriptor.holder.pid, _Seen())
        process.problems.update(client.problems if client else ())
        if client is None or client.id is None:
            process.blind = True
            continue
        key = (device, client.id)
        # A client may grow between two readings within a millisecond: the larger one counts.
        clients[key] = max(
            clients.get(key, client), client, key=lambda reading: -1 if reading.memory is None else reading.memory
        )
        holders.setdefault(key, set()).add(descriptor.holder)
    disputed: set[ClientKey] = set()
    for key, several in holders.items():
        eldest = min(several, key=lambda holder: (holder.start_ticks, holder.pid))
        seen[key[0]][eldest.pid].clients[key] = clients[key]
        owners = {holder.owner for holder in several}
        if len(several) > 1 and (len(owners) > 1 or None in owners):
            disputed.add(key)
    return {
        device: {
            pid: Held(entry.clients, frozenset(disputed & entry.clients.keys()), entry.blind, frozenset(entry.problems))
            for pid, entry in sorted(processes.items())
        }
        for device, processes in seen.items()
    }
