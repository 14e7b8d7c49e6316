"""Both laws on hostile nodes; and each clause of their checkers is able to say no."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from default_rules import default_budgets
from enforcer.policy.history import Action, Moment, Opened, Result
from enforcer.policy.holder import HolderKey
from enforcer.policy.rules import Budget, Rules
from enforcer.policy.vocabulary import Breaker, Mode, Reason, Rung, Trigger
from exporter.model import PodUid, Sharing, Snapshot
from pace import spread
from policy.facts import Step
from policy.hostile import World, played
from policy.invariants import Watch, violations
from policy.liveness import Promise, Usage
from policy.scenes import CONSENTING, GIB, UNHURRIED, Actor, Play, snapshot

TRACES = int(os.environ.get("GPUSTEWARD_HOSTILE", "160"))
"""Hostile traces in the tests; `make traces` plays a million."""
RULES = replace(UNHURRIED, trigger=Trigger.LIMIT, warn_after=10.0, grace=20.0)
OVER = Actor("train-0", 30 * GIB)
CALM = Actor("calm-0", 5 * GIB)
Doctor = Callable[[Step], Step]


def test_hostile_traces_break_no_law_and_say_something() -> None:
    """Of some hundred hostile traces (80 in `make check`) none breaks a law, many act, and many reasons are given."""
    tally = played(spread(range(TRACES), 2))
    assert tally.found == []
    assert tally.actions > tally.traces > 0
    assert len(tally.reasons) >= 0.5 * len(Reason), set(Reason) - set(tally.reasons)


@pytest.mark.parametrize("interval", [1.0, 2.0, 5.0])
def test_hostile_traces_on_a_slow_node_break_no_law(interval: float) -> None:
    """Rounds take 8 to 12 s, whatever the interval: certain, in time, and as often as where the interval is as long."""
    tally = played(spread(range(3_000_000, 3_000_000 + TRACES // 4), 2), interval)
    assert tally.found == []
    assert tally.actions > tally.traces > 0


LADDER_REWRITTEN = (100007834, 100025450, 100093459, 100093639, 100121006, 200001765)
"""Evictions that were blocked just before an operator took `kill` out of the ladder for a while."""
WARNINGS = (100069931, 100080820, 100125678, 200000956, 200001365)
"""A pod of a shared claim, an unknown usage, or an earlier generation beside the warning."""
INVALID = (400003921, 400009427, 700088034, 800033083)
"""A limit that is invalid for some rounds, or a warning that is not true any more while the mode is missing."""
GRACES = (100023314, 100063938, 100112266, 200010979)
"""A pod that shortens its own grace for a while, or an early round beside changed rules."""
RELOADED = (1202002140, 1202007157, 1204001053, 1205015059, 1206019284)
"""A reload that shortens `warn_after` and lengthens `grace`, or a gap that ends an excess."""
TOLD = (1335001969, 1349001560, 1375001985, 1381005982, 1383009416)
"""Pods of a shared claim: one is warned while the claim is within its limit, or another one promises something."""
UNHEARD = (
    1401000550,
    1502004641,
    1508001417,
    1509008996,
    1526007961,
    1536001959,
    1541000936,
    1541007168,
    1548003244,
    1552009891,
)
"""A pod that joins a claim, and whose own warning the API server does not accept."""
BEGUN_ANEW = (1383008285, 1384006972, 1388002971)
"""A restart beside a change of the rules, which keeps no levels."""
LATE = (1526001085,)
"""A warning that the API server does not accept, so that others are due first."""
SPOILED = (1549009344,)
"""A pod whose declaration is invalid beside others of its claim; the amount is the claim's, so no trace has it now."""
EARLIER = (0, 8, 330, 544, 2417, 100404, 200753, 20262491, 31001792, 52010874, 52019099, 100125047)


@pytest.mark.parametrize(
    "seed",
    [
        *EARLIER,
        *LADDER_REWRITTEN,
        *WARNINGS,
        *GRACES,
        *INVALID,
        *RELOADED,
        *TOLD,
        *UNHEARD,
        *LATE,
        *BEGUN_ANEW,
        *SPOILED,
    ],
)
def test_what_a_campaign_found_stays_found(seed: int) -> None:
    """Traces that broke a law once, by a fault of the policy or of a checker."""
    assert World(seed).play().found == []


def test_a_trace_is_its_seed() -> None:
    """The same seed gives the same trace, so that a violation can be looked at again."""
    one, other = (World(17).play() for _ in range(2))
    assert (one.actions, one.decisions, one.monotonic) == (other.actions, other.decisions, other.monotonic)


# --- the first law's checker ---


