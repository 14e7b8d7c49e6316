"""
Whom nobody touches, and what a pod may say about itself.

What comes in: GREEDY, due in any case, with one more fact. What goes out: whether anything can lift the protection.
"""

from dataclasses import replace

import pytest

from default_rules import default_rules
from enforcer.policy.limit_holders import cases
from enforcer.policy.protection import Permission, permission
from enforcer.policy.rules import ALLOW_EXEMPTION, CONSENT, EXEMPT, Protect, Rules
from enforcer.policy.vocabulary import Mode, Reason, Rung, State, Trigger
from exporter.model import Scope, Sharing
from policy.refusals import ENOUGH, SCENES
from policy.scenes import CONSENTING, GIB, GREEDY, MEEK, UNHURRIED, Actor, Play, snapshot

HARD = [reason for reason, (state, _) in SCENES.items() if state is State.EXEMPT]
SOFT = [Reason.THIRD_PARTY, Reason.DAEMON_SET, Reason.BARE_POD]
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
    """INV-12: the laxest rules, each trigger, and annotations that push: it stays exempt, for the same reason."""
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
    assert reason in {one.reason for one in play.verdicts[-1].standings if one.state is State.EXEMPT}


def test_the_laxest_rules_do_act() -> None:
    """The twin: with the same rules and annotations, and no protection, it is evicted."""
    play = Play(LAX)
    play.steps(ENOUGH, replace(GREEDY, facts={"annotations": PUSHING}), MEEK)
    assert play.actions == ["evict team/greedy-1"]


@pytest.mark.parametrize("reason", SOFT, ids=str)
def test_soft_protections_are_still_told(reason: Reason) -> None:
    """Who is spared by the operator's default is told that it is over, and stands in grace like everybody."""
    _, scene = SCENES[reason]
    play = scene.play()
    states = [change.after.state for verdict in play.verdicts for change in verdict.changes]
    assert [one for one in states if one is not State.OK] == [State.OVER, State.GRACE, State.HELD]


