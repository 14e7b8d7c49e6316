"""
The first law, checked from outside: no action is unjustified.

A trace comes in, step by step: what was seen, under which rules, when, what the policy said, and how actions ended.
Each clause of the law that the last step breaks goes out, in words.

The rule: **no judgement of the policy is used here.** `Watch` keeps a level of its own for each limit holder, made of
the facts of `policy.facts`. What it demands is necessary for an action, not sufficient: `policy.liveness` and
`policy.enumeration` show that no action is missing.

    clause     an action is requested only if ...
    over       the holder is certainly over its ceiling, on this device, in this round, which read all of its devices
    level      it was over for warn_after + grace and two intervals at least, less half of the time within; and since
               then the level has not fallen below half of that; a grace that was announced is not shortened
    readings   three readings of this device, an interval apart, showed the excess since the level was last 0
    own        this generation of the container was over for warn_after itself; of pods that share a claim, this pod may
               have been the largest for the whole time
    warned     its pod was warned of this step under these terms, and it was over for a grace since then
    identity   the pod and the container exist now, under these names
    protected  nothing that an operator or an administrator wrote protects it
    allowed    mode, consent, sharing and kind of the container permit this step
    ladder     the gentler steps were done before
    alone      no other action is in flight, and spacing and the pauses after vain requests have passed
    budgets    tokens are left for the node and the namespace, and the workload's back-off has passed
    held       the pod, its namespace and the node are not held by an answer of the API server
    breakers   no breaker is open, and the hold-off is over
    contended  with this trigger: neighbours may be short of memory
"""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from math import inf

from enforcer.policy.history import Action, Result, Standing
from enforcer.policy.holder import CaseKey, HolderKey
from enforcer.policy.rules import APART, CONSENT, Rules
from enforcer.policy.vocabulary import Breaker, Kind, Mode, Reason, Rung, State, Trigger
from exporter.model import DeviceKey, PodUid
from policy.absentees import Absentees
from policy.facts import MODES, OVER, RUNGS, UNKNOWN, WITHIN, Fact, Facts, Step, in_a_row

EPSILON = 1e-6
PAUSE = 5.0
BACKS_OFF = {Result.BLOCKED, Result.FORBIDDEN, Result.REFUSED, Result.FAILED, Result.IMPOSSIBLE}
MAY_HAVE_ACTED = {Result.ACCEPTED, Result.UNKNOWN}
PATIENCE = 60.0
REMEMBERED = 600.0
"""Seconds after the end of a wait: a pod that is tried in vain again later starts with the shortest wait."""
STAYS_DUE = 0.5
"""Of the capacity: a level that was full stays due above this, so that short pauses gain nothing."""
EASED = 3
"""Times at most that a changed limit lowers a level."""
HOUR = 3600.0
"""Seconds after a warning that the API server did not accept: the next ones are waited for no longer than that one."""
Trace = Sequence[Step]
Clause = Callable[[Step, Facts, Action], Iterator[str]]


