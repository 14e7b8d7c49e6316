"""
The parts of a declaration that go into a recording: those that limits and policy read, and no others.

What comes in: the inventory, and the catalogue of the systems whose limits are read. What goes out: the inventory
without annotations, variables and parameters that neither limits nor policy read.

The rule: an annotation may hold anything, such as a manifest or a password. So only texts that are known to be read are
kept. All labels stay: selectors need them, and the operator's own labels may protect a pod.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self, TypeVar

from exporter.limits.patterns import match
from exporter.limits.rows import Catalogue, Star
from exporter.model import ClaimConfig, DeclaredContainer, DeclaredPod, Inventory, Mechanism, Pod

GRACE = "gpusteward.io/grace-seconds"
POLICY = (
    "gpusteward.io/mode",
    "gpusteward.io/allow-pod-exemption",
    "gpusteward.io/exempt",
    GRACE,
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
    "karpenter.sh/do-not-disrupt",
    "descheduler.alpha.kubernetes.io/prefer-no-eviction",
)
"""Annotations and labels that a policy reads: gpusteward's own, and those by which other tools spare a pod."""
POLICY_VALUES = ("off", "observe", "warn", "dry-run", "enforce", "true", "false")
"""Values that a policy compares them with."""
RELATED = (
    "gpusteward.io/*",
    "cluster-autoscaler.kubernetes.io/*",
    "karpenter.sh/*",
    "descheduler.alpha.kubernetes.io/*",
    "controller.kubernetes.io/pod-deletion-cost",
)
"""Others of these families, which a later version may read."""
BESIDE = ("gpu-fraction-container-name",)
"""Annotations that a decoder (KAI's) reads in addition to the text of its row: the name of a container."""
_Pod = TypeVar("_Pod", Pod, DeclaredPod)


@dataclass(frozen=True, slots=True)
class Keeping:
    """The keys that limits and policy read, with `*` for any text."""

    pod_annotations: tuple[str, ...] = POLICY + RELATED
    pod_labels: tuple[str, ...] = POLICY + RELATED
    namespace_labels: tuple[str, ...] = POLICY
    node_annotations: tuple[str, ...] = ()
    node_labels: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    """Dotted paths in the configuration of a claim."""
    of_containers: tuple[str, ...] = ()
    """Those of `pod_annotations` whose `*` stands for the name of a container."""
    amounts: tuple[str, ...] = (GRACE,)
    """The keys whose text is read. Of other keys, only their presence or one of `values` counts."""
    namespaces: frozenset[str] = frozenset()
    """Namespaces in which a system's reservation pods are known."""
    values: frozenset[str] = frozenset(POLICY_VALUES)
    """Values that signs, conditions and the policy compare with; they are not replaced."""

    @classmethod
    def of(cls, catalogue: Catalogue, labels: Iterable[str] = ()) -> Self:
        """Collect the keys of rows, signs and conditions of all systems; `labels` (`key=value`) are a policy's."""
        rows = [row for system in catalogue for row in system.rows]
        conditions = [condition for system in catalogue for condition in system.enforced_when]
        signs = [system.detect for system in catalogue]
        reservations = [system.reservation for system in catalogue if system.reservation is not None]
        reserving = [label for reservation in reservations for label in (*reservation.labels, reservation.group)]
        chosen = tuple(labels)
        label_signs = [label for sign in signs for label in (*sign.pod_labels, *sign.node_labels)] + reserving
        compared = [label.partition("=")[2] for label in (*label_signs, *chosen)]
        values = [*POLICY_VALUES, *compared, *(condition.value for condition in conditions)]

        def keys(mechanism: Mechanism) -> list[str]:
            return [row.key for row in rows if row.mechanism is mechanism]

        def when(at: str) -> list[str]:
            return [condition.key for condition in conditions if condition.at == at]

        return cls(
            pod_annotations=_unique(
                (*POLICY, *RELATED, *BESIDE, *keys(Mechanism.ANNOTATION), *when("pod-annotation")),
                *(sign.pod_annotations for sign in signs),
            ),
            pod_labels=_unique(
                (*POLICY, *RELATED),
                _keys(chosen),
                keys(Mechanism.LABEL),
                when("pod-label"),
                *(_keys(sign.pod_labels) for sign in signs),
                filter(None, _keys(reserving)),
            ),
            namespace_labels=_unique(POLICY, _keys(chosen)),
            node_annotations=_unique(
                filter(None, (key for row in rows for key in (row.register, row.factor))),
                when("node-register"),
                *(sign.node_annotations for sign in signs),
            ),
            node_labels=_unique(when("node-label"), *(_keys(sign.node_labels) for sign in signs)),
            env=_unique(keys(Mechanism.ENV), *(system.bypass_env for system in catalogue)),
            parameters=_unique(keys(Mechanism.CLAIM_CONFIG)),
            of_containers=_unique(row.key for row in rows if row.star is Star.CONTAINER),
            amounts=_unique((GRACE,), keys(Mechanism.ANNOTATION), keys(Mechanism.LABEL)),
            namespaces=frozenset(name for reservation in reservations for name in reservation.namespaces),
            values=frozenset(filter(None, values)),
        )

    def inventory(self, whole: Inventory) -> Inventory:
        """Return the inventory without annotations, variables and parameters that are not read."""

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
    """Return the texts whose keys match a pattern."""
    return {key: text for key, text in texts.items() if any(match(pattern, key) is not None for pattern in patterns)}


def _at_paths(parameters: Mapping[str, object], paths: Iterable[str]) -> dict[str, object]:
    """Return the values at these paths. Other keys stay without their values: a decoder checks if a key is present."""
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
    """Return the keys of labels that are written as `key` or `key=value`."""
    return tuple(sign.partition("=")[0] for sign in signs)


def _unique(*lists: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for keys in lists for key in keys))
