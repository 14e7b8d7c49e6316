"""
Budgets and strikes.

What comes in: over-users of several workloads and namespaces, one after the other. What goes out: who is still acted
on, and of whom the budget is spent.
"""

from dataclasses import replace

import pytest

from default_rules import default_budgets, default_rules
from enforcer.policy.budgets import exhausted, pruned, remaining, standing, struck, unforgiven
from enforcer.policy.history import History, Result, Spent, Strikes, Verdict
from enforcer.policy.rules import Budget, Budgets
from enforcer.policy.vocabulary import Mode, Reason, Scope, State
from policy.scenes import BEGIN, GIB, MEEK, UNHURRIED, Actor, Play

SHORT = replace(UNHURRIED, grace=30.0, spacing=5.0)
WIDE = Budget(100, 86400.0)


def over(name: str, generation: int = 0, namespace: str = "team", workload: str = "job") -> Actor:
    """An over-user; another generation is a pod that was made anew, of the same workload."""
    facts: dict[str, object] = {"workload": workload}
    return Actor(f"{name}-{generation}", 70 * GIB, namespace=namespace, facts=facts)


def acts(play: Play, actor: Actor, most: int = 30) -> Reason | None:
    """Play until the actor is acted on and gone (None), or held (the reason)."""
    for _ in range(most):
        verdict = play.step(actor, MEEK)
        if verdict.action is not None:
            play.conclude(Result.VERIFIED)
            return None
        if play.standing(actor) is State.HELD and play.reason(actor) != Reason.SPACING:
            return Reason(play.reason(actor) or "")
    raise AssertionError(verdict)


def left(verdict: Verdict) -> tuple[int, int, int]:
    return tuple(verdict.remaining[scope] for scope in (Scope.NODE, Scope.NAMESPACE, Scope.WORKLOAD))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("budgets", "victims", "reason"),
    [
        (
            Budgets(Budget(2, 86400.0), WIDE, WIDE),
            [over("a", namespace="x"), over("b", namespace="y"), over("c", namespace="z")],
            Reason.BUDGET_NODE,
        ),
        (
            Budgets(WIDE, Budget(2, 86400.0), WIDE),
            [over("a", workload="a"), over("b", workload="b"), over("c", workload="c")],
            Reason.BUDGET_NAMESPACE,
        ),
        (Budgets(WIDE, WIDE, Budget(2, 86400.0)), [over("a"), over("b"), over("c")], Reason.BUDGET_WORKLOAD),
    ],
    ids=["node", "namespace", "workload"],
)
def test_the_third_of_two_is_held_and_the_window_frees_it(
    budgets: Budgets, victims: list[Actor], reason: Reason
) -> None:
    """Two actions are allowed in a window: the third victim is held, and acted on when it has passed."""
    play = Play(replace(SHORT, budgets=budgets))
    assert [acts(play, one) for one in victims] == [None, None, reason]
    play.monotonic += 86400.0
    assert acts(play, victims[2]) is None


@pytest.mark.parametrize(
    ("budgets", "other"),
    [
        (Budgets(WIDE, Budget(1, 600.0), WIDE), over("b", namespace="elsewhere")),
        (Budgets(WIDE, WIDE, Budget(1, 600.0)), over("b", workload="another")),
    ],
    ids=["another namespace", "another workload"],
)
def test_a_spent_budget_spares_nobody_else(budgets: Budgets, other: Actor) -> None:
    """The twin: whoever has another budget is acted on although this one is spent."""
    play = Play(replace(SHORT, budgets=budgets))
    assert acts(play, over("a")) is None
    assert acts(play, other) is None


@pytest.mark.fault(64)
def test_a_job_that_comes_back_for_ever_costs_three_actions_a_day() -> None:
    """Row 64: the same workload under new names and UIDs: three actions, then held with `budget_workload`."""
    play = Play(replace(SHORT, budgets=Budgets(WIDE, WIDE, Budget(3, 86400.0))))
    told = [acts(play, over("job", generation)) for generation in range(5)]
    assert told == [None, None, None, Reason.BUDGET_WORKLOAD, Reason.BUDGET_WORKLOAD]


def test_a_token_is_taken_when_the_action_is_intended() -> None:
    """In the very round of the action one is gone; it comes back when certainly nothing was done, and else never."""
    for result in Result:
        play = Play(replace(SHORT, budgets=Budgets(Budget(9, 600.0), Budget(8, 600.0), Budget(7, 600.0))))
        play.until_action(over("a"), MEEK)
        assert left(play.verdicts[-1]) == (8, 7, 6)
        play.conclude(result)
        harmless = result in {Result.ABANDONED, Result.BLOCKED}
        assert left(play.step(MEEK)) == ((9, 8, 7) if harmless else (8, 7, 6))


