"""
Which pods are not touched, and what a pod may say about itself.

GREEDY comes in, due in any case, with one more fact. It goes out whether that fact spares it, and what lifts
the protection.

The rule: a pod may make the policy stricter for itself. What relaxes it counts only where the namespace allows it.
"""

from dataclasses import replace
from typing import Any

import pytest

from default_rules import default_protection, default_rules
from enforcer.policy.cases import cases
from enforcer.policy.limit_holders import Case
from enforcer.policy.next_step import DELETION
from enforcer.policy.protection import Permission, Protection
from enforcer.policy.rules import ALLOW_EXEMPTION, CONSENT, EXEMPT, GRACE, Ceiling, Protect, Rules
from enforcer.policy.vocabulary import Mode, Reason, Rung, State, Trigger
from exporter.model import ContainerKind, Scope, Sharing
from policy.refusals import ENOUGH, GRANTED, SCENES
from policy.scenes import BEGIN, CONSENTING, GIB, GREEDY, MEEK, SHORT, UNHURRIED, Actor, Play, settled, snapshot

HARD = [reason for reason, (state, _) in SCENES.items() if state is State.EXEMPT]
SOFT = [Reason.THIRD_PARTY, Reason.DAEMON_SET, Reason.BARE_POD]
KILLING = replace(SHORT, ladder=(Rung.NOTIFY, Rung.KILL))
BOTH = replace(SHORT, ladder=(Rung.EVICT, Rung.KILL), kill_when_blocked=True)
LAX = default_rules(
    mode=Mode.ENFORCE,
    trigger=Trigger.LIMIT,
    grace=30.0,
    ladder=(Rung.EVICT, Rung.KILL),
    kill_when_blocked=True,
    mps=Rung.EVICT,
    hold_off=0.0,
    budgets=UNHURRIED.budgets,
    protect=Protect((), 2_000_000_000, {}, daemon_sets=False, bare_pods=False, third_party=False),
    trusted_vendors=frozenset({"nvidia", "amd"}),
)
"""Rules of an operator who lifted all that can be lifted."""
PUSHING = {
    CONSENT: "enforce",
    EXEMPT: "false",
    "gpusteward.io/grace-seconds": "30",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
    "descheduler.alpha.kubernetes.io/evict": "true",
    "controller.kubernetes.io/pod-deletion-cost": "-2147483647",
}
"""Annotations that elsewhere lift protections."""


@pytest.mark.parametrize("reason", HARD, ids=str)
def test_no_rule_and_no_annotation_lifts_a_hard_protection(reason: Reason) -> None:
    """The laxest rules, and annotations that push: it stays exempt, for the same reason."""
    _, scene = SCENES[reason]
    theirs = scene.greedy.facts.get("annotations", {})
    assert isinstance(theirs, dict)
    facts = {**scene.greedy.facts, "annotations": {**PUSHING, **theirs}}
    protect = replace(LAX.protect, namespaces=("kube-*",), labels=scene.rules.protect.labels)
    rules = replace(LAX, own_pod=scene.rules.own_pod, protect=protect)
    play = Play(rules)
    actor = replace(scene.greedy, facts=facts)
    play.steps(ENOUGH, actor, *scene.others, **scene.world)
    assert play.actions == []
    assert reason in {each.reason for each in play.verdicts[-1].standings if each.state is State.EXEMPT}


def test_the_laxest_rules_do_act() -> None:
    """The twin: with the same rules and annotations, and no protection, it is evicted."""
    play = Play(LAX)
    play.steps(ENOUGH, replace(GREEDY, facts={"annotations": PUSHING}), MEEK)
    assert play.actions == ["evict team/greedy-1"]


@pytest.mark.parametrize("reason", SOFT, ids=str)
def test_a_pod_that_an_operator_protects_is_still_warned(reason: Reason) -> None:
    """It is over its limit, and its states are those of every pod, up to the action that does not follow."""
    _, scene = SCENES[reason]
    play = scene.play()
    states = [change.after.state for verdict in play.verdicts for change in verdict.changes]
    assert [state for state in states if state is not State.OK] == [State.OVER, State.GRACE, State.HELD]