@pytest.mark.parametrize(
    "annotation",
    [
        {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
        {"karpenter.sh/do-not-disrupt": "true"},
        {"descheduler.alpha.kubernetes.io/prefer-no-eviction": ""},
    ],
    ids=lambda one: next(iter(one)),
)
def test_each_third_party_promise_is_kept(annotation: dict[str, str]) -> None:
    """What other evictors promise to respect is respected, as long as the operator does not lift it."""
    play = Play()
    play.steps(ENOUGH, replace(GREEDY, facts={"annotations": annotation}), MEEK)
    assert (play.actions, play.reason(GREEDY)) == ([], Reason.THIRD_PARTY)


@pytest.mark.parametrize("kind", ["DaemonSet", ""])
def test_what_only_an_eviction_makes_pointless_may_be_killed(kind: str) -> None:
    """A DaemonSet's pod and a bare pod are spared from eviction; a kill that an operator wrote restarts in place."""
    rules = replace(UNHURRIED, ladder=(Rung.NOTIFY, Rung.KILL))
    play = Play(rules)
    play.steps(ENOUGH, replace(GREEDY, facts={"controller_kind": kind}), MEEK)
    assert play.actions == ["kill team/greedy-1"]


@pytest.mark.parametrize("pod", ["true", "false", "True", "yes", None])
@pytest.mark.parametrize("namespace", ["true", "false", None])
def test_an_exemption_needs_both_words(pod: str | None, namespace: str | None) -> None:
    """The trust rule: exempt only if the pod says `true` and its namespace's administrator says `true`."""
    labels = dict(CONSENTING) | ({ALLOW_EXEMPTION: namespace} if namespace is not None else {})
    actor = replace(GREEDY, facts={"annotations": {} if pod is None else {EXEMPT: pod}})
    play = Play()
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
    play = Play()
    play.steps(ENOUGH, actor, MEEK)
    assert (play.reason(actor) == Reason.NAMESPACE) is protected
    assert bool(play.actions) is not protected


def test_the_own_namespace_is_protected() -> None:
    """Nothing in the daemon's own namespace is acted on."""
    play = Play(replace(UNHURRIED, own_namespace="gpusteward"))
    actor = replace(GREEDY, namespace="gpusteward")
    play.steps(ENOUGH, actor, MEEK)
    assert (play.actions, play.reason(actor)) == ([], Reason.NAMESPACE)


@pytest.mark.parametrize(
    "facts",
    [{"priority": None}, {"priority_class": "system-node-critical", "priority": 0}, {"priority": 2**31 - 1}],
    ids=str,
)
def test_who_may_be_critical_is_critical(facts: dict[str, object]) -> None:
    """An unknown priority protects, and so does a system class of whatever number."""
    play = Play()
    play.steps(ENOUGH, replace(GREEDY, facts=facts), MEEK)
    assert (play.actions, play.reason(GREEDY)) == ([], Reason.PRIORITY)


@pytest.mark.fault(66)
@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed", "Unknown", ""])
def test_only_running_pods(phase: str) -> None:
    """Row 66: a pod that finished, or of which nobody told, is not acted on."""
    play = Play()
    play.steps(ENOUGH, replace(GREEDY, facts={"phase": phase}), MEEK)
    assert (play.actions, play.reason(GREEDY)) == ([], Reason.NOT_RUNNING)


@pytest.mark.fault(58)
def test_a_protection_that_comes_in_the_last_round_protects() -> None:
    """Row 58: its exemption comes in the round in which it would be acted on: exempt, and from the beginning later."""
    exempt = replace(GREEDY, facts={"annotations": {EXEMPT: "true"}})
    labels = {"team": {**CONSENTING, ALLOW_EXEMPTION: "true"}}
    play = Play()
    play.steps(27, GREEDY, MEEK, namespaces=labels)
    play.step(exempt, MEEK, namespaces=labels)
    assert (play.actions, play.reason(GREEDY)) == ([], Reason.EXEMPT)
    play.steps(27, GREEDY, MEEK, namespaces=labels)
    assert play.actions == []
    play.step(GREEDY, MEEK, namespaces=labels)
    assert play.actions == ["evict team/greedy-1"]


@pytest.mark.fault(58)
def test_consent_that_is_withdrawn_in_the_last_round_holds() -> None:
    """Row 58: the namespace's label goes away in the round in which its pod would be acted on."""
    play = Play()
    play.steps(27, GREEDY, MEEK)
    play.step(GREEDY, MEEK, namespaces={"team": {}})
    assert play.actions == []
    play.until_reason(Reason.NO_CONSENT, GREEDY, MEEK, namespaces={"team": {}})
    assert play.actions == []


def test_a_pod_s_own_limit_has_no_container_to_kill() -> None:
    """Two containers use the device under their pod's limit: a ladder that only kills has no rung; evicting is one."""
    whole, other = replace(GREEDY, scope="pod"), replace(GREEDY, container="other", used=GIB, limit=None)
    play = Play(replace(UNHURRIED, ladder=(Rung.NOTIFY, Rung.KILL)))
    play.steps(ENOUGH, whole, other, MEEK)
    assert (play.actions, play.reason(whole)) == ([], Reason.NO_RUNG)
    play = Play()
    play.steps(ENOUGH, whole, other, MEEK)
    assert play.actions == ["evict team/greedy-1"]


def test_a_static_pod_is_told_before_its_namespace() -> None:
    """The first reason that holds is told; all of them hold alone."""
    actor = Actor("greedy-1", GREEDY.used, namespace="kube-system", facts={"config_hash": "abc", "terminating": True})
    play = Play()
    play.step(actor, MEEK)
    assert play.reason(actor) == Reason.STATIC_POD


def asked(actor: Actor = GREEDY, rules: Rules = UNHURRIED, **facts: object) -> Permission:
    """Ask how far one may go with the actor, of whose case some facts are others; its namespace consents."""
    case, *_ = cases(snapshot([actor], 1.0))
    return permission(replace(case, **facts), CONSENTING, rules, fenced=False, blocked=False)  # type: ignore[arg-type]


def test_a_leaf_of_a_gpu_is_only_reported_whatever_its_limit_says() -> None:
    """A container's limit on an instance of a MIG device: the hardware keeps it there, and nobody is acted on."""
    case, *_ = cases(snapshot([GREEDY], 1.0))
    assert case.device is not None
    leaf = replace(case.device, key=replace(case.device.key, gpu_instance=0))
    assert asked(device=leaf).held is Reason.MIG
    assert asked().held is None


@pytest.mark.parametrize(("pods", "held"), [(0, Reason.MIG), (1, Reason.MIG), (2, None)])
def test_an_instance_that_several_pods_share_is_enforced(pods: int, held: Reason | None) -> None:
    """The hardware bounds the instance; of several pods on it one that exceeds its limit takes what is another's."""
    case, *_ = cases(snapshot([GREEDY], 1.0))
    assert case.device is not None
    shared = replace(case.device, key=replace(case.device.key, gpu_instance=0), pods=pods)
    assert asked(device=shared).held is held
    assert asked(device=shared, limit=replace(case.limit, scope=Scope.INSTANCE)).held is Reason.MIG


def test_under_mps_who_has_no_rung_is_told_so() -> None:
    """A ladder that ends with words has nothing that MPS could forbid."""
    play = Play(replace(UNHURRIED, ladder=(Rung.NOTIFY,)))
    play.steps(ENOUGH, GREEDY, MEEK, sharing=Sharing.MPS)
    assert (play.history.breakers, play.reason(GREEDY)) == ({}, Reason.NO_RUNG)


def test_a_promise_not_to_evict_is_none_not_to_fence() -> None:
    """A fence destroys nothing: what other evictors promise does not hold it back, and no consent is wanted."""
    promised = replace(GREEDY, facts={"annotations": {"karpenter.sh/do-not-disrupt": "true"}})
    play = Play(replace(UNHURRIED, ladder=(Rung.FENCE, Rung.EVICT)))
    play.steps(ENOUGH, promised, MEEK, namespaces={"team": {}})
    assert play.actions == ["fence team/greedy-1"]


def test_of_a_pod_that_nobody_named_the_permission_can_be_asked() -> None:
    """What is unknown protects, before this: here it has no annotation that could promise anything."""
    assert asked(pod=None) == Permission(Mode.ENFORCE, Rung.EVICT, None)