def test_what_is_left_is_told_for_the_most_spent() -> None:
    """Of namespaces and workloads the one with the least left is shown."""
    play = Play(replace(SHORT, budgets=Budgets(Budget(9, 86400.0), Budget(8, 86400.0), Budget(7, 86400.0))))
    for one in (over("a", workload="a"), over("b", workload="a"), over("c", workload="c", namespace="other")):
        assert acts(play, one) is None
    assert left(play.step(MEEK)) == (6, 6, 5)


def test_tokens_outlive_the_daemon() -> None:
    """INV-8: a history that begins with what was spent holds back what the one before would have."""
    spent = Spent(BEGIN - 10, ("team", "Deployment", "job"), dry=False)
    rules = replace(SHORT, budgets=Budgets(WIDE, WIDE, Budget(1, 600.0)))
    assert acts(Play(rules, History(spent=(spent,))), over("a")) is Reason.BUDGET_WORKLOAD
    assert acts(Play(rules), over("a")) is None


def test_after_a_restart_the_spacing_counts_from_the_start() -> None:
    """
    An action of before took a while to end: when nobody knows, but that it was before the start.

    Its token alone, taken as it began, would let the next one begin too early.
    """
    spent = Spent(BEGIN - 200.0, ("team", "Deployment", "other"), dry=False)
    rules = replace(SHORT, spacing=120.0)
    play = Play(rules, History(spent=(spent,)))
    play.until_action(over("a"), MEEK)
    assert 120.0 <= play.monotonic - play.history.started < 120.0 + SHORT.interval
    twin = Play(rules, History(spent=(replace(spent, dry=True),)))
    twin.until_action(over("a"), MEEK)
    assert twin.monotonic - twin.history.started < 60.0, "a rehearsal has no end"


def test_the_spacing_outlives_the_daemon() -> None:
    """Of the action before our restart only the token is known: the next one keeps its distance all the same."""
    spent = Spent(BEGIN, ("elsewhere", "Deployment", "other"), dry=False)
    play = Play(replace(SHORT, spacing=300.0), History(spent=(spent,)))
    play.until_reason(Reason.SPACING, over("a"), MEEK)
    play.until_action(over("a"), MEEK)
    assert play.monotonic - BEGIN >= 300.0
    twin = Play(replace(SHORT, spacing=300.0), History(spent=(replace(spent, dry=True),)))
    twin.until_action(over("a"), MEEK)
    assert twin.monotonic - BEGIN < 300.0


@pytest.mark.parametrize("at", [BEGIN + 1e9, BEGIN + 600.0])
def test_a_token_from_another_boot_s_future_counts(at: float) -> None:
    """Boot time began anew: tokens that seem to lie in the future delay, they are not free."""
    rules = replace(SHORT, budgets=Budgets(WIDE, WIDE, Budget(1, 600.0)))
    play = Play(rules, History(spent=(Spent(at, ("team", "Deployment", "job"), dry=False),)))
    assert acts(play, over("a")) is Reason.BUDGET_WORKLOAD


@pytest.mark.fault(22)
def test_sleep_passes_windows_and_the_clock_on_the_wall_does_not() -> None:
    """Windows are boot time: a machine that slept an hour has its budget back, and nothing else moves it."""
    rules = replace(SHORT, budgets=Budgets(WIDE, WIDE, Budget(1, 3600.0)))
    play = Play(rules)
    assert acts(play, over("a")) is None
    assert acts(play, over("b")) is Reason.BUDGET_WORKLOAD
    play.asleep += 3600.0
    assert acts(play, over("b")) is None


def test_a_rehearsal_spends_of_its_own() -> None:
    """Dry runs take from budgets as large as the real ones, and leave those alone."""
    rules = replace(SHORT, mode=Mode.DRY_RUN, budgets=Budgets(WIDE, WIDE, Budget(1, 86400.0)))
    play = Play(rules)
    play.until_action(over("a"), MEEK)
    play.until_reason(Reason.BUDGET_WORKLOAD, over("a"), MEEK)
    assert play.actions == ["evict team/a-0 (dry)"]
    play.rules = replace(rules, mode=Mode.ENFORCE)
    assert acts(play, over("a")) is None


def test_the_second_episode_is_one_too_many() -> None:
    """strikes: 2: told and ended once, it is held; over again it is acted on."""
    play = Play(replace(SHORT, strikes=2))
    assert acts(play, over("a")) is Reason.STRIKES
    play.steps(3, replace(over("a"), used=GIB), MEEK)
    assert acts(play, over("a")) is None


