"""
Opens the sources that the config names: devices, host, names.

What comes in: a config. What goes out: one source for each of the three, or `DeviceError`.

The rule: a simulated or recorded node replaces all three sources, never one of them alone.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from exporter.base.clock import Clock
from exporter.config import Config, source_of_names, switched_off
from exporter.devices import DeviceSource
from exporter.devices.finding import Finder
from exporter.devices.kernel import Roots
from exporter.host import HostSource
from exporter.host.pod_cgroups import log_choice, pod_cgroups
from exporter.host.procfs import ProcFs, proc_root
from exporter.host.remembered import Remembered
from exporter.kube import InventorySource, NoNames
from exporter.kube.file import FileInventory
from exporter.model import PodUid

log = structlog.get_logger()

IN_A_POD = "KUBERNETES_SERVICE_HOST"
"""The environment variable that each pod of Kubernetes has."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The three sources, opened, and the name of their node."""

    devices: DeviceSource
    host: HostSource
    inventory: InventorySource
    node: str


async def open_sources(config: Config, clock: Clock, limited: Callable[[], Iterable[PodUid]] | None = None) -> Sources:
    """
    Open the sources of the config; `limited` returns the pods that have limits, as in `KubernetesSource`.

    `auto` means the drivers of this node, never a simulation. Raises DeviceError.
    """
    # What a node does not use is imported where it is used: a recording and a simulation would take 0.5 MB here.
    if (recording := config.devices.recording) is not None:
        from exporter.recording.player import RecordedNode  # noqa: PLC0415

        played = RecordedNode(recording, clock.time, clock.monotonic)
        return Sources(played, played.host, played.inventory, played.node)
    if config.devices == "simulated":
        from exporter.simulated import SimulatedNode  # noqa: PLC0415

        node = SimulatedNode(clock.time, started_at=clock.time())
        return Sources(node.devices, node.host, node.inventory, config.node.name)
    root = config.node.host_root
    proc = proc_root(root)
    pods = pod_cgroups(config.node.pods_cgroup, root)
    finder = Finder(
        Roots.below(root, proc, pods),
        root,
        clock=clock.time,
        monotonic=clock.monotonic,
        events=True,
        off=switched_off(config.collector),
    )
    devices = await finder.open(config.devices.names)
    log_choice(pods, in_a_pod=IN_A_POD in os.environ)  # not before: where there is no driver, only that is said
    if config.devices.names is None:
        log.info("devices.opened", sources=devices.name, note="a driver installed later is read after a restart")
    trusted = config.node.trust_pid_namespace  # then the PIDs may be of another namespace than pidfds are opened in
    remembered = Remembered(proc, pidfds=not trusted)
    host = ProcFs(proc, pods=pods, trusted=trusted, remember=remembered)
    return Sources(devices, host, _names(config, clock, limited), config.node.name)


def _names(config: Config, clock: Clock, limited: Callable[[], Iterable[PodUid]] | None) -> InventorySource:
    names = config.names
    source = source_of_names(names, in_a_pod=IN_A_POD in os.environ)
    if source == "file" and names.file is not None:
        return FileInventory(names.file)
    if source == "kubernetes":
        # HTTP/2, protobuf and the readers of pods take 3.1 MB.
        from exporter.kube.credentials import credentials  # noqa: PLC0415
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
