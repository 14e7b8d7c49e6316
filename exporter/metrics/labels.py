"""
The labels of samples, which name a GPU, a device or a container.

What comes in: the snapshot, and names. What goes out: dicts of label values, `node` and those of `WORKLOAD` first.

The rule: two series of one node never have the same labels. Facts with the same labels are grouped by name first. The
labels of a series are one object for as long as it is on the page, so that their text is written once.
"""

from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from typing import TypeVar

from exporter.model import DeviceKey, GpuUuid, PodUid, Snapshot

GPU = ("gpu", "uuid")
LEAF = (*GPU, "gpu_instance")
WORKLOAD = ("namespace", "pod", "container")
CONTAINER = (*WORKLOAD, *LEAF)
EXPORTED = {name: f"exported_{name}" for name in WORKLOAD}
"""
The other names of these labels, for a Prometheus that writes its own `namespace`, `pod` and `container` over them.

They are the names that such a Prometheus itself gives to a label that it overrides.
"""

LONGEST = 512
"""Characters of a label value. A value from a pod's annotation could have 256 KiB, and would inflate the page."""

KEPT = 2**13
"""Labels that are kept from page to page: those of 512 containers on 16 GPUs are 4,000, in 4 MB."""


class Labels(dict[str, str]):
    """
    Shared by the samples of one GPU, device or container in all families and pages; never changed once made.

    Attributes:
        text: as on a page, with the names in alphabetical order; None until it is written.
        exported: the same with the other names of `EXPORTED`.

    """

    __slots__ = ("exported", "text")

    def __init__(self, labels: dict[str, str]) -> None:
        super().__init__(labels)
        self.text: str | None = None
        self.exported: str | None = None


Name = tuple[str, str, str, DeviceKey]
"""Namespace, pod, container, device: the identity of a container's series."""

T = TypeVar("T")


class NodeLabels:
    """Makes the labels of one snapshot's samples."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._node = snapshot.node
        summed = {device.uuid: sums.index for device, sums in snapshot.integrals.items()}
        self._index = {uuid: str(index) for uuid, index in (summed | known_gpus(snapshot)).items()}

    def of(self, **own: str) -> Labels:
        """Make labels without a GPU or device."""
        return labelled(self._node, **own)

    def gpu(self, uuid: GpuUuid, **more: str) -> Labels:
        """Make the labels of a physical GPU."""
        return self.of(gpu=self._index.get(uuid, ""), uuid=uuid, **more)

    def gpu_each(self, uuid: GpuUuid, label: str, values: Iterable[str]) -> tuple[Labels, ...]:
        """Make the labels of a physical GPU, once with each of these values of one more label."""
        return _each(self._node, self._index.get(uuid, ""), uuid, label, tuple(values))

    def device(self, key: DeviceKey, **more: str) -> Labels:
        """Make a device's labels. `gpu_instance` is empty for a GPU with MIG off, because 0 can be an instance's id."""
        if more:
            return self.gpu(key.uuid, gpu_instance=_instance(key), **more)
        return _device(self._node, self._index.get(key.uuid, ""), key)

    def container(self, namespace: str, pod: str, container: str, key: DeviceKey, **more: str) -> Labels:
        """Make the labels of a container on a device; `container` is empty for the whole pod."""
        if more:
            return self.device(key, namespace=namespace, pod=pod, container=container, **more)
        return _container(self._node, self._index.get(key.uuid, ""), (namespace, pod, container), key)


def known_gpus(snapshot: Snapshot) -> dict[GpuUuid, int]:
    """Return the index of each GPU that the driver counts, also of GPUs that did not answer."""
    return {**snapshot.gpus_present, **{gpu.uuid: gpu.index for gpu in snapshot.gpus}}


def by_name(snapshot: Snapshot, parts: Iterable[tuple[PodUid, str, DeviceKey, T]]) -> dict[Name, list[T]]:
    """
    Group facts about containers by name; a fact whose pod has no name is left out.

    While a pod or container terminates, the next one of its name may already run. Then a name has several facts.
    """
    grouped: dict[Name, list[T]] = defaultdict(list)
    for pod_uid, container, device, part in parts:
        if (pod := snapshot.pods.get(pod_uid)) is not None:
            grouped[pod.namespace, pod.name, container, device].append(part)
    return grouped


def labelled(node: str, **own: str) -> Labels:
    """
    Make the labels of a sample: `node` and those of `WORKLOAD`, then its own.

    Without a container, `namespace`, `pod` and `container` are empty, but present. Prometheus fills a missing label
    with that of the daemon's own pod, also with honorLabels. It leaves an empty label alone
    (https://github.com/prometheus/prometheus/pull/3845).
    """
    return _made(node, _shared(tuple(own)), tuple(own.values()))


@lru_cache(maxsize=KEPT)
def _made(node: str, names: tuple[str, ...], values: tuple[str, ...]) -> Labels:
    own = _all_written(dict(zip(names, values, strict=True)))
    return Labels({"node": written(node), "namespace": "", "pod": "", "container": "", **own})


@lru_cache(maxsize=1024)
def _shared(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return one object for equal names. Each kept series would have a copy, or a pair for each label: half a kB."""
    return names


@lru_cache(maxsize=KEPT)
def _container(node: str, index: str, workload: tuple[str, str, str], key: DeviceKey) -> Labels:
    """Make the labels that each page asks for most often: to find them here takes a tenth of the way there."""
    namespace, pod, container = workload
    device = {"gpu": index, "uuid": key.uuid, "gpu_instance": _instance(key)}
    return labelled(node, **device, namespace=namespace, pod=pod, container=container)


@lru_cache(maxsize=KEPT)
def _device(node: str, index: str, key: DeviceKey) -> Labels:
    return labelled(node, gpu=index, uuid=key.uuid, gpu_instance=_instance(key))


def _instance(key: DeviceKey) -> str:
    return "" if key.gpu_instance is None else str(key.gpu_instance)


@lru_cache(maxsize=KEPT)
def _each(node: str, index: str, uuid: GpuUuid, label: str, values: tuple[str, ...]) -> tuple[Labels, ...]:
    return tuple(labelled(node, gpu=index, uuid=uuid, **{label: value}) for value in values)


def _all_written(labels: dict[str, str]) -> dict[str, str]:
    text = "".join(labels.values())
    if len(text) <= LONGEST and text.isprintable():  # nearly always; four times as fast as a check per value
        return labels
    return {name: written(value) for name, value in labels.items()}


def written(value: str) -> str:
    """
    Make a label value that every scraper can read. The renderer later escapes quote, newline and backslash.

    A lone surrogate (a byte that was not UTF-8) and a NUL become escape sequences: either of them would make the whole
    page unreadable, not only its sample.
    """
    if value.isprintable() and len(value) <= LONGEST:
        return value
    return value[:LONGEST].encode(errors="backslashreplace").decode().replace("\0", "\\x00")
