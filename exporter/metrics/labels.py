"""
The labels of samples: what names a GPU, a device, a container.

What comes in: the snapshot, and names. What goes out: dicts of label values, `COMMON` first.

The rule: two series of one node never have the same labels. What the labels cannot tell apart is grouped by name first.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeVar

from exporter.model import DeviceKey, GpuUuid, PodUid, Snapshot

GPU = ("gpu", "uuid")
LEAF = (*GPU, "gpu_instance")
WORKLOAD = ("namespace", "pod", "container")
CONTAINER = (*WORKLOAD, *LEAF)

COMMON = ("node", *WORKLOAD)
"""
On every sample; `namespace`, `pod` and `container` are empty where there is none. A missing label would be filled by
Prometheus, also with honorLabels, with those of the daemon's own pod; one that is present and empty is left alone
(https://github.com/prometheus/prometheus/pull/3845).
"""

LONGEST = 512
"""Characters of a label value. A pod's annotation may hold 256 KiB, and would inflate the page."""

Labels = dict[str, str]
"""Shared by the samples of one GPU, device or container, over all families; never changed after it was made."""

Name = tuple[str, str, str, DeviceKey]
"""Namespace, pod, container, device: all that the series of containers can tell apart."""

T = TypeVar("T")


class NodeLabels:
    """Makes the labels of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._common = labelled(snapshot.node)
        self._index = {uuid: str(index) for uuid, index in known_gpus(snapshot).items()}
        self._devices: dict[DeviceKey, Labels] = {}

    def of(self, **own: str) -> Labels:
        """Make labels that name neither GPU nor device."""
        return self._common | _all_written(own)

    def gpu(self, uuid: GpuUuid, **more: str) -> Labels:
        """Name a physical GPU."""
        return self.of(gpu=self._index.get(uuid, ""), uuid=uuid, **more)

    def device(self, key: DeviceKey, **more: str) -> Labels:
        """Name a device. `gpu_instance` is empty for a GPU with MIG off, because 0 is the id of a real instance."""
        if (device := self._devices.get(key)) is None:
            instance = "" if key.gpu_instance is None else str(key.gpu_instance)
            device = self._devices[key] = self.gpu(key.uuid, gpu_instance=instance)
        return device | _all_written(more)

    def container(self, namespace: str, pod: str, container: str, key: DeviceKey, **more: str) -> Labels:
        """Name a container on a device; the container is empty where the whole pod is meant."""
        return self.device(key, namespace=namespace, pod=pod, container=container, **more)


def known_gpus(snapshot: Snapshot) -> Mapping[GpuUuid, int]:
    """Return the index of each GPU that the driver counts, whether it answered or not."""
    return {**snapshot.gpus_present, **{gpu.uuid: gpu.index for gpu in snapshot.gpus}}


def by_name(snapshot: Snapshot, parts: Iterable[tuple[PodUid, str, DeviceKey, T]]) -> dict[Name, list[T]]:
    """
    Group what is known of containers by name; a part whose pod has no name is left out.

    While a pod or container terminates, the next one of its name may already run: then a name has several parts.
    """
    grouped: dict[Name, list[T]] = defaultdict(list)
    for pod_uid, container, device, part in parts:
        if (pod := snapshot.pods.get(pod_uid)) is not None:
            grouped[pod.namespace, pod.name, container, device].append(part)
    return grouped


def together(parts: Iterable[float | None]) -> float | None:
    """Sum up what has one name; one unknown part makes the sum unknown."""
    result: float = 0
    for part in parts:
        if part is None:
            return None
        result += part
    return result


def labelled(node: str, **own: str) -> Labels:
    """Make the labels of a sample: `COMMON`, then its own."""
    return {"node": written(node), "namespace": "", "pod": "", "container": "", **_all_written(own)}


def _all_written(labels: Labels) -> Labels:
    text = "".join(labels.values())
    if len(text) <= LONGEST and text.isprintable():  # nearly always, and four times as fast as one by one
        return labels
    return {name: written(value) for name, value in labels.items()}


def written(value: str) -> str:
    """
    Make a label value that every scraper can read; the format's own escaping (quote, newline, backslash) comes later.

    A lone surrogate (a byte that was not UTF-8) and a NUL are written out as an escape: either would cost the whole
    page, not only its sample.
    """
    if value.isprintable() and len(value) <= LONGEST:
        return value
    return value[:LONGEST].encode(errors="backslashreplace").decode().replace("\0", "\\x00")