@dataclass(slots=True)
class Tally:
    """
    What was counted of one limit holder.

    Attributes:
        floor: the level less half of the time without readings; at 0 a gap may have ended the excess, and its warning.
        seconds: the level; `since` when it left 0, `due_at` when it was full; below half of that it is not due.
        grace: when it became due. It stays due under a longer one: a pod may shorten its own, and lengthen it again.
        read_at, status: of the last reading; a round without one breaks the chain.
        readings: by device, how many readings over, an interval apart, and when the last of them was.
        most: by device, the largest usage over the ceiling that was counted, bytes; `least` the smallest since the
            warning.
        own: seconds over of the present generation of the container.
        turns: by pod of a shared claim, the most seconds for which it can have been the largest while the claim was
            over. `largest` are the pods that can be so by the last reading.
        warned_at: when the present warning was asked for; `since_warned` the seconds over since it was accepted.
        asked_at: when the newest warning was asked for, also one that is not true any more.
        warned_of: by pod, the harshest step that the present warning names to it. `since_told`: the seconds over since
            that was accepted, where pods share a claim.
        announced: seconds after which an action was announced; `longest` the most since then, which bounds the level.
        promised: seconds over that the warning left to the pod. An operator may write a longer grace later.
        terms: what was announced then; `says` what would be announced now.
        `told`: by device, the limit that was announced; `eased` how often the same was announced again since
            `unbounded` was last 0. A changed limit lowers the level three times at most, because its pod can change it.
        unbounded: the level without an upper bound; `place` when the level was first full since `unbounded` was last 0.

    """

    seconds: float = 0.0
    floor: float = 0.0
    since: float | None = None
    due_at: float | None = None
    grace: float = 0.0
    read_at: float = -inf
    status: str = UNKNOWN
    readings: dict[DeviceKey, tuple[int, float]] = field(default_factory=dict)
    least: dict[DeviceKey, int] = field(default_factory=dict)
    most: dict[DeviceKey, int] = field(default_factory=dict)
    told: dict[DeviceKey, int | None] = field(default_factory=dict)
    generation: str = ""
    own: float = 0.0
    turns: dict[PodUid, float] = field(default_factory=dict)
    largest: frozenset[PodUid] = frozenset()
    warned_at: float | None = None
    asked_at: float = -inf
    accepted: bool = False
    unheard_at: float | None = None
    since_warned: float = 0.0
    warned_of: dict[PodUid, Rung] = field(default_factory=dict)
    since_told: dict[PodUid, float] = field(default_factory=dict)
    announced: float = 0.0
    promised: float = 0.0
    longest: float = 0.0
    terms: object = None
    says: object = None
    eased: int = 0
    unbounded: float = 0.0
    place: float | None = None

    def ended(self) -> None:
        """Start again from 0, and at the end of the order."""
        self.clear()
        self.unbounded, self.place, self.eased = 0.0, None, 0

    def clear(self) -> None:
        """Start again from 0; the readings' chain goes on."""
        self.seconds, self.since, self.due_at, self.warned_at = 0.0, None, None, None
        self.floor = 0.0
        self.accepted, self.since_warned, self.own = False, 0.0, 0.0
        self.announced, self.longest = 0.0, 0.0
        self.readings, self.least, self.most, self.told, self.turns = {}, {}, {}, {}, {}
        self.warned_of, self.since_told = {}, {}


@dataclass(slots=True)
class Token:
    """An action that was requested."""

    action: Action
    boot: float
    time: float
    kept: bool = True


