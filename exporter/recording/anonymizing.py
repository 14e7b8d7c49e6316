"""
Take the names out of a recording, so that it can be shown to strangers.

What comes in: answers of the sources, and a salt that is never stored. What goes out: what `keeping` keeps of them,
with pseudonyms: one name has one pseudonym in all rounds and all places; UIDs and container ids keep their form.

The rule: the limits and the decisions of the policy that follow do not change. So numbers, times, resources, the models
and UUIDs of GPUs stay, and so do the namespaces that are the same in every cluster. Texts in which a name may hide
(messages of faults of the names, labels that are not read, the pools of claims) are left out or replaced.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from exporter.limits.rows import fill, match
from exporter.model import (
    Allocation,
    Claim,
    ClaimedDevice,
    ClaimUse,
    Container,
    ContainerId,
    DeclaredContainer,
    DeclaredPod,
    Fault,
    Held,
    Inventory,
    Owner,
    Pod,
    PodUid,
)
from exporter.recording.answers import HostRead
from exporter.recording.keeping import Keeping, read
from exporter.recording.lines import Header

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    _Facts = TypeVar("_Facts", bound=DataclassInstance)

NAMES: Mapping[type, Mapping[str, str]] = {
    Allocation: {"namespace": "namespace", "pod": "pod", "container": "container"},
    Claim: {"namespace": "namespace", "name": "claim"},
    ClaimUse: {"name": "use"},
    ClaimedDevice: {"pool": "pool", "share_id": "id"},
    Container: {"pod_uid": "id", "name": "container", "id": "id"},
    DeclaredContainer: {"name": "container"},
    DeclaredPod: {"uid": "id", "namespace": "namespace", "name": "pod"},
    Fault: {"subject": "subject"},
    Held: {"container": "container"},
    Pod: {
        "uid": "id",
        "namespace": "namespace",
        "name": "pod",
        "workload": "workload",
        "queue": "queue",
        "priority_class": "priority",
        "config_hash": "id",
    },
}
"""Which fields hold a name, and of what kind of thing. The pseudonym begins with the kind; `id` keeps the form."""
SYSTEM = re.compile(r"default|kube-[a-z0-9-]+|gpu-operator|gpusteward|system-(?:node|cluster)-critical")
"""Namespaces and priority classes that are called so everywhere; a policy protects some of them by name."""
NODE_LABELS = ("nvidia.com/*", "cloud.google.com/gke-*")
"""What feature discovery and GKE write on nodes about their GPUs."""
_HEX = re.compile(r"[0-9a-f][0-9a-f-]{30,63}")
_WORD = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")

FirstSeen = Mapping[str, list[dict[str, str | int | None]]]


class Pseudonyms:
    """Makes pseudonyms of names. Two recordings with different salts have nothing in common."""

    def __init__(self, salt: bytes, keeping: Keeping) -> None:
        self._salt = salt
        self._keeping = keeping

    def name(self, kind: str, text: str) -> str:
        """Replace the name of a `kind` of thing, or its id. Nothing stays nothing."""
        if not text:
            return text
        if kind == "id":
            return self.id(text)
        return text if SYSTEM.fullmatch(text) else f"{kind}-{self._digest(kind, text)[:8]}"

    def id(self, text: str) -> str:
        """Replace a UID, a container id or a hash; digits by digits, so that it looks like what it is."""
        if not _HEX.fullmatch(text):
            return text and f"id-{self._digest('id', text)[:12]}"
        digits = iter(self._digest("id", text))
        return "".join(character if character == "-" else next(digits) for character in text)

    def owner(self, owner: Owner) -> Owner:
        """Replace the ids in an owner."""
        pairs = ((uid and PodUid(self.id(uid)), id_ and ContainerId(self.id(id_))) for uid, id_ in owner.pairs)
        return replace(owner, pairs=tuple(pairs))

    def host(self, whole: HostRead) -> HostRead:
        """Replace the ids in an answer of the kernel."""
        sample = whole.sample
        processes = {
            pid: replace(process, owner=process.owner and self.owner(process.owner))
            for pid, process in sample.processes.items()
        }
        living = None if sample.living is None else frozenset(map(self.owner, sample.living))
        return replace(whole, sample=replace(sample, processes=processes, living=living))

    def inventory(self, whole: Inventory) -> Inventory:
        """Leave out what is not kept, and replace the names and ids in the rest."""
        kept = self._keeping.inventory(whole)
        containers: dict[PodUid, list[str]] = defaultdict(list)
        for container in kept.containers:
            containers[container.pod_uid].append(container.name)
        node_labels = (*self._keeping.node_labels, *NODE_LABELS)
        return replace(
            kept,
            pods={
                PodUid(self.id(uid)): self._renamed(pod, **self._texts(pod, containers[uid]))
                for uid, pod in kept.pods.items()
            },
            containers=tuple(map(self._renamed, kept.containers)),
            allocations=tuple(map(self._renamed, kept.allocations)),
            declared={PodUid(self.id(uid)): self._declared(pod) for uid, pod in kept.declared.items()},
            node=kept.node and replace(kept.node, labels=read(node_labels, kept.node.labels)),
            claims=tuple(
                self._renamed(claim, devices=tuple(map(self._renamed, claim.devices))) for claim in kept.claims
            ),
            namespaces={
                self.name("namespace", name): read(self._keeping.pod_labels, labels)
                for name, labels in kept.namespaces.items()
            },
            faults=tuple(self._renamed(fault, message=f"{fault.reason} (left out)") for fault in kept.faults),
        )

    def header(self, whole: Header) -> Header:
        """Replace the names in a header."""
        node, seen = self.name("node", whole.node), self._first_seen(whole.first_seen)
        return msgspec.structs.replace(whole, node=node, anonymized=True, first_seen=seen)

    def _first_seen(self, whole: FirstSeen) -> FirstSeen:
        return {
            self.id(uid): [
                {
                    **one,
                    "container": self.name("container", str(one.get("container") or "")),
                    "claim": self._path("claim", str(one.get("claim") or "")),
                }
                for one in seen
            ]
            for uid, seen in whole.items()
        }

    def _renamed(self, facts: "_Facts", **others: Any) -> "_Facts":
        """Replace the names in those fields that `NAMES` lists; `others` are new values of other fields."""
        names = {field: self.name(kind, getattr(facts, field)) for field, kind in NAMES[type(facts)].items()}
        return replace(facts, **names, **others)

    def _declared(self, pod: DeclaredPod) -> DeclaredPod:
        return self._renamed(
            pod,
            containers=tuple(
                self._renamed(container, claims=tuple(map(self._renamed, container.claims)))
                for container in pod.containers
            ),
            claims={self.name("use", own): self.name("claim", claim) for own, claim in pod.claims.items()},
            held=tuple(map(self._renamed, pod.held)),
            **self._texts(pod, (container.name for container in pod.containers)),
        )

    def _path(self, kind: str, text: str) -> str:
        """Replace `namespace/name`."""
        namespace, slash, name = text.partition("/")
        return f"{self.name('namespace', namespace)}/{self.name(kind, name)}" if slash else self.name(kind, text)

    def _texts(self, pod: Pod | DeclaredPod, containers: Iterable[str]) -> dict[str, dict[str, str]]:
        """Replace a pod's own names in its labels and annotations, where they stand as words of their own."""
        names = {
            pod.name: self.name("pod", pod.name),
            pod.namespace: self.name("namespace", pod.namespace),
            pod.uid: self.id(pod.uid),
            **{name: self.name("container", name) for name in containers},
        }

        def other(word: re.Match[str]) -> str:
            return word[0] if word[0] in self._keeping.values else names.get(word[0], word[0])

        def replaced(texts: Mapping[str, str]) -> dict[str, str]:
            return {self._key(key): _WORD.sub(other, text) for key, text in texts.items()}

        labels = read(self._keeping.pod_labels, pod.labels)
        return {"labels": replaced(labels), "annotations": replaced(pod.annotations)}

    def _key(self, key: str) -> str:
        """Replace a container's name that is a part of a key: `nvidia.com/container.<name>.gpu-memory.limit`."""
        for pattern in self._keeping.of_containers:
            if stars := match(pattern, key):
                return fill(pattern, tuple(self.name("container", star) for star in stars))
        return key

    def _digest(self, kind: str, text: str) -> str:
        return blake2b(f"{kind}\0{text}".encode("utf-8", "surrogatepass"), key=self._salt).hexdigest()