def steps(actors: Sequence[Actor] = (OVER, CALM), rules: Rules = RULES, most: int = 60, **world: object) -> list[Step]:
    """Play until an action is requested; the steps."""
    play, trace = Play(rules), list[Step]()
    while not trace or (trace[-1].verdict.action is None and len(trace) < most):
        verdict = play.step(*actors, **world)  # type: ignore[arg-type]
        seen = snapshot(actors, play.monotonic, round_=play.round, **world)  # type: ignore[arg-type]
        trace.append(Step(seen, rules, play.now, verdict, play.history))
    return trace


def complaints(trace: Sequence[Step]) -> list[str]:
    """Name what the last step breaks, for a daemon that has watched the node for long."""
    watch, broken = Watch(RULES), list[str]()
    for step in trace:
        broken = watch.step(step)
    return broken


def _seen(**facts: object) -> Doctor:
    return lambda step: replace(step, snapshot=replace(step.snapshot, **facts))  # type: ignore[arg-type]


def _pod(**facts: object) -> Doctor:
    def doctored(step: Step) -> Step:
        pods = {**step.snapshot.pods, OVER.pod_uid: replace(step.snapshot.pods[OVER.pod_uid], **facts)}  # type: ignore[arg-type]
        return _seen(pods=pods)(step)

    return doctored


def _action(**facts: object) -> Doctor:
    def doctored(step: Step) -> Step:
        action: Action | None = step.verdict.action
        assert action is not None
        return replace(step, verdict=replace(step.verdict, action=replace(action, **facts)))  # type: ignore[arg-type]

    return doctored


def _rules(**facts: object) -> Doctor:
    return lambda step: replace(step, rules=replace(step.rules, **facts))  # type: ignore[arg-type]


def _snapshot(change: Callable[[Snapshot], Snapshot]) -> Doctor:
    return lambda step: replace(step, snapshot=change(step.snapshot))


def _shared(how: Sharing) -> Doctor:
    return _snapshot(lambda seen: replace(seen, devices=tuple(replace(one, sharing=how) for one in seen.devices)))


def _used(share: float) -> Doctor:
    return _snapshot(
        lambda seen: replace(
            seen, usages=tuple(replace(one, memory_used=int((one.memory_used or 0) * share)) for one in seen.usages)
        )
    )


def _limits(**facts: object) -> Doctor:
    return _snapshot(lambda seen: replace(seen, limits=tuple(replace(one, **facts) for one in seen.limits)))  # type: ignore[arg-type]


def _open(step: Step) -> Step:
    breakers = {Breaker.ATTRIBUTION: Opened(0.0, "another owner")}
    return replace(step, verdict=replace(step.verdict, breakers=breakers))


LAST: list[tuple[Doctor, str]] = [
    (_used(0.1), "over: the holder is not certainly over"),
    (_seen(pid_domain_proven=False), "over: the holder is not certainly over"),
    (_seen(gpus_read=frozenset()), "over: the holder is not certainly over"),
    (_seen(limits=()), "over: the holder is not certainly over"),
    (lambda step: replace(step, now=replace(step.now, monotonic=step.now.monotonic + 60)), "over: the holder is not"),
    (_action(used=31 * GIB), "over: the action names"),
    (_action(pod="another"), "identity: the pod that is named does not exist"),
    (_seen(pods={}), "identity: the pod that is named does not exist"),
    (_seen(names_live=False), "identity: the names are only remembered"),
    (_seen(containers=()), "protected: other_generation"),
    (_pod(priority=None), "protected: priority"),
    (_pod(priority=2_000_000_000), "protected: priority"),
    (_pod(config_hash="0"), "protected: static_pod"),
    (_pod(namespace="kube-system"), "protected: namespace"),
    (_pod(phase="Succeeded"), "protected: not_running"),
    (_rules(own_pod=OVER.pod_uid), "protected: own_pod"),
    (_rules(own_namespace="team"), "protected: namespace"),
    (_rules(protect=replace(RULES.protect, labels={"tier": "gold"})), ""),
    (_limits(report_only=("a hook",)), "protected: its limit is only reported"),
    (_seen(namespaces={}), "allowed: dry=False in mode observe"),
    (_seen(namespaces={"team": {}}), "allowed: no consent"),
    (_rules(mode=Mode.WARN), "allowed: dry=False in mode warn"),
    (_action(dry=True), "allowed: dry=True in mode enforce"),
    (_shared(Sharing.MPS), "allowed: MPS"),
    (_shared(Sharing.EXCLUSIVE), "allowed: nothing is shared"),
    (_rules(trusted_vendors=frozenset({"amd"})), "allowed: vendor nvidia"),
    (_pod(terminating=True), "allowed: the pod is terminating"),
    (_pod(controller_kind=""), ""),
    (_action(rung=Rung.KILL), "ladder: kill is not a step of the ladder"),
    (_action(rung=Rung.KILL), "warned: warned of evict, and not of kill"),
    (_rules(budgets=default_budgets(node=Budget(0, 60.0))), "budgets: the budget of the node is used up"),
    (_rules(budgets=default_budgets(namespace=Budget(0, 60.0))), "budgets: the budget of the namespace is used up"),
    (_rules(trigger=Trigger.CONTENDED), "contended: no neighbour can be short"),
    (_open, "breakers: an action with open breakers"),
    (_rules(hold_off=3600.0), "breakers: an action within the hold-off"),
]