class Watch:
    """Watches one trace. `step` returns what the newest step breaks."""

    def __init__(self, vetted: Rules | None = None) -> None:
        """Begin with a daemon that has just started; `vetted`: with one for which nothing of ours has changed."""
        self.tallies: dict[HolderKey, Tally] = {}
        self.tokens: list[Token] = []
        self.flying: Token | None = None
        self.last_kept: float | None = None
        self.last_vain: float | None = None
        self.tries: dict[tuple[PodUid, Result], int] = {}
        self.waits: dict[tuple[str, str], float] = {}
        self.done: set[tuple[CaseKey, Rung]] = set()
        self.deleted: dict[PodUid, float] = {}
        self.settled: float = -inf
        self.ours = None if vetted is None else (replace(vetted, ceilings=()), frozenset[str]())
        self.shown = -inf
        self.slept = 0.0
        self.open: frozenset[Breaker] = frozenset()
        self.facts: Facts | None = None
        self.absentees = Absentees()

    def copy(self) -> "Watch":
        """Make another one that goes on from here."""
        other = Watch()
        vars(other).update(
            (name, value.copy() if isinstance(value, dict | set) else value) for name, value in vars(self).items()
        )
        other.tallies = {holder: _copied(tally) for holder, tally in self.tallies.items()}
        other.tokens = [copy(token) for token in self.tokens]
        other.absentees = self.absentees.copy()
        if self.flying is not None:
            other.flying = other.tokens[self.tokens.index(self.flying)]
        return other

    def step(self, step: Step, facts: Facts | None = None) -> list[str]:
        """Add a step, and name what it breaks. `facts`: of this step, where they are known."""
        facts = self.facts = facts or Facts(step.snapshot, step.rules, step.now)
        self._ended(step)
        self._began(step)
        self._slept(step)
        self._warnings(step)
        broken = [*self._breakers(step)]
        if step.snapshot.monotonic > self.shown:
            self.shown = step.snapshot.monotonic
            self._count(facts)
        elif step.verdict.action is not None:
            broken.append("over: a snapshot that is not newer leads to an action")
        action = step.verdict.action
        if action is not None:
            broken += [f"{name}: {what}" for name, clause in self._clauses() for what in clause(step, facts, action)]
            self._requested(step, action)
        self._asked(step, facts)
        broken += self._states(step)
        return broken

    def _clauses(self) -> Iterator[tuple[str, Clause]]:
        for name in CLAUSES:
            yield name, getattr(self, f"_{name}")

    # --- what is remembered ---

    def _began(self, step: Step) -> None:
        # A start with other rules, another build or other drivers is a change of ours, and so is a first start.
        rules = replace(step.rules, ceilings=()) if step.rules.ceilings else step.rules
        ours = rules, frozenset(gpu.driver_version for gpu in step.snapshot.gpus)
        drivers = self.ours[1] if self.ours is not None else frozenset[str]()
        changed = self.ours is None or not _same(ours[0], self.ours[0]) or (bool(drivers) and not ours[1] <= drivers)
        if changed or step.began == "new":
            self.settled = step.now.monotonic
        self.ours = ours[0], ours[1] if changed else ours[1] | drivers
        if step.began:
            for tally in self.tallies.values():
                tally.status, tally.readings = UNKNOWN, {}
                if step.began == "new":
                    tally.ended()
            self.flying = None
            self.last_kept = self.last_vain = None
            self.waits, self.tries, self.done, self.deleted = {}, {}, set(), {}

    def _slept(self, step: Step) -> None:
        """A machine that slept ends each excess: the next one is announced afresh, maybe for less time."""
        slept = step.now.boot - step.now.monotonic
        if slept > self.slept + EPSILON:
            for tally in self.tallies.values():
                tally.announced = tally.longest = tally.floor = 0.0
        self.slept = slept

    def _ended(self, step: Step) -> None:
        if step.ended is None or self.flying is None:
            return
        token, self.flying = self.flying, None
        action, at = token.action, step.ended_at
        if step.ended in MAY_HAVE_ACTED:
            self.last_kept = at
            for holder, tally in self.tallies.items():
                fence = action.rung is Rung.FENCE
                if holder == action.key.holder or (not fence and holder.pod_uid == action.pod_uid):
                    tally.ended()
                    tally.status = UNKNOWN
            if action.rung is Rung.FENCE:
                self.done.add((action.key, Rung.FENCE))
            return
        token.kept = False
        if step.ended is not Result.ABANDONED:  # nothing was asked of the API server
            self.last_vain = at
        fenced = action.rung is Rung.FENCE and step.ended in {Result.IMPOSSIBLE, Result.FAILED}
        # It ended before this step, under the rules of the step before.
        kills = self.ours is not None and self.ours[0].kill_when_blocked
        blocked = action.rung is Rung.EVICT and step.ended is Result.BLOCKED and kills
        if fenced or blocked:
            self.done.add((action.key, action.rung))
        elif step.ended is Result.UNAUTHORIZED:
            self.waits["node", ""] = at + 60.0
        elif step.ended in BACKS_OFF:
            forgotten = at - self.waits.get(("pod", action.pod_uid), at) >= REMEMBERED
            before = 0 if forgotten else self.tries.get((action.pod_uid, step.ended), 0)
            times = self.tries[action.pod_uid, step.ended] = before + 1
            self.waits["pod", action.pod_uid] = at + min(300.0, 10.0 * 2.0 ** min(times - 1, 10))
        else:
            self.waits["pod", action.pod_uid] = at + 10.0

    def _warnings(self, step: Step) -> None:
        for holder in step.accepted:
            if holder in self.tallies and self.tallies[holder].warned_at is not None:
                self.tallies[holder].accepted, self.tallies[holder].unheard_at = True, None

    def _count(self, facts: Facts) -> None:
        at = facts.snapshot.monotonic
        if facts.rules.trigger is Trigger.CONTENDED:
            self.absentees.count(facts)
        else:
            self.absentees.pause()
        for pod in facts.snapshot.pods.values():
            if pod.terminating:
                self.deleted.setdefault(pod.uid, at)
        for holder, group in facts.holders.items():
            if facts.early(holder):
                continue  # the next round that reads all of its devices counts
            status = facts.status(holder)
            tally = self.tallies.get(holder)
            if tally is None:
                if status is not OVER:
                    continue
                tally = self.tallies[holder] = Tally()
            self._weigh(tally, facts, group, status, at)
            if tally.since is None:  # a blocked eviction says nothing of the next excess
                self.done = {(key, rung) for key, rung in self.done if rung is not Rung.EVICT or key.holder != holder}
        for holder, tally in self.tallies.items():
            if holder not in facts.holders:
                tally.status = UNKNOWN

    def _weigh(self, tally: Tally, facts: Facts, group: list[Fact], status: str, at: float) -> None:
        rules = facts.rules
        if status is not UNKNOWN and tally.most and _above_all(tally, group):
            tally.clear()  # the limit rose above all that was counted
        generations = {fact.key.container_id for fact in group}
        generation = max(generations) if len(generations) == 1 else tally.generation
        same = generation == tally.generation or not generation
        apart = at - tally.read_at
        if status is not UNKNOWN and status == tally.status and apart <= in_a_row(rules) + EPSILON:
            if status is WITHIN:
                tally.seconds = max(0.0, tally.seconds - apart / 2)
                tally.unbounded = max(0.0, tally.unbounded - apart / 2)
            else:
                tally.seconds += apart
                tally.unbounded += apart
                tally.own += apart if same else 0.0
                largest = tally.largest | _largest(facts, group)
                tally.turns |= {uid: tally.turns.get(uid, 0.0) + apart for uid in largest}
                if tally.warned_at is not None and (tally.accepted or not _waits(tally, facts, at)):
                    tally.since_warned += apart
                    tally.since_told = {uid: seconds + apart for uid, seconds in tally.since_told.items()}
        if status is not UNKNOWN:
            self._gap(tally, apart, together=apart <= in_a_row(rules) + EPSILON, status=status)
        if not same:
            tally.own = 0.0
        tally.generation = generation
        if status is not UNKNOWN:
            tally.read_at, tally.largest = at, _largest(facts, group)
        tally.status = status
        self._seen(tally, facts, group, at)
        if tally.seconds <= 0.0 and status is WITHIN:
            tally.clear()
        if tally.since is None and status is OVER:
            tally.since = at
        if status is not UNKNOWN:
            self._terms(tally, facts, group)
        grace = _grace(facts, group)
        most = max(_capacity(rules, grace), tally.announced)
        if tally.warned_at is not None:
            tally.longest = max(tally.longest, _capacity(rules, max(map(facts.longest_grace, group))))
        waiting = _waits(tally, facts, at)
        if tally.seconds >= most - EPSILON and not waiting and tally.due_at is None:
            tally.due_at, tally.grace = at, grace
            tally.place = at if tally.place is None else tally.place
        elif tally.unbounded <= 0.0:
            tally.due_at = tally.place = None
            tally.eased = 0
        elif tally.seconds < STAYS_DUE * most - EPSILON:
            tally.due_at = None
        tally.seconds = min(tally.seconds, rules.warn_after if waiting else max(most, tally.longest))
        tally.floor = min(tally.floor, tally.seconds)

    def _gap(self, tally: Tally, apart: float, *, together: bool, status: str) -> None:
        """Lower the floor by a gap; where it reaches 0, the next excess is announced afresh, maybe for less time."""
        if not together or status == tally.status == WITHIN:
            tally.floor = max(0.0, tally.floor - apart / 2)
        elif status == tally.status == OVER:
            tally.floor += apart
        if tally.floor <= 0.0:
            tally.announced = tally.longest = 0.0

    def _seen(self, tally: Tally, facts: Facts, group: list[Fact], at: float) -> None:
        for fact in group:
            if fact.status is OVER and fact.low is not None and facts.runs(fact.key):
                count, last = tally.readings.get(fact.where, (0, -inf))
                if at - last >= APART * facts.rules.interval - EPSILON:
                    tally.readings[fact.where] = count + 1, at
                tally.least[fact.where] = min(fact.low, tally.least.get(fact.where, fact.low))
                tally.most[fact.where] = max(fact.low, tally.most.get(fact.where, fact.low))

    def _terms(self, tally: Tally, facts: Facts, group: list[Fact]) -> None:
        """
        Forget a warning that is not true any more.

        The level falls to warn_after with the next warning, which an operator's hold may delay (`_warned_anew`).
        """
        if tally.warned_at is None:
            return
        pods = [facts.snapshot.pods[uid] for fact in group for uid in fact.pods if uid in facts.snapshot.pods]
        if not pods or any(pod.namespace not in facts.snapshot.namespaces for pod in pods):
            return
        tally.says = self._says(facts, group)
        if tally.says is None:
            tally.terms = None
        elif tally.says != tally.terms:
            tally.due_at, tally.warned_at, tally.accepted, tally.since_warned = None, None, False, 0.0
            tally.announced = 0.0  # the level falls with the next warning, in a round over the limit

    def _says(self, facts: Facts, group: list[Fact]) -> object:
        """Return what would be announced to the holder now; None while a *chosen* reason prevents any action."""
        rules = facts.rules
        modes = [rules.mode, *(one.mode for one in rules.ceilings if one.reason.kind is Kind.CHOSEN)]
        # Where the limit of a device is invalid, no action follows, and what protects a pod there says nothing.
        valid = [fact for fact in group if fact.amount is not None] or group
        # A promise concerns its own pod: another one of the claim may be acted on.
        uids = {uid for fact in valid for uid in fact.pods & facts.snapshot.pods.keys()}
        promised = Rung.FENCE not in rules.ladder and all(facts.promised(facts.snapshot.pods[uid]) for uid in uids)
        for fact in valid:
            pods = fact.pods & facts.snapshot.pods.keys()
            shields = [facts.shield(fact, uid) for uid in pods]
            if all(reason is not None and reason.kind is Kind.CHOSEN for reason in shields):
                return None
            for uid in pods:
                labels = facts.snapshot.namespaces.get(facts.snapshot.pods[uid].namespace, {})
                written = labels.get(CONSENT, Mode.ENFORCE)
                modes.append(Mode(written) if written in MODES else Mode.OBSERVE)
                # A fence needs no consent, so that a namespace without it is warned of the fence.
                consents = Rung.FENCE in rules.ladder or labels.get(rules.consent[0]) == rules.consent[1]
                if (promised or not consents) and written != Mode.DRY_RUN:
                    modes.append(Mode.WARN)
        mode = min(modes, key=MODES.index)
        if MODES.index(mode) < MODES.index(Mode.DRY_RUN) or set(rules.ladder) == {Rung.NOTIFY}:
            return None
        return mode, rules.trigger, rules.ladder, rules.mps

    def _asked(self, step: Step, facts: Facts) -> None:
        """Note the warnings that the policy asks for."""
        asked: dict[HolderKey, list[Standing]] = {}
        for standing in step.verdict.standings:
            if standing.warned_at is not None and (holder := standing.key.holder) in self.tallies:
                asked.setdefault(holder, []).append(standing)
        for holder, standings in asked.items():
            tally, warned_at = self.tallies[holder], standings[0].warned_at
            if warned_at is not None and warned_at > tally.asked_at:  # a warning that became untrue is not a new one
                self._warned_anew(tally, facts, holder, warned_at, _told(standings))

    def _warned_anew(
        self, tally: Tally, facts: Facts, holder: HolderKey, warned_at: float, told: dict[PodUid, Rung]
    ) -> None:
        group, rules = facts.holders.get(holder, []), facts.rules
        tally.says = self._says(facts, group)
        same = tally.warned_at is not None and tally.terms == tally.says
        tally.warned_at, tally.asked_at, tally.accepted = warned_at, warned_at, False
        if tally.unheard_at is None or warned_at - tally.unheard_at >= HOUR:
            tally.unheard_at = warned_at if rules.confirm else None
        harsher = {uid for uid, rung in told.items() if uid in tally.warned_of and _harsher(rung, tally.warned_of[uid])}
        if holder.claim and same:  # another pod of a shared claim is warned for itself, or one of a harsher step
            if tally.seconds <= 0.0:  # the excess may begin anew, and is announced for less time
                tally.announced = tally.longest = 0.0
            anew = harsher | (told.keys() - tally.warned_of.keys())
            tally.warned_of = {**told, **tally.warned_of, **{uid: told[uid] for uid in anew}}
            tally.since_told |= dict.fromkeys(anew, 0.0)
            return
        same = same and not harsher and not holder.claim
        tally.eased += same  # another limit
        tally.warned_of, tally.terms, tally.since_warned = told, tally.says, 0.0
        tally.since_told = dict.fromkeys(told, 0.0)
        tally.seconds = min(tally.seconds, rules.warn_after)  # the grace begins with the warning
        grace = _grace(facts, group)
        tally.announced = tally.longest = _capacity(rules, grace)
        tally.promised = tally.announced - tally.seconds
        full = tally.seconds >= tally.announced - EPSILON and not _waits(tally, facts, warned_at)
        tally.due_at, tally.grace = (warned_at, grace) if full else (None, 0.0)
        tally.told = {fact.where: fact.amount for fact in group}
        tally.least = {}

    def _requested(self, step: Step, action: Action) -> None:
        if not action.dry:
            self.flying = Token(action, step.now.boot, step.snapshot.taken_at)
            self.tokens.append(self.flying)

    # --- the clauses ---

    def _over(self, step: Step, facts: Facts, action: Action) -> Iterator[str]:
        fact = facts.cases.get(action.key)
        if fact is None or fact.status is not OVER or fact.low is None:
            yield "the holder is not certainly over its ceiling on this device in this round"
        elif action.used > fact.low or action.limit.memory != fact.amount:
            yield f"the action names {action.used} of {action.limit.memory} bytes, not {fact.low} of {fact.amount}"
        if facts.early(action.key.holder):
            yield "this round did not read all devices of the holder"

    def _level(self, step: Step, facts: Facts, action: Action) -> Iterator[str]:
        tally, group = self.tallies.get(action.key.holder), facts.holders.get(action.key.holder, [])
        capacity = _capacity(step.rules, _grace(facts, group))
        if tally is None or tally.due_at is None:
            yield f"over for {tally.seconds if tally else 0.0:.1f} s in total, and not for {capacity:.1f} s"

    def _readings(self, step: Step, facts: Facts, action: Action) -> Iterator[str]:
        tally = self.tallies.get(action.key.holder)
        count = tally.readings.get(action.device, (0, 0.0))[0] if tally else 0
        if count < 3:
            yield f"only {count} readings of this device show the excess"

    def _own(self, step: Step, facts: Facts, action: Action) -> Iterator[str]:
        tally = self.tallies.get(action.key.holder)
        own = tally.own if tally else 0.0
        if action.key.container and own < min(step.rules.warn_after, 30.0) - EPSILON:
            yield f"this generation was over for {own:.1f} s only"
        turn = tally.turns.get(action.pod_uid, 0.0) if tally else 0.0
        whole = _capacity(step.rules, _grace(facts, facts.holders.get(action.key.holder, [])))
        if tally is not None and tally.due_at is not None:
            whole = min(whole, _capacity(step.rules, tally.grace))
        if not action.key.container and turn < whole - EPSILON:
            yield f"of the pods that share the claim, this one was the largest for {turn:.1f} s only, not {whole:.1f} s"

    def _warned(self, step: Step, facts: Facts, action: Action) -> Iterator[str]:
        tally, group = self.tallies.get(action.key.holder), facts.holders.get(action.key.holder, [])
        grace = _grace(facts, group)
        if tally is not None and tally.due_at is not None:
            grace = min(grace, tally.grace)
        if grace <= 0.0:
            return  # the warning and the action may fall into one round
        if tally is None or tally.warned_at is None or tally.warned_at >= step.snapshot.monotonic:
            yield "never warned under these terms"
            return
        grace = min(grace, tally.promised)
        since = tally.since_told.get(action.pod_uid, 0.0) if action.key.claim else tally.since_warned
        if since < grace - EPSILON:
            yield f"over for {since:.1f} s since the warning, and the grace is {grace:.1f} s"
        warned_of = tally.warned_of.get(action.pod_uid)
        if warned_of is None or _harsher(action.rung, warned_of):
            yield f"warned of {warned_of}, and not of {action.rung}"
        told, least = tally.told.get(action.device), tally.least.get(action.device, inf)
        if told is not None and tally.eased < EASED and least <= max(told, action.limit.memory or 0):
            yield f"warned of a limit of {told} bytes, and part of the usage keeps that or the present one"

    def _identity(self, step: Step, facts: Facts, action: Action) -> Iterator[str]:
        snapshot, pod = step.snapshot, step.snapshot.pods.get(action.pod_uid)
        if pod is None or (pod.namespace, pod.name) != (action.namespace, action.pod):
            yield "the pod that is named does not exist"
        if not snapshot.names_live:
            yield "the names are only remembered"
        fact = facts.cases.get(action.key)
        if fact is None or action.pod_uid not in fact.pods:
            yield "the pod does not use this limit"
            return
        if action.rung in {Rung.KILL, Rung.FENCE}:
            box = facts.present.get((action.pod_uid, action.container))
            if not action.container_id or box is None or box.id != action.container_id:
                yield f"{action.rung} of another generation of the container"
        if not action.key.container:
            largest = facts.largest(fact)
            if largest and action.pod_uid not in largest:
                yield "another pod uses more of the shared limit"
            most = facts.largest_container(fact, action.pod_uid)
            if most and action.container_id not in {None, *most}:
                yield "another container uses more of the shared limit"

    def _protected(self, step: Step, facts: Facts, action: Action) -> Iterator[str]:
        fact = facts.cases.get(action.key)
        reason = facts.shield(fact, action.pod_uid) if fact is not None else None
        if reason is not None:
            yield str(reason)
        if fact is not None and all(one.report_only for one in fact.limits):
            yield "its limit is only reported"

    def _allowed(self, step: Step, facts: Facts, action: Action) -> Iterator[str]:
        fact, pod = facts.cases.get(action.key), step.snapshot.pods.get(action.pod_uid)
        if fact is None or pod is None:
            return
        yield from facts.unallowed(fact, action)
        mode = facts.mode(pod)
        if mode not in {Mode.DRY_RUN, Mode.ENFORCE} or action.dry is not (mode is Mode.DRY_RUN):
            yield f"dry={action.dry} in mode {mode}"

    def _ladder(self, step: Step, facts: Facts, action: Action) -> Iterator[str]:
        ladder, rung = step.rules.ladder, action.rung
        if rung not in ladder or rung is Rung.NOTIFY:
            yield f"{rung} is not a step of the ladder"
        stuck = step.snapshot.monotonic - self.deleted.get(action.pod_uid, inf) >= 600.0 - EPSILON
        evicted = Rung.EVICT not in ladder or (action.key, Rung.EVICT) in self.done
        if rung is Rung.KILL and not stuck and not evicted:
            yield "a kill without a blocked eviction, or a deletion long ago, before it"
        here = action.key.holder, action.key.device
        fenced = any((key.holder, key.device) == here for key, step in self.done if step is Rung.FENCE)
        if Rung.FENCE in ladder and rung is not Rung.FENCE and not fenced:
            yield "the fence was left out"

    def _alone(self, step: Step, facts: Facts, action: Action) -> Iterator[str]:
        if action.dry:
            return
        if self.flying is not None:
            yield "another action is in flight"
        now = step.now.monotonic
        if self.last_kept is not None and now - self.last_kept < step.rules.spacing - EPSILON:
            yield f"{now - self.last_kept:.1f} s after another action"
        if self.last_vain is not None and now - self.last_vain < PAUSE - EPSILON:
            yield f"{now - self.last_vain:.1f} s after a request in vain"
        flight = step.history.in_flight
        if flight is None or flight.action != action:
            yield "the action is not remembered as in flight"

    def _budgets(self, step: Step, facts: Facts, action: Action) -> Iterator[str]:
        if action.dry:
            return
        now, budgets = step.now.boot, step.rules.budgets
        kept = [token for token in self.tokens if token.kept]
        mine = [token for token in kept if token.action.namespace == action.namespace]
        for name, budget, tokens in (("node", budgets.node, kept), ("namespace", budgets.namespace, mine)):
            if sum(now - token.boot < budget.window - EPSILON for token in tokens) >= budget.most:
                yield f"the budget of the {name} is used up"
        same = [token.time for token in kept if token.action.workload == action.workload]
        same = [time for time in same if step.snapshot.taken_at - time < 86400.0]
        pod = step.snapshot.pods.get(action.pod_uid)
        if same and pod is not None and pod.created_at > max(same):
            wait = min(600.0, 60.0 * 2.0 ** min(len(same) - 1, 10))
            if step.snapshot.taken_at - max(same) < wait - 1.0:
                yield "the back-off of its workload has not passed"

    def _held(self, step: Step, facts: Facts, action: Action) -> Iterator[str]:
        if action.dry:
            return
        for place in (("node", ""), ("pod", action.pod_uid)):
            if step.now.monotonic < self.waits.get(place, -inf) - EPSILON:
                yield f"the {place[0]} {place[1]} is held by an earlier answer"

    def _contended(self, step: Step, facts: Facts, action: Action) -> Iterator[str]:
        short = facts.shortage(action)
        if short <= 0 and short + self.absentees.need(facts, action) <= 0:
            yield "no neighbour can be short of memory"

    def _breakers(self, step: Step) -> Iterator[str]:
        open_ = frozenset(step.verdict.breakers)
        if Breaker.INTERNAL in open_ - self.open:
            yield f"breakers: an error of the policy: {step.verdict.breakers[Breaker.INTERNAL].detail}"
        for name in self.open - open_ - step.closed:
            yield f"breakers: nobody closed {name}"
        if step.verdict.action is not None and open_:
            yield f"breakers: an action with open breakers: {sorted(open_)}"
        if step.verdict.action is not None and step.now.monotonic - self.settled < step.rules.hold_off - EPSILON:
            yield "breakers: an action within the hold-off"
        self.open = open_

    def _states(self, step: Step) -> Iterator[str]:
        """Hold the states that are shown against one another."""
        for standing in step.verdict.standings:
            silent = standing.reason is None or standing.reason is Reason.DRY_RUN
            if not silent and standing.state not in {State.HELD, State.EXEMPT, State.UNJUDGED}:
                yield f"states: {standing.state} with reason {standing.reason}"


