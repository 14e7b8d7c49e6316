"""The invariants on hostile nodes, by Hypothesis; and that each of their checkers can say no."""

import os
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bench.policy_world import FLAGS, NAMESPACE, SHOTS, World, play, some_rules, some_world
from default_rules import default_budgets
from enforcer.policy.history import Action, Opened, Result
from enforcer.policy.rules import Budget, Budgets
from enforcer.policy.vocabulary import Breaker, Mode, Reason, Rung, State
from exporter.model import ContainerKind, PodUid, Sharing, Snapshot
from policy.invariants import Step, violations
from policy.scenes import GIB, UNHURRIED, Actor, Play

EXAMPLES = int(os.environ.get("GPUSTEWARD_EXAMPLES", "30"))
"""Of Hypothesis; more than in the fast set are found with other seeds, too."""
FEW = 30


class HostileNode(RuleBasedStateMachine):
    """A node on which anything may be other than usual for some rounds, and anything may happen between two."""

    @initialize(seed=st.integers(0, 2**32), sane=st.booleans())
    def begin(self, seed: int, sane: bool) -> None:
        random = Random(seed)
        self.world = some_world(random)
        self.world.rules = UNHURRIED if sane else some_rules(random)

    @rule(what=st.sampled_from(FLAGS), rounds=st.integers(1, 6))
    def other_than_usual(self, what: str, rounds: int) -> None:
        self.world.happens(what, rounds)

    @rule(what=st.sampled_from(SHOTS))
    def between_two_rounds(self, what: str) -> None:
        self.world.shot(what)

    @rule(rounds=st.integers(1, 12))
    def rounds_pass(self, rounds: int) -> None:
        for _ in range(rounds):
            self.world.round()

    @precondition(lambda self: self.world.history.in_flight is not None)
    @rule(result=st.sampled_from(Result))
    def it_ends(self, result: Result) -> None:
        self.world.end(result)

    @invariant()
    def nothing_is_broken(self) -> None:
        if hasattr(self, "world"):
            assert self.world.found == []


TestHostileNode = HostileNode.TestCase
TestHostileNode.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=25,
    derandomize=EXAMPLES <= FEW,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("seed", [60388793, 60915877])
def test_what_a_campaign_found_stays_found(seed: int) -> None:
    """Traces that broke an invariant once, by a fault of the policy or of a checker, and that no shorter test plays."""
    assert play(seed).found == []


def test_hostile_traces_break_no_invariant_and_say_something() -> None:
    """Of the same hundred random traces none breaks an invariant, some act, and most reasons are given."""
    worlds = [play(seed) for seed in range(100)]
    assert [found for world in worlds for found in world.found] == []
    steps = [step for world in worlds for step in world.trace]
    given = {change.after.reason for step in steps for change in step.verdict.changes}
    assert sum(step.verdict.action is not None for step in steps) > 30
    assert len(given - {None}) >= 0.6 * len(Reason), set(Reason) - given


def acted() -> World:
    """Make a trace that breaks nothing and whose last step acts: a pod of 30 GiB with 8, whose neighbour is short."""
    cast = [Actor("train-0", 30 * GIB), Actor("poor-0", 5 * GIB, limit=40 * GIB, namespace="other")]
    world = World(Random(0), UNHURRIED, cast)
    while world.round().action is None:
        assert len(world.trace) < 100
    assert world.found == []
    return world


def _pod(**facts: object) -> Callable[[Step], Step]:
    def doctored(step: Step) -> Step:
        uid = step.verdict.action.pod_uid if step.verdict.action else PodUid("")
        pods = {**step.snapshot.pods, uid: replace(step.snapshot.pods[uid], **facts)}  # type: ignore[arg-type]
        return _seen(pods=pods)(step)

    return doctored


def _seen(**facts: object) -> Callable[[Step], Step]:
    return lambda step: replace(step, snapshot=replace(step.snapshot, **facts))  # type: ignore[arg-type]


def _action(**facts: object) -> Callable[[Step], Step]:
    def doctored(step: Step) -> Step:
        action: Action | None = step.verdict.action
        assert action is not None
        return replace(step, verdict=replace(step.verdict, action=replace(action, **facts)))  # type: ignore[arg-type]

    return doctored


def _another_holder(step: Step) -> Step:
    assert step.verdict.action is not None
    return _action(limit=replace(step.verdict.action.limit, container="another"))(step)