@pytest.mark.parametrize(("doctored", "says"), [case for case in LAST if case[1]])
def test_each_clause_of_the_first_law_can_say_no(doctored: Doctor, says: str) -> None:
    """A trace that breaks nothing breaks a clause as soon as one fact of its last step is another."""
    trace = steps()
    assert complaints(trace) == []
    broken = complaints([*trace[:-1], doctored(trace[-1])])
    assert any(says in what for what in broken), broken


def _everywhere(doctored: Doctor, trace: Sequence[Step], begin: int = 0, end: int | None = None) -> list[Step]:
    return [doctored(step) if begin <= place < (end or len(trace)) else step for place, step in enumerate(trace)]


def test_protections_that_an_operator_chose_are_clauses() -> None:
    """Pods of DaemonSets, bare pods and labelled pods are protected where the rules say so, and only there."""
    trace = steps()
    for facts, protect, says in (
        ({"controller_kind": "DaemonSet"}, {"daemon_sets": True}, "DaemonSet"),
        ({"controller_kind": ""}, {"bare_pods": True}, "bare pod"),
        ({"labels": {"tier": "gold"}}, {"labels": {"tier": "gold"}}, "label"),
    ):
        last = _pod(**facts)(trace[-1])
        assert complaints([*trace[:-1], last]) == []
        last = _rules(protect=replace(RULES.protect, **protect))(last)
        assert any(says in what for what in complaints([*trace[:-1], last]))


def test_what_was_before_the_action_is_checked_as_well() -> None:
    """A level, readings, a warning or an own excess that are not there break a clause each."""
    trace = steps()
    gap = [trace[0], trace[-1]]
    within = _everywhere(_used(0.1), trace, 2, 5)
    unasked = [
        replace(
            step,
            verdict=replace(
                step.verdict, standings=tuple(replace(one, warned_at=None) for one in step.verdict.standings)
            ),
        )
        for step in trace
    ]
    other = steps((replace(OVER, generation=1), CALM))
    raised = _everywhere(_limits(memory=40 * GIB), trace, 3, 4)
    lowered = [*_everywhere(_limits(memory=20 * GIB), trace[:-1]), _used(0.5)(trace[-1])]
    wished = _everywhere(
        _seen(namespaces={"team": {"gpusteward.io/mode": "warn"}}), trace, len(trace) - 2, len(trace) - 1
    )
    anew = [*trace[:-1], replace(trace[-1], began="new")]
    for broken, says in (
        (gap, "level: "),
        (gap, "readings: "),
        (within, "level: "),
        (unasked, "warned: never warned"),
        ([*trace[:-1], other[-1]], "own: "),
        (raised, "level: "),
        (lowered, "warned: warned of a limit of"),
        (wished, "warned: "),
        (anew, "level: "),
    ):
        assert any(says in what for what in complaints(broken)), (says, complaints(broken))


def test_a_warning_that_was_not_accepted_starts_no_grace() -> None:
    """With `confirm` the grace begins when the API server has accepted the warning, or a minute later."""
    rules = replace(RULES, confirm=True)
    trace = [replace(step, rules=rules) for step in steps()]
    watch, broken = Watch(rules), list[str]()
    for step in trace:
        broken = watch.step(step)
    assert any("warned: " in what for what in broken)


def test_an_action_on_a_pod_that_became_the_largest_of_its_claim_a_moment_ago_is_noticed() -> None:
    """Another pod of the claim was the largest until now, and the claim was due for what that one held."""
    first = Actor("a", 30 * GIB, scope="claim", claim="team/shared")
    other = replace(first, pod="b", used=20 * GIB)
    trace = steps([first, other])
    last = trace[-1]
    assert complaints(trace) == []
    now_largest = snapshot([replace(first, used=10 * GIB), replace(other, used=40 * GIB)], last.snapshot.monotonic)
    assert last.verdict.action is not None
    limit = replace(last.verdict.action.limit, pod_uid=other.pod_uid)
    action = replace(last.verdict.action, limit=limit, pod=other.pod)
    turned = replace(last, snapshot=now_largest, verdict=replace(last.verdict, action=action))
    broken = complaints([*trace[:-1], turned])
    assert any("this one was the largest for " in what for what in broken), broken


