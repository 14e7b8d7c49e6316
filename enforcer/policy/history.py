"""
What the policy remembers, and what it says.

What comes in: nothing. What goes out: the frozen words of `decide`: moments, actions, outcomes, histories, verdicts.

The law: a history is all that the policy knows of the past. Who holds the same history, rules, snapshot and moment gets
the same verdict. `spent`, `breakers`, `strikes` and `excesses` outlive the daemon; evidence does not: a restart delays.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from enforcer.policy.evidence import Evidence
from enforcer.policy.limit_holders import CaseKey, Target
from enforcer.policy.rules import Rules
from enforcer.policy.vocabulary import Breaker, Mode, Reason, Rung, Scope, State
from exporter.model import ContainerId, DeviceKey, Limit, PodUid

Workload = tuple[str, str, str]
"""Namespace, kind and name of the top controller: what stays when a pod is made anew."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Seconds of CLOCK_MONOTONIC, and of CLOCK_BOOTTIME, which counts a suspended machine's sleep, too."""

    monotonic: float
    boot: float


@dataclass(frozen=True, slots=True)
class Holding:
    """
    What one limit holder uses of one device, beside its limit: what states, actions and messages are about.

    Attributes:
        namespace: of the pod; so is `pod`, its name. Empty where Kubernetes told nothing of it.
        used: bytes; None where they are unknown.
        sole_user: of a pod's limit, the only container of the pod that uses the device; None where several do.
        allowance: bytes that are allowed above the limit for the CUDA contexts of its processes.

    """

    key: CaseKey
    limit: Limit
    namespace: str
    pod: str
    used: int | None
    sole_user: Target | None = field(default=None, kw_only=True)
    allowance: int = field(default=0, kw_only=True)

    @property
    def container(self) -> str:
        """Its name; empty where the limit is a pod's or a claim's."""
        return self.key.container

    @property
    def victim(self) -> Target | None:
        """The container that `kill` and `fence` act on; None where there is no such one."""
        own = Target(self.key.container, self.key.container_id) if self.key.container_id else None
        return own or self.sole_user

    @property
    def device(self) -> DeviceKey:
        """The device on which the limit counts."""
        return self.limit.device

    @property
    def claim(self) -> str:
        """`namespace/name` of the claim whose limit this is; empty otherwise."""
        return self.key.claim


@dataclass(frozen=True, slots=True)
class Action(Holding):
    """
    One thing to do to the world; its victim is a container for `kill` and `fence`, and the pod for `evict`.

    Attributes:
        since: monotonic seconds at which the excess was seen first.
        dry: nothing is done, all else is as if it were.

    """

    used: int
    rung: Rung
    workload: Workload
    since: float
    dry: bool

    @property
    def container(self) -> str:
        """Its victim's name; empty where the limit is a pod's or a claim's, and the pod is acted on."""
        return self.victim.container if self.victim else self.key.container

    @property
    def pod_uid(self) -> PodUid:
        """Of the pod whose limit is exceeded."""
        return self.limit.pod_uid

    @property
    def container_id(self) -> ContainerId | None:
        """The victim's, in this generation; None where the limit is a pod's or a claim's, and the pod is acted on."""
        return self.victim.id if self.victim else None


class Result(StrEnum):
    """How an action ended, as far as was seen."""

    VERIFIED = "verified"  # the effect was seen
    ABANDONED = "abandoned"  # the last look saw something else; nothing was done
    BLOCKED = "blocked"  # a PodDisruptionBudget says no
    REFUSED = "refused"  # 400, 401, 403, 422: a right, an admission policy, or a bug of ours
    FAILED = "failed"  # it did not come about, and nothing is known to be wrong with us
    LINGERS = "lingers"  # the pod ends, and takes its time: a long grace, a finalizer
    STUCK = "stuck"  # accepted, and without effect by the deadline
    REHEARSED = "rehearsed"  # nothing spoke against it to the last, and nothing was done

    @property
    def harmless(self) -> bool:
        """Whether it is certain that nothing was done to anybody."""
        return self in (Result.ABANDONED, Result.BLOCKED)


@dataclass(frozen=True, slots=True)
class InFlight:
    """An action that has begun, its beginning in monotonic seconds, and the token that it took."""

    action: Action
    at: float
    token: "Spent | None" = None


@dataclass(frozen=True, slots=True)
class Spent:
    """A token of the budgets, taken when an action was intended; `at` in boot seconds, `dry` of the shadow budgets."""

    at: float
    workload: Workload
    dry: bool


@dataclass(frozen=True, slots=True)
class Opened:
    """An open breaker: since when, until when by itself (boot seconds; None: until a person closes it), and why."""

    at: float
    until: float | None
    detail: str


