"""
Budgets of the node and of namespaces, and the back-off of workloads.

Over-users of several workloads and namespaces come in, one after the other. It goes out which of them are acted on, and
which budget the others wait for.

The rule: a token is kept where something was, or may have been, done. A back-off concerns only pods that were created
after the last action on their workload.
"""

from dataclasses import replace
from itertools import pairwise

import pytest

from default_rules import default_budgets
from enforcer.policy.budgets import back_off, exhausted, pruned, remaining
from enforcer.policy.cases import cases
from enforcer.policy.history import Result, Spent, Verdict
from enforcer.policy.rules import Budget, Budgets
from enforcer.policy.vocabulary import Mode, Reason, Scope, State
from policy.scenes import BEGIN, GIB, MEEK, UNHURRIED, WALL, Actor, Play, settled, snapshot

SHORT = replace(UNHURRIED, grace=30.0, spacing=5.0)
WIDE = Budget(100, 86400.0)
JOB = ("team", "Deployment", "job")


def over(name: str, generation: int = 0, namespace: str = "team", workload: str = "job", created: float = 0) -> Actor:
    """An over-user; another generation is a pod that was made anew, of the same workload."""
    facts: dict[str, object] = {"workload": workload, "created_at": WALL + created}
    return Actor(f"{name}-{generation}", 70 * GIB, namespace=namespace, facts=facts)


OLDER = over("a", created=-3600.0)


def acts(play: Play, actor: Actor, most: int = 30) -> Reason | None:
    """Play until the actor is acted on and gone (None), or held (the reason)."""
    for _ in range(most):
        verdict = play.step(actor, MEEK)
        if verdict.action is not None:
            play.conclude(Result.ACCEPTED)
            return None
        if play.standing(actor) is State.HELD and play.reason(actor) != Reason.SPACING:
            return Reason(play.reason(actor) or "")
    raise AssertionError(verdict)


def left(verdict: Verdict) -> tuple[int, int]:
    """Return the tokens that are left, of the node and of the most spent namespace."""
    return verdict.remaining[Scope.NODE], verdict.remaining[Scope.NAMESPACE]


@pytest.mark.parametrize(
    ("budgets", "victims", "reason"),
    [
        (
            Budgets(Budget(2, 86400.0), WIDE),
            [over(name, namespace=name, created=-3600) for name in "xyz"],
            Reason.BUDGET_NODE,
        ),
        (
            Budgets(WIDE, Budget(2, 86400.0)),
            [over(name, workload=name, created=-3600) for name in "abc"],
            Reason.BUDGET_NAMESPACE,
        ),
    ],
    ids=["node", "namespace"],
)
def test_the_third_of_two_is_held_and_the_window_frees_it(
    budgets: Budgets, victims: list[Actor], reason: Reason
) -> None:
    """Two actions are allowed in a window: the third victim is held, and acted on when it has passed."""
    play = Play(replace(SHORT, budgets=budgets))
    assert [acts(play, victim) for victim in victims] == [None, None, reason]
    play.monotonic += 86400.0
    assert acts(play, victims[2]) is None


def test_a_spent_budget_of_a_namespace_spares_no_other() -> None:
    """The twin: a pod of another namespace is acted on although this one's budget is spent."""
    play = Play(replace(SHORT, budgets=Budgets(WIDE, Budget(1, 600.0))))
    assert acts(play, over("a")) is None
    assert acts(play, over("b", namespace="elsewhere")) is None


def test_by_default_three_in_ten_minutes_of_which_two_in_a_namespace() -> None:
    """The documented defaults."""
    budgets = default_budgets()
    assert (budgets.node, budgets.namespace) == (Budget(3, 600.0), Budget(2, 600.0))


@pytest.mark.parametrize("result", [each for each in Result if each is not Result.REHEARSED], ids=str)
def test_a_token_is_taken_when_the_action_is_intended(result: Result) -> None:
    """In the very round of the action one is gone; it comes back where it is certain that nothing was done."""
    play = Play(replace(SHORT, budgets=Budgets(Budget(9, 600.0), Budget(8, 600.0))))
    play.until_action(OLDER, MEEK)
    assert left(play.verdicts[-1]) == (8, 7)
    play.conclude(result)
    assert left(play.step(MEEK)) == ((9, 8) if result.harmless else (8, 7))


def test_what_is_left_is_shown_of_the_most_spent_namespace() -> None:
    """Of all namespaces the one with the least left is shown."""
    play = Play(replace(SHORT, budgets=Budgets(Budget(9, 86400.0), Budget(8, 86400.0))))
    for victim in (over("a", workload="a"), over("b", workload="b"), over("c", workload="c", namespace="other")):
        assert acts(play, victim) is None
    assert left(play.step(MEEK)) == (6, 6)


