"""
Replaces the names in a recording, so that it can be shown to strangers.

What comes in: answers of the sources, and a salt that is never stored. What goes out: the parts that `keeping` keeps,
with pseudonyms. A name has the same pseudonym in all rounds and all places. UIDs and container ids keep their form.

The rule: the limits and the policy's decisions stay the same. So numbers, times, resources, and the models and UUIDs of
GPUs stay. Namespaces with the same name in every cluster stay, too. Texts that may contain a name are left out or
replaced: fault messages of names and of the host, unread labels, the pools of claims. Of a label or annotation whose
presence is a sign, the value is replaced as well, unless a condition compares with it.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

import msgspec

from exporter.kube.pods import QUEUES
from exporter.limits.patterns import fill, match
from exporter.model import (
    Allocation,
    Claim,
    ClaimedDevice,
    ClaimUse,
    Container,
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
from exporter.recording.keeping import BESIDE, Keeping, read
from exporter.recording.lines import Header

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

NAMES: Mapping[type, Mapping[str, str]] = {
    Allocation: {"namespace": "namespace", "pod": "pod", "container": "container"},
    Claim: {"namespace": "namespace", "name": "claim"},
    ClaimUse: {"name": "use"},
    ClaimedDevice: {"pool": "pool", "share_id": "id"},
    Container: {"pod_uid": "id", "name": "container", "id": "id"},
    DeclaredContainer: {"name": "container"},
    DeclaredPod: {"uid": "id", "namespace": "namespace", "name": "pod", "claims": "claim"},
    Held: {"container": "container"},
    Owner: {"pairs": "id"},
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
"""The fields that hold names, and the kind of each name. A pseudonym begins with the kind; `id` keeps the form."""
KEYS: Mapping[type, Mapping[str, str]] = {
    DeclaredPod: {"claims": "use"},
    Inventory: {"pods": "id", "declared": "id", "namespaces": "namespace"},
}
"""The same for the keys of mappings."""
SYSTEM = {
    "namespace": re.compile(r"default|kube-[a-z0-9-]+|gpu-operator|gpusteward"),
    "priority": re.compile(r"system-(?:node|cluster)-critical"),
}
"""Namespaces and priority classes with the same name in every cluster; a policy protects some of them by name."""
NODE_LABELS = (
    "nvidia.com/gpu.count",
    "nvidia.com/gpu.memory",
    "nvidia.com/gpu.replicas",
    "nvidia.com/mig-*.memory",
    "nvidia.com/mig-*.replicas",
    "cloud.google.com/gke-max-shared-clients-per-gpu",
)
"""Labels of nodes whose numbers are read: feature discovery and GKE write them."""
_HEX = re.compile(r"[0-9a-f][0-9a-f-]{30,63}")
_WORD = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")

_Facts = TypeVar("_Facts", bound="DataclassInstance")
_Pod = TypeVar("_Pod", Pod, DeclaredPod)
Own = Mapping[str, str]
FirstSeen = Mapping[str, list[dict[str, str | int | None]]]


class Pseudonyms:
    """Makes pseudonyms of names. Recordings with different salts have different pseudonyms."""

    def __init__(self, salt: bytes, keeping: Keeping) -> None:
        self._salt = salt
        self._keeping = keeping
        self._plain = {key for key in (*keeping.pod_annotations, *keeping.pod_labels) if "*" not in key}

    def name(self, kind: str, text: str) -> str:
        """Replace a name of this `kind`, or an id. An empty text, and one without a kind, stays."""
        if not text or not kind:
            return text
        if kind == "id":
            return self.id(text)
        same_everywhere = kind in SYSTEM and SYSTEM[kind].fullmatch(text)
        if same_everywhere or (kind == "namespace" and text in self._keeping.namespaces):
            return text
        return f"{kind}-{self._digest(kind, text)[:8]}"

    def id(self, text: str) -> str:
        """Replace a UID, a container id or a hash; digits become digits, so that the form stays."""
        if not _HEX.fullmatch(text):
            return text and f"id-{self._digest('id', text)[:12]}"
        digits, groups = self._digest("id", text), []
        for group in text.split("-"):
            groups.append(digits[: len(group)])
            digits = digits[len(group) :]
        return "-".join(groups)

    def owner(self, owner: Owner) -> Owner:
        """Replace the ids in an owner."""
        return self._renamed(owner)

    def host(self, whole: HostRead) -> HostRead:
        """Replace the ids in an answer of the kernel, and its messages: they may contain the path of a cgroup."""
        sample = self._renamed(whole.sample)
        return replace(whole, sample=replace(sample, faults=self._faults(sample.faults)))

    def inventory(self, whole: Inventory) -> Inventory:
        """Apply `keeping`, and replace the names and ids in the rest."""
        kept = self._keeping.inventory(whole)
        containers: dict[PodUid, list[str]] = defaultdict(list)
        for container in kept.containers:
            containers[container.pod_uid].append(container.name)
        for uid, declared in kept.declared.items():  # the status of a new or ended pod lists none
            containers[uid] += (container.name for container in declared.containers)
        texts = replace(
            kept,
            pods={uid: self._texts(pod, self._own(pod, pod, containers[uid])) for uid, pod in kept.pods.items()},
            declared={
                uid: self._texts(pod, self._own(pod, kept.pods.get(uid), containers[uid]))
                for uid, pod in kept.declared.items()
            },
            node=kept.node and replace(kept.node, labels=self._of_node(kept.node.labels)),
            namespaces={
                name: self._written(read(self._keeping.namespace_labels, labels), {name: self.name("namespace", name)})
                for name, labels in kept.namespaces.items()
            },
            faults=self._faults(kept.faults),
        )
        return self._renamed(texts)

    def header(self, whole: Header) -> Header:
        """Replace the names in a header."""
        node, seen = self.name("node", whole.node), self._first_seen(whole.first_seen)
        return msgspec.structs.replace(whole, node=node, anonymized=True, first_seen=seen)

    def _first_seen(self, whole: FirstSeen) -> FirstSeen:
        return {
            self.id(uid): [
                {
                    **declaration,
                    "container": self.name("container", str(declaration.get("container") or "")),
                    "claim": self._path("claim", str(declaration.get("claim") or "")),
                }
                for declaration in declarations
            ]
            for uid, declarations in whole.items()
        }

    def _renamed(self, facts: _Facts) -> _Facts:
        """Replace the names in facts and in the facts within them, as `NAMES` and `KEYS` say."""
        fields = _fields_with_names(type(facts))
        names = {name: self._value(getattr(facts, name), kind, key_kind) for name, kind, key_kind in fields}
        return replace(facts, **names) if names else facts

    def _value(self, value: Any, kind: str, key_kind: str = "") -> Any:
        if not value:
            return value
        if isinstance(value, str):
            return self.name(kind, value)
        if isinstance(value, Mapping):
            return {self.name(key_kind, key): self._value(inner, kind) for key, inner in value.items()}
        if isinstance(value, tuple | frozenset):
            return type(value)(self._value(inner, kind) for inner in value)
        return self._renamed(value) if is_dataclass(type(value)) else value

    def _path(self, kind: str, text: str) -> str:
        """Replace both parts of `namespace/name`."""
        namespace, slash, name = text.partition("/")
        return f"{self.name('namespace', namespace)}/{self.name(kind, name)}" if slash else self.name(kind, text)

    def _faults(self, faults: Iterable[Fault]) -> tuple[Fault, ...]:
        return tuple(
            replace(fault, message=f"{fault.reason} (left out)", subject=self.name("subject", fault.subject))
            for fault in faults
        )

    def _of_node(self, labels: Mapping[str, str]) -> dict[str, str]:
        kept = read((*self._keeping.node_labels, *NODE_LABELS), labels)
        return {key: text if text.isdecimal() else self._word(text, {}) for key, text in kept.items()}

    def _own(self, pod: Pod | DeclaredPod, known: Pod | None, containers: Iterable[str]) -> Own:
        """Map the names of a pod to their pseudonyms; those of workload and queue only if the pod is `known`."""
        kinds = {
            **({known.queue: "queue", known.workload: "workload"} if known is not None else {}),
            pod.name: "pod",
            pod.namespace: "namespace",
            pod.uid: "id",
            **dict.fromkeys(containers, "container"),
        }
        return {name: self.name(kind, name) for name, kind in kinds.items()}

    def _texts(self, pod: _Pod, own: Own) -> _Pod:
        """Replace the names in a pod's labels and annotations."""
        labels = self._written(read(self._keeping.pod_labels, pod.labels), own)
        return replace(pod, labels=labels, annotations=self._written(pod.annotations, own))

    def _written(self, texts: Mapping[str, str], own: Own) -> dict[str, str]:
        return {self._key(key, own): self._text(key, text, own) for key, text in texts.items()}

    def _key(self, key: str, own: Own) -> str:
        """Replace what a `*` stands for, such as the container in `nvidia.com/container.<name>.gpu-memory.limit`."""
        keeping = self._keeping
        for pattern in keeping.of_containers:
            if stars := match(pattern, key):
                return fill(pattern, tuple(self.name("container", star) for star in stars))
        if key in self._plain or read(keeping.amounts, {key: ""}):
            return key
        for pattern in (*keeping.pod_annotations, *keeping.pod_labels):
            if stars := match(pattern, key):
                return fill(pattern, tuple(self._word(star, own) for star in stars))
        return key

    def _text(self, key: str, text: str, own: Own) -> str:
        """Replace own names within a text that is read. Of another one, all is replaced, unless it is compared with."""
        if key in QUEUES:
            return self.name("queue", text)
        if key in BESIDE:
            return self.name("container", text)
        if not read(self._keeping.amounts, {key: ""}):
            return self._word(text, own)

        def word(found: re.Match[str]) -> str:
            # A key of the format is no name, and a number is an amount. Vgpu-manager writes `container[devices]`.
            in_json, before_devices = (found.string.startswith(mark, found.end()) for mark in ('":', "["))
            amount = found[0].isdecimal() or found[0] in self._keeping.values
            return found[0] if in_json or (amount and not before_devices) else own.get(found[0], found[0])

        return _WORD.sub(word, text)

    def _word(self, text: str, own: Own) -> str:
        return text if text in self._keeping.values else own.get(text) or self.name("text", text)

    def _digest(self, kind: str, text: str) -> str:
        return blake2b(f"{kind}\0{text}".encode("utf-8", "surrogatepass"), key=self._salt).hexdigest()


@cache
def _fields_with_names(facts: type) -> Sequence[tuple[str, str, str]]:
    """List the fields that may hold a name, with the kinds of texts and keys. The cache halves the time."""
    kinds, key_kinds = NAMES.get(facts, {}), KEYS.get(facts, {})
    return [
        (name, kinds.get(name, ""), key_kinds.get(name, ""))
        for name, hint in get_type_hints(facts).items()
        if name in kinds or name in key_kinds or any(map(_fields_with_names, _facts_within(hint)))
    ]


def _facts_within(hint: Any) -> Iterator[type]:
    """Yield the types of facts within a type: for `Mapping[PodUid, Pod]`, `Pod`."""
    if isinstance(hint, type) and is_dataclass(hint):
        yield hint
    for inner in get_args(hint):
        yield from _facts_within(inner)
