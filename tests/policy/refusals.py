"""
One scene for each word of refusal: what is so during all of a play, so that GREEDY is not acted on.

What comes in: nothing. What goes out: `SCENES`, and `Scene()`, their twin, in which GREEDY is evicted.

The law: in each scene one fact differs from the twin.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from default_rules import default_protection
from enforcer.policy.history import History, Opened
from enforcer.policy.rules import ALLOW_EXEMPTION, EXEMPT, Budget, Ceiling, Rules
from enforcer.policy.vocabulary import Breaker, Mode, Reason, Rung, State
from exporter.model import ContainerKind, Fault, PodUid, Sharing
from policy.scenes import BEGIN, CONSENTING, GIB, GREEDY, MEEK, UNHURRIED, Actor, Play

ENOUGH = 32
"""Rounds after which GREEDY is acted on, if ever: three until it is told, 24 of grace, and some to spare."""
GRANTED = {"team": {**CONSENTING, ALLOW_EXEMPTION: "true"}}


@dataclass(frozen=True)
class Scene:
    """What is so during all of a play: GREEDY first, then who else is there."""

    greedy: Actor = GREEDY
    others: tuple[Actor, ...] = (MEEK,)
    rules: Rules = UNHURRIED
    world: Mapping[str, Any] = field(default_factory=dict)
    history: History = field(default_factory=History)

    def play(self) -> Play:
        """Play it to its end."""
        play = Play(self.rules, self.history)
        play.steps(ENOUGH, self.greedy, *self.others, **self.world)
        return play


def annotated(**facts: object) -> Actor:
    """GREEDY with other facts of its pod."""
    return replace(GREEDY, facts=facts)


def in_(namespace: str, **facts: object) -> Scene:
    return Scene(replace(GREEDY, namespace=namespace, facts=facts))


def budget(**budgets: Budget) -> Scene:
    return Scene(rules=replace(UNHURRIED, budgets=replace(UNHURRIED.budgets, **budgets)))


def below(reason: Reason, mode: Mode = Mode.DRY_RUN) -> Scene:
    """A ceiling of the whole node."""
    return Scene(rules=replace(UNHURRIED, ceilings=(Ceiling(mode, reason),)))


NONE = Budget(0, 600.0)
LABELLED = replace(UNHURRIED, protect=default_protection(labels={"tier": "gold"}))

SCENES: dict[Reason, tuple[State, Scene]] = {
    Reason.READING_UNKNOWN: (State.UNJUDGED, Scene(replace(GREEDY, used=None))),
    Reason.PID_DOMAIN: (State.UNJUDGED, Scene(world={"proven": False})),
    Reason.ALLOCATIONS_STALE: (
        State.UNJUDGED,
        Scene(world={"faults": (Fault("allocations", "kubelet_away", "the kubelet does not answer"),)}),
    ),
    Reason.UNDECLARED: (State.UNJUDGED, Scene(replace(GREEDY, limit=None, undeclared=True))),
    Reason.LIMIT_INVALID: (State.UNJUDGED, Scene(replace(GREEDY, limit=None, problems=("8 what?",)))),
    Reason.PROCESS_SCOPE: (State.UNJUDGED, Scene(replace(GREEDY, scope="process"))),
    Reason.POD_UNKNOWN: (State.EXEMPT, Scene(world={"strangers": ("greedy-1",)})),
    Reason.PRIORITY: (State.EXEMPT, Scene(annotated(priority=2_000_000_000))),
    Reason.STATIC_POD: (State.EXEMPT, Scene(annotated(config_hash=PodUid("0123456789abcdef")))),
    Reason.NAMESPACE: (State.EXEMPT, in_("kube-system")),
    Reason.OWN_POD: (State.EXEMPT, Scene(rules=replace(UNHURRIED, own_pod=GREEDY.pod_uid))),
    Reason.LABEL: (State.EXEMPT, Scene(annotated(labels={"tier": "gold"}), rules=LABELLED)),
    Reason.EXEMPT: (State.EXEMPT, Scene(annotated(annotations={EXEMPT: "true"}), world={"namespaces": GRANTED})),
    Reason.TERMINATING: (State.EXEMPT, Scene(annotated(terminating=True))),
    Reason.NOT_RUNNING: (State.EXEMPT, Scene(annotated(phase="Pending"))),
    Reason.OTHER_GENERATION: (State.EXEMPT, Scene(others=(replace(GREEDY, generation=1, used=0), MEEK))),
    Reason.CONTAINER_KIND: (State.EXEMPT, Scene(replace(GREEDY, kind=ContainerKind.INIT))),
    Reason.THIRD_PARTY: (
        State.HELD,
        Scene(annotated(annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"})),
    ),
    Reason.DAEMON_SET: (State.HELD, Scene(annotated(controller_kind="DaemonSet"))),
    Reason.BARE_POD: (State.HELD, Scene(annotated(controller_kind=""))),
    Reason.REPORT_ONLY: (State.HELD, Scene(replace(GREEDY, report_only=("the hardware enforces it",)))),
    Reason.MIG: (State.HELD, Scene(replace(GREEDY, scope="instance"))),
    Reason.EXCLUSIVE: (State.HELD, Scene(world={"sharing": Sharing.EXCLUSIVE})),
    Reason.MPS: (State.HELD, Scene(world={"sharing": Sharing.MPS})),
    Reason.CLAIM_SHARED: (
        State.HELD,
        Scene(
            replace(GREEDY, scope="claim", claim="team/shared"),
            (replace(GREEDY, pod="sharer-1", used=GIB, scope="claim", claim="team/shared"), MEEK),
        ),
    ),
    Reason.UNVERIFIED_BACKEND: (State.HELD, Scene(world={"vendor": "amd"})),
    Reason.MODE: (State.HELD, Scene(rules=replace(UNHURRIED, mode=Mode.WARN))),
    Reason.STOPPED: (State.HELD, below(Reason.STOPPED, Mode.OBSERVE)),
    Reason.NOT_OWNER: (State.HELD, below(Reason.NOT_OWNER, Mode.OBSERVE)),
    Reason.NOT_ARMED: (State.HELD, below(Reason.NOT_ARMED)),
    Reason.JOURNAL: (State.HELD, below(Reason.JOURNAL)),
    Reason.ADMISSION: (State.HELD, below(Reason.ADMISSION)),
    Reason.NAMESPACE_UNKNOWN: (State.HELD, Scene(world={"namespaces": {}})),
    Reason.NO_CONSENT: (State.HELD, Scene(world={"namespaces": {"team": {}}})),
    Reason.NO_RUNG: (State.HELD, Scene(rules=replace(UNHURRIED, ladder=(Rung.NOTIFY,)))),
    Reason.NAMES_STALE: (State.HELD, Scene(world={"live": False})),
    Reason.OWNER_UNKNOWN: (State.HELD, Scene(annotated(workload_kind="", workload=""))),
    Reason.NOT_CONTENDED: (State.HELD, Scene(others=())),
    Reason.STRIKES: (State.HELD, Scene(rules=replace(UNHURRIED, strikes=2))),
    Reason.HOLD_OFF: (State.HELD, Scene(rules=replace(UNHURRIED, hold_off=600.0))),
    Reason.BREAKER: (State.HELD, Scene(history=History(breakers={Breaker.API: Opened(BEGIN, None, "403")}))),
    Reason.BUDGET_NODE: (State.HELD, budget(node=NONE)),
    Reason.BUDGET_NAMESPACE: (State.HELD, budget(namespace=NONE)),
    Reason.BUDGET_WORKLOAD: (State.HELD, budget(workload=NONE)),
}
"""Scenes in which one fact keeps GREEDY from being acted on: it is missing in `Scene()`, where GREEDY is evicted."""
