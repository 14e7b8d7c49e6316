"""
The frozen types of `decide`: the policy's memory and its verdicts.

Nothing comes in. What goes out: moments, actions, outcomes, histories and verdicts.

The rule: a history is all that the policy knows of the past. The same history, rules, snapshot and moment give the same
verdict. The journal keeps `spent`, `breakers` and open actions; `levels` are saved beside it.

Above 300 lines, because one list of frozen types is what each other module of the policy imports.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from enforcer.policy.holder import CaseKey, HolderKey, Target
from enforcer.policy.levels import Level
from enforcer.policy.rules import Rules
from enforcer.policy.vocabulary import Breaker, Mode, Place, Reason, Rung, Scope, State
from exporter.model import ContainerId, DeviceKey, Limit, PodUid

Workload = tuple[str, str, str]
"""Namespace, kind and name of the top controller: what stays when a pod is made anew."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Seconds of CLOCK_MONOTONIC and of CLOCK_BOOTTIME, which counts the sleep of a suspended machine, too."""

    monotonic: float
    boot: float


@dataclass(slots=True, unsafe_hash=True)  # as `Case`
class Holding:
    """
    The usage of one limit holder on one device, with its limit. States, actions and messages are about a holding.

    Attributes:
        namespace: of the pod; so is `pod`, its name. Empty where Kubernetes has not named the pod.
        used: bytes; None where they are unknown.
        largest: of a pod's or a claim's limit, the container that holds most of the device; None where that is unknown.
        allowance: bytes that are allowed above the limit for the CUDA contexts of its processes.

    """

    key: CaseKey
    limit: Limit
    namespace: str
    pod: str
    used: int | None
    largest: Target | None = field(default=None, kw_only=True)
    allowance: int = field(default=0, kw_only=True)

    @property
    def container(self) -> str:
        """Its name; empty where the limit is a pod's or a claim's."""
        return self.key.container

    @property
    def victim(self) -> Target | None:
        """The container that `kill` and `fence` act on; None where there is no such one."""
        own = Target(self.key.container, self.key.container_id) if self.key.container_id else None
        return own or self.largest

    @property
    def device(self) -> DeviceKey:
        """The device on which the limit counts."""
        return self.limit.device

    @property
    def claim(self) -> str:
        """`namespace/name` of the claim whose limit this is; empty otherwise."""
        return self.key.claim


@dataclass(slots=True, unsafe_hash=True)  # as `Case`
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

    ACCEPTED = "accepted"  # confirmed: the pod is being deleted or moved, SIGTERM was delivered, the fence is set
    UNKNOWN = "unknown"  # the request may have been carried out, and no look could tell
    ABANDONED = "abandoned"  # the last look found that it is not justified now; nothing was sent
    BLOCKED = "blocked"  # a PodDisruptionBudget or a webhook does not allow it
    FORBIDDEN = "forbidden"  # 403: no right to evict in this namespace
    UNAUTHORIZED = "unauthorized"  # 401: the daemon's token is not accepted
    REFUSED = "refused"  # any other no: an admission policy, or a fault of ours
    IMPOSSIBLE = "impossible"  # the step cannot be carried out on this container
    FAILED = "failed"  # it certainly did not happen
    REHEARSED = "rehearsed"  # dry run: nothing prevented the action, and nothing was done
    VERIFIED = "verified"  # later: the effect was seen
    LINGERS = "lingers"  # later: the pod takes long to end (its own grace, a finalizer)
    STUCK = "stuck"  # later: no effect was seen by the deadline

    @property
    def harmless(self) -> bool:
        """Whether it is certain that nothing was done to any pod."""
        return self not in _MAY_HAVE_ACTED


_MAY_HAVE_ACTED = frozenset({Result.ACCEPTED, Result.UNKNOWN, Result.VERIFIED, Result.LINGERS, Result.STUCK})


@dataclass(frozen=True, slots=True)
class InFlight:
    """An action that has begun, its beginning in monotonic seconds, and the token that it took."""

    action: Action
    at: float
    token: "Spent | None" = None


@dataclass(frozen=True, slots=True)
class Spent:
    """A token of the budgets, taken when an action was intended: `at` in boot seconds, `time` in Unix time."""

    at: float
    workload: Workload
    time: float = 0.0


@dataclass(frozen=True, slots=True)
class Opened:
    """An open breaker: since when (boot seconds), and why. A person closes it."""

    at: float
    detail: str


@dataclass(frozen=True, slots=True)
class Hold:
    """A hold on a node, a namespace or a pod: until when (monotonic; None: until lifted), and how often in a row."""

    until: float | None
    detail: str = ""
    times: int = 1


HoldKey = tuple[Place, str, Reason]
"""What is held (the name is empty for the node), and why."""


@dataclass(slots=True, unsafe_hash=True)  # as `Case`
class Standing(Holding):
    """
    The state of one limit holder on one device.

    Attributes:
        reason: of `held`, `exempt`, `unjudged`, and of `due` after a dry run; None otherwise.
        detail: the reason's particulars, in words.
        mode: the effective one for this limit holder.
        rung: the next action; None where the ladder has none.
        over: this device's last reading was certainly above the ceiling.
        since: monotonic seconds at which the level last left 0; None while it is 0.
        level, capacity: seconds over the limit that count, and those after which an action is due.
        warned_at: monotonic seconds at which the present warning was asked for; None before.
        prevented: why no action would follow, whatever the level; None where one would.

    """

    state: State
    reason: Reason | None
    detail: str
    mode: Mode
    rung: Rung | None
    over: bool = False
    since: float | None = None
    level: float = 0.0
    capacity: float = 0.0
    warned_at: float | None = None
    prevented: Reason | None = None

    @property
    def due_in(self) -> float | None:
        """Seconds of further excess after which an action is due; None while the level does not rise."""
        return max(0.0, self.capacity - self.level) if self.over else None


