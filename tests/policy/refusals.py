"""
One scene for each reason that can hold during a whole play: one fact, because of which GREEDY is not acted on.

Nothing comes in. `SCENES` and `Scene()`, their twin, in which GREEDY is evicted, go out.

The rule: in each scene one fact differs from the twin.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from default_rules import default_protection
from enforcer.policy.history import Hold, Opened, Spent
from enforcer.policy.rules import ALLOW_EXEMPTION, EXEMPT, Budget, Ceiling, MissingStep, Rules
from enforcer.policy.vocabulary import Breaker, Mode, Place, Reason, Rung, State, Trigger
from exporter.model import ContainerKind, Fault, PodUid, Sharing
from policy.scenes import BEGIN, CONSENTING, GREEDY, MEEK, SHORT, WALL, Actor, Play, settled

ENOUGH = 14
"""Rounds after which GREEDY is acted on, if ever: four until it is warned, six of grace, and some to spare."""
GRANTED = {"team": {**CONSENTING, ALLOW_EXEMPTION: "true"}}


@dataclass(frozen=True)
class Scene:
    """What is so during all of a play: GREEDY first, then the others. `past` changes the history before it."""

    greedy: Actor = GREEDY
    others: tuple[Actor, ...] = (MEEK,)
    rules: Rules = SHORT
    world: Mapping[str, Any] = field(default_factory=dict)
    past: Mapping[str, Any] = field(default_factory=dict)

    def play(self) -> Play:
        """Play it to its end."""
        play = Play(self.rules, replace(settled(self.rules), **self.past))
        play.steps(ENOUGH, self.greedy, *self.others, **self.world)
        return play


def annotated(**facts: object) -> Actor:
    """GREEDY with other facts of its pod."""
    return replace(GREEDY, facts=facts)


def in_(namespace: str, **facts: object) -> Scene:
    """GREEDY in another namespace."""
    return Scene(replace(GREEDY, namespace=namespace, facts=facts))


def budget(**budgets: Budget) -> Scene:
    """Play with one budget that is another."""
    return Scene(rules=replace(SHORT, budgets=replace(SHORT.budgets, **budgets)))


def below(reason: Reason, mode: Mode = Mode.DRY_RUN) -> Scene:
    """Play with a ceiling of the whole node."""
    return Scene(rules=replace(SHORT, ceilings=(Ceiling(mode, reason),)))


def on_hold(reason: Reason, place: Place = Place.POD, name: str = GREEDY.pod_uid, until: float | None = None) -> Scene:
    """Play with a hold, in force until it is lifted or until some moment."""
    return Scene(past={"holds": {(place, name, reason): Hold(until)}})


def protected(greedy: Actor, **protect: Any) -> Scene:
    """Play with an operator's protection."""
    return Scene(greedy, rules=replace(SHORT, protect=default_protection(**protect)))


NONE = Budget(0, 600.0)
LABELLED = replace(SHORT, protect=default_protection(labels={"tier": "gold"}))
KILLING = replace(SHORT, ladder=(Rung.NOTIFY, Rung.KILL))
DELETED_LONG_AGO = {"deleted": {GREEDY.pod_uid: BEGIN - 3600.0}}
CONFIG_FAULT = Fault("config", "config_invalid", "policy.grace: expected a duration")
NO_KUBELET = Fault("allocations", "kubelet_away", "the kubelet does not answer")
ACTED_ON = Spent(BEGIN - 10.0, ("team", "Deployment", "greedy"), WALL - 10.0)
"""The token of an action on GREEDY's workload, ten seconds before the play."""