def test_actions_that_come_too_soon_or_too_often_are_noticed() -> None:
    """A second action in flight, within the spacing, within a pause, on a held pod, or before a back-off is over."""
    trace = steps()

    def again(after: float, ended: Result | None, at: float = 0.0, created: float | None = None) -> list[str]:
        first = trace[-1]
        boot, monotonic = first.now.boot + after, first.now.monotonic + after
        seen = replace(
            first.snapshot, monotonic=first.snapshot.monotonic + after, taken_at=first.snapshot.taken_at + after
        )
        second = replace(first, snapshot=seen, now=replace(first.now, monotonic=monotonic, boot=boot))
        if created is not None:
            second = _pod(created_at=seen.taken_at - created)(second)
        second = replace(second, ended=ended, ended_at=first.now.monotonic + at)
        return complaints([*trace, second])

    assert any("alone: another action is in flight" in what for what in again(5.0, None))
    assert any("alone: 5.0 s after another action" in what for what in again(5.0, Result.ACCEPTED))
    assert any("after a request in vain" in what for what in again(5.0, Result.FAILED, 1.0))
    assert any("held: the pod" in what for what in again(9.0, Result.BLOCKED))
    assert any("held: the node" in what for what in again(50.0, Result.UNAUTHORIZED))
    assert any("budgets: the back-off" in what for what in again(50.0, Result.ACCEPTED, 1.0, created=20.0))
    assert not any("held: " in what or "alone: " in what for what in again(10.5, Result.BLOCKED))


KILLS = replace(RULES, ladder=(Rung.NOTIFY, Rung.EVICT, Rung.KILL), kill_when_blocked=True)


def test_a_ladder_without_kill_for_a_while_does_not_undo_a_blocked_eviction() -> None:
    """A kill is justified where the eviction was blocked under a ladder with `kill`, whatever the next round's is."""
    play, watch, broken = Play(KILLS), Watch(KILLS), list[str]()
    ended, at = None, 0.0
    for number in range(60):
        verdict = play.step(OVER, CALM)
        seen = snapshot((OVER, CALM), play.monotonic, round_=play.round)
        broken += watch.step(Step(seen, play.rules, play.now, verdict, play.history, ended, at))
        ended, play.rules = None, KILLS
        if verdict.action is not None and number < 30:
            ended, at, play.rules = Result.BLOCKED, play.monotonic, replace(RULES, ladder=(Rung.NOTIFY,))
            play.conclude(ended)
    assert play.actions[:2] == ["evict team/train-0", "kill team/train-0"]
    assert broken == []


def test_an_eviction_that_was_blocked_under_a_ladder_without_kill_justifies_none() -> None:
    """A kill is noticed where `kill` was written only after the eviction had been blocked."""
    trace = steps()
    last, action = trace[-1], trace[-1].verdict.action
    assert action is not None
    later = replace(last, verdict=replace(last.verdict, action=replace(action, rung=Rung.KILL)))
    later = replace(later, rules=KILLS, ended=Result.BLOCKED, ended_at=last.now.monotonic)
    assert any("ladder: a kill without a blocked eviction" in what for what in complaints([*trace, later]))


CONTENDED = replace(RULES, trigger=Trigger.CONTENDED)
HOG = Actor("hog-0", 70 * GIB)
NEIGHBOUR = Actor("neighbour-0", 10 * GIB, limit=16 * GIB)
RESTARTED = replace(NEIGHBOUR, generation=1)


def test_a_neighbour_that_ended_abnormally_is_short_of_memory_while_it_is_away() -> None:
    """An action for its sake is justified for ten minutes; without a restart, or on a device with room, it is not."""
    play, rounds = Play(CONTENDED), [(HOG, NEIGHBOUR), (HOG, RESTARTED), *[(HOG,)] * 10]
    trace = list[Step]()
    for actors in rounds:
        verdict = play.step(*actors)
        seen = snapshot(actors, play.monotonic, round_=play.round)
        trace.append(Step(seen, CONTENDED, play.now, verdict, play.history))
        if verdict.action is not None:
            break
    assert play.actions == ["evict team/hog-0"]
    assert _complains(trace, NEIGHBOUR, RESTARTED) == []
    says = "contended: no neighbour can be short of memory"
    assert _complains(trace, NEIGHBOUR, NEIGHBOUR) == [says]
    assert _complains(trace, replace(NEIGHBOUR, used=GIB), replace(RESTARTED, used=GIB)) == [says]
    late = trace[-1].now.monotonic + 600.0
    later = replace(trace[-1], snapshot=replace(trace[-1].snapshot, monotonic=late), now=Moment(late, late))
    assert says in _complains([*trace, replace(later, ended=Result.FAILED)], NEIGHBOUR, RESTARTED)


