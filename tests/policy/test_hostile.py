"""
What a tenant with ordinary rights over pods, or a node in disorder, might try: to be spared, or to have others hit.

Plays come in. No wrong action goes out, no shield that is not shown, and no message that is not so.
"""

import sys
from dataclasses import replace
from itertools import cycle, islice
from types import FrameType

import pytest

from default_rules import default_budgets, default_rules
from enforcer.policy.decide import decide
from enforcer.policy.history import History, Moment, Result
from enforcer.policy.rules import Budget, Budgets, RulesError
from enforcer.policy.vocabulary import Breaker, Mode, Rung, State, Trigger
from exporter.model import ContainerKind, DeviceAccount, Limit, Scope, Tolerance
from policy.liveness import Usage
from policy.scenes import BEGIN, GIB, UNHURRIED, Actor, Play, snapshot

LIMITED = replace(UNHURRIED, trigger=Trigger.LIMIT)
OVER = Actor("greedy-0", 12 * GIB)
BAND = replace(OVER, used=8 * GIB + 1)
"""Above the limit, and within the tolerance."""
UNDER = replace(OVER, used=2 * GIB)


# An innocent pod is hit


def test_a_claim_is_charged_with_what_its_own_containers_hold() -> None:
    """A pod with two claims on one GPU, each container within its own, is over neither."""
    halves = [Actor("two-0", 8 * GIB, container=name, scope="claim", claim=f"team/{name}") for name in ("a", "b")]
    play = Play(LIMITED)
    play.steps(60, *halves)
    assert not play.actions
    assert {one.state for one in play.verdicts[-1].standings} == {State.OK}
    play.until(State.ACTING, replace(halves[0], used=12 * GIB), halves[1])
    assert [one.state for one in play.verdicts[-1].standings] == [State.ACTING, State.OK]


def test_a_claim_whose_use_cannot_be_told_apart_convicts_nobody() -> None:
    """A claim without a known use is not judged by what its pod holds otherwise."""
    actor = Actor("two-0", 20 * GIB, scope="claim", claim="team/a")
    play = Play(LIMITED)
    play.step(actor)
    unknown = snapshot([actor], play.monotonic + 5)
    claims = (replace(one, memory_used=None, doubtful=one.subjects) for one in unknown.claim_usages)
    unknown = replace(unknown, claim_usages=tuple(claims))
    history, verdict = decide(unknown, LIMITED, play.history, Moment(play.monotonic + 5, play.monotonic + 5))
    assert verdict.standings[0].used is None
    _, verdict = decide(
        replace(unknown, monotonic=play.monotonic + 30), LIMITED, history, Moment(BEGIN + 35, BEGIN + 35)
    )
    assert [(one.state, one.reason) for one in verdict.standings] == [(State.UNJUDGED, "reading_unknown")]


def test_a_neighbours_hidden_process_does_not_turn_doubt_into_certainty() -> None:
    """Lists that exceed the device's use are believed no more because something else on the device is unknown."""
    hider = Actor("hider-0", None, limit=8 * GIB)
    play = Play(LIMITED)
    play.steps(60, OVER, hider, listed_too_much=6 * GIB)
    assert not play.actions
    assert play.reason(OVER) == "reading_unknown"


def test_lists_that_no_device_memory_confirms_convict_nobody() -> None:
    """Where the device's own memory is unknown, only the process lists are left, and no pod is judged by them."""
    play = Play(LIMITED)
    for _ in range(60):
        play.monotonic += 5
        seen = snapshot([OVER], play.monotonic)
        devices = tuple(
            replace(one, account=DeviceAccount(one.key, None, attributed=12 * GIB, ghost=0, host=0))
            for one in seen.devices
        )
        play.history, verdict = decide(replace(seen, devices=devices), LIMITED, play.history, play.now)
        assert verdict.action is None
    assert [(one.state, one.reason) for one in verdict.standings] == [(State.UNJUDGED, "reading_unknown")]


def test_doubt_about_a_neighbour_is_no_shortage() -> None:
    """Bytes that the lists count too much are not bytes that neighbours are short of."""
    greedy = replace(OVER, used=40 * GIB)
    sated = [Actor(f"sated-{index}", 20 * GIB, limit=20 * GIB) for index in range(2)]
    play = Play(replace(UNHURRIED, trigger=Trigger.CONTENDED))
    play.steps(60, greedy, *sated, listed_too_much=3 * GIB)
    assert not play.actions
    assert play.reason(greedy) == "not_contended"