@pytest.mark.fault(64)
def test_a_job_that_comes_back_for_ever_waits_longer_each_time() -> None:
    """Row 64: the same workload under new names and UIDs: acted on again after 1, 2, 4, 8 and at most 10 minutes."""
    play, at = Play(replace(SHORT, budgets=Budgets(WIDE, WIDE))), list[float]()
    for generation in range(8):
        pod = over("job", generation, created=play.monotonic - BEGIN + 1.0)
        play.until_action(pod, MEEK)
        play.conclude(Result.ACCEPTED)
        at.append(play.monotonic)
    gaps = [later - before for before, later in pairwise(at)]
    assert gaps == [60.0, 120.0, 240.0, 480.0, 600.0, 600.0, 600.0]


@pytest.mark.parametrize(
    ("times", "seconds"), [(0, 0.0), (1, 60.0), (2, 120.0), (3, 240.0), (4, 480.0), (5, 600.0), (10**6, 600.0)]
)
def test_the_back_off_doubles_up_to_ten_minutes(times: int, seconds: float) -> None:
    """By the number of the workload's actions within a day; no number overflows."""
    assert back_off(times) == seconds


@pytest.mark.parametrize(
    ("created", "age", "actions", "reason"),
    [
        (-10.0, 59.9, 1, Reason.BACK_OFF),  # created with the action: newer
        (-10.1, 59.9, 1, None),  # created before it: it was over before, too
        (0.0, 60.0, 1, None),  # a minute has passed
        (0.0, 60.0, 2, Reason.BACK_OFF),  # and is two after the second action
        (0.0, 120.0, 2, None),
        (0.0, 599.9, 9, Reason.BACK_OFF),
        (0.0, 600.0, 9, None),
    ],
)
def test_only_pods_that_are_newer_than_the_last_action_wait(
    created: float, age: float, actions: int, reason: Reason | None
) -> None:
    """Creation is compared in Unix time, the wait is boot time: setting the clock shortens no wait."""
    (case,) = cases(snapshot([over("a", created=created)], BEGIN))
    spent = tuple(Spent(BEGIN - age - 1000.0 * number, JOB, WALL - 10.0) for number in range(actions))
    assert exhausted(spent, case, SHORT, BEGIN) is reason


def test_actions_of_more_than_a_day_ago_do_not_count() -> None:
    """The back-off begins anew a day after an action: the next one is the first."""
    (case,) = cases(snapshot([over("a")], BEGIN))
    old = tuple(Spent(BEGIN - 86400.0 - number, JOB, WALL - 90000.0) for number in range(9))
    last = Spent(BEGIN - 60.0, JOB, WALL - 60.0)
    assert exhausted((*old, last), case, SHORT, BEGIN) is None
    assert exhausted((*old, replace(last, at=BEGIN - 59.0)), case, SHORT, BEGIN) is Reason.BACK_OFF


def test_a_back_off_is_the_workload_s() -> None:
    """Another workload of the namespace, and one of the same name elsewhere, do not wait."""
    spent = (Spent(BEGIN - 10.0, JOB, WALL - 10.0),)
    for pod, reason in (
        (over("a"), Reason.BACK_OFF),
        (over("a", workload="another"), None),
        (over("a", namespace="elsewhere"), None),
    ):
        (case,) = cases(snapshot([pod], BEGIN))
        assert exhausted(spent, case, SHORT, BEGIN) is reason


def test_a_back_off_is_named_before_a_budget() -> None:
    """A workload that comes back for ever does not look like a budget that is too small."""
    none = replace(SHORT, budgets=Budgets(Budget(0, 600.0), Budget(0, 600.0)))
    (case,) = cases(snapshot([over("a")], BEGIN))
    assert exhausted((Spent(BEGIN - 10.0, JOB, WALL - 10.0),), case, none, BEGIN) is Reason.BACK_OFF
    assert exhausted((), case, none, BEGIN) is Reason.BUDGET_NAMESPACE
    nodes = replace(none, budgets=Budgets(Budget(0, 600.0), WIDE))
    assert exhausted((), case, nodes, BEGIN) is Reason.BUDGET_NODE


