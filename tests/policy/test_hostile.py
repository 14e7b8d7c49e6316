"""
What somebody with ordinary rights over pods, or a node in disorder, might try: to be spared, or to have others hit.

What comes in: plays. What goes out: no wrong action, no shield that is not told, no word that is not so.
"""

import sys
from dataclasses import replace
from itertools import cycle, islice
from types import FrameType

import pytest

from default_rules import default_budgets, default_rules
from enforcer.policy import budgets
from enforcer.policy.decide import decide
from enforcer.policy.evidence import Phase
from enforcer.policy.history import Moment, Result, Strikes
from enforcer.policy.rules import Budget, Budgets, RulesError
from enforcer.policy.vocabulary import Breaker, Mode, Rung, State, Trigger
from exporter.model import DeviceAccount, Limit, Scope, Tolerance
from policy.scenes import BEGIN, GIB, UNHURRIED, Actor, Play, snapshot

LIMITED = replace(UNHURRIED, trigger=Trigger.LIMIT)
OVER = Actor("greedy-0", 12 * GIB)
BAND = replace(OVER, used=8 * GIB + 1)
UNDER = replace(OVER, used=2 * GIB)


# Somebody innocent is hit


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
    unknown = replace(unknown, claim_usages=tuple(replace(one, memory_used=None) for one in unknown.claim_usages))
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
    assert play.standing(OVER) is State.OK


def test_lists_that_no_device_memory_confirms_convict_nobody() -> None:
    """Where the device's own memory is unknown, the process lists stand alone, and nobody is judged by them."""
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


def test_doubt_about_a_neighbour_makes_nobody_contended() -> None:
    """Bytes that the lists count too much are not bytes that neighbours are short of."""
    greedy = replace(OVER, used=40 * GIB)
    sated = [Actor(f"sated-{index}", 20 * GIB, limit=20 * GIB) for index in range(2)]
    play = Play()
    play.steps(60, greedy, *sated, listed_too_much=3 * GIB)
    assert not play.actions
    assert play.reason(greedy) == "not_contended"


@pytest.mark.fault(68)
def test_an_older_snapshot_convicts_nobody() -> None:
    """A snapshot from the past shows what was, and its reading stands against nobody whose evidence is newer."""
    play = Play(replace(LIMITED, hold_off=10_000.0))
    play.until(State.HELD, OVER)
    play.rules = LIMITED
    history = replace(play.history, rules=LIMITED, started=0.0)
    late = snapshot([UNDER], play.monotonic - 1.0)
    moment = Moment(play.monotonic + 1.0, play.monotonic + 1.0)
    _, verdict = decide(late, LIMITED, history, moment)
    assert verdict.action is None


def test_a_snapshot_from_the_future_is_no_evidence() -> None:
    """A reading of a time that has not come stands for nothing, and does not freeze what follows."""
    play = Play(LIMITED)
    play.step(OVER)
    ahead = snapshot([OVER], play.monotonic + 1e6)
    play.history, _ = decide(ahead, LIMITED, play.history, Moment(play.monotonic + 1, play.monotonic + 1))
    assert all(one.read_at < play.monotonic + 1 for one in play.history.evidence.values())


def test_a_spike_after_a_long_time_within_tolerance_is_not_acted_on() -> None:
    """Who was due, was held, and has kept within the tolerance since, has its full grace again."""
    play = Play(LIMITED)
    play.until(State.HELD, OVER, live=False)
    play.steps(200, BAND)
    play.step(OVER)
    assert not play.actions
    assert play.standing(OVER) is State.GRACE
    began = play.monotonic
    play.until(State.ACTING, OVER)
    assert play.monotonic - began >= LIMITED.grace


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
def test_one_excess_on_many_gpus_is_one_strike(gpus: int) -> None:
    """A pod that exceeds on all its GPUs at once has done so once."""
    rules = replace(LIMITED, strikes=2)
    play = Play(rules)
    pods = [replace(OVER, gpu=index) for index in range(gpus)]
    play.steps(60, *pods, gpus=gpus)
    assert not play.actions
    assert {one.reason for one in play.verdicts[-1].standings} == {"strikes"}


