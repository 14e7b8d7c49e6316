"""
What the operator wants of the policy.

Values come in that were read from the config, which alone has the defaults (`exporter.config.policy`). Frozen rules go
out, or `RulesError`.

The rule: rules that exist make sense. An impossible value (a ladder whose last step is never reached, a spacing of
zero) is refused where it is written, with what was expected.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import inf

from enforcer.policy.vocabulary import Mode, Reason, Rung, Trigger
from exporter.model import PodUid, Tolerance

LONGEST_GRACE = 3600.0
READINGS = 3
"""Readings of a device, an interval apart, that must show the excess before an action."""
APART = 0.75
"""Of an interval: readings this far apart count as one interval apart, because rounds are jittered by 20 %."""
TOGETHER = 1.5
"""Intervals: two readings at most this far apart say what was so between them."""
SLOW = 15.0
"""Seconds: two readings without a round between them count like that up to this distance, whatever the interval. On a
busy node a round can take longer than an interval, and a tenant can make a node busy."""
FEWEST_INTERVALS = 2.0
"""Intervals of excess that an action needs, even with a grace and a warn_after of 0: three readings span so much."""
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
    """Budgets of the node and of each namespace. Workloads have a back-off, which is fixed."""

    node: Budget
    namespace: Budget


@dataclass(frozen=True, slots=True)
class Protect:
    """
    The pods that are never acted on.

    Attributes:
        namespaces: names, `*` for any text.
        labels: a pod that has one of them, with this value, is protected.
        daemon_sets: pods of DaemonSets are protected.
        bare_pods: pods without a controller are protected.
        third_party: where a namespace allows exemptions, the annotations of cluster-autoscaler, Karpenter and
            descheduler that forbid an eviction are honoured.

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


@dataclass(frozen=True, slots=True)
class MissingStep:
    """
    A step of the ladder that this node cannot perform, and why.

    Attributes:
        lasting: the driver, the kernel or a right is missing, so that the next step of the ladder follows instead.
            Otherwise it is not known at the moment: no harsher step follows because of that.

    """

    step: Rung
    detail: str
    lasting: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """
    What the operator wants. Times are seconds.

    Attributes:
        interval: of full rounds.
        warn_after: seconds over the limit, in total, after which the pod gets its Event.
        grace: seconds over the limit, in total, between the Event and the first action.
        ladder: steps, the gentlest first.
        kill_when_blocked: go on to `kill` when an eviction stays blocked; else the pod is held.
        mps: the step that an excess under MPS may lead to at most.
        consent: label of a namespace, and its value, that allow destructive steps there.
        spacing: after an action and before the next one.
        hold_off: after a first start, and after a start or a reload with another version, other rules or drivers.
        own_pod: the daemon's own; `own_namespace` is protected with it.
        ceilings: what else restricts the mode of the whole node.
        missing: the steps of the ladder that this node cannot perform; found out, and not written.
        trusted_vendors: the vendors whose devices may be acted on; numbers of others were never verified on hardware.
        build: the daemon's version and the catalogue's digest: a change of ours, like a change of these rules.
        confirm: the warning of a pod must be accepted by the API server, for at most a minute, before its grace runs.
            False where there is no server to write it to (a replay).

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
    own_pod: PodUid | None = None
    own_namespace: str = ""
    ceilings: tuple[Ceiling, ...] = ()
    missing: tuple[MissingStep, ...] = ()
    trusted_vendors: frozenset[str]
    build: str = ""
    confirm: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be meant. Raises RulesError."""
        if not self.ladder or list(self.ladder) != sorted(set(self.ladder), key=tuple(Rung).index):
            raise RulesError("ladder", f"some of {', '.join(Rung)}, in this order")
        if not 0 <= self.grace <= LONGEST_GRACE:
            raise RulesError("grace", f"a duration from 0s to {LONGEST_GRACE:.0f}s")
        if not 0 < self.interval < inf:
            raise RulesError("interval", "a duration above 0s")
        if not 0 <= self.warn_after <= LONGEST_GRACE:
            raise RulesError("warn_after", f"a duration from 0s to {LONGEST_GRACE:.0f}s")
        tolerance = self.tolerance
        if not 0 <= tolerance.ratio <= 1 or tolerance.bytes < 0 or tolerance.per_process < 0:
            raise RulesError("tolerance", "a ratio from 0 to 1, and bytes and per_process of 0 or more")
        both = Rung.EVICT in self.ladder and Rung.KILL in self.ladder
        if both is not self.kill_when_blocked:
            raise RulesError(
                "when_blocked",
                "kill where the ladder has both evict and kill, and hold elsewhere: "
                "only a blocked eviction leaves a container to kill",
            )
        if self.mps not in (Rung.NOTIFY, Rung.EVICT):
            raise RulesError("mps", "notify or evict")
        key, value = self.consent
        if key == CONSENT and value != Mode.ENFORCE:  # where it is the namespace's mode, which would allow no action
            expected = f"{CONSENT}={Mode.ENFORCE} or a label with another key: this key is the namespace's mode"
            raise RulesError("namespaces.label", expected)
        for scope in ("node", "namespace"):
            budget: Budget = getattr(self.budgets, scope)
            if budget.most < 0 or not 0 < budget.window < inf:
                raise RulesError(f"budgets.{scope}", 'a number and a duration such as "3/10m"')
        if not self.interval <= self.spacing < inf:
            raise RulesError("spacing", "a duration of at least one sampling.interval")
        if not 0 <= self.hold_off < inf:
            raise RulesError("hold_off", "a duration of 0s or more")

    def differs(self, other: "Rules") -> bool:
        """Tell whether the operator wants something else by `other`. What is found out on the node does not count."""
        return self is not other and any(getattr(self, name) != getattr(other, name) for name in _WISHES)

    @property
    def in_a_row(self) -> float:
        """Seconds from one reading to the next up to which the two count as in a row; a later snapshot is stale."""
        return max(TOGETHER * self.interval, SLOW)

    def capacity(self, grace: float) -> float:
        """Return the seconds over the limit, in total, after which an action is due."""
        return max(self.warn_after + grace, FEWEST_INTERVALS * self.interval)

    def lacks(self, step: Rung) -> MissingStep | None:
        """Say why this node cannot perform a step; None: nothing speaks against it."""
        return next((each for each in self.missing if each.step is step), None) if self.missing else None

    @property
    def ceiling(self) -> Ceiling:
        """The most restrictive of the mode itself and the ceilings."""
        return min((Ceiling(self.mode, Reason.MODE), *self.ceilings), key=lambda one: one.mode.rank)


_WISHES = tuple(one.name for one in fields(Rules) if one.name not in {"ceilings", "missing"})
