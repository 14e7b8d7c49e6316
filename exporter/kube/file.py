"""
Names from a file: for nodes without an API server, for tests, and to look at the data of another node.

What comes in: a YAML or JSON file with a list of containers, written for instance from the labels of `crictl ps -o
json`. What goes out: the inventory.

The rule: a broken file changes nothing. The last good list stays, and a fault names the place of the error. But the
labels of namespaces, which give consent, are unknown meanwhile. An unchanged file is not read again, whether it was
good or not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from exporter.base.text_files import MalformedError, UnreadableError, plain, read
from exporter.model import Container, ContainerId, ContainerKind, Fault, Gpu, Inventory, Pod, PodUid

MOST = 4 << 20
"""Bytes: some 19 000 containers, a cluster's, where a node has hundreds. YAML of that size takes some 2 s, once."""


NOTHING: Mapping[str, str] = {}


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    One container: the names, the pod's UID, and the 64 hex characters of its id.

    Fields of the pod or the namespace are written with each of their containers; if they differ, the last one counts.
    """

    namespace: str
    pod: str
    pod_uid: str
    container: str
    container_id: str
    kind: ContainerKind = ContainerKind.REGULAR
    workload_kind: str = ""
    workload: str = ""
    controller_kind: str = ""
    phase: str = ""
    priority: int | None = None
    grace_seconds: float = 30.0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    namespace_labels: dict[str, str] | None = None


def parse(text: bytes) -> Inventory:
    """Decode the list. Raises `MalformedError`, or `msgspec.ValidationError`, which carries the path in the data."""
    entries = msgspec.convert(plain(text), list[Entry])
    pods = {
        PodUid(e.pod_uid): Pod(
            PodUid(e.pod_uid),
            e.namespace,
            e.pod,
            workload_kind=e.workload_kind,
            workload=e.workload,
            controller_kind=e.controller_kind,
            phase=e.phase,
            priority=e.priority,
            grace_seconds=e.grace_seconds,
            labels=e.labels or NOTHING,
            annotations=e.annotations or NOTHING,
        )
        for e in entries
    }
    containers = tuple(Container(PodUid(e.pod_uid), e.container, ContainerId(e.container_id), e.kind) for e in entries)
    namespaces = {e.namespace: e.namespace_labels for e in entries if e.namespace_labels is not None}
    return Inventory(pods=pods, containers=containers, namespaces=namespaces, known=True, live=True)


class FileInventory:
    """Reads the file again whenever it changed (one `stat` per round)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._inventory = Inventory()
        self._invalid: str | None = None

    async def run(self) -> None:
        """Return at once: `inventory` reads the file."""

    def inventory(self, _gpus: Sequence[Gpu] = ()) -> Inventory:
        """Return the file's inventory, or the last good one with a fault."""
        try:
            stat = self._path.stat()
            version = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
            if version != self._seen:
                self._take(read(self._path, MOST))
                self._seen = version
        except OSError as error:
            return self._remembered("names_unreadable", f"cannot read {self._path}: {error.strerror}")
        except UnreadableError as error:
            return self._remembered("names_unreadable", f"{self._path}: {error}")
        return self._inventory if self._invalid is None else self._remembered("names_invalid", self._invalid)

    def _take(self, text: bytes) -> None:
        source = str(self._path)
        try:
            self._inventory, self._invalid = parse(text), None
        except (MalformedError, msgspec.ValidationError) as error:
            where = error.at(source) if isinstance(error, MalformedError) else f"{source}: {error}"
            self._invalid = f"{where}; expected a list of {{namespace, pod, pod_uid, container, container_id}}"

    def _remembered(self, reason: str, message: str) -> Inventory:
        fault = Fault("names", reason, message, subject=str(self._path), incomplete=not self._inventory.known)
        return replace(self._inventory, namespaces={}, live=False, faults=(fault,))
