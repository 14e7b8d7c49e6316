"""
A node in a play: pods with limits on one shared GPU, and a clock that the test steps.

What comes in: actors (a pod each, or several), and how much each holds. What goes out: snapshots as the sampler would
publish them, and the verdicts of the real policy on them.

The law: nothing here judges. A scene says what is so, in the model's own facts.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

from default_rules import default_rules
from enforcer.policy.decide import decide
from enforcer.policy.history import Action, History, Moment, Result, Settled, Verdict
from enforcer.policy.outcomes import conclude, rehearsed
from enforcer.policy.rules import Budget, Budgets, Rules
from enforcer.policy.vocabulary import Mode, Reason, State
from exporter.model import (
    ClaimUsage,
    Container,
    ContainerId,
    ContainerKind,
    Context,
    Device,
    DeviceAccount,
    DeviceKey,
    EnforcedBy,
    Fault,
    Gpu,
    GpuInstance,
    GpuUuid,
    Limit,
    Mechanism,
    Memory,
    Pod,
    PodUid,
    Scope,
    Sharing,
    Snapshot,
    Subject,
    Usage,
    Utilization,
)

GIB = 2**30
CARD = 80 * GIB
BEGIN = 10_000.0
"""Monotonic seconds at which plays begin, after any hold-off."""
WALL = 1_700_000_000.0
IDLE = Utilization()
CONSENTING = {"gpusteward.io/mode": "enforce"}
UNHURRIED = default_rules(
    mode=Mode.ENFORCE,
    hold_off=0.0,
    budgets=Budgets(Budget(100, 600.0), Budget(100, 600.0)),
)
"""Rules of stories that are about something else than hold-offs and budgets."""
SHORT = replace(UNHURRIED, grace=30.0)
"""With 6 rounds of grace, where the default has 24."""


# Not frozen: plays make one for each change, and a frozen one takes three times as long.
@dataclass(slots=True, unsafe_hash=True)
class Actor:
    """
    One container of one pod on one GPU, and what is so of it now. Nothing changes it.

    `used` and `limit` are bytes (None: unknown, not declared). `generation` counts restarts of the container, `uid`
    says whose pod it is when a pod of the same name is made anew. `processes` are the bytes of each process, None where
    one is unknown; they count where `context` does not say that the limit includes CUDA contexts.
    """

    pod: str
    used: int | None
    limit: int | None = 8 * GIB
    namespace: str = "team"
    container: str = "main"
    generation: int = 0
    uid: str = ""
    gpu: int = 0
    scope: str = "container"
    claim: str = ""
    kind: ContainerKind = ContainerKind.REGULAR
    problems: tuple[str, ...] = ()
    undeclared: bool = False
    report_only: tuple[str, ...] = ()
    client: bool = False
    """The driver lists its process as an MPS client."""
    declares_mps: bool = False
    """A declaration that its pod cannot forge says MPS."""
    context: Context = Context.INCLUDED
    headroom: int | None = None
    processes: tuple[int, ...] | None = None
    sure: int | None = None
    """Bytes of its processes that are measured, where `used` is unknown because of another one."""
    facts: Mapping[str, object] = field(default_factory=dict, hash=False)
    """Fields of the pod (priority, phase, annotations, ...) that are not the usual ones."""

    @property
    def pod_uid(self) -> PodUid:
        """The UID, made of the names unless said."""
        return PodUid(self.uid or f"uid-{self.namespace}-{self.pod}")

    @property
    def id(self) -> ContainerId:
        """The id of this generation."""
        return _id(self.pod_uid, self.container, self.generation)

    def named(self) -> Pod:
        """Make its pod: running, of a Deployment, with priority 0."""
        usual = _pod(self.pod_uid, self.namespace, self.pod)
        return replace(usual, **self.facts) if self.facts else usual  # type: ignore[arg-type]


@lru_cache(1024)  # plays ask each actor in each round
def _id(pod_uid: PodUid, container: str, generation: int) -> ContainerId:
    return ContainerId(sha256(f"{pod_uid} {container} {generation}".encode()).hexdigest())


def _pod(uid: PodUid, namespace: str, name: str) -> Pod:
    return Pod(
        uid,
        namespace,
        name,
        workload_kind="Deployment",
        workload=name.rsplit("-", 1)[0],
        created_at=WALL - 3600,
        phase="Running",
        priority=0,
        controller_kind="ReplicaSet",
    )


class _Part(NamedTuple):
    """What a snapshot has of one actor."""

    pod: Pod
    container: Container
    usage: Usage
    limit: Limit | None


# Rounds of a play differ in little: what is the same is made once.
@lru_cache(maxsize=8192)
def _part(actor: Actor) -> _Part:
    uid, key = actor.pod_uid, _device(actor.gpu)
    usage = Usage(
        Subject(uid, actor.container, actor.id),
        key,
        actor.used,
        memory_sure=actor.sure,
        mps=actor.client,
        process_memory=actor.processes or (),
    )
    limit = None
    if actor.limit is not None or actor.problems or actor.undeclared:
        limit = Limit(
            uid,
            "" if actor.scope in {"pod", "claim"} else actor.container,
            key,
            actor.limit,
            "policy",
            Mechanism.ANNOTATION,
            Scope(actor.scope),
            EnforcedBy.NONE,
            claim=actor.claim,
            problems=actor.problems,
            undeclared=actor.undeclared,
            report_only=actor.report_only,
            mps=actor.declares_mps,
            context=actor.context,
            headroom=actor.headroom,
        )
    return _Part(actor.named(), Container(uid, actor.container, actor.id, actor.kind), usage, limit)


class _Cast(NamedTuple):
    """What a snapshot has of all its actors, whenever it is taken. Nothing changes it."""

    usages: tuple[Usage, ...]
    pods: Mapping[PodUid, Pod]
    containers: tuple[Container, ...]
    limits: tuple[Limit, ...]
    claims: tuple[ClaimUsage, ...]
    namespaces: Mapping[str, Mapping[str, str]]
    held: Mapping[int, tuple[int, bool, int]]
    """By GPU: bytes that the actors hold, whether some of them hold more, and how many they are."""


# Most rounds show who was there before: nine snapshots of ten are of a cast that is known.
@lru_cache(maxsize=1024)
def _cast(actors: tuple[Actor, ...]) -> _Cast:
    parts = [_part(actor) for actor in actors]
    held: dict[int, tuple[int, bool, int]] = {}
    for actor in actors:
        known, unknown, count = held.get(actor.gpu, (0, False, 0))
        held[actor.gpu] = known + (actor.used or actor.sure or 0), unknown or actor.used is None, count + 1
    return _Cast(
        usages=tuple([part.usage for part in parts]),
        pods={part.container.pod_uid: part.pod for part in parts},
        containers=tuple([part.container for part in parts]),
        limits=tuple([part.limit for part in parts if part.limit is not None]),
        claims=_claim_usages(actors),
        namespaces=dict.fromkeys({actor.namespace for actor in actors}, CONSENTING),
        held=held,
    )


@lru_cache(maxsize=8192)
def _gpu(
    index: int, vendor: str, driver: str, *, known: int, unknown: bool, used: int, partial: bool
) -> tuple[Gpu, DeviceAccount]:
    """Make a card and its account. `known`: bytes that its actors hold; `unknown`: some of them hold more."""
    memory = Memory(CARD, free=CARD - used)
    card = Gpu(gpu_uuid(index), index, "NVIDIA A100", vendor=vendor, driver_version=driver, memory=memory)
    account = DeviceAccount(
        _device(index),
        memory,
        attributed=None if unknown else known,
        ghost=0,
        host=0,
        unattributed=None if unknown else max(0, used - known),
        closes=known <= used,
        partial=partial,
    )
    return card, account


GREEDY = Actor("greedy-1", 70 * GIB)
"""Holds far more than it declares."""
MEEK = Actor("meek-1", 2 * GIB, limit=30 * GIB)
"""Could not take what it declares while GREEDY is there."""


@cache
def gpu_uuid(index: int) -> GpuUuid:
    """Name a GPU."""
    return GpuUuid(f"GPU-{index}")


@cache
def _device(index: int) -> DeviceKey:
    return DeviceKey(gpu_uuid(index))


def snapshot(
    actors: Sequence[Actor],
    monotonic: float,
    *,
    round_: int = 1,
    namespaces: Mapping[str, Mapping[str, str]] | None = None,
    hidden: Mapping[int, int] | None = None,
    sharing: Sharing = Sharing.TIME_SLICING,
    read: Iterable[int] | None = None,
    proven: bool = True,
    live: bool = True,
    faults: tuple[Fault, ...] = (),
    gpus: int = 1,
    listed_too_much: int = 0,
    driver: str = "580.95.05",
    vendor: str = "nvidia",
    strangers: Iterable[str] = (),
    divided: Mapping[int, Iterable[str]] | None = None,
    partial: bool = False,
    read_ago: float | None = None,
) -> Snapshot:
    """
    Make a snapshot of actors on `gpus` cards of 80 GiB.

    Args:
        actors: the containers that are there; those with `used=None` have a process that the driver does not measure.
        monotonic: when the round began.
        round_: its number.
        namespaces: their labels; None: each consents.
        hidden: by GPU, bytes that no process explains.
        sharing: of all GPUs.
        read: GPUs that were read in this round; None: all.
        proven: the PID domain.
        live: whether the API server's names are up to date.
        faults: of the round.
        gpus: how many.
        listed_too_much: bytes by which the process lists exceed the device's use.
        driver: its version.
        vendor: of the GPUs.
        strangers: names of pods of which Kubernetes reports nothing.
        divided: by GPU, the instances that it has now.
        partial: a listed process may hold more than that.
        read_ago: seconds since the last reading of the GPUs that were not read in this round; None: since BEGIN.

    """
    devices, cards, cast = [], [], _cast(tuple(actors))
    for index in range(gpus):
        known, unknown, count = cast.held.get(index, (0, False, 0))
        used = max(0, min(CARD, known + (hidden or {}).get(index, 0)) - listed_too_much)
        card, account = _gpu(index, vendor, driver, known=known, unknown=unknown, used=used, partial=partial)
        if divided and index in divided:
            instances = (GpuInstance(number, "1g.10gb", (name,)) for number, name in enumerate(divided[index]))
            card = replace(card, mig=True, instances=tuple(instances))
        cards.append(card)
        fresh = read is None or index in set(read)
        ago = 0.0 if fresh else monotonic - BEGIN if read_ago is None else read_ago
        sampled = WALL + monotonic - BEGIN - ago
        devices.append(Device(_device(index), card, account, IDLE, sampled, sharing, 4, containers=count))
    unnamed = set(strangers)
    return Snapshot(
        round=round_,
        taken_at=WALL + monotonic - BEGIN,
        monotonic=monotonic,
        node="node",
        gpus_present={gpu_uuid(index): index for index in range(gpus)},
        gpus_read=frozenset(map(gpu_uuid, range(gpus) if read is None else read)),
        gpus=tuple(cards),
        devices=tuple(devices),
        usages=cast.usages,
        pods={uid: pod for uid, pod in cast.pods.items() if pod.name not in unnamed} if unnamed else cast.pods,
        containers=cast.containers,
        namespaces=cast.namespaces if namespaces is None else namespaces,
        claim_usages=cast.claims,
        limits=cast.limits,
        pid_domain_proven=proven,
        names_live=live,
        faults=faults,
    )


def _claim_usages(actors: Sequence[Actor]) -> tuple[ClaimUsage, ...]:
    """Sum up what the actors of each claim hold by it (`claim` is `namespace/name`)."""
    found = []
    for claim, gpu in sorted({(actor.claim, actor.gpu) for actor in actors if actor.claim}):
        mine = [actor for actor in actors if (actor.claim, actor.gpu) == (claim, gpu)]
        known = [actor.used for actor in mine if actor.used is not None]
        namespace, _, name = claim.partition("/")
        assert name, f"{claim}: a claim is written namespace/name"
        subjects = frozenset(Subject(actor.pod_uid, actor.container, actor.id) for actor in mine)
        used = sum(known) if len(known) == len(mine) else None
        found.append(ClaimUsage(namespace, name, _device(gpu), used, subjects))
    return tuple(found)


def settled(rules: Rules = UNHURRIED, driver: str = "580.95.05") -> History:
    """Make the history of a daemon that has watched this node with these rules for long."""
    return History(settled=Settled(rules, frozenset({driver}), 0.0, vetted=True))


class _Past:
    """A history, and the rules that it goes on under. Known by itself: to hash all of a history costs as a round."""

    __slots__ = ("history", "rules")

    def __init__(self, history: History, rules: Rules) -> None:
        self.history = history
        self.rules = rules


_BEGUN: dict[str, _Past] = {}


def _begun(rules: Rules) -> _Past:
    return _BEGUN.setdefault(repr(rules), _Past(settled(rules), rules))


class _Round(NamedTuple):
    """What a play shows."""

    actors: tuple[Actor, ...]
    monotonic: float
    number: int
    world: tuple[tuple[str, Any], ...]


# `decide` is a function, and one round of four is that of a play before it, from its beginning on.
@lru_cache(4096)
def _shown(past: _Past, round_: _Round, now: Moment) -> tuple[_Past, Verdict]:
    seen = snapshot(round_.actors, round_.monotonic, round_=round_.number, **dict(round_.world))
    history, verdict = decide(seen, past.rules, past.history, now)
    return _Past(history, past.rules), verdict


@lru_cache(1024)
def _concluded(past: _Past, result: Result, now: Moment, detail: str) -> _Past:
    history = conclude(past.history, result, now, detail=detail)
    return past if history is past.history else _Past(history, past.rules)


def forget() -> None:
    """Forget all rounds: the policy is another one from now on."""
    _BEGUN.clear()
    _shown.cache_clear()
    _concluded.cache_clear()


class Play:
    """The policy on a stage: `step` moves the clock and shows it the next round."""

    def __init__(self, rules: Rules = UNHURRIED, history: History | None = None) -> None:
        self._past = _begun(rules) if history is None else _Past(history, rules)
        self.rules = self._past.rules
        self.monotonic = BEGIN
        self.asleep = 0.0
        """Seconds that the machine slept, in all."""
        self.stall = 0.0
        """Seconds that the next snapshot waits until the policy gets it."""
        self.round = 0
        self.verdicts: list[Verdict] = []

    @property
    def history(self) -> History:
        """What the policy said last time, or an outcome after it."""
        return self._past.history

    @history.setter
    def history(self, history: History) -> None:
        self._past = _Past(history, self.rules)

    @property
    def now(self) -> Moment:
        """The moment of the stage's clock."""
        return Moment(self.monotonic, self.monotonic + self.asleep)

    def step(self, *actors: Actor, after: float | None = None, **world: object) -> Verdict:
        """Let an interval pass, and show the policy who is there. `world`: see `snapshot`."""
        if self._past.rules is not self.rules:
            self._past = _Past(self.history, self.rules)
        self.monotonic += self.rules.interval if after is None else after
        self.round += 1
        shown = _Round(actors, self.monotonic, self.round, tuple(world.items()))
        self.monotonic, self.stall = self.monotonic + self.stall, 0.0
        try:
            self._past, verdict = _shown(self._past, shown, self.now)
        except TypeError:  # the world has a dict, which is not known again
            self._past, verdict = _shown.__wrapped__(self._past, shown, self.now)
        self.verdicts.append(verdict)
        return verdict

    def steps(self, count: int, *actors: Actor, **world: object) -> Verdict:
        """Let so many rounds pass in which nothing changes; the last one's verdict."""
        for _ in range(count):
            verdict = self.step(*actors, **world)  # type: ignore[arg-type]
        return verdict

    def until(self, state: State, *actors: Actor, most: int = 200, **world: object) -> Verdict:
        """Step until the first actor is in `state`. Raises AssertionError after `most` rounds."""
        for _ in range(most):
            verdict = self.step(*actors, **world)  # type: ignore[arg-type]
            if self.standing(actors[0]) is state:
                return verdict
        raise AssertionError(f"not {state} after {most} rounds: {verdict.standings}")

    def until_reason(self, reason: Reason, *actors: Actor, most: int = 200, **world: object) -> Verdict:
        """Step until the first actor's state has `reason`. Raises AssertionError after `most` rounds."""
        for _ in range(most):
            verdict = self.step(*actors, **world)  # type: ignore[arg-type]
            if self.reason(actors[0]) == reason:
                return verdict
        raise AssertionError(f"not {reason} after {most} rounds: {verdict.standings}")

    def until_action(self, *actors: Actor, most: int = 200, **world: object) -> Action:
        """Step until something is done. Raises AssertionError after `most` rounds."""
        for _ in range(most):
            verdict = self.step(*actors, **world)  # type: ignore[arg-type]
            if verdict.action is not None:
                return verdict.action
        raise AssertionError(f"nothing done after {most} rounds: {verdict.standings}")

    def standing(self, actor: Actor) -> State | None:
        """Where the actor stands."""
        found = [one for one in self.verdicts[-1].standings if _is(one.key, actor)]
        return found[0].state if found else None

    def reason(self, actor: Actor) -> str | None:
        """Why it is held, exempt or unjudged."""
        found = [one for one in self.verdicts[-1].standings if _is(one.key, actor)]
        return found[0].reason if found else None

    def conclude(self, result: Result, detail: str = "") -> None:
        """End the action that is in flight."""
        self._past = _concluded(self._past, result, self.now, detail)

    def rehearse(self) -> None:
        """End the dry run that is in flight: nothing would have prevented the action."""
        assert self.history.dry_flight is not None
        self.history = rehearsed(self.history, self.history.dry_flight.action, self.now)

    @property
    def actions(self) -> list[str]:
        """What was done so far: `evict team/pod`, with `(dry)` behind the actions of a dry run."""
        return [
            f"{action.rung} {action.namespace}/{action.pod}{' (dry)' if action.dry else ''}"
            for action in (verdict.action for verdict in self.verdicts)
            if action is not None
        ]


def _is(key: object, actor: Actor) -> bool:
    container = getattr(key, "container_id", "")
    uid, claim = getattr(key, "pod_uid", ""), getattr(key, "claim", "")
    return (claim and claim == actor.claim) or (uid == actor.pod_uid and container in {actor.id, ""})
