"""
Names from the kubelet's log links: the node's knowledge of its pods while the API server is away.

What comes in: /var/log/containers, where the kubelet keeps a link for each container, also of finished ones:
`<pod>_<namespace>_<container>-<id>.log`, which points to `/var/log/pods/<namespace>_<pod>_<uid>/<container>/<n>.log`.
What goes out: an inventory that is not live.

The rule: the target is believed, because no part of it is ever cut. The link gives the id, unless the kubelet had to
cut the name at 255 characters. A link of any other form is ignored.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from exporter.model import Container, ContainerId, Inventory, Pod, PodUid

LINKS = Path("/var/log/containers")
MOST = 20_000
"""Links that are read, at most; a node has a few hundred."""

_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_POD = r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?"
# A static pod's folder has the hash of its manifest, as its cgroup has.
_UID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}"
_TARGET = re.compile(rf"(?:.*/)?({_LABEL})_({_POD})_({_UID})/({_LABEL})/([0-9]{{1,9}})\.log")


@dataclass(frozen=True, slots=True)
class LogLink:
    """One link. `restart` counts the generations of a container from 0; `made_at` is Unix time."""

    namespace: str
    pod: str
    pod_uid: PodUid
    container: str
    restart: int
    container_id: ContainerId | None = None
    made_at: float = 0.0


def links_below(host_root: Path) -> Path:
    """Name the folder of the links where the host's root is mounted at `host_root`."""
    return host_root / LINKS.relative_to("/")


def parse(name: str, target: str, made_at: float = 0.0) -> LogLink | None:
    """Read one link; None if it is not the kubelet's."""
    match = _TARGET.fullmatch(target)
    if match is None:
        return None
    namespace, pod, uid, container, restart = match.groups()
    id_ = re.fullmatch(re.escape(f"{pod}_{namespace}_{container}-") + r"([0-9a-f]{64})\.log", name)
    return LogLink(namespace, pod, PodUid(uid), container, int(restart), ContainerId(id_[1]) if id_ else None, made_at)


def read(folder: Path = LINKS) -> tuple[LogLink, ...]:
    """Read all links of the folder; empty if the folder does not exist, or may not be read."""
    links = []
    try:
        with os.scandir(folder) as entries:
            for entry, _ in zip(entries, range(MOST), strict=False):
                try:
                    made_at = entry.stat(follow_symlinks=False).st_mtime
                    link = parse(entry.name, str(Path(entry.path).readlink()), made_at)
                except (OSError, ValueError):  # gone since, no link, or a name that is no text
                    continue
                if link is not None:
                    links.append(link)
    except OSError:
        return ()
    return tuple(links)


def inventory(links: Iterable[LogLink]) -> Inventory:
    """
    Name the pods and containers of these links; of each container the generations are in order.

    A pod's `created_at` is the time of the oldest link of its containers.
    """
    pods: dict[PodUid, Pod] = {}
    containers: list[Container] = []
    for link in sorted(links, key=lambda link: (link.namespace, link.pod, link.pod_uid, link.container, link.restart)):
        known = pods.get(link.pod_uid)
        made_at = min(link.made_at, known.created_at) if known else link.made_at
        pods[link.pod_uid] = Pod(link.pod_uid, link.namespace, link.pod, created_at=made_at)
        containers.append(Container(link.pod_uid, link.container, link.container_id))
    return Inventory(pods=pods, containers=tuple(containers), known=bool(pods), live=False)