def test_strikes_of_another_boot_do_not_multiply() -> None:
    """Strikes whose moment lies in the future, as after a reboot, count what they counted."""
    workload = ("team", "Deployment", "greedy")
    rules = replace(LIMITED, strikes=3)
    assert budgets.standing({workload: Strikes(1.0, 10_000_000.0)}, workload, rules, 100.0) == 1.0


def test_what_takes_one_container_is_never_done_to_a_pods_limit() -> None:
    """Where two containers use the device, a pod's own limit names none to kill or fence, and it is told."""
    pod = replace(OVER, scope="pod")
    other = replace(OVER, container="other", used=GIB, limit=None)
    play = Play(replace(LIMITED, ladder=(Rung.NOTIFY, Rung.KILL)))
    play.steps(60, pod, other)
    assert not play.actions
    assert [(one.state, one.reason) for one in play.verdicts[-1].standings] == [(State.HELD, "no_rung")]
    play = Play(replace(LIMITED, ladder=(Rung.NOTIFY, Rung.FENCE, Rung.EVICT, Rung.KILL), kill_when_blocked=True))
    play.until(State.ACTING, pod, other)
    play.conclude(Result.BLOCKED)
    play.steps(60, pod, other)
    assert set(play.actions) == {"evict team/greedy-0"}
    assert len(play.actions) > 1


def test_an_error_of_the_first_round_does_not_skip_the_hold_off() -> None:
    """Whoever closes the breaker after an error finds the hold-off before him, and not behind."""
    rules = replace(LIMITED, hold_off=300.0)
    broken = replace(snapshot([OVER], BEGIN), limits=(None,))  # type: ignore[arg-type]
    history, verdict = decide(broken, rules, Play().history, Moment(BEGIN, BEGIN))
    assert Breaker.INTERNAL in verdict.breakers
    play = Play(rules, replace(history, breakers={}))
    play.steps(50, OVER)
    assert play.reason(OVER) == "hold_off"


# Somebody shields himself, or others


def test_a_long_while_within_tolerance_buys_no_time() -> None:
    """Who was told, stayed within the tolerance for hours, and is over again, is due after one grace."""
    play = Play(LIMITED)
    play.until(State.GRACE, OVER)
    play.steps(1500, BAND)
    began = play.monotonic
    play.until(State.ACTING, OVER)
    assert play.monotonic - began <= LIMITED.grace / 0.9 + 2 * LIMITED.interval


def test_holes_of_long_ago_do_not_count() -> None:
    """A grace that was full of holes for hours is due after one grace without them."""
    play = Play(LIMITED)
    play.until(State.GRACE, OVER)
    for actor in islice(cycle([OVER, OVER, OVER, BAND]), 1500):
        play.step(actor)
    assert not play.actions
    began = play.monotonic
    play.until(State.ACTING, OVER)
    assert play.monotonic - began <= LIMITED.grace / 0.9 + 2 * LIMITED.interval


def test_who_dips_again_and_again_is_told_so() -> None:
    """Who is over for less than nine tenths of the time is never acted on, stays told, and its date is never past."""
    play = Play(LIMITED)
    play.until(State.GRACE, OVER)
    for actor in islice(cycle([OVER] * 8 + [UNDER]), 400):
        verdict = play.step(actor)
        assert play.standing(OVER) is State.GRACE
        (told,) = verdict.standings
        assert told.due_at is not None
        assert told.due_at > play.monotonic
    assert not play.actions
    assert max(play.history.over_seconds.values()) > 1000