@pytest.mark.fault(38)
def test_a_strike_is_the_workload_s() -> None:
    """Row 38: a container that restarts, or a pod made anew, keeps its workload's strikes; its grace begins anew."""
    play = Play(replace(SHORT, strikes=2))
    assert acts(play, over("a")) is Reason.STRIKES
    play.step(MEEK)
    assert acts(play, over("a", generation=1)) is None
    play = Play(replace(SHORT, strikes=2))
    assert acts(play, over("a")) is Reason.STRIKES
    play.step(MEEK)
    assert acts(play, over("b", workload="another")) is Reason.STRIKES


def test_a_strike_is_forgiven_little_by_little() -> None:
    """After its half-life a strike is gone: the next episode is a first one; a little earlier it is not."""
    for later, expected in ((3700.0, Reason.STRIKES), (1800.0, None)):
        play = Play(replace(SHORT, strikes=2))
        assert acts(play, over("a")) is Reason.STRIKES
        play.step(MEEK, after=later)
        assert acts(play, over("a")) is expected


def test_who_exceeds_on_two_devices_at_once_did_it_once() -> None:
    """Two containers of a pod that are told in the same round are one episode of their workload."""
    both = (over("a"), replace(over("a"), container="second", gpu=1))
    play = Play(replace(SHORT, strikes=2))
    play.steps(20, *both, MEEK, replace(MEEK, pod="other-1", gpu=1), gpus=2)
    assert play.actions == []
    assert {one.reason for one in play.verdicts[-1].standings if one.pod == "a-0"} == {Reason.STRIKES}


def test_strikes_that_lie_in_the_future_are_not_more_than_they_were() -> None:
    """Another boot's strikes: neither forgiven nor grown."""
    rules, workload = default_rules(), ("team", "Job", "a")
    assert standing({workload: Strikes(2.0, BEGIN + 1e6)}, workload, rules, BEGIN) == 2.0
    assert standing({workload: Strikes(2.0, BEGIN)}, workload, rules, BEGIN + 1800) == 1.5
    assert standing({workload: Strikes(2.0, BEGIN)}, workload, rules, BEGIN + 1e6) == 0.0


@pytest.mark.parametrize(("age", "kept"), [(86399.0, True), (86400.0, False)])
def test_tokens_are_kept_for_a_day_at_least(age: float, *, kept: bool) -> None:
    """However short the windows are now: they may be a day again in the next round."""
    spent = (Spent(BEGIN - age, ("team", "Deployment", "job"), dry=False),)
    rules = replace(SHORT, budgets=Budgets(*[Budget(1, 1.0)] * 3))
    assert pruned(spent, rules, BEGIN) == (spent if kept else ())
    longer = replace(SHORT, budgets=default_budgets(node=Budget(1, 2 * 86400.0)))
    assert pruned(spent, longer, BEGIN) == spent


def test_what_is_left_is_told_of_real_and_rehearsed_actions_apart() -> None:
    """Who only rehearses sees what the rehearsals left, who acts what the actions did."""
    job = ("team", "Deployment", "job")
    spent = (Spent(BEGIN, job, dry=False), Spent(BEGIN, job, dry=True), Spent(BEGIN, job, dry=True))
    rules = replace(SHORT, budgets=Budgets(*[Budget(9, 600.0)] * 3))
    told = [set(remaining(spent, rules, BEGIN, dry=dry).values()) for dry in (False, True)]
    assert told == [{8}, {7}]


@pytest.mark.parametrize(("later", "count"), [(0.0, 1.0), (14.9, 1.0), (15.0, 2.0 - 15 / 3600)])
def test_what_is_told_within_warn_after_is_one_episode(later: float, count: float) -> None:
    """Fifteen seconds after an episode the next one counts, not a moment before."""
    job = ("team", "Deployment", "job")
    assert struck({job: Strikes(1.0, BEGIN)}, job, default_rules(), BEGIN + later).count == pytest.approx(count)


def test_a_workload_to_which_all_was_forgiven_is_forgotten() -> None:
    """A half-life after its only strike nothing is known of it; a second earlier something is."""
    strikes = {("team", "Deployment", "job"): Strikes(1.0, BEGIN)}
    assert unforgiven(strikes, default_rules(), BEGIN + 3599.0) == strikes
    assert unforgiven(strikes, default_rules(), BEGIN + 3600.0) == {}


@pytest.mark.parametrize(("age", "reason"), [(599.9, Reason.BUDGET_NODE), (600.0, None)])
def test_a_token_is_back_when_its_window_has_passed(age: float, reason: Reason | None) -> None:
    """Ten minutes after the action, to the second."""
    rules = replace(SHORT, budgets=Budgets(Budget(1, 600.0), WIDE, WIDE))
    spent = (Spent(BEGIN - age, ("elsewhere", "Deployment", "other"), dry=False),)
    assert exhausted(spent, ("team", "Deployment", "job"), rules, BEGIN, dry=False) is reason
