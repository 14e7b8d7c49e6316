"""
Reservation pods: pods that take a whole device from the kubelet so that the pods of a sharing system can use it.

What comes in: pods, their allocations, the catalogue. What goes out: the same pods, each reservation pod with the name
of its system; and the devices that a system reserves for its groups of pods.

The rule: **a label alone proves nothing.** A pod is a reservation pod only in a namespace of its system, where tenants
create no pods. A group label may be forged: it can add a limit on a device, and removes none.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from exporter.limits.patterns import labelled
from exporter.limits.rows import Catalogue
from exporter.model import DeviceKey, Pod, PodUid


@dataclass(frozen=True, slots=True)
class _Known:
    """The labels of a system's reservation pods in one namespace."""

    system: str
    labels: tuple[str, ...]
    group: str


class Reservations:
    """Recognises the reservation pods of all systems of a catalogue, or of the `chosen` ones only."""

    def __init__(self, catalogue: Catalogue, chosen: Iterable[str] | None = None) -> None:
        names = None if chosen is None else set(chosen)
        self._by_namespace: dict[str, list[_Known]] = defaultdict(list)
        for system in catalogue:
            known = system.reservation
            if known is not None and (names is None or system.name in names):
                for namespace in known.namespaces:
                    self._by_namespace[namespace].append(_Known(system.name, known.labels, known.group))
        self._groups = {
            system.name: system.reservation.group
            for system in catalogue
            if system.reservation is not None and system.reservation.group
        }

    def marked(self, pods: Mapping[PodUid, Pod]) -> Mapping[PodUid, Pod]:
        """Add its system to each reservation pod; return the same mapping if there is none."""
        found = {uid: system for uid, pod in pods.items() if (system := self._system(pod))}
        if not found:
            return pods
        return {uid: replace(pod, reservation=found.get(uid, "")) for uid, pod in pods.items()}

    def reserved(
        self, pods: Mapping[PodUid, Pod], held: Mapping[PodUid, Iterable[DeviceKey]]
    ) -> Mapping[tuple[str, str], frozenset[DeviceKey]]:
        """List the devices that are reserved for each group, by system and value of its label. `held`: by pod."""
        devices: dict[tuple[str, str], set[DeviceKey]] = defaultdict(set)
        for uid, pod in pods.items():
            value = pod.labels.get(self._groups.get(pod.reservation, ""), "")
            if pod.reservation and value:
                devices[pod.reservation, value].update(held.get(uid, ()))
        return {group: frozenset(keys) for group, keys in devices.items()}

    def groups(self, pod: Pod) -> Iterable[tuple[str, str]]:
        """
        List the groups that a pod says it belongs to.

        A pod in one group has its label; a pod in several has a label `LABEL/VALUE` for each (KAI-Scheduler
        pkg/common/resources, GetMultiFractionGpuGroupLabel).
        """
        for system, label in self._groups.items():
            for key, value in pod.labels.items():
                if key in {label, f"{label}/{value}"}:
                    yield system, value

    def _system(self, pod: Pod) -> str:
        places = self._by_namespace.get(pod.namespace, ())
        return next((known.system for known in places if labelled(known.labels, pod.labels)), "")