@pytest.mark.fault(68)
def test_an_older_snapshot_leads_to_no_action() -> None:
    """A snapshot from the past shows what was, and adds nothing to what is newer."""
    play = Play(LIMITED)
    play.until(State.HELD, OVER, live=False)
    late = snapshot([OVER], play.monotonic - 1.0)
    moment = Moment(play.monotonic + 1.0, play.monotonic + 1.0)
    history, verdict = decide(late, LIMITED, play.history, moment)
    assert verdict.action is None
    assert history is play.history


def test_a_snapshot_from_the_future_is_no_evidence() -> None:
    """A reading of a time that has not come stands for nothing, and does not freeze what follows."""
    play = Play(LIMITED)
    play.step(OVER)
    ahead = snapshot([OVER], play.monotonic + 1e6)
    play.history, _ = decide(ahead, LIMITED, play.history, Moment(play.monotonic + 1, play.monotonic + 1))
    assert all(level.read_at < play.monotonic + 1 for level in play.history.levels.values())
    assert not play.actions


def test_a_spike_after_a_long_time_within_its_limit_is_not_acted_on() -> None:
    """A holder that was due, was held, and has kept within its limit since, has its full warning and grace again."""
    play = Play(LIMITED)
    play.until(State.HELD, OVER, live=False)
    play.steps(200, BAND)
    play.step(OVER)
    assert not play.actions
    assert play.standing(OVER) is State.OVER
    began = play.monotonic
    play.until(State.ACTING, OVER)
    assert play.monotonic - began >= LIMITED.warn_after + LIMITED.grace


def test_a_grace_that_begins_anew_is_a_whole_one() -> None:
    """When consent is given during a grace, the grace from then on is not one interval short."""
    play = Play(LIMITED)
    play.until(State.GRACE, OVER, namespaces={"team": {}})
    play.step(OVER, namespaces={"team": {}})
    play.step(OVER)
    began = play.monotonic
    play.until(State.ACTING, OVER)
    assert play.monotonic - began >= LIMITED.grace


@pytest.mark.parametrize("gpus", [2, 8])
def test_an_excess_on_many_gpus_is_one_level(gpus: int) -> None:
    """A container that exceeds its limit on all its GPUs at once is not due any earlier, and is acted on once."""
    one, many = Play(LIMITED), Play(LIMITED)
    one.until_action(OVER)
    many.until_action(*[replace(OVER, gpu=index) for index in range(gpus)], gpus=gpus)
    assert (one.round, one.actions) == (many.round, many.actions)


def test_the_largest_container_is_acted_on_for_a_pods_limit() -> None:
    """`kill` acts on the container of the pod that holds most, and never on another one."""
    pod = replace(OVER, scope="pod")
    other = replace(OVER, container="other", used=GIB, limit=None)
    play = Play(replace(LIMITED, ladder=(Rung.NOTIFY, Rung.KILL)))
    action = play.until_action(pod, other)
    assert (action.rung, action.container, action.container_id) == (Rung.KILL, pod.container, pod.id)


def test_an_error_of_the_first_round_does_not_skip_the_hold_off() -> None:
    """A person who closes the breaker after an error finds the hold-off still ahead."""
    rules = replace(LIMITED, hold_off=300.0)
    broken = replace(snapshot([OVER], BEGIN), limits=(None,))  # type: ignore[arg-type]
    history, verdict = decide(broken, rules, History(), Moment(BEGIN, BEGIN))
    assert Breaker.INTERNAL in verdict.breakers
    play = Play(rules, replace(history, breakers={}, shown=BEGIN))
    play.steps(50, OVER)
    assert play.reason(OVER) == "hold_off"


# A tenant shields its pod, or others


def test_short_pauses_buy_no_time() -> None:
    """A holder that is within its limit for one round of four is acted on all the same, within the bound of T."""
    play = Play(LIMITED)
    for actor in islice(cycle([OVER] * 6 + [UNDER]), 200):
        if play.step(actor).action is not None:
            break
    assert play.actions == ["evict team/greedy-0"]
    most = Usage(6 / 7, 35.0).bound(LIMITED.warn_after + LIMITED.grace, LIMITED.interval)
    assert play.monotonic - BEGIN <= most