@pytest.mark.parametrize("text", ["1", "0", "-1", "NaN", "1e9", "9" * 10_000, "٣", "30 ", "", "\ud800", "3600\n"])
def test_no_grace_annotation_moves_more_than_it_may(text: str) -> None:
    """Whatever a pod writes as its grace, it is acted on within the rules' grace, and never below the shortest."""
    actor = replace(OVER, facts={"annotations": {"gpusteward.io/grace-seconds": text}})
    play = Play(LIMITED)
    play.until(State.GRACE, actor)
    began = play.monotonic
    play.until(State.ACTING, actor)
    assert 30.0 <= play.monotonic - began <= LIMITED.grace + LIMITED.interval


@pytest.mark.parametrize("text", ["-2147483648", "2147483647", "9" * 5000, "--1", "NaN", "inf", "٣", "\x00", "1_0"])
def test_no_deletion_cost_breaks_or_stops_the_choice(text: str) -> None:
    """Whatever a pod writes as its deletion cost, one is chosen, the others are queued, and all come to their turn."""
    actor = replace(OVER, facts={"annotations": {"controller.kubernetes.io/pod-deletion-cost": text}})
    other = Actor("other-0", 12 * GIB)
    play = Play(LIMITED)
    for _ in range(100):
        verdict = play.step(actor, other)
        if verdict.action is not None:
            break
    assert verdict.action is not None
    assert not verdict.breakers
    first = {actor.pod: actor, other.pod: other}.pop(verdict.action.pod)
    second = other if first is actor else actor
    play.conclude(Result.VERIFIED)
    play.until(State.ACTING, second)


@pytest.mark.parametrize(
    "limit", [2**63 - 1, 10**400, 1, 0, -1], ids=["largest", "beyond floats", "one", "zero", "negative"]
)
def test_no_size_of_a_limit_is_an_error(limit: int) -> None:
    """A limit beyond all floats is a limit like others: nobody is over it, and nothing breaks."""
    play = Play(LIMITED)
    verdict = play.steps(3, replace(OVER, limit=limit))
    assert not verdict.breakers
    assert play.standing(OVER) is (State.OVER if limit <= 1 else State.OK)


@pytest.mark.parametrize("name", ["\ud800", "a" * 100_000, "x\x00y", "[", "*", "\u202eevict", "kube-", ""])
def test_no_name_is_an_error(name: str) -> None:
    """Names are text: whatever stands in them, nothing breaks, and nobody is protected by one."""
    actor = replace(OVER, pod=name, uid="uid-named", facts={"workload": name or "x", "workload_kind": name})
    play = Play(LIMITED)
    play.until(State.ACTING, actor)
    assert not play.verdicts[-1].breakers


def test_a_smaller_limit_that_binds_nobody_hides_no_other() -> None:
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


@pytest.mark.parametrize(("rounds", "strikes"), [(2, 1), (3, 3)])
def test_raising_the_limit_above_the_use_is_told_each_time(rounds: int, strikes: int) -> None:
    """Who raises its limit above its use and lowers it again starts anew; after three rounds it is another excess."""
    play = Play(replace(LIMITED, strikes=3))
    for _ in range(3):
        play.until(State.GRACE, OVER)
        play.steps(rounds, replace(OVER, limit=20 * GIB))
        assert play.standing(OVER) is State.OK
    assert next(iter(play.history.strikes.values())).count == pytest.approx(strikes, abs=0.2)


