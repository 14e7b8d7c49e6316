"""
What of a declaration goes into a recording: that which limits and policy read, and nothing else.

What comes in: the inventory, and the catalogue of the systems whose limits are read. What goes out: the inventory
without annotations, variables and parameters that nobody here reads.

The law: an annotation may hold anything, a manifest or a password. What is not known to be read is left out. Labels
stay: they are made to be selected by, and the operator's own may protect a pod.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

from exporter.limits.rows import Catalogue, Mechanism, Star, match
from exporter.model import Claim, DeclaredContainer, DeclaredPod, Inventory, NodeFacts, Pod

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
    values: frozenset[str] = frozenset()
    """Words that conditions compare with; a pod that is called so must not change them."""

    @classmethod
    def of(cls, catalogue: Catalogue, labels: Iterable[str] = ()) -> Self:
        """Collect what the rows, the signs and the conditions of all systems read; `labels` are a policy's own."""
        keys: dict[Mechanism, list[str]] = {mechanism: [] for mechanism in Mechanism}
        values: list[str] = []
        when: dict[str, list[str]] = {"pod-annotation": [], "pod-label": [], "node-label": []}
        for system in catalogue:
            for row in system.rows:
                keys[row.mechanism].append(row.key)
            for condition in system.enforced_when:
                when[condition.at].append(condition.key)
                values.append(condition.value)
        signs = [system.detect for system in catalogue]
        values += (sign.partition("=")[2] for one in signs for sign in (*one.pod_labels, *one.node_labels))
        return cls(
            pod_annotations=_unique(
                [*POLICY, *BESIDE, *keys[Mechanism.ANNOTATION], *when["pod-annotation"]],
                *(sign.pod_annotations for sign in signs),
            ),
            pod_labels=_unique(
                [*POLICY, *labels, *keys[Mechanism.LABEL], *when["pod-label"]],
                *map(_keys, (s.pod_labels for s in signs)),
            ),
            node_annotations=_unique(
                (r.register for s in catalogue for r in s.rows if r.register), *(s.node_annotations for s in signs)
            ),
            node_labels=_unique(when["node-label"], *map(_keys, (s.node_labels for s in signs))),
            env=_unique(keys[Mechanism.ENV], *(system.bypass_env for system in catalogue)),
            parameters=_unique(keys[Mechanism.CLAIM_CONFIG]),
            of_containers=_unique(r.key for s in catalogue for r in s.rows if r.star is Star.CONTAINER),
            values=frozenset(filter(None, values)),
        )

    def inventory(self, whole: Inventory) -> Inventory:
        """Leave out what nobody reads."""
        return replace(
            whole,
            pods={uid: self._pod(pod) for uid, pod in whole.pods.items()},
            declared={uid: self._declared(pod) for uid, pod in whole.declared.items()},
            node=self._node(whole.node),
            claims=tuple(map(self._claim, whole.claims)),
        )

    def _pod(self, pod: Pod) -> Pod:
        return replace(pod, annotations=read(self.pod_annotations, pod.annotations))

    def _declared(self, pod: DeclaredPod) -> DeclaredPod:
        containers = tuple(map(self._container, pod.containers))
        return replace(pod, annotations=read(self.pod_annotations, pod.annotations), containers=containers)

    def _container(self, container: DeclaredContainer) -> DeclaredContainer:
        return replace(container, env=read(self.env, container.env))

    def _node(self, node: NodeFacts | None) -> NodeFacts | None:
        return None if node is None else replace(node, annotations=read(self.node_annotations, node.annotations))

    def _claim(self, claim: Claim) -> Claim:
        configs = (
            replace(config, parameters=_at_paths(config.parameters, self.parameters)) for config in claim.configs
        )
        return replace(claim, configs=tuple(configs))


def read(patterns: Iterable[str], texts: Mapping[str, str]) -> dict[str, str]:
    """Pick those texts whose keys match."""
    return {key: text for key, text in texts.items() if any(match(pattern, key) is not None for pattern in patterns)}


def _at_paths(parameters: Mapping[str, object], paths: Iterable[str]) -> dict[str, object]:
    found: dict[str, object] = {key: {} for key in parameters}  # that a key is there says something, too
    for path in paths:
        *folders, last = path.split(".")
        inside: object = parameters
        for folder in folders:
            inside = inside.get(folder) if isinstance(inside, Mapping) else None
        if isinstance(inside, Mapping) and last in inside:
            target = found
            for folder in folders:
                below = target.setdefault(folder, {})
                if not isinstance(below, dict):
                    break
                target = below
            else:
                target[last] = inside[last]
    return found


def _keys(signs: Iterable[str]) -> tuple[str, ...]:
    """Take the keys of labels that may say `key=value`."""
    return tuple(sign.partition("=")[0] for sign in signs)


def _unique(*lists: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for keys in lists for key in keys))