def test_pauses_of_long_ago_do_not_count() -> None:
    """An hour of excess in every third round leaves a holder no better off than a new one."""
    play = Play(LIMITED)
    for actor in islice(cycle([OVER, BAND, BAND]), 720):
        play.step(actor)
    assert not play.actions
    began = play.monotonic
    play.until(State.ACTING, OVER)
    assert play.monotonic - began <= LIMITED.warn_after + LIMITED.grace + 2 * LIMITED.interval


def test_a_holder_that_is_over_for_a_third_of_the_time_is_counted_and_never_due() -> None:
    """Usage that is over for a third of the time is never acted on, and its seconds above the limit are counted."""
    play = Play(LIMITED)
    for actor in islice(cycle([OVER] * 4 + [UNDER] * 8), 600):
        play.step(actor)
        assert play.standing(OVER) in {State.OVER, State.GRACE, State.OK}
    assert not play.actions
    assert max(play.history.over_seconds.values()) > 500


@pytest.mark.parametrize("text", ["1", "0", "-1", "NaN", "1e9", "9" * 10_000, "٣", "30 ", "", "\ud800", "3600\n"])
def test_no_grace_annotation_moves_more_than_it_may(text: str) -> None:
    """Whatever a pod writes as its grace, it is acted on within the rules' grace, after three readings at least."""
    actor = replace(OVER, facts={"annotations": {"gpusteward.io/grace-seconds": text}})
    play = Play(LIMITED)
    play.until(State.ACTING, actor)
    assert play.round >= 3
    assert play.monotonic - BEGIN <= LIMITED.warn_after + LIMITED.grace + LIMITED.interval


@pytest.mark.parametrize("text", ["-2147483648", "2147483647", "9" * 5000, "--1", "NaN", "inf", "٣", "\x00", "1_0"])
def test_no_deletion_cost_moves_the_choice(text: str) -> None:
    """Whatever a pod writes as its deletion cost, the larger excess comes first, and the other one in its turn."""
    actor = replace(OVER, facts={"annotations": {"controller.kubernetes.io/pod-deletion-cost": text}})
    other = Actor("other-0", 13 * GIB)
    play = Play(LIMITED)
    for _ in range(100):
        verdict = play.step(actor, other)
        if verdict.action is not None:
            break
    assert verdict.action is not None
    assert not verdict.breakers
    assert verdict.action.pod == other.pod
    play.conclude(Result.ACCEPTED)
    play.until(State.ACTING, actor)


@pytest.mark.parametrize(
    "limit", [2**63 - 1, 10**400, 1, 0, -1], ids=["largest", "beyond floats", "one", "zero", "negative"]
)
def test_no_size_of_a_limit_is_an_error(limit: int) -> None:
    """A limit beyond all floats is a limit like others: no usage is over it, and nothing breaks."""
    play = Play(LIMITED)
    verdict = play.steps(3, replace(OVER, limit=limit))
    assert not verdict.breakers
    assert play.standing(OVER) is (State.OVER if limit <= 1 else State.OK)


@pytest.mark.parametrize("name", ["\ud800", "a" * 100_000, "x\x00y", "[", "*", "\u202eevict", "kube-", ""])
def test_no_name_is_an_error(name: str) -> None:
    """Names are text: whatever stands in them, nothing breaks, and none protects a pod."""
    actor = replace(OVER, pod=name, uid="uid-named", facts={"workload": name or "x", "workload_kind": name})
    play = Play(LIMITED)
    play.until(State.ACTING, actor)
    assert not play.verdicts[-1].breakers


def test_a_smaller_limit_that_binds_nothing_hides_no_other() -> None:
    """A second declaration for one container, only reported or per process, does not replace the one that binds."""
    play = Play(LIMITED)
    for _ in range(60):
        play.monotonic += 5
        seen = snapshot([OVER], play.monotonic)
        (mine,) = seen.limits
        weak: tuple[Limit, ...] = (
            replace(mine, memory=GIB, report_only=("only reported",)),
            replace(mine, memory=GIB, scope=Scope.PROCESS),
        )
        play.history, verdict = decide(replace(seen, limits=(*weak, mine)), LIMITED, play.history, play.now)
        if verdict.action is not None:
            break
    assert verdict.action is not None
    assert verdict.action.limit.memory == 8 * GIB