ANNOTATIONS = [
    {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
    {"karpenter.sh/do-not-disrupt": "true"},
    {"descheduler.alpha.kubernetes.io/prefer-no-eviction": ""},
]


@pytest.mark.parametrize("annotation", ANNOTATIONS, ids=lambda each: next(iter(each)))
@pytest.mark.parametrize("namespace", ["true", "false", None])
def test_annotations_for_other_controllers_count_where_the_namespace_allows_exemptions(
    annotation: dict[str, str], namespace: str | None
) -> None:
    """The tenant writes them itself: without its administrator's `allow-pod-exemption` they protect from nothing."""
    labels = dict(CONSENTING) | ({ALLOW_EXEMPTION: namespace} if namespace is not None else {})
    play = Play(SHORT)
    play.steps(ENOUGH, replace(GREEDY, facts={"annotations": annotation}), MEEK, namespaces={"team": labels})
    spared = namespace == "true"
    assert play.actions == ([] if spared else ["evict team/greedy-1"])
    assert (play.reason(GREEDY) == Reason.THIRD_PARTY) is spared


@pytest.mark.parametrize(
    "annotation",
    [{"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}, {"karpenter.sh/do-not-disrupt": "false"}],
    ids=lambda each: next(iter(each)),
)
def test_annotations_that_ask_for_nothing_protect_from_nothing(annotation: dict[str, str]) -> None:
    """The value counts, too."""
    play = Play(SHORT)
    play.steps(ENOUGH, replace(GREEDY, facts={"annotations": annotation}), MEEK, namespaces=GRANTED)
    assert play.actions == ["evict team/greedy-1"]


@pytest.mark.parametrize("kind", ["DaemonSet", "", "ReplicaSet", "StatefulSet", "Job"])
def test_whatever_made_a_pod_it_is_acted_on_by_default(kind: str) -> None:
    """A bare pod or a pod of a DaemonSet would otherwise be a way to evade every limit."""
    play = Play(SHORT)
    play.steps(ENOUGH, replace(GREEDY, facts={"controller_kind": kind}), MEEK)
    assert play.actions == ["evict team/greedy-1"]


@pytest.mark.parametrize("kind", ["DaemonSet", ""])
def test_a_protection_from_eviction_is_none_from_a_kill(kind: str) -> None:
    """Where an operator protects both from eviction and wrote kill: a kill restarts the container in place."""
    protect = default_protection(bare_pods=True, daemon_sets=True)
    play = Play(replace(KILLING, protect=protect))
    play.steps(ENOUGH, replace(GREEDY, facts={"controller_kind": kind}), MEEK)
    assert play.actions == ["kill team/greedy-1"]
    play = Play(replace(SHORT, protect=protect))
    play.steps(ENOUGH, replace(GREEDY, facts={"controller_kind": kind}), MEEK)
    assert (play.actions, play.standing(GREEDY)) == ([], State.HELD)


@pytest.mark.parametrize("kind", ContainerKind, ids=str)
def test_the_excess_of_any_container_evicts_its_pod(kind: ContainerKind) -> None:
    """A running init container, with its pod pending, and an ephemeral one hold memory like any other."""
    play = Play(SHORT)
    play.steps(ENOUGH, replace(GREEDY, kind=kind, facts={"phase": "Pending"}), MEEK)
    assert play.actions == ["evict team/greedy-1"]
    killed = Play(KILLING)
    killed.steps(ENOUGH, replace(GREEDY, kind=kind), MEEK)
    ends_with_the_pod = kind in (ContainerKind.INIT, ContainerKind.EPHEMERAL)
    assert killed.actions == ([] if ends_with_the_pod else ["kill team/greedy-1"])
    assert (killed.reason(GREEDY) == Reason.CONTAINER_KIND) is ends_with_the_pod


@pytest.mark.parametrize("pod", ["true", "false", "True", "yes", None])
@pytest.mark.parametrize("namespace", ["true", "false", None])
def test_an_exemption_needs_both_words(pod: str | None, namespace: str | None) -> None:
    """Exempt only if the pod says `true` and its namespace's administrator says `true`."""
    labels = dict(CONSENTING) | ({ALLOW_EXEMPTION: namespace} if namespace is not None else {})
    actor = replace(GREEDY, facts={"annotations": {} if pod is None else {EXEMPT: pod}})
    play = Play(SHORT)
    play.steps(ENOUGH, actor, MEEK, namespaces={"team": labels})
    exempt = pod == "true" and namespace == "true"
    assert play.actions == ([] if exempt else ["evict team/greedy-1"])
    assert (play.standing(actor) is State.EXEMPT) is exempt


@pytest.mark.parametrize(
    ("namespace", "protected"),
    [("kube-system", True), ("kube-public", True), ("gpu-operator", True), ("kube", False), ("my-kube-x", False)],
)
def test_protected_namespaces_are_patterns(namespace: str, protected: bool) -> None:
    """`kube-*` is all that begins so, and nothing that merely contains it."""
    actor = replace(GREEDY, namespace=namespace)
    play = Play(SHORT)
    play.steps(ENOUGH, actor, MEEK)
    assert (play.reason(actor) == Reason.NAMESPACE) is protected
    assert bool(play.actions) is not protected


def test_the_own_namespace_is_protected() -> None:
    """Nothing in the daemon's own namespace is acted on."""
    play = Play(replace(SHORT, own_namespace="gpusteward"))
    actor = replace(GREEDY, namespace="gpusteward")
    play.steps(ENOUGH, actor, MEEK)
    assert (play.actions, play.reason(actor)) == ([], Reason.NAMESPACE)


@pytest.mark.parametrize(
    "facts",
    [{"priority": None}, {"priority_class": "system-node-critical", "priority": 0}, {"priority": 2**31 - 1}],
    ids=str,
)
def test_a_pod_that_may_be_critical_is_protected(facts: dict[str, object]) -> None:
    """An unknown priority protects, and so does a system class of whatever number."""
    play = Play(SHORT)
    play.steps(ENOUGH, replace(GREEDY, facts=facts), MEEK)
    assert (play.actions, play.reason(GREEDY)) == ([], Reason.PRIORITY)


@pytest.mark.fault(66)
@pytest.mark.parametrize(
    ("phase", "ended"), [("Succeeded", True), ("Failed", True), ("", True), ("Pending", False), ("Unknown", False)]
)
def test_a_pod_that_has_ended_is_not_acted_on(phase: str, ended: bool) -> None:
    """Row 66: the memory of a pod that finished is freed by itself; a pending one runs its init containers."""
    play = Play(SHORT)
    play.steps(ENOUGH, replace(GREEDY, facts={"phase": phase}), MEEK)
    assert play.actions == ([] if ended else ["evict team/greedy-1"])
    assert (play.reason(GREEDY) == Reason.NOT_RUNNING) is ended


@pytest.mark.fault(58)
def test_a_protection_that_comes_in_the_last_round_protects() -> None:
    """Row 58: its exemption comes in the round in which it would be acted on: exempt, and from the beginning later."""
    exempt = replace(GREEDY, facts={"annotations": {EXEMPT: "true"}})
    labels = {"team": {**CONSENTING, ALLOW_EXEMPTION: "true"}}
    play = Play(SHORT)
    play.steps(9, GREEDY, MEEK, namespaces=labels)
    play.step(exempt, MEEK, namespaces=labels)
    assert (play.actions, play.reason(GREEDY)) == ([], Reason.EXEMPT)
    play.steps(9, GREEDY, MEEK, namespaces=labels)
    assert play.actions == []
    play.step(GREEDY, MEEK, namespaces=labels)
    assert play.actions == ["evict team/greedy-1"]


@pytest.mark.fault(58)
def test_consent_that_is_withdrawn_in_the_last_round_holds() -> None:
    """Row 58: the namespace's label goes away in the round in which its pod would be acted on."""
    play = Play(SHORT)
    play.steps(9, GREEDY, MEEK)
    play.step(GREEDY, MEEK, namespaces={"team": {}})
    assert play.actions == []
    play.until_reason(Reason.NO_CONSENT, GREEDY, MEEK, namespaces={"team": {}})
    assert play.actions == []


def test_of_a_pod_s_own_limit_the_largest_container_is_killed() -> None:
    """Two containers use the device under their pod's limit: the larger one is the victim of a kill."""
    whole, other = replace(GREEDY, scope="pod"), replace(GREEDY, container="other", used=GIB, limit=None)
    play = Play(KILLING)
    assert play.until_action(whole, other, MEEK).container == "main"
    play = Play(SHORT)
    assert play.until_action(whole, other, MEEK).container == ""


def test_a_static_pod_is_named_before_its_namespace() -> None:
    """The first reason that holds is named; each of them holds alone."""
    actor = Actor("greedy-1", GREEDY.used, namespace="kube-system", facts={"config_hash": "abc", "terminating": True})
    play = Play(SHORT)
    play.step(actor, MEEK)
    assert play.reason(actor) == Reason.STATIC_POD


def case_of(actor: Actor = GREEDY, **facts: Any) -> Case:
    """Make the case of an actor, with some facts that are others."""
    case, *_ = cases(snapshot([actor], 1.0))
    return replace(case, **facts)


def asked(
    actor: Actor = GREEDY,
    rules: Rules = UNHURRIED,
    *,
    labels: dict[str, str] | None = CONSENTING,
    done: frozenset[Any] = frozenset(),
    deleted_for: float | None = None,
    **facts: Any,
) -> Permission:
    """Ask how far one may go with the actor."""
    namespaces = {} if labels is None else {actor.namespace: labels}
    return Protection(rules, namespaces).permission(case_of(actor, **facts), done, deleted_for=deleted_for)


@pytest.mark.parametrize(("pods", "held"), [(0, Reason.MIG), (1, Reason.MIG), (2, None)])
def test_an_instance_that_several_pods_share_is_enforced(pods: int, held: Reason | None) -> None:
    """The hardware bounds the instance; of several pods on it one that exceeds its limit takes what is another's."""
    case = case_of()
    assert case.device is not None
    shared = replace(case.device, key=replace(case.device.key, gpu_instance=0), pods=pods)
    assert asked(device=shared).held is held
    assert asked(device=shared, limit=replace(case.limit, scope=Scope.INSTANCE)).held is Reason.MIG


def test_under_mps_a_ladder_without_a_step_says_so() -> None:
    """A ladder that ends with warnings has nothing that MPS could forbid."""
    play = Play(replace(SHORT, ladder=(Rung.NOTIFY,)))
    play.steps(ENOUGH, GREEDY, MEEK, sharing=Sharing.MPS)
    assert (play.history.breakers, play.reason(GREEDY)) == ({}, Reason.NO_RUNG)


def test_a_fence_needs_no_consent_and_no_controller_is_asked() -> None:
    """A fence destroys nothing: annotations against eviction do not hold it back, and no consent is needed."""
    annotated = replace(GREEDY, facts={"annotations": {"karpenter.sh/do-not-disrupt": "true"}})
    play = Play(replace(SHORT, ladder=(Rung.FENCE, Rung.EVICT)))
    play.steps(ENOUGH, annotated, MEEK, namespaces={"team": {ALLOW_EXEMPTION: "true"}})
    assert play.actions == ["fence team/greedy-1"]


def test_the_permission_of_a_pod_that_is_not_known_has_no_reason_of_its_own() -> None:
    """What is unknown is protected before this: here it has no annotation that could spare it."""
    assert asked(pod=None, labels=None).held is Reason.NAMESPACE_UNKNOWN


@pytest.mark.parametrize(
    ("rules", "labels", "mode", "written", "held"),
    [
        (UNHURRIED, CONSENTING, Mode.ENFORCE, Mode.ENFORCE, None),
        (UNHURRIED, None, Mode.OBSERVE, None, Reason.NAMESPACE_UNKNOWN),
        (UNHURRIED, {}, Mode.ENFORCE, Mode.ENFORCE, Reason.NO_CONSENT),
        (UNHURRIED, {CONSENT: "warn"}, Mode.WARN, Mode.WARN, Reason.MODE),
        (UNHURRIED, {CONSENT: "dry-run"}, Mode.DRY_RUN, Mode.DRY_RUN, None),
        (UNHURRIED, {CONSENT: "yes please"}, Mode.OBSERVE, Mode.OBSERVE, Reason.MODE),
        (replace(UNHURRIED, mode=Mode.WARN), CONSENTING, Mode.WARN, Mode.WARN, Reason.MODE),
        (replace(UNHURRIED, mode=Mode.DRY_RUN), CONSENTING, Mode.DRY_RUN, Mode.DRY_RUN, None),
        (replace(UNHURRIED, mode=Mode.DRY_RUN), {}, Mode.DRY_RUN, Mode.DRY_RUN, Reason.NO_CONSENT),
        (
            replace(UNHURRIED, ceilings=(Ceiling(Mode.OBSERVE, Reason.JOURNAL),)),
            CONSENTING,
            Mode.OBSERVE,
            Mode.ENFORCE,
            Reason.JOURNAL,
        ),
        (
            replace(UNHURRIED, ceilings=(Ceiling(Mode.OBSERVE, Reason.STOPPED),)),
            CONSENTING,
            Mode.OBSERVE,
            Mode.OBSERVE,
            Reason.STOPPED,
        ),
        (
            replace(UNHURRIED, ceilings=(Ceiling(Mode.DRY_RUN, Reason.NOT_ARMED),)),
            {CONSENT: "dry-run"},
            Mode.DRY_RUN,
            Mode.DRY_RUN,
            None,
        ),
    ],
)
def test_the_mode_is_the_most_restrictive_and_what_is_missing_is_not_written(
    rules: Rules, labels: dict[str, str] | None, mode: Mode, written: Mode | None, held: Reason | None
) -> None:
    """What is announced is what was written. A mode that is lowered because something is missing changes no terms."""
    allowed = asked(rules=rules, labels=labels)
    assert (allowed.mode, allowed.written, allowed.held) == (mode, written, held)


@pytest.mark.parametrize(
    ("rules", "deleted_for", "rung", "held"),
    [
        (UNHURRIED, None, Rung.EVICT, None),
        (UNHURRIED, 0.0, Rung.EVICT, Reason.TERMINATING),
        (UNHURRIED, DELETION - 1, Rung.EVICT, Reason.TERMINATING),
        (UNHURRIED, DELETION, Rung.EVICT, Reason.DELETION_STUCK),
        (BOTH, DELETION - 1, Rung.EVICT, Reason.TERMINATING),
        (BOTH, DELETION, Rung.KILL, None),
        (KILLING, DELETION - 1, Rung.KILL, Reason.TERMINATING),
        (KILLING, DELETION, Rung.KILL, None),
    ],
)
def test_a_pod_that_was_deleted_has_ten_minutes_to_end(
    rules: Rules, deleted_for: float | None, rung: Rung, held: Reason | None
) -> None:
    """Then it is killed, where kill is written; else its end is stuck."""
    allowed = asked(rules=rules, deleted_for=deleted_for)
    assert (allowed.rung, allowed.held) == (rung, held)


def test_a_deleted_pod_that_does_not_end_is_killed_after_ten_minutes() -> None:
    """A play: deleted while it is over, with an hour of termination grace: waits, and is killed at ten minutes."""
    gone = replace(GREEDY, facts={"terminating": True})
    play = Play(BOTH)
    play.step(GREEDY, MEEK)
    begun = play.monotonic + BOTH.interval
    play.until_reason(Reason.TERMINATING, gone, MEEK)
    action = play.until_action(gone, MEEK)
    assert (action.rung, play.actions) == (Rung.KILL, ["kill team/greedy-1"])
    assert 600.0 <= play.monotonic - begun <= 600.0 + BOTH.grace + BOTH.interval


@pytest.mark.fault(47)
def test_a_deleted_pod_keeps_its_level() -> None:
    """Deleting the own pod with a long grace is no way back to 0: the level goes on while it ends."""
    deleted = {GREEDY.pod_uid: BEGIN - 3600.0}
    play = Play(SHORT, replace(settled(SHORT), deleted=deleted))
    play.steps(ENOUGH, replace(GREEDY, facts={"terminating": True}), MEEK)
    assert (play.actions, play.standing(GREEDY), play.reason(GREEDY)) == ([], State.HELD, Reason.DELETION_STUCK)


@pytest.mark.parametrize(
    ("pod", "namespace", "grace"),
    [
        ("60", None, 60.0),
        ("60", "true", 60.0),
        ("600", None, 120.0),
        ("600", "true", 600.0),
        ("99999", "true", 3600.0),
        ("0", None, 0.0),
        ("-1", "true", 120.0),
        ("1e2", "true", 120.0),
        ("", "true", 120.0),
        ("9" * 99, "true", 120.0),
        ("\u0661", "true", 120.0),  # a digit, and not an ASCII one
    ],
)
def test_a_pod_may_shorten_its_grace_and_its_namespace_lets_it_be_longer(
    pod: str, namespace: str | None, grace: float
) -> None:
    """Stricter for itself at any time; longer only with `allow-pod-exemption`, and never above an hour."""
    labels = {} if namespace is None else {ALLOW_EXEMPTION: namespace}
    actor = replace(GREEDY, facts={"annotations": {GRACE: pod}})
    assert Protection(UNHURRIED, {"team": labels}).grace(actor.named()) == grace


def test_without_a_pod_the_grace_is_that_of_the_rules() -> None:
    """A pod that Kubernetes does not know yet asks for nothing."""
    assert Protection(UNHURRIED, {}).grace(None) == UNHURRIED.grace


def test_a_kill_without_a_known_victim_waits_for_a_reading() -> None:
    """Of a pod's limit it is not known which container holds most: nothing is signalled."""
    unknown = replace(GREEDY, scope="pod")
    assert asked(unknown, KILLING, largest=None).held is Reason.READING_UNKNOWN
    assert asked(unknown, KILLING).held is None
    assert asked(unknown, largest=None).held is None, "an eviction needs none"


def test_the_next_step_follows_what_is_done() -> None:
    """A fence that is set, and an eviction that stays blocked: the next step; after the last one there is none."""
    key = case_of().key
    ladder = replace(UNHURRIED, ladder=(Rung.NOTIFY, Rung.FENCE, Rung.EVICT, Rung.KILL), kill_when_blocked=True)
    steps = [(key, Rung.FENCE), (key, Rung.EVICT), (key, Rung.KILL)]
    rungs = [asked(rules=ladder, done=frozenset(steps[:count])).rung for count in range(4)]
    assert rungs == [Rung.FENCE, Rung.EVICT, Rung.KILL, None]
    other = replace(key, uuid="GPU-9")
    assert asked(rules=ladder, done=frozenset({(other, Rung.FENCE)})).rung is Rung.FENCE


@pytest.mark.parametrize(
    ("rules", "labels", "hold"),
    [
        (UNHURRIED, CONSENTING, None),
        (UNHURRIED, {}, Reason.NO_CONSENT),
        (UNHURRIED, {CONSENT: "warn"}, Reason.MODE),
        (replace(UNHURRIED, ceilings=(Ceiling(Mode.OBSERVE, Reason.STOPPED),)), CONSENTING, Reason.STOPPED),
        (replace(UNHURRIED, ladder=(Rung.NOTIFY, Rung.FENCE)), {}, None),
        (replace(UNHURRIED, protect=default_protection(daemon_sets=True)), CONSENTING, Reason.DAEMON_SET),
    ],
)
def test_what_an_operator_wrote_is_known_behind_another_reason(
    rules: Rules, labels: dict[str, str], hold: Reason | None
) -> None:
    """The limit is only reported, and that is named; the end of what was written starts a new grace all the same."""
    pod = replace(GREEDY, facts={"controller_kind": "DaemonSet"})
    hint = replace(case_of().limit, report_only=("a hint",))
    allowed = asked(pod, rules, labels=labels, limit=hint)
    behind = None if hold is Reason.DAEMON_SET else hold  # what holds only this step is no hold of the whole limit
    assert (allowed.held, allowed.written_hold) == (Reason.REPORT_ONLY, behind)
    assert asked(pod, rules, labels=labels).written_hold is hold


def test_what_an_operator_protects_is_that_kind_of_pod_only() -> None:
    """Where pods of DaemonSets and bare pods are protected, all others are acted on."""
    rules = replace(UNHURRIED, protect=default_protection(bare_pods=True, daemon_sets=True))
    kinds = ("ReplicaSet", "StatefulSet", "DaemonSet", "")
    held = {kind: asked(replace(GREEDY, facts={"controller_kind": kind}), rules).held for kind in kinds}
    assert held == {"ReplicaSet": None, "StatefulSet": None, "DaemonSet": Reason.DAEMON_SET, "": Reason.BARE_POD}


def test_a_dry_run_that_a_namespace_wrote_needs_no_consent_while_something_is_missing() -> None:
    """The journal is missing for a while: that is the reason, and no consent that would come back with it."""
    rules = replace(UNHURRIED, ceilings=(Ceiling(Mode.OBSERVE, Reason.JOURNAL),))
    allowed = asked(rules=rules, labels={CONSENT: "dry-run"})
    assert (allowed.held, allowed.written_hold) == (Reason.JOURNAL, None)


@pytest.mark.parametrize("reason", [Reason.STOPPED, Reason.JOURNAL], ids=str)
def test_of_two_that_allow_as_much_the_first_is_named(reason: Reason) -> None:
    """The mode that was written comes before the stop file, both before the label; what is missing comes last."""
    rules = replace(UNHURRIED, mode=Mode.OBSERVE, ceilings=(Ceiling(Mode.OBSERVE, reason, "the second"),))
    for labels in (CONSENTING, {CONSENT: "observe"}):
        allowed = asked(rules=rules, labels=labels)
        assert (allowed.held, allowed.detail, allowed.written_hold) == (Reason.MODE, "", Reason.MODE)
    rules = replace(UNHURRIED, ceilings=(Ceiling(Mode.OBSERVE, Reason.NOT_ARMED, "1"), Ceiling(Mode.OBSERVE, reason)))
    if reason is Reason.JOURNAL:
        assert asked(rules=rules).held is Reason.NOT_ARMED


def test_a_limit_on_a_device_that_the_driver_does_not_name_has_no_reason_of_the_device() -> None:
    """Whether hardware bounds it is not known; its usage is not known either, and that holds it."""
    assert asked(device=None).held is None


def test_a_device_that_is_not_shared_or_not_verified_holds() -> None:
    """One pod has it alone, or its vendor's numbers were never verified on hardware."""
    device = case_of().device
    assert device is not None
    assert asked(device=replace(device, sharing=Sharing.EXCLUSIVE)).held is Reason.EXCLUSIVE
    assert asked(device=replace(device, gpu=replace(device.gpu, vendor="amd"))).held is Reason.UNVERIFIED_BACKEND


def test_the_stop_file_is_named_before_a_label_that_says_the_same() -> None:
    """It is to be removed first."""
    rules = replace(UNHURRIED, ceilings=(Ceiling(Mode.OBSERVE, Reason.STOPPED),))
    assert asked(rules=rules, labels={CONSENT: "observe"}).held is Reason.STOPPED
