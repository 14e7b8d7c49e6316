"""
The sources that the config names, opened: devices, host, names.

What comes in: a config. What goes out: one source for each of the three, or `DeviceError`.

The rule: a simulated or recorded node replaces all three sources, never one of them alone.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from exporter.base.clock import Clock
from exporter.config import Config, source_of_names
from exporter.devices import DeviceSource
from exporter.devices.finding import Finder
from exporter.devices.kernel import Roots
from exporter.host import HostSource
from exporter.host.procfs import ProcFs, proc_root
from exporter.kube import InventorySource, NoNames
from exporter.kube.file import FileInventory
from exporter.model import PodUid
from exporter.recording.player import RecordedNode
from exporter.simulated import SimulatedNode

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Sources:
    """The three seams, opened, and the name of the node that they are about."""

    devices: DeviceSource
    host: HostSource
    inventory: InventorySource
    node: str


async def open_sources(config: Config, clock: Clock, limited: Callable[[], Iterable[PodUid]] | None = None) -> Sources:
    """
    Open what the config names; `limited` returns the pods that have limits, as in `KubernetesSource`.

    `auto` stands for the drivers that this node has, never for a simulation. Raises DeviceError.
    """
    if (recording := config.devices.recording) is not None:
        played = RecordedNode(recording, clock.time, clock.monotonic)
        return Sources(played, played.host, played.inventory, played.node)
    if config.devices == "simulated":
        node = SimulatedNode(clock.time, started_at=clock.time())
        return Sources(node.devices, node.host, node.inventory, config.node.name)
    root = config.node.host_root
    proc = proc_root(root)
    finder = Finder(Roots.below(root, proc), root, clock=clock.time, monotonic=clock.monotonic, events=True)
    devices = await finder.open(config.devices.names)
    if config.devices.names is None:
        log.info("devices.opened", sources=devices.name, note="a driver installed later is read after a restart")
    host = ProcFs(proc, trusted=config.node.trust_pid_namespace)
    return Sources(devices, host, _names(config, clock, limited), config.node.name)


def _names(config: Config, clock: Clock, limited: Callable[[], Iterable[PodUid]] | None) -> InventorySource:
    names = config.names
    source = source_of_names(names, in_a_pod="KUBERNETES_SERVICE_HOST" in os.environ)
    if source == "file" and names.file is not None:
        return FileInventory(names.file)
    if source == "kubernetes":
        # Imported here, because the Kubernetes client costs 20 MB that a daemon without it need not pay.
        from exporter.kube.client import credentials  # noqa: PLC0415
        from exporter.kube.pod_resources import socket_of  # noqa: PLC0415
        from exporter.kube.remembered import links_below  # noqa: PLC0415
        from exporter.kube.source import KubernetesSource  # noqa: PLC0415

        return KubernetesSource(
            credentials(names.kubeconfig),
            config.node.name,
            clock=clock,
            socket=socket_of(config.node.kubelet_root),
            log_links=links_below(config.node.host_root),
            limited=limited,
        )
    return NoNames()
