"""
Take the names out of a recording, so that it can be shown to strangers.

What comes in: answers as they are kept, and a salt that nobody stores. What goes out: the same with pseudonyms: one
name, one pseudonym, in all rounds and all places; UIDs and container ids keep their form.

The law: what limits and policy come out as does not change. So numbers, times, resources, the models and UUIDs of GPUs
stay, and so do the namespaces that are the same in every cluster. Texts in which a name may hide (messages of faults of
the names, labels that nobody reads, the pools of claims) are left out or replaced.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from itertools import chain

import msgspec

from exporter.limits.rows import fill, match
from exporter.model import (
    Allocation,
    Claim,
    Container,
    ContainerId,
    DeclaredContainer,
    DeclaredPod,
    Fault,
    Inventory,
    NodeFacts,
    Owner,
    Pod,
    PodUid,
)
from exporter.recording.answers import HostRead
from exporter.recording.keeping import Keeping, read
from exporter.recording.lines import Header

SYSTEM = re.compile(r"default|kube-[a-z0-9-]+|gpu-operator|gpusteward|system-(?:node|cluster)-critical")
"""Namespaces and priority classes that are called so everywhere; a policy protects some of them by name."""
NODE_LABELS = ("nvidia.com/*", "cloud.google.com/gke-*")
"""What feature discovery and GKE write on nodes about their GPUs."""
_HEX = re.compile(r"[0-9a-f][0-9a-f-]{30,63}")
_WORD = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")

Texts = Mapping[str, str]
FirstSeen = Mapping[str, list[dict[str, str | int | None]]]


class Pseudonyms:
    """Makes pseudonyms of names. Two recordings with different salts have nothing in common."""

    def __init__(self, salt: bytes, keeping: Keeping) -> None:
        self._salt = salt
        self._keeping = keeping

    def name(self, kind: str, text: str) -> str:
        """Replace the name of a `kind` of thing; nothing stays nothing."""
        return text if not text or SYSTEM.fullmatch(text) else f"{kind}-{self._digest(kind, text)[:8]}"

    def id(self, text: str) -> str:
        """Replace a UID, a container id or a hash; digits by digits, so that it looks like what it is."""
        if not _HEX.fullmatch(text):
            return text and f"id-{self._digest('id', text)[:12]}"
        digits = iter(self._digest("id", text))
        return "".join(one if one == "-" else next(digits) for one in text)

    def host(self, whole: HostRead) -> HostRead:
        """Replace the ids in an answer of the kernel."""
        sample = whole.sample
        processes = {
            pid: replace(one, owner=one.owner and self.owner(one.owner)) for pid, one in sample.processes.items()
        }
        living = None if sample.living is None else frozenset(map(self.owner, sample.living))
        return replace(whole, sample=replace(sample, processes=processes, living=living))

    def inventory(self, whole: Inventory) -> Inventory:
        """Replace the names and ids in an inventory."""
        containers: dict[PodUid, list[str]] = defaultdict(list)
        for one in whole.containers:
            containers[one.pod_uid].append(one.name)
        return replace(
            whole,
            pods={PodUid(self.id(uid)): self._pod(pod, containers[uid]) for uid, pod in whole.pods.items()},
            containers=tuple(map(self._container, whole.containers)),
            allocations=tuple(map(self._allocation, whole.allocations)),
            declared={PodUid(self.id(uid)): self._declared(pod) for uid, pod in whole.declared.items()},
            node=whole.node and self._node(whole.node),
            claims=tuple(map(self._claim, whole.claims)),
            namespaces={
                self.name("namespace", name): read(self._keeping.pod_labels, labels)
                for name, labels in whole.namespaces.items()
            },
            faults=tuple(map(self._fault, whole.faults)),
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

    def _pod(self, pod: Pod, containers: Iterable[str]) -> Pod:
        names = self._names(pod.namespace, pod.name, pod.uid, containers)
        return replace(
            pod,
            uid=PodUid(self.id(pod.uid)),
            namespace=self.name("namespace", pod.namespace),
            name=self.name("pod", pod.name),
            workload=self.name("workload", pod.workload),
            queue=self.name("queue", pod.queue),
            priority_class=self.name("priority", pod.priority_class),
            config_hash=None if pod.config_hash is None else PodUid(self.id(pod.config_hash)),
            labels=self._texts(read(self._keeping.pod_labels, pod.labels), names),
            annotations=self._texts(pod.annotations, names),
        )

    def _declared(self, pod: DeclaredPod) -> DeclaredPod:
        names = self._names(pod.namespace, pod.name, pod.uid, (one.name for one in pod.containers))
        return replace(
            pod,
            uid=self.id(pod.uid),
            namespace=self.name("namespace", pod.namespace),
            name=self.name("pod", pod.name),
            labels=self._texts(read(self._keeping.pod_labels, pod.labels), names),
            annotations=self._texts(pod.annotations, names),
            containers=tuple(map(self._declared_container, pod.containers)),
            claims={self.name("use", own): self.name("claim", claim) for own, claim in pod.claims.items()},
            held=tuple(replace(one, container=self.name("container", one.container)) for one in pod.held),
        )

    def _declared_container(self, one: DeclaredContainer) -> DeclaredContainer:
        claims = tuple(replace(use, name=self.name("use", use.name)) for use in one.claims)
        return replace(one, name=self.name("container", one.name), claims=claims)

    def _container(self, one: Container) -> Container:
        id_ = None if one.id is None else ContainerId(self.id(one.id))
        return replace(one, pod_uid=PodUid(self.id(one.pod_uid)), name=self.name("container", one.name), id=id_)

    def _allocation(self, one: Allocation) -> Allocation:
        return replace(
            one,
            namespace=self.name("namespace", one.namespace),
            pod=self.name("pod", one.pod),
            container=self.name("container", one.container),
        )

    def _claim(self, claim: Claim) -> Claim:
        devices = (
            replace(one, pool=self.name("pool", one.pool), share_id=one.share_id and self.id(one.share_id))
            for one in claim.devices
        )
        return replace(
            claim,
            namespace=self.name("namespace", claim.namespace),
            name=self.name("claim", claim.name),
            devices=tuple(devices),
        )

    def _node(self, node: NodeFacts) -> NodeFacts:
        return replace(node, labels=read((*self._keeping.node_labels, *NODE_LABELS), node.labels))

    def _fault(self, fault: Fault) -> Fault:
        return replace(fault, message=f"{fault.reason} (left out)", subject=self.name("subject", fault.subject))

    def owner(self, owner: Owner) -> Owner:
        """Replace the ids in an owner."""
        pairs = (
            (None if uid is None else PodUid(self.id(uid)), None if id_ is None else ContainerId(self.id(id_)))
            for uid, id_ in owner.pairs
        )
        return replace(owner, pairs=tuple(pairs))

    def _path(self, kind: str, text: str) -> str:
        """Replace `namespace/name`."""
        namespace, slash, name = text.partition("/")
        return f"{self.name('namespace', namespace)}/{self.name(kind, name)}" if slash else self.name(kind, text)

    def _names(self, namespace: str, pod: str, uid: str, containers: Iterable[str]) -> Texts:
        """Say what the names of one pod become."""
        own = ((pod, self.name("pod", pod)), (namespace, self.name("namespace", namespace)), (uid, self.id(uid)))
        names = dict(chain(own, ((one, self.name("container", one)) for one in containers)))
        return {name: other for name, other in names.items() if name not in self._keeping.values}

    def _texts(self, texts: Texts, names: Texts) -> dict[str, str]:
        """Replace a pod's own names in its annotations and labels, where they stand as words of their own."""
        return {self._key(key): _WORD.sub(partial(_other, names=names), text) for key, text in texts.items()}

    def _key(self, key: str) -> str:
        """Replace a container's name that is a part of a key: `nvidia.com/container.<name>.gpu-memory.limit`."""
        for pattern in self._keeping.of_containers:
            if stars := match(pattern, key):
                return fill(pattern, tuple(self.name("container", star) for star in stars))
        return key

    def _digest(self, kind: str, text: str) -> str:
        return blake2b(f"{kind}\0{text}".encode("utf-8", "surrogatepass"), key=self._salt).hexdigest()


def _other(word: "re.Match[str]", names: Texts) -> str:
    return names.get(word[0], word[0])
