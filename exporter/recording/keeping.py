"""
What of a declaration goes into a recording: that which limits and policy read, and nothing else.

What comes in: the inventory, and the catalogue of the systems whose limits are read. What goes out: the inventory
without annotations, variables and parameters that neither limits nor policy read.

The rule: an annotation may hold anything, a manifest or a password. What is not known to be read is left out. Labels
stay: they are made to be selected by, and the operator's own may protect a pod.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self, TypeVar

from exporter.limits.patterns import match
from exporter.limits.rows import Catalogue, Star
from exporter.model import ClaimConfig, DeclaredContainer, DeclaredPod, Inventory, Mechanism, Pod

POLICY = (
    "gpusteward.io/*",
    "cluster-autoscaler.kubernetes.io/*",
    "karpenter.sh/*",
    "descheduler.alpha.kubernetes.io/*",
    "controller.kubernetes.io/pod-deletion-cost",
)
"""Annotations and labels that a policy reads: ours, and what third parties promise not to evict."""
BESIDE = ("gpu-fraction-container-name",)
"""What a decoder (KAI's) reads beside the text of its row."""
_Pod = TypeVar("_Pod", Pod, DeclaredPod)


@dataclass(frozen=True, slots=True)
class Keeping:
    """Keys that are read, with `*` for any text."""

    pod_annotations: tuple[str, ...] = POLICY
    pod_labels: tuple[str, ...] = POLICY
    node_annotations: tuple[str, ...] = ()
    node_labels: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    """Dotted paths in the configuration of a claim."""
    of_containers: tuple[str, ...] = ()
    """Those of `pod_annotations` whose `*` stands for the name of a container."""
    namespaces: frozenset[str] = frozenset()
    """Namespaces in which a system's reservation pods are known."""
    values: frozenset[str] = frozenset()
    """Words that conditions compare with; a pod that is called so must not change them."""

    @classmethod
    def of(cls, catalogue: Catalogue, labels: Iterable[str] = ()) -> Self:
        """Collect what the rows, the signs and the conditions of all systems read; `labels` are a policy's own."""
        rows = [row for system in catalogue for row in system.rows]
        conditions = [condition for system in catalogue for condition in system.enforced_when]
        signs = [system.detect for system in catalogue]
        reservations = [system.reservation for system in catalogue if system.reservation is not None]
        reserving = [label for reservation in reservations for label in (*reservation.labels, reservation.group)]
        label_signs = [label for sign in signs for label in (*sign.pod_labels, *sign.node_labels)] + reserving
        values = [*(condition.value for condition in conditions), *(label.partition("=")[2] for label in label_signs)]

        def keys(mechanism: Mechanism) -> list[str]:
            return [row.key for row in rows if row.mechanism is mechanism]

        def when(at: str) -> list[str]:
            return [condition.key for condition in conditions if condition.at == at]

        return cls(
            pod_annotations=_unique(
                (*POLICY, *BESIDE, *keys(Mechanism.ANNOTATION), *when("pod-annotation")),
                *(sign.pod_annotations for sign in signs),
            ),
            pod_labels=_unique(
                POLICY,
                labels,
                keys(Mechanism.LABEL),
                when("pod-label"),
                *(_keys(sign.pod_labels) for sign in signs),
                filter(None, _keys(reserving)),
            ),
            node_annotations=_unique(
                filter(None, (key for row in rows for key in (row.register, row.factor))),
                when("node-register"),
                *(sign.node_annotations for sign in signs),
            ),
            node_labels=_unique(when("node-label"), *(_keys(sign.node_labels) for sign in signs)),
            env=_unique(keys(Mechanism.ENV), *(system.bypass_env for system in catalogue)),
            parameters=_unique(keys(Mechanism.CLAIM_CONFIG)),
            of_containers=_unique(row.key for row in rows if row.star is Star.CONTAINER),
            namespaces=frozenset(name for reservation in reservations for name in reservation.namespaces),
            values=frozenset(filter(None, values)),
        )

    def inventory(self, whole: Inventory) -> Inventory:
        """Leave out what is not read."""

        def pod(facts: _Pod) -> _Pod:
            return replace(facts, annotations=read(self.pod_annotations, facts.annotations))

        def container(facts: DeclaredContainer) -> DeclaredContainer:
            return replace(facts, env=read(self.env, facts.env))

        def config(facts: ClaimConfig) -> ClaimConfig:
            return replace(facts, parameters=_at_paths(facts.parameters, self.parameters))

        node = whole.node
        return replace(
            whole,
            pods={uid: pod(facts) for uid, facts in whole.pods.items()},
            declared={
                uid: replace(pod(facts), containers=tuple(map(container, facts.containers)))
                for uid, facts in whole.declared.items()
            },
            node=node and replace(node, annotations=read(self.node_annotations, node.annotations)),
            claims=tuple(replace(claim, configs=tuple(map(config, claim.configs))) for claim in whole.claims),
        )


def read(patterns: Iterable[str], texts: Mapping[str, str]) -> dict[str, str]:
    """Pick those texts whose keys match."""
    return {key: text for key, text in texts.items() if any(match(pattern, key) is not None for pattern in patterns)}


def _at_paths(parameters: Mapping[str, object], paths: Iterable[str]) -> dict[str, object]:
    """Pick what stands at these paths; of the other keys only their names, because that a key is there says much."""
    return {**{key: {} for key in parameters}, **_picked(parameters, paths)}


def _picked(parameters: Mapping[str, object], paths: Iterable[str]) -> dict[str, object]:
    picked: dict[str, object] = {}
    steps = [path.partition(".") for path in paths]
    for key, value in parameters.items():
        rests = [rest for first, _, rest in steps if first == key]
        if "" in rests:
            picked[key] = value
        elif isinstance(value, Mapping) and (inner := _picked(value, rests)):
            picked[key] = inner
    return picked


def _keys(signs: Iterable[str]) -> tuple[str, ...]:
    """Take the keys of labels that may say `key=value`."""
    return tuple(sign.partition("=")[0] for sign in signs)


def _unique(*lists: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for keys in lists for key in keys))