@dataclass(frozen=True, slots=True)
class Strikes:
    """Episodes of a workload, one of which is forgiven each half-life; `at` in boot seconds."""

    count: float
    at: float


@dataclass(frozen=True, slots=True)
class Blocked:
    """An eviction that was blocked so many times in a row, and when it may be asked for again (monotonic seconds)."""

    times: int
    until: float


@dataclass(frozen=True, slots=True)
class Standing(Holding):
    """
    The state of one limit holder.

    Attributes:
        reason: of `held`, `exempt` and `unjudged`; None otherwise.
        detail: the reason's particulars, in words.
        mode: the effective one for this limit holder.
        since: monotonic seconds at which the present excess was seen first; None while there is none.
        due_at: monotonic seconds at which its grace ends at the earliest.
        told_at: monotonic seconds at which its present grace began; None outside of one.
        spared: why nothing would follow, whatever it does; None where something would.

    """

    state: State
    reason: Reason | None
    detail: str
    mode: Mode
    rung: Rung | None
    since: float | None = None
    due_at: float | None = None
    over: bool = False
    told_at: float | None = None
    spared: Reason | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A subject whose standing is another than before, or its grace a new one; `before` is None for a new subject."""

    before: State | None
    after: Standing


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    What `decide` says of one snapshot.

    Attributes:
        mode: of the node.
        action: the one thing to do now.
        changes: of standing; those into `held` are the refusals.
        breakers: the open ones.
        remaining: tokens left, of the scope's most spent one.
        blast: pods over their limits, and pods with limits, as the blast-radius breaker counts them.

    """

    at: Moment
    mode: Mode
    standings: tuple[Standing, ...] = ()
    action: Action | None = None
    changes: tuple[Change, ...] = ()
    breakers: Mapping[Breaker, Opened] = field(default_factory=dict)
    remaining: Mapping[Scope, int] = field(default_factory=dict)
    blast: tuple[int, int] = (0, 0)

    @property
    def refusals(self) -> tuple[Standing, ...]:
        """Who would be acted on, but: as of this round, for another reason than before or for the first time."""
        return tuple(change.after for change in self.changes if change.after.state is State.HELD)


@dataclass(frozen=True, slots=True)
class Known:
    """What a GPU was like when it was last told of: the version of its driver, and how it is divided."""

    driver: str
    divided: str


Series = tuple[str, str, str, DeviceKey]
"""Namespace, pod and container (empty for a pod's or claim's limit) and leaf device: the labels of a counter."""


@dataclass(frozen=True, slots=True)
class Excess:
    """
    An excess that was told.

    Attributes:
        strikes: of its workload when it was told first, itself counted: what is forgiven later is not forgiven it.
        within: the time from which on all readings saw the subject within its limit; None: the last one did not.

    """

    strikes: float
    within: float | None = None


@dataclass(frozen=True, slots=True)
class History:
    """
    What is remembered from one snapshot to the next. Times are monotonic seconds unless they say otherwise.

    Attributes:
        started: of the first snapshot.
        shown: when the newest snapshot was taken.
        gpus: what the node's GPUs were, by UUID, to notice that they changed.
        armed: acting was allowed in the snapshot before, so that its start was looked at.
        over_seconds: measured above the limit, by the labels of the metric.
        excesses: of subjects that were told; each is one, and one strike, until three rounds in a row saw its end,
            however often the readings are interrupted.
        fenced: subjects on which a fence holds, or could not be set; the next rung follows after another grace.
        in_flight: the action that has begun and not ended; `rehearsal` a dry one, which ends by itself.
        ended_at: of the last action.
        refused: answers in a row that mean that we may not do what we do.

    """

    at: Moment | None = None
    started: float = 0.0
    shown: float | None = None
    rules: Rules | None = None
    gpus: frozenset[tuple[str, Known]] = frozenset()
    armed: bool = False
    evidence: Mapping[CaseKey, Evidence] = field(default_factory=dict)
    standings: Mapping[CaseKey, Standing] = field(default_factory=dict)
    over_seconds: Mapping[Series, float] = field(default_factory=dict)
    spent: tuple[Spent, ...] = ()
    breakers: Mapping[Breaker, Opened] = field(default_factory=dict)
    excesses: Mapping[CaseKey, Excess] = field(default_factory=dict)
    strikes: Mapping[Workload, Strikes] = field(default_factory=dict)
    blocked: Mapping[CaseKey, Blocked] = field(default_factory=dict)
    fenced: frozenset[CaseKey] = frozenset()
    in_flight: InFlight | None = None
    rehearsal: InFlight | None = None
    ended_at: float | None = None
    refused: int = 0