@dataclass(frozen=True, slots=True)
class Change:
    """A limit holder whose state or warning is new; `before` is None for a new limit holder."""

    before: State | None
    after: Standing


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    What `decide` says of one snapshot.

    Attributes:
        mode: of the node.
        action: the one thing to do now.
        changes: of states; those into `held` are the refusals.
        breakers: the open ones.
        remaining: tokens left, of the scope's most spent one.
        blast: workloads over their limits, and those with limits, as the breaker blast_radius counts them.

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
        """The limit holders that are held as of this round, for the first time or for another reason."""
        return tuple(change.after for change in self.changes if change.after.state is State.HELD)


Series = tuple[str, str, str, DeviceKey]
"""Namespace, pod and container (empty for a pod's or claim's limit) and device: the labels of a counter."""
DueKey = tuple[str, str, str, DeviceKey, Reason | None]
"""A series, and the reason for which the holder was not acted on; None while nothing prevented the action."""


@dataclass(frozen=True, slots=True)
class Settled:
    """
    What may change on our side, and since when it is so.

    Attributes:
        rules: in force; without ceilings, which come and go by themselves.
        drivers: versions of the GPUs' drivers.
        since: monotonic seconds of the first snapshot with these.
        vetted: the blast radius was judged with these, and the hold-off is over.
        read_all: monotonic seconds since when the labels of every namespace with limits could be read; None: not now.

    """

    rules: Rules
    drivers: frozenset[str]
    since: float
    vetted: bool = False
    read_all: float | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """
    A neighbour that ended abnormally on a nearly full device.

    Attributes:
        need: bytes that it may hold of the device.
        until: monotonic seconds until which it counts.
        workload: whose pod it was; a later pod of this workload takes its place.

    """

    need: int
    until: float
    workload: Workload = ("", "", "")


@dataclass(frozen=True, slots=True)
class Lives:
    """
    What of a round is needed to notice in the next one that a pod ended abnormally.

    Attributes:
        generations: the last known id of each container of a pod in `entitled`.
        entitled: bytes that each living pod may hold of each device; without pods that are over their limit.
        full: devices that were nearly full.

    """

    generations: Mapping[tuple[PodUid, str], ContainerId] = field(default_factory=dict)
    entitled: Mapping[tuple[DeviceKey, PodUid], int] = field(default_factory=dict)
    full: frozenset[DeviceKey] = frozenset()


@dataclass(frozen=True, slots=True)
class History:
    """
    What is remembered from one snapshot to the next. Times are monotonic seconds unless they say otherwise.

    Attributes:
        shown: when the newest snapshot was taken; `round_at`: the newest by time (see `Snapshot.by_time`).
        settled: what of ours is in force; None before the first snapshot.
        parts: the UUIDs of each device's MIG instances, to notice that an instance is another one now.
        levels: by limit holder, as long as its pod or claim exists.
        over_seconds: measured above the limit, by the labels of the metric.
        due_seconds: seconds that limit holders were due, by series and reason.
        spent: tokens of the budgets.
        holds: what is held until when.
        tried: pods that were tried in vain in their present excess, and when last.
        turns: when a pod of each namespace was last tried in vain.
        retry_next: the next action goes to a pod that was tried before, if there is one.
        done: steps that are done, or cannot be, so that the next one follows: a fence, or a blocked eviction.
        fenced: holders on a device that were fenced, or could not be, in any generation of their containers.
        in_flight: the action that has begun and is not confirmed; `dry_flight` a dry one.
        ended_at: when the last action was accepted.
        deleted: when each pod was first seen terminating.
        ended: neighbours that ended abnormally.
        lives: what was so in the round before, to notice that a neighbour ended abnormally.

    """

    at: Moment | None = None
    shown: float | None = None
    round_at: float | None = None
    settled: Settled | None = None
    parts: Mapping[DeviceKey, tuple[str, ...]] = field(default_factory=dict)
    levels: Mapping[HolderKey, Level] = field(default_factory=dict)
    standings: Mapping[CaseKey, Standing] = field(default_factory=dict)
    over_seconds: Mapping[Series, float] = field(default_factory=dict)
    due_seconds: Mapping[DueKey, float] = field(default_factory=dict)
    spent: tuple[Spent, ...] = ()
    breakers: Mapping[Breaker, Opened] = field(default_factory=dict)
    holds: Mapping[HoldKey, Hold] = field(default_factory=dict)
    tried: Mapping[PodUid, float] = field(default_factory=dict)
    turns: Mapping[str, float] = field(default_factory=dict)
    retry_next: bool = False
    done: frozenset[tuple[CaseKey, Rung]] = frozenset()
    fenced: frozenset[CaseKey] = frozenset()
    in_flight: InFlight | None = None
    dry_flight: InFlight | None = None
    ended_at: float | None = None
    deleted: Mapping[PodUid, float] = field(default_factory=dict)
    ended: Mapping[tuple[DeviceKey, PodUid], Ended] = field(default_factory=dict)
    lives: Lives = field(default_factory=Lives)