def _complains(trace: Sequence[Step], *seen: Actor) -> list[str]:
    """Name what the last step breaks, if HOG and these neighbours were seen in the first rounds."""
    watch, broken = Watch(CONTENDED), list[str]()
    for number, step in enumerate(trace):
        known = step.snapshot
        if number < len(seen):
            known = snapshot((HOG, seen[number]), known.monotonic, round_=known.round)
        broken = watch.step(replace(step, snapshot=known))
    return broken


def test_a_breaker_that_nobody_closed_stays_open() -> None:
    """A breaker that vanishes without a person is noticed."""
    trace = steps()
    opened = _open(trace[0])
    assert any("nobody closed attribution" in what for what in violations([opened, trace[1]]))
    closed = replace(trace[1], closed=frozenset({Breaker.ATTRIBUTION}))
    assert not any("nobody closed" in what for what in violations([opened, closed]))


# --- the second law's checker ---


def _holder(actor: Actor = OVER) -> HolderKey:
    return HolderKey(actor.pod_uid, actor.container, "")


def late(trace: Sequence[Step], usage: Usage = Usage()) -> list[str]:
    """Hold a trace against the second law."""
    watch, promise = Watch(RULES), Promise(_holder(), "team", usage, flight=10.0, vetted=True)
    broken: list[str] = []
    for step in trace:
        watch.step(step)
        broken += promise.step(step, watch)
    return broken


def test_a_victim_that_is_never_acted_on_is_noticed() -> None:
    """The same readings without an action break the second law when the bound has passed, and not before."""
    exempt = replace(RULES, protect=replace(RULES.protect, namespaces=("team",)))
    trace = [replace(step, rules=RULES) for step in steps(rules=exempt, most=200)]
    assert late(trace)
    assert late(steps()) == []
    budget = RULES.budgets.node.window
    short = [step for step in trace if step.now.monotonic - trace[0].now.monotonic < budget]
    assert late(short) == []


def test_holders_that_were_due_earlier_lengthen_the_bound_and_later_ones_do_not() -> None:
    """Each holder that was due earlier adds its requests and its share of the budget; one that came later adds none."""
    tight = replace(RULES, budgets=default_budgets(node=Budget(1, 60.0), namespace=Budget(9, 60.0)))
    alone, crowd = (Promise(_holder(), "team", Usage(), flight=10.0, start=0.0, vetted=True) for _ in range(2))
    crowd.earlier = {PodUid("a"): "other", PodUid("b"): "other"}
    more = crowd.deadline(tight) - alone.deadline(tight)
    assert more == pytest.approx(120.0 + 2 * 2 * (10.0 + tight.spacing + 2 * 1.2 * tight.interval))
    first, second = replace(OVER, pod="late-0"), OVER
    play, watch = Play(tight), Watch(tight)
    promise = Promise(_holder(), "team", Usage(), flight=10.0, vetted=True)
    for number in range(30):
        cast = [second, CALM] if number < 5 else [second, first, CALM]
        labels = {"team": {**CONSENTING, "gpusteward.io/mode": "warn"}}
        verdict = play.step(*cast, namespaces=labels)
        seen = snapshot(cast, play.monotonic, namespaces=labels)
        step = Step(seen, tight, play.now, verdict, play.history)
        watch.step(step)
        promise.step(step, watch)
    assert promise.earlier == {}


@pytest.mark.parametrize(
    ("share", "period", "seconds"),
    [(1.0, 0.0, 42.0), (0.9, 120.0, 268.0), (0.6, 300.0, 402.0)],
)
def test_the_bound_of_a_bursty_holder(share: float, period: float, seconds: float) -> None:
    """T(d, P, C, h) for a capacity of 30 s and readings at most 6 s apart."""
    assert Usage(share, period).bound(30.0, 6.0) == pytest.approx(seconds, rel=0.5)


def test_usage_that_is_over_for_a_third_of_the_time_has_no_bound() -> None:
    """Nothing is promised about a holder that is over for a third of the time or less."""
    with pytest.raises(AssertionError, match="never"):
        Usage(1 / 3, 120.0).bound(30.0, 6.0)