def test_decoys_hold_an_over_user_only_as_long_as_it_is_told() -> None:
    """Cheap decoys use up the namespace's budget; the one behind them is held by name of that budget."""
    rules = replace(LIMITED, budgets=Budgets(Budget(3, 600.0), Budget(2, 600.0), Budget(3, 86400.0)), spacing=5.0)
    play = Play(rules)
    cheap = {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-1"}}
    calm = [Actor(f"calm-{index}", GIB) for index in range(9)]
    decoys = [Actor("decoy-0", 12 * GIB, uid=f"decoy-{turn}", facts=cheap) for turn in range(3)]
    for decoy in decoys[:2]:
        play.until(State.ACTING, decoy, OVER, *calm)
        play.conclude(Result.VERIFIED)
    play.until(State.HELD, OVER, *calm)
    assert play.reason(OVER) == "budget_namespace"


def test_a_crash_loop_is_told_each_time() -> None:
    """A container that restarts before its grace ends is told of each generation, and counts each as a strike."""
    play = Play(replace(LIMITED, strikes=2))
    for generation in range(4):
        actor = replace(OVER, generation=generation)
        play.until(State.GRACE, actor)
        play.steps(10, actor)
    assert not play.actions
    assert next(iter(play.history.strikes.values())).count > 3


def test_the_pods_limit_stands_over_its_crash_loop() -> None:
    """Where the limit is the pod's, restarting a container gains nothing."""
    play = Play(LIMITED)
    for round_ in range(60):
        if play.step(replace(OVER, scope="pod", generation=round_ // 5)).action is not None:
            break
    assert play.actions == ["evict team/greedy-0"]


@pytest.mark.parametrize("gap", [1, 30, 48])
def test_who_has_instances_made_shields_nobody(gap: int) -> None:
    """Pods that start on another GPU, each with an instance of its own, delay no action by one round."""
    rules = replace(LIMITED, hold_off=300.0)

    def rounds(*, changing: bool) -> int:
        play = Play(rules)
        for number in range(200):
            made = f"MIG-{number // gap}" if changing else "MIG-0"
            if play.step(OVER, gpus=2, divided={1: (made,)}).action is not None:
                return number
        raise AssertionError("nothing was done")

    assert rounds(changing=True) == rounds(changing=False)


# Words that are not so


def test_an_action_that_ended_is_not_told_as_acting() -> None:
    """After a blocked eviction, a round that cannot read the subject does not say that it is still acted on."""
    play = Play(LIMITED)
    play.until(State.ACTING, OVER)
    play.conclude(Result.BLOCKED)
    verdict = play.step(replace(OVER, used=None))
    assert [one.state for one in verdict.standings] == [State.HELD]


def test_a_namespace_that_says_dry_run_is_rehearsed() -> None:
    """`dry-run` on a namespace is a wish for rehearsals: it is not refused for want of the word `enforce`."""
    play = Play(LIMITED)
    play.steps(40, OVER, namespaces={"team": {"gpusteward.io/mode": "dry-run"}})
    assert play.actions == ["evict team/greedy-0 (dry)"]
    assert play.history.in_flight is None


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.OBSERVE, Mode.WARN])
def test_a_namespace_that_says_less_is_not_rehearsed(mode: Mode) -> None:
    """Below `dry-run` nothing is rehearsed, whatever the node's mode."""
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
        {"strike_half_life": float("nan")},
        {"budgets": default_budgets(node=Budget(3, float("nan")))},
        {"budgets": default_budgets(workload=Budget(3, float("inf")))},
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
        assert {one.phase for one in play.history.evidence.values()} == {Phase.DUE}
        seen = snapshot(actors, play.monotonic + 5)
        count = 0

        def profile(_frame: FrameType, event: str, _argument: object) -> None:
            nonlocal count
            count += event in {"call", "c_call"}

        sys.setprofile(profile)
        decide(seen, rules, play.history, Moment(play.monotonic + 5, play.monotonic + 5))
        sys.setprofile(None)
        return count

    assert calls(320) < 4.5 * calls(80)


def test_spans_of_a_grace_do_not_pile_up() -> None:
    """However a subject flickers, what is remembered of its grace is bounded by the grace."""
    play = Play(LIMITED)
    play.until(State.GRACE, OVER)
    for actor in islice(cycle([OVER, BAND]), 2000):
        play.step(actor, after=1.0)
    (evidence,) = play.history.evidence.values()
    assert len(evidence.unseen) < 150