def _rules(**facts: object) -> Callable[[Step], Step]:
    return lambda step: replace(step, rules=replace(step.rules, **facts))  # type: ignore[arg-type]


def _devices(change: Callable[[Snapshot], Snapshot]) -> Callable[[Step], Step]:
    return lambda step: replace(step, snapshot=change(step.snapshot))


def _shared(how: Sharing) -> Callable[[Snapshot], Snapshot]:
    return lambda seen: replace(seen, devices=tuple(replace(one, sharing=how) for one in seen.devices))


def _used(share: float) -> Callable[[Snapshot], Snapshot]:
    return lambda seen: replace(
        seen, usages=tuple(replace(one, memory_used=int((one.memory_used or 0) * share)) for one in seen.usages)
    )


def _open(step: Step) -> Step:
    breakers = {Breaker.API: Opened(0.0, None, "three refusals")}
    return replace(step, verdict=replace(step.verdict, breakers=breakers))


def _silent(step: Step) -> Step:
    held = [replace(one, state=State.HELD, reason=Reason.SPACING) for one in step.verdict.standings]
    return replace(step, verdict=replace(step.verdict, standings=tuple(held)))


@pytest.mark.parametrize(
    ("doctored", "says"),
    [
        (_pod(terminating=True), "INV-12 protected: terminating"),
        (_pod(phase="Succeeded"), "INV-12 protected: not_running"),
        (_pod(priority=None), "INV-12 protected: priority"),
        (_pod(config_hash="0"), "INV-12 protected: static_pod"),
        (_pod(namespace="kube-system"), "INV-12 protected: namespace"),
        (_pod(controller_kind=""), "bare pod"),
        (_pod(controller_kind="DaemonSet"), "DaemonSet"),
        (_pod(annotations={"karpenter.sh/do-not-disrupt": "true"}), "third party"),
        (_seen(namespaces={}), "mode observe"),
        (_seen(namespaces={"team": {}}), "no consent"),
        (_seen(names_live=False), "INV-2 the names are remembered only"),
        (_seen(containers=()), "INV-12 protected: other_generation"),
        (_seen(pid_domain_proven=False), "INV-9 not over in this very round"),
        (_seen(gpus_read=frozenset()), "INV-9 not over in this very round"),
        (_seen(limits=()), "nothing to act on"),
        (_devices(_shared(Sharing.MPS)), "not allowed: MPS"),
        (_devices(_shared(Sharing.EXCLUSIVE)), "not allowed: sharing exclusive"),
        (_devices(_used(0.1)), "INV-9 not over in this very round"),
        (_devices(_used(10.0)), "no neighbour is short"),
        (_action(rung=Rung.KILL), "kill is not on the ladder"),
        (_another_holder, "INV-3 the action names another subject"),
        (_action(pod="another"), "INV-2 the pod that is named is not there"),
        (_action(dry=True), "INV-14 dry=True in mode enforce"),
        (_rules(mode=Mode.WARN), "mode warn"),
        (_rules(grace=600.0), "INV-1 the excess was not seen for a grace of"),
        (_rules(warn_after=3600.0), "INV-1 never seen over for warn_after"),
        (_rules(hold_off=3600.0), "INV-7 within the hold-off"),
        (_rules(budgets=default_budgets(node=Budget(0, 60.0))), "INV-8 the budget of the node was spent"),
        (_open, "INV-8 an action with open breakers"),
        (_silent, "INV-13 a refusal that is not told"),
    ],
)
def test_each_checker_can_say_no(doctored: Callable[[Step], Step], says: str) -> None:
    """A trace that breaks nothing breaks an invariant as soon as one fact of its last step is another."""
    trace = acted().trace
    step = doctored(trace[-1])
    earlier = [replace(one, rules=step.rules) for one in trace[:-1]]
    assert any(says in one for one in violations([*earlier, step])), violations([*earlier, step])


def test_what_was_before_the_action_is_checked_as_well() -> None:
    """An action whose grace was interrupted, by a gap, a sleep, or an hour without consent, breaks an invariant."""
    trace = acted().trace
    middle = len(trace) // 2
    changed = replace(trace[middle].snapshot, namespaces={name: {} for name in NAMESPACE})
    slept = [replace(one, now=replace(one.now, boot=one.now.boot + 60)) for one in trace[middle:]]
    for broken in (
        [*trace[: middle - 3], *trace[middle:]],
        [*trace[:middle], *slept],
        [*trace[:middle], replace(trace[middle], snapshot=changed), *trace[middle + 1 :]],
        [*trace[:middle], replace(trace[middle], reborn=True), *trace[middle + 1 :]],
    ):
        assert any("INV-1 " in one for one in violations(broken))


