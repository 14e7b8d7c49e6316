"""
`python -m policy.hostile --traces N --seed S`: an honest victim among hostile others, by the hundred thousand.

A seed comes in. A trace of the real policy goes out, watched by the checkers of both laws. The command prints a
summary, and each violation with its seed.

The rule: an event is hostile because it happens. Nothing here knows what the policy would do. In four of five traces
one victim keeps all conditions of the second law, and events concern the others only. In the fifth anything happens to
any pod, and only the first law is checked. Intervals, graces and budgets are short, so that short traces say much.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import lru_cache
from multiprocessing import Pool
from random import Random
from typing import TYPE_CHECKING, Any

from default_rules import default_protection, default_rules
from enforcer.policy import breakers, carry_over, outcomes
from enforcer.policy.decide import decide
from enforcer.policy.history import History, Moment, Result, Settled, Verdict
from enforcer.policy.holder import HolderKey
from enforcer.policy.rules import Budget, Budgets, Ceiling, Rules
from enforcer.policy.vocabulary import Breaker, Mode, Reason, Rung, Trigger
from exporter.model import Container, ContainerKind, Context, Fault, PodUid, Sharing, Snapshot
from policy.facts import Step
from policy.invariants import Watch
from policy.liveness import Promise, Usage
from policy.scenes import BEGIN, CONSENTING, GIB, WALL, Actor, gpu_uuid, snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


INTERVAL = 10.0
DRIVER = "580.95.05"
HARMLESS = (Result.BLOCKED, Result.FORBIDDEN, Result.REFUSED, Result.FAILED, Result.ABANDONED, Result.IMPOSSIBLE)
LADDERS = (
    (Rung.NOTIFY, Rung.EVICT),
    (Rung.NOTIFY, Rung.EVICT),
    (Rung.NOTIFY, Rung.EVICT, Rung.KILL),
    (Rung.NOTIFY, Rung.KILL),
    (Rung.NOTIFY, Rung.FENCE, Rung.EVICT),
)
FACTS: tuple[dict[str, object], ...] = (
    {"annotations": {"gpusteward.io/exempt": "true"}},
    {"annotations": {"gpusteward.io/grace-seconds": "3600"}},
    {"annotations": {"gpusteward.io/grace-seconds": "0"}},
    {"annotations": {"gpusteward.io/grace-seconds": "x"}},
    {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}},
    {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-2147483648"}},
    {"labels": {"keep": "yes"}},
    {"priority": 2_000_000_000},
    {"priority": None},
    {"priority": -5},
    {"phase": "Pending"},
    {"phase": "Succeeded"},
    {"phase": ""},
    {"config_hash": "0123"},
    {"controller_kind": "DaemonSet"},
    {"controller_kind": ""},
    {"workload": "", "workload_kind": ""},
    {"priority_class": "system-node-critical"},
)
NAMESPACES: tuple[dict[str, str] | None, ...] = (
    None,
    {},
    {"gpusteward.io/mode": "off"},
    {"gpusteward.io/mode": "warn"},
    {"gpusteward.io/mode": "dry-run"},
    {"gpusteward.io/mode": "Enforce"},
    {"gpusteward.io/mode": "enforce", "gpusteward.io/allow-pod-exemption": "true"},
)
NODE = ("stopped", "warn", "dry-run", "not_armed", "journal", "stale names", "unproven", "allocations", "bad config")
"""What may be so of the whole node: only the first law is checked then."""
RULES = ("notify only", "mps")
"""What an operator may write for some rounds."""


@dataclass(slots=True)
class Other:
    """A hostile pod: how it uses memory now, how actions on it end, and how long its pod takes to end."""

    actor: Actor
    fates: tuple[Result, ...]
    usage: Usage
    linger: int
    gone_at: int | None = None
    lasts: dict[str, int] = field(default_factory=dict)
    """Rounds for which something is other than usual."""


@lru_cache(4096)
def _within(actor: Actor) -> Actor:
    """Make the same pod while it is within its limit."""
    return replace(actor, used=GIB)


def some_rules(random: Random) -> Rules:
    """Draw rules under which the victim is acted on within some dozen rounds."""
    ladder = random.choice(LADDERS)
    return default_rules(
        mode=Mode.ENFORCE,
        trigger=Trigger.LIMIT,
        warn_after=random.choice((0.0, 10.0, 20.0)),
        grace=random.choice((0.0, 10.0, 20.0)),
        ladder=ladder,
        kill_when_blocked=Rung.EVICT in ladder and Rung.KILL in ladder,
        interval=INTERVAL,
        spacing=random.choice((INTERVAL, 2 * INTERVAL)),
        hold_off=random.choice((0.0, 20.0)),
        budgets=Budgets(
            Budget(random.choice((1, 2, 3, 3)), random.choice((60.0, 120.0))),
            Budget(random.choice((1, 2, 2)), random.choice((60.0, 120.0))),
        ),
        protect=default_protection(labels={"keep": "yes"}),
        confirm=random.random() < 0.3,
    )


class World:
    """A node, and the trace of the policy on it. `found` names what breaks a law."""

    def __init__(self, seed: int, *, hostile: bool = True, interval: float = INTERVAL) -> None:
        """Make the world of a seed; rounds keep their pace, also where `interval` is shorter: the node is slow then."""
        self.seed = seed
        # The victim, the rules and the clock do not depend on the others: a trace without them has the same readings.
        self.random, self.noise = Random(seed), Random(~seed)
        # A campaign's seeds keep their traces: what came later is drawn by itself, and in one trace of five.
        self.operator = Random(f"{seed} ladder")
        self.rewritten = self.operator.random() < 0.2
        random = self.random
        self.rules = replace(some_rules(random), interval=interval)
        self.honest = random.random() < 0.8
        self.usage = self._victims_usage(random)
        alone = random.random() < 0.7
        self.victim = Actor("victim-0", 30 * GIB, limit=8 * GIB, namespace="honest" if alone else "team-0")
        self.others: list[Other] = []
        crowd = random.choice((0, 1, 1, 2, 2, 2, 3, 3, 4, 6, 12))
        self.hostile = hostile
        self.vetted = random.random() < 0.7
        self.monotonic, self.asleep, self.round = BEGIN, 0.0, 0
        self.history = self._first_history()
        self.watch = Watch(self.rules if self.vetted else None)
        holder = self._holder(self.victim)
        self.promise = (
            Promise(holder, self.victim.namespace, self.usage, flight=3 * INTERVAL, vetted=self.vetted, pace=INTERVAL)
            if self.honest
            else None
        )
        self.ends: tuple[float, Result] | None = None
        self.dry_ends: float | None = None
        self.labels: dict[str, dict[str, str] | None] = {}
        self.node: dict[str, int] = {}
        self.pending: list[tuple[HolderKey, float]] = []
        self.deaf = random.random() < 0.2
        self.found: list[str] = []
        self.actions: list[tuple[float, str]] = []
        self.reasons: Counter[Reason] = Counter()
        self.decisions = 0
        self.keep: list[Step] | None = None
        self.closed: frozenset[Breaker] = frozenset()
        for _ in range(crowd if hostile else 0):
            self.others.append(self._other())

    # --- who is there ---

    def _victims_usage(self, random: Random) -> Usage:
        if random.random() < 0.75:
            return Usage()
        share = random.choice((0.6, 0.75, 0.9))
        apart = 1.2 * INTERVAL
        return Usage(share, random.choice((1.6, 2.5)) * 2 * apart / ((3 * share - 1) / 2))

    def _first_history(self) -> History:
        if not self.vetted:
            return History()
        return History(settled=Settled(self.rules, frozenset({DRIVER}), BEGIN - 1000.0, vetted=True))

    def _holder(self, actor: Actor) -> HolderKey:
        if actor.scope == "claim":
            return HolderKey(PodUid(""), "", actor.claim, gpu_uuid(actor.gpu))
        return HolderKey(actor.pod_uid, "" if actor.scope == "pod" else actor.container, "")

    def _other(self) -> Other:
        noise = self.noise
        number = len(self.others)
        namespace = f"team-{noise.choice((0, 0, 1, 2))}"
        scope = noise.choice(("container", "container", "container", "pod", "claim"))
        actor = Actor(
            f"other{number}-0",
            noise.choice((3, 3, 4)) * GIB,  # all of them fit onto one card, beside the victim
            limit=2 * GIB,
            namespace=namespace,
            gpu=noise.choice((0, 0, 1)),
            scope=scope,
            claim=f"{namespace}/share" if scope == "claim" else "",
            context=noise.choice((Context.INCLUDED, Context.INCLUDED, Context.EXCLUDED)),
        )
        fates: tuple[Result, ...] = noise.choice(
            (
                (Result.ACCEPTED,),
                (Result.ACCEPTED,),
                (Result.UNKNOWN,),
                (noise.choice(HARMLESS),),
                HARMLESS,
                (*HARMLESS, Result.ACCEPTED, Result.UNKNOWN),
            )
        )
        usage = noise.choice((Usage(), Usage(), Usage(0.5, 4 * INTERVAL), Usage(0.4, 6.5 * INTERVAL), Usage(0.0, 1.0)))
        return Other(actor, fates, usage, noise.choice((0, 1, 3, 100)))

    # --- what happens between rounds ---

    def _events(self) -> None:
        noise = self.noise
        for other in self.others:
            if noise.random() < 0.06:
                other.lasts[noise.choice(("facts", "limit", "invalid", "unknown", "within", "report", "init"))] = (
                    noise.choice((1, 1, 2, 5))
                )
            chance = noise.random()
            if chance < 0.02:
                other.actor = replace(other.actor, generation=other.actor.generation + 1)
            elif chance < 0.03:
                self._reborn(other)
            elif chance < 0.045 and other.gone_at is None:
                self._deleted(other)
        if noise.random() < 0.03:
            self.labels[f"team-{noise.choice((0, 1, 2))}"] = noise.choice(NAMESPACES)
            if self.promise is not None and self.victim.namespace != "honest":
                self.labels.pop(self.victim.namespace, None)
        if noise.random() < 0.03:
            self.labels.clear()
        if self.history.breakers and noise.random() < 0.5:
            self._close()
        if self.promise is None:
            self._anything()

    def _anything(self) -> None:
        """Let something happen that may concern the victim, or the whole node."""
        noise = self.noise
        if self.rewritten and self.operator.random() < 0.1:
            self.node[self.operator.choice(RULES)] = self.operator.choice((1, 1, 2, 5))
        chance = noise.random()
        if chance < 0.04:
            self.node[noise.choice(NODE)] = noise.choice((1, 1, 2, 5))
        elif chance < 0.06:
            self.victim = replace(self.victim, facts=noise.choice((*FACTS, {})))
        elif chance < 0.08:
            self.victim = replace(self.victim, limit=noise.choice((8, 8, 16, 40)) * GIB)
        elif chance < 0.10:
            self.victim = replace(self.victim, used=noise.choice((30 * GIB, 30 * GIB, None, GIB)))
        elif chance < 0.12:
            self.victim = replace(self.victim, generation=self.victim.generation + 1)
        elif chance < 0.13:
            self.asleep += noise.choice((3.0, 60.0, 4000.0))
        elif chance < 0.14:
            trigger = noise.choice((Trigger.LIMIT, Trigger.LIMIT, Trigger.CONTENDED))
            kept = self.rules  # `confirm` says whether there is an API server, which no reload changes
            self.rules = replace(some_rules(noise), trigger=trigger, confirm=kept.confirm)
        elif chance < 0.15:
            self.labels[self.victim.namespace] = noise.choice((*NAMESPACES, CONSENTING))
        elif chance < 0.16:
            self.victim = replace(self.victim, client=noise.random() < 0.5, uid=f"uid-{self.monotonic}")

    def _close(self) -> None:
        self.closed = frozenset(self.history.breakers)
        for name in self.closed:
            self.history = replace(self.history, breakers=breakers.closed(self.history.breakers, name))

    def _reborn(self, other: Other) -> None:
        """Make the pod anew under its name; its workload stays."""
        uid = f"uid-{other.actor.pod}-{self.round}"
        created = {"created_at": WALL + self.monotonic + self.asleep - BEGIN}
        other.actor = replace(other.actor, uid=uid, generation=0, facts=created)
        other.gone_at = None

    def _deleted(self, other: Other) -> None:
        other.actor = replace(other.actor, facts={**other.actor.facts, "terminating": True})
        other.gone_at = self.round + other.linger

    def _conclude(self) -> tuple[Result | None, float]:
        """End the action in flight, when its time has come."""
        flight = self.history.in_flight
        if flight is None or self.ends is None or self.monotonic < self.ends[0]:
            return None, 0.0
        at, result = max(self.ends[0], flight.at), self.ends[1]
        self.ends = None
        self.history = outcomes.conclude(self.history, result, Moment(at, at + self.asleep))
        if result in {Result.ACCEPTED, Result.UNKNOWN} and flight.action.rung is not Rung.FENCE:
            for other in self.others:
                if other.actor.pod_uid == flight.action.pod_uid and other.gone_at is None:
                    self._deleted(other)
        return result, at

    def _began(self) -> str:
        """Start the daemon anew, now and then, while nothing is in flight."""
        noise = self.noise
        if not self.hostile or self.history.in_flight is not None or noise.random() > 0.01:
            return ""
        old, kept = self.history, noise.random() < 0.7 and self.history.settled is not None
        same = old.settled is not None and not old.settled.rules.differs(
            self.rules
        )  # as the daemon's levels file proves
        kept = kept and same and old.settled is not None and old.settled.vetted
        fresh = History(spent=old.spent, breakers=old.breakers)
        self.pending = []
        if kept:
            now = Moment(self.monotonic, self.monotonic + self.asleep)
            fresh = replace(fresh, settled=Settled(self.rules, frozenset({DRIVER}), self.monotonic))
            fresh = carry_over.restored(fresh, old.levels, now)
        self.history = fresh
        return "restored" if kept else "new"

    # --- a round ---

    def step(self) -> Verdict:
        """Let a round pass, and show it to the policy."""
        random = self.random
        self.round += 1
        self.monotonic += INTERVAL * random.uniform(0.8, 1.2) * (2 if random.random() < 0.02 else 1)
        early = random.random() < 0.05
        self.closed = frozenset()
        began = ""
        if self.hostile:
            self._events()
            began = self._began()
        ended, ended_at = self._conclude()
        accepted = self._accept()
        seen = self._seen()
        if self.asleep:
            seen = replace(seen, taken_at=seen.taken_at + self.asleep)
        if early:
            seen = replace(seen, gpus_read=frozenset({gpu_uuid(0)}))
        if self.promise is None and self.noise.random() < 0.02:
            self.monotonic += 25.0
        now = Moment(self.monotonic + 0.01, self.monotonic + 0.01 + self.asleep)
        rules = self._effective()
        self.history, verdict = decide(seen, rules, self.history, now)
        self.decisions += 1
        step = Step(seen, rules, now, verdict, self.history, ended, ended_at, began, self.closed, tuple(accepted))
        self._check(step)
        self._after(verdict)
        return verdict

    def _check(self, step: Step) -> None:
        if self.keep is not None:
            self.keep.append(step)
        broken = self.watch.step(step)
        if self.promise is not None:
            broken += self.promise.step(step, self.watch)
        self.found += [f"round {self.round}: {what}" for what in broken]

    def _after(self, verdict: Verdict) -> None:
        random, noise = self.random, self.noise
        for change in verdict.changes:
            after = change.after
            if after.reason is not None:
                self.reasons[after.reason] += 1
            if after.warned_at is not None:
                mine = after.key.holder == self._holder(self.victim)
                if not self.deaf if mine else noise.random() < 0.7:
                    self.pending.append((after.key.holder, after.warned_at))
        action = verdict.action
        if action is None:
            return
        if action.dry:
            self.dry_ends = self.monotonic
            return
        self.actions.append((self.monotonic, action.pod))
        took = (random if action.pod == self.victim.pod else noise).choice((0.5, 2.0, INTERVAL, 2 * INTERVAL))
        fates: tuple[Result, ...] = (Result.ACCEPTED,)
        for other in self.others:
            if other.actor.pod == action.pod:
                fates = other.fates
        if self.promise is None and action.pod == self.victim.pod:
            fates = (*HARMLESS, Result.ACCEPTED, Result.UNAUTHORIZED)
        self.ends = self.monotonic + took, noise.choice(fates)

    def _accept(self) -> list[HolderKey]:
        accepted, self.pending = self.pending, []
        for holder, warned_at in accepted:
            self.history = outcomes.warned(self.history, holder, warned_at)
        flight = self.history.dry_flight
        if flight is not None and self.dry_ends is not None:
            now = Moment(self.monotonic, self.monotonic + self.asleep)
            self.history = outcomes.rehearsed(self.history, flight.action, now)
            self.dry_ends = None
        return [holder for holder, _ in accepted]

    def _effective(self) -> Rules:
        self.node = {name: left - 1 for name, left in self.node.items() if left > 1}
        if not self.node:
            return self.rules
        modes = {
            "stopped": (Mode.OBSERVE, Reason.STOPPED),
            "warn": (Mode.WARN, Reason.NOT_OWNER),
            "dry-run": (Mode.DRY_RUN, Reason.MODE),
            "not_armed": (Mode.DRY_RUN, Reason.NOT_ARMED),
            "journal": (Mode.DRY_RUN, Reason.JOURNAL),
        }
        ceilings = tuple(Ceiling(*modes[name]) for name in self.node if name in modes)
        rules = replace(self.rules, ceilings=ceilings) if ceilings else self.rules
        if "notify only" in self.node:
            rules = replace(rules, ladder=(Rung.NOTIFY,), kill_when_blocked=False)
        return replace(rules, mps=Rung.EVICT) if "mps" in self.node else rules

    # --- what is seen ---

    def _seen(self) -> Snapshot:
        at, node = self.monotonic, self.node
        actors = [self.victim if self.usage.over(at - BEGIN) else _within(self.victim)]
        for other in self.others:
            if other.gone_at is not None and self.round >= other.gone_at:
                if self.noise.random() < 0.3:
                    self._reborn(other)
                continue
            actors.append(self._as_seen(other, at))
        names = {actor.namespace: self.labels.get(actor.namespace, CONSENTING) for actor in actors}
        labels: Mapping[str, Mapping[str, str]] = {name: each for name, each in names.items() if each is not None}
        faults = [Fault("allocations", "timeout", "no answer")] if "allocations" in node else []
        if "bad config" in node:
            faults.append(Fault("config", "config_invalid", "no mapping"))
        odd = self.hostile and self.noise.random() < 0.1
        seen = snapshot(
            actors,
            at,
            round_=self.round,
            namespaces=labels,
            hidden={0: self.noise.choice((0, 5 * GIB, 40 * GIB))} if odd else None,
            listed_too_much=2 * GIB if odd and self.noise.random() < 0.3 else 0,
            proven="unproven" not in node,
            live="stale names" not in node,
            faults=tuple(faults),
            gpus=2,
            driver=DRIVER,
        )
        if self.hostile and self.noise.random() < 0.05:
            seen = self._neighbours_gpu(seen)
        if odd and self.others:
            newest = replace(self.others[0].actor, generation=99)
            made = Container(newest.pod_uid, newest.container, newest.id, newest.kind)
            seen = replace(seen, containers=(*seen.containers, made))
        return seen

    def _neighbours_gpu(self, seen: Snapshot) -> Snapshot:
        """Let the second GPU be shared in another way, or not answer; where only the first law counts, any GPU."""
        place = 1 if self.promise is not None else self.noise.choice((0, 1))
        how = self.noise.choice((Sharing.MPS, Sharing.EXCLUSIVE, None))
        devices = list(seen.devices)
        if how is not None:
            devices[place] = replace(devices[place], sharing=how)
            return replace(seen, devices=tuple(devices))
        uuid = devices.pop(place).key.uuid
        return replace(seen, devices=tuple(devices), gpus_read=seen.gpus_read - {uuid})

    def _as_seen(self, other: Other, at: float) -> Actor:
        lasts = other.lasts
        actor = other.actor if other.usage.over(at) else _within(other.actor)
        if not lasts:
            return actor
        now: dict[str, Any] = {}
        if "facts" in lasts:
            now["facts"] = {**actor.facts, **FACTS[(lasts["facts"] + self.seed) % len(FACTS)]}
        if "limit" in lasts and not actor.claim:  # a claim has one amount for all of its pods
            now["limit"] = (1, 8, 40)[self.seed % 3] * GIB
        if "invalid" in lasts and not actor.claim:  # and so none of them can spoil it
            now |= {"limit": None, "problems": ("no unit",)}
        if "unknown" in lasts:
            now["used"] = None
        if "within" in lasts:
            now["used"] = GIB
        if "report" in lasts:
            now["report_only"] = ("a hook enforces it",)
        if "init" in lasts:
            now["kind"] = ContainerKind.INIT
        other.lasts = {name: left - 1 for name, left in lasts.items() if left > 1}
        return replace(actor, **now)

    # --- a trace ---

    def play(self) -> World:
        """Play until the victim was acted on, its bound has passed, or enough happened."""
        most = 24 if self.promise is None else 2000
        for _ in range(most):
            self.step()
            if self.found or (self.promise is not None and self.promise.met is not None):
                break
        return self


@dataclass(slots=True)
class Tally:
    """What some traces came to."""

    traces: int = 0
    promises: int = 0
    decisions: int = 0
    actions: int = 0
    cpu: float = 0.0
    found: list[str] = field(default_factory=list)
    reasons: Counter[Reason] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        """Add another tally to this one."""
        self.traces += other.traces
        self.promises += other.promises
        self.decisions += other.decisions
        self.actions += other.actions
        self.cpu += other.cpu
        self.found += other.found
        self.reasons += other.reasons


def played(seeds: Sequence[int], interval: float = INTERVAL) -> Tally:
    """Play the traces of these seeds; with a shorter `interval` on slow nodes."""
    tally, began = Tally(), time.process_time()
    gc.disable()  # histories and snapshots hold no cycles, and the collector takes a tenth of the time
    for seed in seeds:
        world = World(seed, interval=interval).play()
        tally.traces += 1
        tally.promises += world.promise is not None
        tally.decisions += world.decisions
        tally.actions += len(world.actions)
        tally.found += [f"seed {seed}: {what}" for what in world.found]
        tally.reasons.update(world.reasons)
    gc.enable()
    tally.cpu = time.process_time() - began
    return tally


CHUNK = 250


def main(arguments: Sequence[str] | None = None) -> int:
    """Play traces and print what they came to; 1 when a law is broken."""
    parser = argparse.ArgumentParser(prog="policy.hostile", description=__doc__)
    parser.add_argument("--traces", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0, help="the first one's")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    asked = parser.parse_args(arguments)
    began, tally = time.perf_counter(), Tally()
    last = asked.seed + asked.traces
    chunks = [range(one, min(one + CHUNK, last)) for one in range(asked.seed, last, CHUNK)]
    with Pool(asked.jobs) as pool:
        for one in pool.imap_unordered(played, chunks):
            tally.add(one)
            for what in one.found:
                print(what, file=sys.stderr, flush=True)
    took = time.perf_counter() - began
    print(
        f"{tally.traces:,} hostile traces (seeds {asked.seed} to {last - 1}), "
        f"{tally.promises:,} with an honest victim, "
        f"{tally.decisions:,} decisions, {tally.actions:,} actions: {len(tally.found)} violations; "
        f"{took:.0f} s on {asked.jobs} processes, {1000 * tally.cpu / max(1, tally.traces):.1f} ms of CPU a trace"
    )
    print("\n| reason | given |\n|---|---|")
    for reason in Reason:
        print(f"| `{reason}` | {tally.reasons[reason]:,} |")
    return 1 if tally.found else 0


if __name__ == "__main__":
    sys.exit(main())