SCENES: dict[Reason, tuple[State, Scene]] = {
    Reason.READING_UNKNOWN: (State.UNJUDGED, Scene(replace(GREEDY, used=None))),
    Reason.PID_DOMAIN: (State.UNJUDGED, Scene(world={"proven": False})),
    Reason.ALLOCATIONS_STALE: (State.UNJUDGED, Scene(world={"faults": (NO_KUBELET,)})),
    Reason.UNDECLARED: (State.UNJUDGED, Scene(replace(GREEDY, limit=None, undeclared=True))),
    Reason.LIMIT_INVALID: (State.UNJUDGED, Scene(replace(GREEDY, limit=None, problems=("8 what?",)))),
    Reason.PROCESS_SCOPE: (State.UNJUDGED, Scene(replace(GREEDY, scope="process"))),
    Reason.POD_UNKNOWN: (State.EXEMPT, Scene(world={"strangers": ("greedy-1",)})),
    Reason.PRIORITY: (State.EXEMPT, Scene(annotated(priority=2_000_000_000))),
    Reason.STATIC_POD: (State.EXEMPT, Scene(annotated(config_hash=PodUid("0123456789abcdef")))),
    Reason.NAMESPACE: (State.EXEMPT, in_("kube-system")),
    Reason.OWN_POD: (State.EXEMPT, Scene(rules=replace(SHORT, own_pod=GREEDY.pod_uid))),
    Reason.LABEL: (State.EXEMPT, Scene(annotated(labels={"tier": "gold"}), rules=LABELLED)),
    Reason.EXEMPT: (State.EXEMPT, Scene(annotated(annotations={EXEMPT: "true"}), world={"namespaces": GRANTED})),
    Reason.NOT_RUNNING: (State.EXEMPT, Scene(annotated(phase="Succeeded"))),
    Reason.OTHER_GENERATION: (State.EXEMPT, Scene(others=(replace(GREEDY, generation=1, used=0), MEEK))),
    Reason.REPORT_ONLY: (State.HELD, Scene(replace(GREEDY, report_only=("the hardware enforces it",)))),
    Reason.MIG: (State.HELD, Scene(replace(GREEDY, scope="instance"))),
    Reason.EXCLUSIVE: (State.HELD, Scene(world={"sharing": Sharing.EXCLUSIVE})),
    Reason.MPS: (State.HELD, Scene(world={"sharing": Sharing.MPS})),
    Reason.UNVERIFIED_BACKEND: (State.HELD, Scene(world={"vendor": "amd"})),
    Reason.MODE: (State.HELD, Scene(rules=replace(SHORT, mode=Mode.WARN))),
    Reason.STOPPED: (State.HELD, below(Reason.STOPPED, Mode.OBSERVE)),
    Reason.NO_CONSENT: (State.HELD, Scene(world={"namespaces": {"team": {}}})),
    Reason.NO_RUNG: (State.HELD, Scene(rules=replace(SHORT, ladder=(Rung.NOTIFY,)))),
    Reason.THIRD_PARTY: (
        State.HELD,
        Scene(
            annotated(annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}),
            world={"namespaces": GRANTED},
        ),
    ),
    Reason.DAEMON_SET: (State.HELD, protected(annotated(controller_kind="DaemonSet"), daemon_sets=True)),
    Reason.BARE_POD: (State.HELD, protected(annotated(controller_kind=""), bare_pods=True)),
    Reason.NOT_CONTENDED: (State.HELD, Scene(others=(), rules=replace(SHORT, trigger=Trigger.CONTENDED))),
    Reason.NAMESPACE_UNKNOWN: (State.HELD, Scene(world={"namespaces": {}})),
    Reason.NO_RIGHTS: (State.HELD, on_hold(Reason.NO_RIGHTS, Place.NAMESPACE, "team")),
    Reason.UNAUTHORIZED: (State.HELD, on_hold(Reason.UNAUTHORIZED, Place.NODE, "")),
    Reason.REFUSED: (State.HELD, on_hold(Reason.REFUSED)),
    Reason.NOT_OWNER: (State.HELD, below(Reason.NOT_OWNER, Mode.OBSERVE)),
    Reason.NOT_ARMED: (State.HELD, below(Reason.NOT_ARMED)),
    Reason.STEP_MISSING: (State.HELD, Scene(rules=replace(SHORT, missing=(MissingStep(Rung.EVICT, ""),)))),
    Reason.JOURNAL: (State.HELD, below(Reason.JOURNAL)),
    Reason.ADMISSION: (State.HELD, below(Reason.ADMISSION)),
    Reason.CONFIG: (State.HELD, Scene(world={"faults": (CONFIG_FAULT,)})),
    Reason.NAMES_STALE: (State.HELD, Scene(world={"live": False})),
    Reason.FAILED: (State.HELD, on_hold(Reason.FAILED)),
    Reason.BREAKER: (State.HELD, Scene(past={"breakers": {Breaker.JOURNAL: Opened(BEGIN, "damaged")}})),
    Reason.BLOCKED: (State.HELD, on_hold(Reason.BLOCKED)),
    Reason.KILL_IMPOSSIBLE: (State.HELD, on_hold(Reason.KILL_IMPOSSIBLE)),
    Reason.CONTAINER_KIND: (State.HELD, Scene(replace(GREEDY, kind=ContainerKind.INIT), rules=KILLING)),
    Reason.DELETION_STUCK: (State.HELD, Scene(annotated(terminating=True), past=DELETED_LONG_AGO)),
    Reason.TERMINATING: (State.HELD, Scene(annotated(terminating=True))),
    Reason.LAST_LOOK: (State.HELD, on_hold(Reason.LAST_LOOK)),
    Reason.HOLD_OFF: (State.HELD, Scene(rules=replace(SHORT, hold_off=600.0), past={"settled": None})),
    Reason.BUDGET_NODE: (State.HELD, budget(node=NONE)),
    Reason.BUDGET_NAMESPACE: (State.HELD, budget(namespace=NONE)),
    Reason.BACK_OFF: (State.HELD, Scene(annotated(created_at=WALL - 5.0), past={"spent": (ACTED_ON,) * 5})),
}
"""Scenes in which one fact keeps GREEDY from being acted on: it is missing in `Scene()`, where GREEDY is evicted."""