def test_a_second_action_too_soon_is_noticed() -> None:
    """Two actions at once, or one right after the other, break an invariant."""
    trace = acted().trace
    again = replace(trace[-1], now=replace(trace[-1].now, monotonic=trace[-1].now.monotonic + 5))
    assert any("INV-5 another action is in flight" in one for one in violations([*trace, again]))
    ended = replace(again, ended=Result.FAILED)
    assert any("INV-5" in one and "after another action" in one for one in violations([*trace, ended]))


def test_a_restart_does_not_forget_the_last_action() -> None:
    """Tokens outlive the daemon: one that starts anew, with no hold-off, waits as long as one that did not."""
    rules = replace(UNHURRIED, warn_after=5.0, grace=30.0, spacing=120.0)
    cast = [Actor("train-0", 30 * GIB), Actor("poor-0", 5 * GIB, limit=40 * GIB)]
    world = World(Random(0), rules, cast)
    while world.round().action is None:
        assert len(world.trace) < 200
    world.end(Result.FAILED)
    world.start_anew()
    while world.round().action is None:
        assert len(world.trace) < 200
    first, second = [step.now.boot for step in world.trace if step.verdict.action is not None]
    assert second - first >= rules.spacing
    assert world.found == []
    assert Reason.SPACING in {change.after.reason for step in world.trace for change in step.verdict.changes}


def test_a_reload_refills_no_budget() -> None:
    """A window that is made shorter, and a round later longer again, finds the tokens that were spent before."""
    once = replace(UNHURRIED, budgets=default_budgets(workload=Budget(1, 86400.0)))
    short = replace(UNHURRIED, budgets=Budgets(*[Budget(9, 1.0)] * 3))
    world = acted()
    world.end(Result.FAILED)
    for world.rules in (short, once):
        for _ in range(60 if world.rules is once else 1):
            assert world.round().action is None
    assert world.trace[-1].verdict.standings[-1].reason is Reason.BUDGET_WORKLOAD


def test_a_gap_adds_no_strike() -> None:
    """One excess is one episode, however often its reading is interrupted: with two wanted, nobody is acted on."""
    rules = replace(UNHURRIED, strikes=2)
    cast = [Actor("train-0", 30 * GIB), Actor("poor-0", 5 * GIB, limit=40 * GIB)]
    steady, interrupted = World(Random(0), rules, list(cast)), World(Random(0), rules, list(cast))
    for index in range(100):
        assert steady.round().action is None
        if index == 50:
            interrupted.monotonic += 60.0
        assert interrupted.round().action is None


def test_who_is_short_is_certain() -> None:
    """
    What raises doubt, or ends, makes no neighbour short.

    Lists that exceed the device's use lower what an accused certainly holds, and must not lower what neighbours hold;
    a pod that has ended, and an init container of a running pod, want nothing any more.
    """
    accused = Actor("train-0", 40 * GIB)
    full, other = Actor("full-0", 30 * GIB, limit=30 * GIB), Actor("poor-0", 0, limit=20 * GIB)
    for cast, world in (
        ([accused, full], {"listed_too_much": 2 * GIB, "hidden": {0: 9 * GIB}}),
        ([accused, full, replace(other, facts={"phase": "Succeeded"})], {"hidden": {0: 9 * GIB}}),
        ([accused, full, replace(other, kind=ContainerKind.INIT)], {"hidden": {0: 9 * GIB}}),
    ):
        play_ = Play()
        play_.steps(40, *cast, **world)
        assert play_.standing(accused) is State.HELD
        assert play_.reason(accused) == Reason.NOT_CONTENDED
    justified = Play()
    justified.until(State.ACTING, accused, full, other, hidden={0: 9 * GIB})


def test_an_excess_that_ended_while_terms_changed_has_ended() -> None:
    """Three rounds at or below the limit end an excess, also when consent came and went meanwhile."""
    greedy, calm = Actor("train-0", 30 * GIB), Actor("train-0", GIB)
    poor = Actor("poor-0", 5 * GIB, limit=40 * GIB)
    play_ = Play()
    play_.until(State.GRACE, greedy, poor)
    play_.step(calm, poor)
    play_.step(calm, poor, namespaces={"team": {}})
    play_.step(calm, poor)
    assert play_.standing(calm) is State.OK