def test_a_limit_that_is_toggled_below_the_use_gains_nothing() -> None:
    """Changing a limit back and forth below what one holds delays nothing."""
    play = Play(LIMITED)
    steady = Play(LIMITED)
    steady.until(State.ACTING, OVER)
    for limit in islice(cycle([8 * GIB, 9 * GIB]), 200):
        if play.step(replace(OVER, limit=limit)).action is not None:
            break
    assert play.monotonic == steady.monotonic


def test_raising_the_limit_above_the_usage_starts_anew() -> None:
    """A holder whose limit rises above what was counted, and falls again, is warned and has its grace again."""
    play = Play(LIMITED)
    play.until(State.GRACE, OVER)
    play.steps(2, replace(OVER, limit=20 * GIB))
    assert play.standing(OVER) is State.OK
    began = play.monotonic
    play.until(State.ACTING, OVER)
    assert play.monotonic - began >= LIMITED.warn_after + LIMITED.grace


def test_decoys_hold_an_over_user_for_one_window_at_most() -> None:
    """Decoys that were due earlier use up the namespace's budget: the next holder is acted on in the next window."""
    rules = replace(LIMITED, budgets=Budgets(Budget(3, 600.0), Budget(2, 600.0)), spacing=5.0)
    play = Play(rules)
    decoys = [Actor(f"decoy-{index}", 12 * GIB) for index in range(2)]
    play.steps(2, *decoys)
    gone: list[str] = []
    began = play.monotonic
    while "greedy-0" not in gone:
        present = [actor for actor in (*decoys, OVER) if actor.pod not in gone]
        verdict = play.step(*present)
        if verdict.action is not None:
            gone.append(verdict.action.pod)
            play.conclude(Result.ACCEPTED)
        assert play.monotonic - began < 600.0 + LIMITED.warn_after + LIMITED.grace + 60.0
    assert gone == ["decoy-0", "decoy-1", "greedy-0"]
    assert "budget_namespace" in {change.after.reason for verdict in play.verdicts for change in verdict.changes}


