"""
A hostile node: pods, a clock, and everything that may happen to them.

What comes in: a `random.Random`, or somebody who says which event comes next. What goes out: a trace of the policy on
what happened, step by step, for the checkers of `policy.invariants`.

The law: an event is one fact that is other than usual, for so many rounds; any of them may overlap. Nothing here knows
the policy's rules: an event is hostile because it happens, not because it is known to matter.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING

from default_rules import default_protection, default_rules
from enforcer.policy import breakers
from enforcer.policy.decide import decide
from enforcer.policy.history import History, Moment, Result, Verdict
from enforcer.policy.outcomes import conclude
from enforcer.policy.rules import Budget, Budgets, Ceiling, Rules
from enforcer.policy.vocabulary import Breaker, Mode, Reason, Rung, Trigger
from exporter.model import Container, ContainerKind, Device, DeviceKey, Fault, GpuInstance, Sharing, Snapshot
from policy.invariants import Step, violations
from policy.scenes import BEGIN, CARD, GIB, Actor, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LADDERS = (
    (Rung.NOTIFY, Rung.EVICT),
    (Rung.NOTIFY, Rung.EVICT),
    (Rung.NOTIFY, Rung.KILL),
    (Rung.NOTIFY, Rung.FENCE, Rung.EVICT),
    (Rung.EVICT, Rung.KILL),
    (Rung.NOTIFY,),
)
POD: dict[str, dict[str, object]] = {
    "terminating": {"terminating": True},
    "finished": {"phase": "Succeeded"},
    "failed": {"phase": "Failed"},
    "starting": {"phase": "Pending"},
    "unphased": {"phase": ""},
    "important": {"priority": 2_000_000_000},
    "unranked": {"priority": None},
    "system": {"priority_class": "system-node-critical"},
    "static": {"config_hash": "0123"},
    "daemon set": {"controller_kind": "DaemonSet"},
    "bare": {"controller_kind": ""},
    "keep": {"labels": {"keep": "yes"}},
    "exempt": {"annotations": {"gpusteward.io/exempt": "true"}},
    "trusting": {"annotations": {"gpusteward.io/exempt": "true"}},
    "patient": {"annotations": {"gpusteward.io/grace-seconds": "900"}},
    "hasty": {"annotations": {"gpusteward.io/grace-seconds": "1"}},
    "nonsense": {"annotations": {"gpusteward.io/grace-seconds": "٣"}},
    "safe": {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}},
    "cheap": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-5"}},
}
"""What may be so of a pod; of one pod at a time, the accused or another."""
NAMESPACE: dict[str, Mapping[str, str] | None] = {
    "unread": None,
    "unlabelled": {},
    "namespace off": {"gpusteward.io/mode": "off"},
    "namespace dry": {"gpusteward.io/mode": "dry-run"},
    "namespace typo": {"gpusteward.io/mode": "Enforce"},
    "trusting": {"gpusteward.io/mode": "enforce", "gpusteward.io/allow-pod-exemption": "true"},
}
NEIGHBOUR: dict[str, dict[str, object]] = {
    "neighbour leaves": {"terminating": True},
    "neighbour ended": {"phase": "Succeeded"},
    "neighbour starts": {"phase": "Pending"},
}
USE = ("within", "between", "unknown", "gone", "sated", "neighbour unknown", "neighbour over", "neighbour init")
DEVICE = ("mps", "mig", "exclusive", "driver", "vendor", "no memory", "half read", "silent", "another gpu")
DOUBT = (
    "nameless",
    "newer container",
    "unproven",
    "stale names",
    "allocations",
    "bad config",
    "listed too much",
    "hidden",
)
LIMIT = ("raised", "lowered", "invalid", "undeclared", "report only", "process", "init", "another container")
NODE = ("stop", "warn", "rehearse", "not_armed", "journal", "admission", "off", "own pod", "own namespace")
FLAGS = (*POD, *NEIGHBOUR, *NAMESPACE, *USE, *DEVICE, *DOUBT, *LIMIT, *NODE)
SHOTS = (
    "restart",
    "remake",
    "reload",
    "reborn",
    "sleep",
    "pause",
    "stall",
    "early",
    "again",
    "older",
    "close",
    "ended",
)


def some_rules(random: Random) -> Rules:
    """Draw rules under which an action is possible within some rounds."""
    ladder = random.choice(LADDERS)
    interval = random.choice((5.0, 15.0, 15.0, 30.0))
    generous = random.random() < 0.5
    return default_rules(
        mode=random.choice((Mode.ENFORCE, Mode.ENFORCE, Mode.ENFORCE, Mode.DRY_RUN)),
        trigger=random.choice((Trigger.CONTENDED, Trigger.CONTENDED, Trigger.LIMIT)),
        warn_after=interval * random.choice((1, 1, 2)),
        grace=random.choice((30.0, 30.0, 45.0)),
        ladder=ladder,
        kill_when_blocked=Rung.EVICT in ladder and Rung.KILL in ladder,
        mps=random.choice((Rung.NOTIFY, Rung.EVICT)),
        interval=interval,
        spacing=random.choice((interval, 60.0)),
        hold_off=random.choice((0.0, 0.0, 60.0, 120.0)),
        strikes=random.choice((1, 1, 1, 2)),
        budgets=Budgets(
            Budget(random.choice((0, 1, 3)) if not generous else 9, 600.0),
            Budget(random.choice((1, 2)) if not generous else 9, 600.0),
            Budget(random.choice((1, 3)) if not generous else 9, 86400.0),
        ),
        protect=default_protection(labels={"keep": "yes"}),
    )


@dataclass(slots=True)
class World:
    """A node, and the trace of the policy on it. `flags` are the facts that are other than usual, with their rounds."""

    random: Random
    rules: Rules
    cast: list[Actor]
    free: int = GIB
    """Bytes that are free while nothing else is said; the first neighbour is owed 35 GiB."""
    history: History = field(default_factory=History)
    monotonic: float = BEGIN
    asleep: float = 0.0
    flags: dict[str, int] = field(default_factory=dict)
    trace: list[Step] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    ended: Result | None = None
    reborn: bool = False
    closed: frozenset[Breaker] = frozenset()
    late: float = 0.0
    early: bool = False

    # --- events -----------------------------------------------------------------------------------------------------

    def happens(self, what: str, rounds: int) -> None:
        """Let a fact be other than usual for so many rounds."""
        self.flags[what] = rounds

    def restart(self) -> None:
        """Restart the accused's container."""
        self.cast[0] = replace(self.cast[0], generation=self.cast[0].generation + 1)

    def remake(self) -> None:
        """Make the accused's pod anew, under the same name."""
        one = self.cast[0]
        self.cast[0] = replace(one, uid=f"uid-{self.monotonic}", generation=0)

    def reload(self) -> None:
        """Load other rules of the same interval."""
        rules = some_rules(self.random)
        self.rules = replace(rules, interval=self.rules.interval, warn_after=self.rules.warn_after, spacing=60.0)

    def start_anew(self) -> None:
        """Start the daemon anew: budgets, breakers and strikes stay."""
        old = self.history
        self.history = History(spent=old.spent, breakers=old.breakers, strikes=old.strikes)
        self.reborn = True

    def sleep(self) -> None:
        """Let the machine sleep."""
        self.asleep += self.random.choice((3.0, 60.0, 4000.0))

    def pause(self) -> None:
        """Let no round be for a while."""
        self.monotonic += self.rules.interval * self.random.choice((0.4, 1.0, 1.6, 4.0))

    def stall(self) -> None:
        """Decide late on the next round."""
        self.late = self.rules.interval * self.random.choice((0.5, 1.0, 3.0))

    def soon(self) -> None:
        """Let the next round be an early one, which reads one GPU only."""
        self.early = True

    def close(self) -> None:
        """A person closes all breakers."""
        self.closed = frozenset(self.history.breakers)
        for name in self.closed:
            self.history = replace(self.history, breakers=breakers.closed(self.history.breakers, name))

    def end(self, result: Result | None = None) -> None:
        """End the action in flight, if there is one."""
        if self.history.in_flight is not None:
            self.ended = result or self.random.choice((Result.BLOCKED, *Result))
            self.history = conclude(self.history, self.ended, Moment(self.monotonic, self.monotonic + self.asleep))
            if self.ended is Result.VERIFIED and self.history.fenced == frozenset():
                self.remake()

    def shot(self, what: str) -> None:
        """Let one thing happen between two rounds."""
        shots: dict[str, Callable[[], object]] = {
            "restart": self.restart,
            "remake": self.remake,
            "reload": self.reload,
            "reborn": self.start_anew,
            "sleep": self.sleep,
            "pause": self.pause,
            "stall": self.stall,
            "early": self.soon,
            "again": lambda: self.show(self.trace[-1].snapshot) if self.trace else None,
            "older": lambda: self.show(self.trace[-2].snapshot) if len(self.trace) > 1 else None,
            "close": self.close,
            "ended": self.end,
        }
        shots[what]()

    # --- rounds -----------------------------------------------------------------------------------------------------

    def round(self) -> Verdict:
        """Let a round be, and show it to the policy."""
        self.monotonic += self.rules.interval * (0.5 if self.early else 1.0)
        seen = self.seen()
        self.monotonic += self.late
        self.early, self.late = False, 0.0
        self.flags = {what: left - 1 for what, left in self.flags.items() if left > 1}
        return self.show(seen, step=0.0)

    def show(self, seen: Snapshot, *, step: float = 1.0) -> Verdict:
        """Show a snapshot to the policy, and check what it says."""
        self.monotonic += step
        now = Moment(self.monotonic, self.monotonic + self.asleep)
        rules = self.effective()
        before = self.history
        self.history, verdict = decide(seen, rules, before, now)
        if before.shown is not None and seen.monotonic <= before.shown:
            if verdict.action is not None or self.history != before:
                self.found.append("INV-7 a snapshot that was shown before adds something")
            return verdict
        self.trace.append(Step(seen, rules, now, verdict, self.history, self.ended, self.reborn, self.closed))
        self.ended, self.reborn, self.closed = None, False, frozenset()
        self.found += violations(self.trace)
        if verdict.action is not None and decide(seen, rules, before, now) != (self.history, verdict):
            self.found.append("INV-18 another verdict on the same")
        return verdict

    def effective(self) -> Rules:
        """Return the rules, under the ceilings of this moment."""
        modes = {"stop": Mode.OBSERVE, "warn": Mode.WARN, "rehearse": Mode.DRY_RUN, "off": Mode.OFF}
        missing = {one.value: one for one in (Reason.NOT_ARMED, Reason.JOURNAL, Reason.ADMISSION)}
        modes |= dict.fromkeys(missing, Mode.DRY_RUN)
        why = {"warn": Reason.NOT_OWNER, "rehearse": Reason.MODE, **missing}
        ceilings = tuple(
            Ceiling(mode, why.get(name, Reason.STOPPED)) for name, mode in modes.items() if name in self.flags
        )
        rules = replace(self.rules, ceilings=ceilings) if ceilings else self.rules
        if "own pod" in self.flags:
            rules = replace(rules, own_pod=self.cast[0].pod_uid)
        return replace(rules, own_namespace="team") if "own namespace" in self.flags else rules

    def actors(self) -> list[Actor]:
        """Say who is there, with all that is other than usual."""
        flags, first = self.flags, self.cast[0]
        limit = first.limit or 0
        facts: dict[str, object] = dict(first.facts)
        for name in flags:
            facts |= POD.get(name, {})
        changes: dict[str, object] = {"facts": facts}
        if "within" in flags:
            changes["used"] = limit - GIB
        if "between" in flags:
            changes["used"] = limit + GIB // 8
        if "unknown" in flags:
            changes["used"] = None
        if "raised" in flags:
            changes["limit"] = limit * 2
        if "lowered" in flags:
            changes["limit"] = limit // 2
        if "invalid" in flags:
            changes |= {"limit": None, "problems": ("no unit",)}
        if "undeclared" in flags:
            changes |= {"limit": None, "undeclared": True}
        if "report only" in flags:
            changes["report_only"] = ("another one enforces it",)
        if "process" in flags:
            changes["scope"] = "process"
        if "init" in flags:
            changes["kind"] = ContainerKind.INIT
        found = [replace(first, **changes)] if "gone" not in flags else []  # type: ignore[arg-type]
        if "another container" in flags and found:
            found.append(replace(found[0], container="other", used=GIB, limit=30 * GIB, scope=first.scope))
        for index, one in enumerate(self.cast[1:]):
            other = one
            if index == 0 and "neighbour unknown" in flags:
                other = replace(one, used=None)
            if index == 0 and "neighbour over" in flags:
                other = replace(one, used=(one.limit or 0) + GIB)
            if index == 0 and "neighbour init" in flags:
                other = replace(one, kind=ContainerKind.INIT)
            if index == 0:
                other = replace(
                    other, facts={name: what for flag in flags for name, what in NEIGHBOUR.get(flag, {}).items()}
                )
            found.append(other)
        return found

    def seen(self) -> Snapshot:
        """Make the snapshot of this round."""
        flags, actors = self.flags, self.actors()
        gpus = 2 if any(one.gpu for one in self.cast) or "another gpu" in flags else 1
        hidden = {}
        for index in range(gpus):
            held = sum(one.used or 0 for one in actors if one.gpu == index)
            free = 50 * GIB if "sated" in flags else self.free
            hidden[index] = max(0, CARD - free - held) if "hidden" not in flags else 0
        names = {one.namespace for one in actors}
        usual = {name: {"gpusteward.io/mode": "enforce"} for name in names}
        for flag, labels in NAMESPACE.items():
            if flag in flags:
                usual = dict.fromkeys(names, labels) if labels is not None else {}  # type: ignore[arg-type]
        faults = []
        if "allocations" in flags:
            faults.append(Fault("allocations", "timeout", "no answer"))
        if "bad config" in flags:
            faults.append(Fault("config", "config_invalid", "no mapping"))
        sharing = {"mps": Sharing.MPS, "exclusive": Sharing.EXCLUSIVE}
        found = snapshot(
            actors,
            self.monotonic,
            round_=len(self.trace) + 1,
            namespaces=usual,
            hidden=hidden,
            sharing=next((one for name, one in sharing.items() if name in flags), Sharing.TIME_SLICING),
            read=[] if "half read" in flags else [0] if self.early else None,
            proven="unproven" not in flags,
            live="stale names" not in flags,
            faults=tuple(faults),
            gpus=gpus,
            listed_too_much=2 * GIB if "listed too much" in flags else 0,
            driver="610.1" if "driver" in flags else "580.95.05",
            vendor="amd" if "vendor" in flags else "nvidia",
        )
        if "nameless" in flags:
            found = replace(found, pods={uid: pod for uid, pod in found.pods.items() if uid != self.cast[0].pod_uid})
        if "newer container" in flags and actors:
            newer = replace(actors[0], generation=99)
            made = Container(newer.pod_uid, newer.container, newer.id, newer.kind)
            found = replace(found, containers=(*found.containers, made))
        if "silent" in flags:
            found = replace(found, gpus=(), devices=(), gpus_read=frozenset(), usages=())
        if "no memory" in flags:
            found = replace(found, devices=tuple(_blind(one) for one in found.devices))
        return _split(found) if "mig" in flags else found


