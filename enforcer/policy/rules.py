"""
What the operator wants of the policy.

What comes in: values that were read from the config, which alone has the defaults (`exporter.config.policy`). What goes
out: frozen rules, or `RulesError`.

The law: rules that exist make sense. What cannot be meant (a ladder whose last rung is never reached, a grace of three
seconds) is refused where it is written, with what was expected.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import inf

from enforcer.policy.vocabulary import Mode, Reason, Rung, Trigger
from exporter.model import PodUid, Tolerance

SHORTEST_GRACE = 30.0
"""Seconds. A checkpoint of a large model takes about as long; below that a grace is only a word."""
LONGEST_GRACE = 3600.0
ROUNDS = 3
"""Rounds, an interval apart, that must have seen the excess before anybody is told: an allocator's spike is shorter."""
COVERAGE = 0.9
"""Share of the grace in which the excess must have been seen."""
CONSENT = "gpusteward.io/mode"
ALLOW_EXEMPTION = "gpusteward.io/allow-pod-exemption"
EXEMPT = "gpusteward.io/exempt"
GRACE = "gpusteward.io/grace-seconds"


class RulesError(ValueError):
    """Rules that cannot be meant. `key` is the one below `policy`, `expected` what would make sense."""

    def __init__(self, key: str, expected: str) -> None:
        super().__init__(f"policy.{key}: expected {expected}")
        self.key = key
        self.expected = expected


@dataclass(frozen=True, slots=True)
class Budget:
    """So many actions in so many seconds."""

    most: int
    window: float


@dataclass(frozen=True, slots=True)
class Budgets:
    """Budgets of the node, of each namespace, of each workload."""

    node: Budget
    namespace: Budget
    workload: Budget


@dataclass(frozen=True, slots=True)
class Protect:
    """
    Whom nobody may touch.

    Attributes:
        namespaces: names, `*` for any text.
        labels: a pod that has one of them, with this value, is protected.
        daemon_sets: their pods come back on the same node at once, so that an eviction changes nothing.
        bare_pods: a pod without a controller does not come back after an eviction.
        third_party: what cluster-autoscaler, Karpenter and descheduler promise not to evict is not evicted.

    """

    namespaces: tuple[str, ...]
    priority_at_least: int
    labels: Mapping[str, str]
    daemon_sets: bool
    bare_pods: bool
    third_party: bool


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The mode that something outside of the policy allows at most: the stop file, an invalid config; and in words."""

    mode: Mode
    reason: Reason
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """
    What the operator wants. Times are seconds.

    Attributes:
        interval: of full rounds; "one interval apart" and "a gap" are told in it.
        ladder: rungs, the gentlest first.
        kill_when_blocked: go on to `kill` when an eviction stays blocked; else it is held and told.
        mps: the rung that an excess under MPS may lead to at most.
        consent: label of a namespace, and its value, that allow destructive rungs there.
        spacing: between the end of an action and the next one.
        hold_off: after the daemon's start, and after the node's GPUs or their driver changed.
        strikes: episodes of a workload after which it is acted on; one is forgiven each `strike_half_life`.
        own_pod: the daemon's own; `own_namespace` is protected with it.
        ceilings: what else restricts the mode of the whole node.
        trusted_vendors: whose devices may be acted on; of others the numbers were never seen on hardware.

    """

    mode: Mode
    trigger: Trigger
    tolerance: Tolerance
    warn_after: float
    grace: float
    ladder: tuple[Rung, ...]
    kill_when_blocked: bool
    mps: Rung
    consent: tuple[str, str]
    budgets: Budgets
    protect: Protect
    interval: float
    spacing: float
    hold_off: float
    strikes: int
    strike_half_life: float
    own_pod: PodUid | None = None
    own_namespace: str = ""
    ceilings: tuple[Ceiling, ...] = ()
    trusted_vendors: frozenset[str]

    def __post_init__(self) -> None:
        """Refuse what cannot be meant. Raises RulesError."""
        if not self.ladder or list(self.ladder) != sorted(set(self.ladder), key=tuple(Rung).index):
            raise RulesError("ladder", f"rungs from {', '.join(Rung)}, each once, the gentlest first")
        if not SHORTEST_GRACE <= self.grace <= LONGEST_GRACE:
            raise RulesError("grace", f"a duration from {SHORTEST_GRACE:.0f}s to {LONGEST_GRACE:.0f}s")
        if not 0 < self.interval < inf:
            raise RulesError("interval", "a duration above 0s")
        if not self.interval <= self.warn_after <= LONGEST_GRACE:
            raise RulesError("warn_after", f"a duration from one sampling.interval to {LONGEST_GRACE:.0f}s")
        tolerance = self.tolerance
        if not 0 <= tolerance.ratio <= 1 or tolerance.bytes < 0 or tolerance.per_process < 0:
            raise RulesError("tolerance", "a ratio from 0 to 1, and bytes and per_process of 0 or more")
        both = Rung.EVICT in self.ladder and Rung.KILL in self.ladder
        if both is not self.kill_when_blocked:
            raise RulesError(
                "when_blocked",
                "kill where the ladder has both evict and kill, and hold elsewhere: "
                "after an eviction only a blocked one leaves somebody to kill",
            )
        if self.mps not in (Rung.NOTIFY, Rung.EVICT):
            raise RulesError("mps", "notify or evict")
        for scope in ("node", "namespace", "workload"):
            budget: Budget = getattr(self.budgets, scope)
            if budget.most < 0 or not 0 < budget.window < inf:
                raise RulesError(f"budgets.{scope}", 'a number and a duration such as "3/10m"')
        if not self.interval <= self.spacing < inf:
            raise RulesError("spacing", "a duration of at least one sampling.interval")
        if not 0 <= self.hold_off < inf:
            raise RulesError("hold_off", "a duration of 0s or more")
        if self.strikes < 1 or not 0 < self.strike_half_life < inf:
            raise RulesError("strikes", "a number of 1 or more, and a half-life above 0s")

    def differs(self, other: "Rules") -> bool:
        """Tell whether the operator wants something else by `other`; ceilings come and go without being asked."""
        return self is not other and any(getattr(self, name) != getattr(other, name) for name in _WISHES)

    @property
    def longest_gap(self) -> float:
        """Seconds without a reading after which evidence is void: one round may be missed, two may not."""
        return 2.5 * self.interval

    @property
    def ceiling(self) -> Ceiling:
        """The most restrictive of the mode itself and the ceilings."""
        return min((Ceiling(self.mode, Reason.MODE), *self.ceilings), key=lambda one: one.mode.rank)


_WISHES = tuple(one.name for one in fields(Rules) if one.name != "ceilings")