@pytest.mark.parametrize(("age", "reason"), [(599.9, Reason.BUDGET_NODE), (600.0, None)])
def test_a_token_is_back_when_its_window_has_passed(age: float, reason: Reason | None) -> None:
    """Ten minutes after the action, to the second."""
    rules = replace(SHORT, budgets=Budgets(Budget(1, 600.0), WIDE))
    (case,) = cases(snapshot([OLDER], BEGIN))
    spent = (Spent(BEGIN - age, ("elsewhere", "Deployment", "other")),)
    assert exhausted(spent, case, rules, BEGIN) is reason


def test_tokens_outlive_the_daemon() -> None:
    """A history that begins with what was spent holds back what the daemon before would have."""
    rules = replace(SHORT, budgets=Budgets(Budget(1, 600.0), WIDE))
    spent = (Spent(BEGIN - 10, ("elsewhere", "Deployment", "other"), WALL - 10),)
    assert acts(Play(rules, replace(settled(rules), spent=spent)), OLDER) is Reason.BUDGET_NODE
    assert acts(Play(rules), OLDER) is None


def test_the_spacing_outlives_the_daemon() -> None:
    """Of the action before our restart only the token is known: the next action keeps its distance all the same."""
    rules = replace(SHORT, spacing=300.0)
    play = Play(rules, replace(settled(rules), spent=(Spent(BEGIN, ("elsewhere", "Deployment", "other")),)))
    play.until_reason(Reason.SPACING, OLDER, MEEK)
    play.until_action(OLDER, MEEK)
    assert play.monotonic - BEGIN == 300.0


@pytest.mark.parametrize("at", [BEGIN + 1e9, BEGIN + 600.0])
def test_a_token_from_another_boot_s_future_counts(at: float) -> None:
    """Boot time began anew: tokens that seem to lie in the future delay, they are not free."""
    rules = replace(SHORT, budgets=Budgets(WIDE, Budget(1, 600.0)))
    play = Play(rules, replace(settled(rules), spent=(Spent(at, JOB),)))
    assert acts(play, over("b", workload="another")) is Reason.BUDGET_NAMESPACE


@pytest.mark.fault(22)
def test_sleep_passes_windows_and_the_clock_on_the_wall_does_not() -> None:
    """Windows are boot time: a machine that slept an hour has its budget back, and nothing else moves it."""
    play = Play(replace(SHORT, budgets=Budgets(WIDE, Budget(1, 3600.0))))
    assert acts(play, over("a")) is None
    assert acts(play, over("b", workload="b")) is Reason.BUDGET_NAMESPACE
    play.asleep += 3600.0
    assert acts(play, over("b", workload="b")) is None


def test_a_dry_run_takes_no_token() -> None:
    """Dry runs leave the budgets alone, and are not bounded by them: each pod rests for ten minutes instead."""
    play = Play(replace(SHORT, mode=Mode.DRY_RUN, budgets=Budgets(Budget(0, 600.0), Budget(0, 600.0))))
    play.until_action(OLDER, MEEK)
    play.rehearse()
    assert play.actions == ["evict team/a-0 (dry)"]
    assert play.history.spent == ()


@pytest.mark.parametrize(("age", "kept"), [(86399.0, True), (86400.0, False)])
def test_tokens_are_kept_for_a_day_at_least(age: float, *, kept: bool) -> None:
    """However short the windows are: the back-off counts a day, and the windows may be as long in the next round."""
    spent = (Spent(BEGIN - age, JOB),)
    rules = replace(SHORT, budgets=Budgets(Budget(1, 1.0), Budget(1, 1.0)))
    assert pruned(spent, rules, BEGIN) == (spent if kept else ())
    for longer in (default_budgets(node=Budget(1, 2 * 86400.0)), default_budgets(namespace=Budget(1, 2 * 86400.0))):
        assert pruned(spent, replace(SHORT, budgets=longer), BEGIN) == spent


def test_a_budget_of_nothing_has_nothing_left() -> None:
    """More was spent than the budget allows now: 0, and not less."""
    rules = replace(SHORT, budgets=Budgets(Budget(1, 600.0), Budget(1, 600.0)))
    assert remaining((Spent(BEGIN, JOB),) * 3, rules, BEGIN) == {Scope.NODE: 0, Scope.NAMESPACE: 0}
    assert remaining((), rules, BEGIN) == {Scope.NODE: 1, Scope.NAMESPACE: 1}


def test_a_pod_that_is_not_known_waits_for_no_back_off() -> None:
    """It is protected in any case: its age is not asked for."""
    (case,) = cases(snapshot([over("a")], BEGIN))
    unknown = replace(case, pod=None)
    assert exhausted((Spent(BEGIN - 10.0, unknown.workload, WALL - 10.0),), unknown, SHORT, BEGIN) is None