def test_a_crash_loop_is_no_shield() -> None:
    """A container that restarts every minute keeps its level: it is acted on within a minute of its grace's end."""
    play = Play(LIMITED)
    for number in range(60):
        if play.step(replace(OVER, generation=number // 12)).action is not None:
            break
    assert play.actions == ["evict team/greedy-0"]
    assert play.monotonic - BEGIN <= LIMITED.warn_after + LIMITED.grace + 60.0


def test_the_pods_limit_stands_over_its_crash_loop() -> None:
    """Where the limit is the pod's, restarting a container gains nothing."""
    play = Play(LIMITED)
    for round_ in range(60):
        if play.step(replace(OVER, scope="pod", generation=round_ // 5)).action is not None:
            break
    assert play.actions == ["evict team/greedy-0"]


@pytest.mark.parametrize("gap", [1, 30, 48])
def test_new_mig_instances_on_another_gpu_are_no_shield(gap: int) -> None:
    """Pods that start on another GPU, each with an instance of its own, delay no action by one round."""

    def rounds(*, changing: bool) -> int:
        play = Play(LIMITED)
        for number in range(200):
            made = f"MIG-{number // gap}" if changing else "MIG-0"
            if play.step(OVER, gpus=2, divided={1: (made,)}).action is not None:
                return number
        raise AssertionError("nothing was done")

    assert rounds(changing=True) == rounds(changing=False)


@pytest.mark.parametrize(
    "facts",
    [{"controller_kind": ""}, {"controller_kind": "DaemonSet"}, {"workload": "", "workload_kind": ""}],
    ids=str,
)
def test_no_kind_of_pod_is_a_shield(facts: dict[str, object]) -> None:
    """Bare pods, pods of DaemonSets and pods of unknown workloads are acted on, unless an operator protects them."""
    play = Play(LIMITED)
    play.until_action(replace(OVER, facts=facts))
    assert play.actions == ["evict team/greedy-0"]


def test_an_init_container_is_no_shield() -> None:
    """A running init container over its limit evicts its pod."""
    play = Play(LIMITED)
    play.until_action(replace(OVER, kind=ContainerKind.INIT, facts={"phase": "Pending"}))
    assert play.actions == ["evict team/greedy-0"]


def test_a_shared_claim_is_no_shield() -> None:
    """A claim that two pods share acts on the pod that uses more of it."""
    pods = [Actor(f"sharer-{n}", used * GIB, scope="claim", claim="team/one") for n, used in enumerate((4, 9))]
    play = Play(LIMITED)
    play.until_action(*pods)
    assert play.actions == ["evict team/sharer-1"]


# Messages that are not so


def test_an_action_that_ended_is_not_shown_as_acting() -> None:
    """After a blocked eviction, a round that cannot read the holder does not say that it is still acted on."""
    play = Play(LIMITED)
    play.until(State.ACTING, OVER)
    play.conclude(Result.BLOCKED)
    verdict = play.step(replace(OVER, used=None))
    assert State.ACTING not in {one.state for one in verdict.standings}


def test_a_namespace_that_says_dry_run_has_dry_runs() -> None:
    """`dry-run` on a namespace asks for dry runs: they need no consent to `enforce`."""
    play = Play(LIMITED)
    play.steps(40, OVER, namespaces={"team": {"gpusteward.io/mode": "dry-run"}})
    assert play.actions == ["evict team/greedy-0 (dry)"]
    assert play.history.in_flight is None


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.OBSERVE, Mode.WARN])
def test_a_namespace_that_says_less_has_no_dry_runs(mode: Mode) -> None:
    """Below `dry-run` nothing is tried, whatever the node's mode."""
    play = Play(LIMITED)
    play.steps(40, OVER, namespaces={"team": {"gpusteward.io/mode": mode.value}})
    assert not play.actions
    assert play.reason(OVER) == "mode"


@pytest.mark.parametrize(
    "wrong",
    [
        {"spacing": float("nan")},
        {"spacing": float("inf")},
        {"hold_off": float("nan")},
        {"hold_off": -1.0},
        {"interval": float("nan")},
        {"interval": 0.0},
        {"interval": -5.0},
        {"warn_after": float("nan")},
        {"grace": float("nan")},
        {"budgets": default_budgets(node=Budget(3, float("nan")))},
        {"budgets": default_budgets(namespace=Budget(3, float("inf")))},
        {"tolerance": Tolerance(float("nan"), 0, 0)},
    ],
    ids=str,
)
def test_rules_without_sense_do_not_exist(wrong: dict[str, object]) -> None:
    """A number that is none compares with nothing, and would so switch a guard off: it is refused where it is set."""
    with pytest.raises(RulesError):
        replace(default_rules(), **wrong)  # type: ignore[arg-type]


# Time


def test_a_crowd_is_judged_in_linear_time() -> None:
    """Four times as many over-users, all due, cost four times as many calls, and not sixteen times."""

    def calls(crowd: int) -> int:
        rules = replace(UNHURRIED, mode=Mode.DRY_RUN, hold_off=1e6, tolerance=Tolerance(0, 0, 0), grace=30.0)
        actors = [Actor(f"greedy-{index}", GIB // 8, limit=GIB // 16) for index in range(crowd)]
        play = Play(rules)
        play.steps(12, *actors)
        assert len([one for one in play.verdicts[-1].standings if one.level >= one.capacity]) == crowd
        seen = snapshot(actors, play.monotonic + 5)
        count = 0

        def profile(_frame: FrameType, event: str, _argument: object) -> None:
            nonlocal count
            count += event in {"call", "c_call"}

        sys.setprofile(profile)
        decide(seen, rules, play.history, Moment(play.monotonic + 5, play.monotonic + 5))
        sys.setprofile(None)
        return count

    assert calls(160) < 4.1 * calls(40)


def test_what_is_remembered_of_a_holder_is_bounded() -> None:
    """However a holder flickers and restarts, what is remembered of it does not grow without end."""
    play = Play(LIMITED)
    for number, actor in enumerate(islice(cycle([OVER, BAND]), 300)):
        play.step(replace(actor, generation=number // 3), after=1.0)
        assert len(repr(play.history)) < 5_000, number