CLAUSES = (
    "over",
    "level",
    "readings",
    "own",
    "warned",
    "identity",
    "protected",
    "allowed",
    "ladder",
    "alone",
    "budgets",
    "held",
    "contended",
)


def violations(trace: Trace) -> list[str]:
    """Name what the last step of `trace` breaks."""
    watch, broken = Watch(), list[str]()
    for step in trace:
        broken = watch.step(step)
    return broken


def _same(one: Rules, other: Rules) -> bool:
    return one is other or one == other


def _above_all(tally: Tally, group: list[Fact]) -> bool:
    amounts = {fact.where: fact.amount or 0 for fact in group}
    return all(amounts.get(where, 0) > most for where, most in tally.most.items())


def _waits(tally: Tally, facts: Facts, at: float) -> bool:
    """Tell whether the level waits for the API server to accept the warning."""
    if not facts.rules.confirm or tally.warned_at is None or tally.accepted:
        return False
    return at - (tally.warned_at if tally.unheard_at is None else tally.unheard_at) < PATIENCE


def _largest(facts: Facts, group: list[Fact]) -> frozenset[PodUid]:
    """Find the pods of a shared claim that can be its largest on a device that is over: all where none is known."""
    over = [fact for fact in group if fact.status is OVER and not fact.key.container]
    return frozenset(uid for fact in over for uid in facts.largest(fact) or fact.pods)


def _capacity(rules: Rules, grace: float) -> float:
    return max(rules.warn_after + grace, 2 * rules.interval)


def _grace(facts: Facts, group: list[Fact]) -> float:
    return min((facts.grace(fact) for fact in group), default=facts.rules.grace)


def _told(standings: Sequence[Standing]) -> dict[PodUid, Rung]:
    """Return the harshest step that the Events of this round name to each pod: those on its devices that are over."""
    read = [one for one in standings if one.used is not None]
    told: dict[PodUid, Rung] = {}
    for one in [one for one in read if one.over] or read:
        uid = one.limit.pod_uid
        if one.rung is not None and (uid not in told or _harsher(one.rung, told[uid])):
            told[uid] = one.rung
    return told


def _harsher(one: Rung, other: Rung) -> bool:
    return RUNGS.index(one) > RUNGS.index(other)


def _copied(tally: Tally) -> Tally:
    return replace(tally, readings=dict(tally.readings), least=dict(tally.least), most=dict(tally.most))