def _blind(device: Device) -> Device:
    return replace(device, account=replace(device.account, memory=None))


def _split(found: Snapshot) -> Snapshot:
    def leaf(key: DeviceKey) -> DeviceKey:
        return DeviceKey(key.uuid, 0)

    devices = [
        replace(one, key=leaf(one.key), account=replace(one.account, device=leaf(one.key)), sharing=Sharing.MIG)
        for one in found.devices
    ]
    return replace(
        found,
        devices=tuple(devices),
        gpus=tuple(
            replace(one, mig=True, instances=(GpuInstance(0, "7g.80gb", (f"MIG-{one.index}",)),)) for one in found.gpus
        ),
        usages=tuple(replace(one, device=leaf(one.device)) for one in found.usages),
        limits=tuple(replace(one, device=leaf(one.device)) for one in found.limits),
    )


def some_world(random: Random) -> World:
    """Draw a node: one pod that is over its limit, a neighbour that is short, and up to three others."""
    scope = random.choice(("container", "container", "container", "pod", "claim"))
    claim = "team/share" if scope == "claim" else ""
    cast = [
        Actor("train-0", 30 * GIB, scope=scope, claim=claim),
        Actor("poor-0", 5 * GIB, limit=40 * GIB, namespace="other"),
    ]
    if random.random() < 0.4:
        cast.append(Actor("greedy-0", 12 * GIB, limit=10 * GIB, facts={"priority": random.choice((-1, 0, 5))}))
    if random.random() < 0.15:
        cast.append(Actor("greedy-1", 6 * GIB, limit=4 * GIB, namespace="other", gpu=random.choice((0, 1))))
    if random.random() < 0.3:
        cast.append(Actor("calm-0", 2 * GIB, limit=4 * GIB))
    if scope == "claim" and random.random() < 0.3:
        cast.append(Actor("mate-0", 2 * GIB, scope="claim", claim=claim))
    return World(random, some_rules(random), cast, free=random.choice((1, 1, 33, 36)) * GIB)


def play(seed: int, rounds: int = 24) -> World:
    """Play a hostile trace: in most rounds nothing new happens, else an action would be rare."""
    random = Random(seed)
    world = some_world(random)
    hostility = random.choice((0.03, 0.1, 0.25))
    for _ in range(rounds):
        chance = random.random()
        if chance < hostility:
            what, rounds = random.choice(FLAGS), random.choice((1, 1, 2, 3, 6))
            world.happens(what, 2 * rounds if what in NODE else rounds)  # another mode begins the grace anew
        elif chance < 1.6 * hostility:
            world.shot(random.choice(SHOTS))
        if world.history.in_flight is not None and random.random() < 0.3:
            world.end()
        world.round()
    return world
