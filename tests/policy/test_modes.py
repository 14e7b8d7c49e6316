"""
Modes: node, namespace and ceilings say how far the daemon may go, and the most restrictive one counts.

The modes of the node, of its ceilings and of the namespace come in. What is done goes out.
"""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from default_rules import default_rules
from enforcer.policy.decide import decide
from enforcer.policy.rules import CONSENT, Ceiling, Rules
from enforcer.policy.vocabulary import Mode, Reason, Rung, State
from exporter.model import Fault, Sharing
from policy.scenes import CONSENTING, GIB, GREEDY, MEEK, SHORT, Play, gpu_uuid, snapshot

ENOUGH = 32
"""Rounds after which GREEDY is acted on, if ever."""
"""Warned in round 4, acted on in round 10."""
OWN_LABEL = replace(SHORT, consent=("example.com/may-evict", "yes"))
"""Consent has a label of its own, so that the mode's label may be anything."""


def done(play: Play) -> str:
    return "" if not play.actions else "dry" if play.actions[0].endswith("(dry)") else "real"


def test_the_default_observes() -> None:
    """Without a config the daemon never acts."""
    play = Play(default_rules(hold_off=0.0))
    play.steps(ENOUGH, GREEDY, MEEK)
    assert (play.actions, play.reason(GREEDY)) == ([], Reason.MODE)


@pytest.mark.parametrize(("node", "namespace"), [*product(Mode, [*Mode, None])], ids=str)
def test_the_most_restrictive_of_node_and_namespace(node: Mode, namespace: Mode | None) -> None:
    """Each pair of modes: the lower one is the effective one, and only `enforce` really acts."""
    labels = {"example.com/may-evict": "yes"} | ({} if namespace is None else {CONSENT: str(namespace)})
    play = Play(replace(OWN_LABEL, mode=node))
    verdict = play.steps(12, GREEDY, MEEK, namespaces={"team": labels})
    effective = min(node, namespace or Mode.ENFORCE, key=tuple(Mode).index)
    assert done(play) == {Mode.ENFORCE: "real", Mode.DRY_RUN: "dry"}.get(effective, "")
    if node is Mode.OFF:
        assert verdict.standings == ()
    else:
        assert {one.mode for one in verdict.standings} == {effective}
        assert (play.reason(GREEDY) == Reason.MODE) is (effective.rank < Mode.DRY_RUN.rank)


@pytest.mark.parametrize("mode", Mode, ids=str)
def test_a_ceiling_lowers_and_never_raises(mode: Mode) -> None:
    """The stop file observes at most; a node that does less already says so itself."""
    play = Play(replace(SHORT, mode=mode, ceilings=(Ceiling(Mode.OBSERVE, Reason.STOPPED),)))
    verdict = play.steps(12, GREEDY, MEEK)
    assert play.actions == []
    assert verdict.mode is (Mode.OFF if mode is Mode.OFF else Mode.OBSERVE)
    expected = None if mode is Mode.OFF else Reason.MODE if mode is Mode.OBSERVE else Reason.STOPPED
    assert play.reason(GREEDY) == expected


MISSING = [Reason.NOT_ARMED, Reason.JOURNAL, Reason.ADMISSION, Reason.NOT_OWNER]


@pytest.mark.parametrize("missing", MISSING, ids=str)
def test_a_daemon_that_cannot_act_holds_and_says_what_is_missing(missing: Reason) -> None:
    """The operator wrote no dry run: the hold has the reason that is missing, in words, and no budget is spent."""
    play = Play(replace(SHORT, ceilings=(Ceiling(Mode.DRY_RUN, missing, "the disk is full"),)))
    verdict = play.steps(12, GREEDY, MEEK)
    assert (play.actions, play.reason(GREEDY), play.history.spent) == ([], missing, ())
    (held,) = [one for one in verdict.standings if one.reason is missing]
    assert (held.state, held.mode, held.detail) == (State.HELD, Mode.DRY_RUN, "the disk is full")


@pytest.mark.parametrize("missing", MISSING, ids=str)
def test_what_was_missing_for_a_while_costs_no_grace(missing: Reason) -> None:
    """A mode that is lowered because something is missing changes nothing: the action follows when it is back."""
    play = Play(SHORT)
    play.steps(9, GREEDY, MEEK)
    (before,) = play.history.levels.values()
    play.rules = replace(SHORT, ceilings=(Ceiling(Mode.DRY_RUN, missing),))
    play.steps(20, GREEDY, MEEK)
    assert play.actions == []
    play.rules = SHORT
    play.step(GREEDY, MEEK)
    (after,) = play.history.levels.values()
    assert play.actions == ["evict team/greedy-1"]
    assert before.warned_at == after.warned_at


def test_the_stop_file_starts_a_new_grace_when_it_is_removed() -> None:
    """An operator wrote it: pods are warned of what follows now, and have the whole grace again."""
    play = Play(SHORT)
    play.steps(9, GREEDY, MEEK)
    play.rules = replace(SHORT, ceilings=(Ceiling(Mode.OBSERVE, Reason.STOPPED),))
    play.step(GREEDY, MEEK)
    assert (play.actions, play.reason(GREEDY)) == ([], Reason.STOPPED)
    play.rules = SHORT
    play.step(GREEDY, MEEK)
    removed = play.monotonic
    (level,) = play.history.levels.values()
    assert (level.seconds, level.warned_at) == (SHORT.warn_after, removed)
    play.until_action(GREEDY, MEEK)
    assert play.monotonic - removed == SHORT.grace


@pytest.mark.parametrize(
    ("meanwhile", "sharing", "reason"),
    [
        (replace(SHORT, ladder=(Rung.NOTIFY,)), Sharing.TIME_SLICING, Reason.NO_RUNG),
        (replace(SHORT, mps=Rung.NOTIFY), Sharing.MPS, Reason.MPS),
    ],
    ids=["ladder", "mps"],
)
def test_a_step_that_an_operator_takes_away_for_a_while_starts_a_new_grace_when_it_is_back(
    meanwhile: Rules, sharing: Sharing, reason: Reason
) -> None:
    """Meanwhile nothing follows: the pod is then warned of what follows, and has a whole grace."""
    rules = replace(SHORT, mps=Rung.EVICT)
    play = Play(rules)
    play.steps(9, GREEDY, MEEK, sharing=sharing)
    play.rules = meanwhile
    play.steps(3, GREEDY, MEEK, sharing=sharing)
    assert (play.actions, play.reason(GREEDY)) == ([], reason)
    play.rules = rules
    play.step(GREEDY, MEEK, sharing=sharing)
    back = play.monotonic
    (level,) = play.history.levels.values()
    assert (level.seconds, level.warned_at) == (rules.warn_after, back)
    play.until_action(GREEDY, MEEK, sharing=sharing)
    assert play.monotonic - back == rules.grace


def test_a_mode_that_is_changed_while_the_config_cannot_be_used_starts_a_new_grace() -> None:
    """The namespace's label says dry-run for one round of an outage: what was announced was not true for that long."""
    broken = Fault("config", "config_invalid", "policy.grace: expected a duration")
    play = Play(SHORT)
    play.steps(9, GREEDY, MEEK)
    play.step(GREEDY, MEEK, faults=(broken,))
    dry = {"team": {**CONSENTING, CONSENT: "dry-run"}}
    play.step(GREEDY, MEEK, faults=(broken,), namespaces=dry)
    play.step(GREEDY, MEEK, faults=(broken,))
    assert play.actions == []
    play.step(GREEDY, MEEK)
    back = play.monotonic
    play.until_action(GREEDY, MEEK)
    assert play.monotonic - back == SHORT.grace


@pytest.mark.parametrize(
    "partial",
    [{"by_time": False}, {"gpus_read": frozenset({gpu_uuid(0)})}],
    ids=["a round that movement asked for", "an early round of one GPU"],
)
def test_a_round_that_moves_no_level_acts_on_nobody(partial: dict[str, Any]) -> None:
    """The namespace's mode is raised, and such a round comes first: the pod was warned of a dry run, and of no more."""
    pods = [replace(GREEDY, gpu=gpu) for gpu in (0, 1)]
    play = Play(SHORT)
    play.until_action(*pods, gpus=2, namespaces={"team": {**CONSENTING, CONSENT: "dry-run"}})
    play.monotonic += 1.0
    seen = replace(snapshot(pods, play.monotonic, gpus=2), **partial)
    play.history, verdict = decide(seen, SHORT, play.history, play.now)
    assert verdict.action is None
    assert Reason.QUEUED in {one.reason for one in verdict.standings}
    play.step(*pods, gpus=2)
    back = play.monotonic
    play.until_action(*pods, gpus=2)
    assert play.monotonic - back == SHORT.grace


@pytest.mark.parametrize("spaces", [{}, {"team": {}}, {"team": {CONSENT: "observe"}}, {"team": {CONSENT: "warn"}}])
def test_a_namespace_that_comes_to_consent_starts_a_grace(spaces: dict[str, dict[str, str]]) -> None:
    """Without its labels the pod was warned of nothing that follows; with them it has the whole grace."""
    play = Play(SHORT)
    play.steps(20, GREEDY, MEEK, namespaces=spaces)
    assert (play.standing(GREEDY), play.actions) == (State.HELD, [])
    play.step(GREEDY, MEEK)
    consented = play.monotonic
    play.until_action(GREEDY, MEEK)
    assert play.monotonic - consented == SHORT.grace


def test_labels_that_cannot_be_read_for_a_while_cost_no_grace() -> None:
    """What the daemon cannot see changes nothing of what was announced."""
    play = Play(SHORT)
    play.steps(9, GREEDY, MEEK)
    play.steps(20, GREEDY, MEEK, namespaces={})
    assert (play.actions, play.reason(GREEDY)) == ([], Reason.NAMESPACE_UNKNOWN)
    play.step(GREEDY, MEEK)
    assert play.actions == ["evict team/greedy-1"]


@pytest.mark.parametrize("wish", ["node", "namespace"])
def test_a_dry_run_that_is_written_needs_nothing(wish: str) -> None:
    """Where dry-run is written for the node or the namespace, what only acting needs may be missing."""
    missing = (Ceiling(Mode.DRY_RUN, Reason.JOURNAL),)
    play = Play(replace(OWN_LABEL, mode=Mode.DRY_RUN if wish == "node" else Mode.ENFORCE, ceilings=missing))
    label = {} if wish == "node" else {CONSENT: "dry-run"}
    play.steps(12, GREEDY, MEEK, namespaces={"team": {"example.com/may-evict": "yes"} | label})
    assert done(play) == "dry"


@pytest.mark.parametrize("label", ["Enforce", "ENFORCE", "", "on", "dryrun"])
def test_a_mode_that_is_none_observes(label: str) -> None:
    """A word that is no mode restricts to `observe`, even where consent is given by another label."""
    play = Play(OWN_LABEL)
    play.steps(ENOUGH, GREEDY, MEEK, namespaces={"team": {"example.com/may-evict": "yes", CONSENT: label}})
    assert (play.actions, play.reason(GREEDY)) == ([], Reason.MODE)


@pytest.mark.parametrize(
    ("labels", "acted"),
    [
        ({"example.com/may-evict": "yes"}, True),
        ({"example.com/may-evict": "no"}, False),
        (CONSENTING, False),
        ({}, False),
    ],
)
def test_consent_is_the_label_that_the_operator_chose(labels: dict[str, str], acted: bool) -> None:
    """Key and value are the operator's; the default's label is then none."""
    play = Play(OWN_LABEL)
    play.steps(12, GREEDY, MEEK, namespaces={"team": labels})
    assert bool(play.actions) is acted
    if not acted:
        assert play.reason(GREEDY) == Reason.NO_CONSENT


def test_a_namespace_may_ask_for_a_dry_run() -> None:
    """`gpusteward.io/mode: dry-run` on a namespace of an enforcing node: a dry run there, actions elsewhere."""
    play = Play(SHORT)
    play.steps(12, GREEDY, MEEK, namespaces={"team": {CONSENT: "dry-run"}})
    assert play.actions == ["evict team/greedy-1 (dry)"]


def test_a_dry_run_needs_consent_all_the_same() -> None:
    """A dry run shows what would be done: without consent that is nothing."""
    play = Play(replace(SHORT, mode=Mode.DRY_RUN))
    play.steps(ENOUGH, GREEDY, MEEK, namespaces={"team": {}})
    assert (play.actions, play.reason(GREEDY)) == ([], Reason.NO_CONSENT)


def test_notices_need_no_consent() -> None:
    """A ladder that only notifies warns without consent, and no step follows."""
    play = Play(replace(SHORT, ladder=(Rung.NOTIFY,)))
    play.steps(12, GREEDY, MEEK, namespaces={"team": {}})
    assert (play.standing(GREEDY), play.reason(GREEDY)) == (State.HELD, Reason.NO_RUNG)


def test_a_fence_needs_no_consent() -> None:
    """A fence ends no process."""
    play = Play(replace(SHORT, ladder=(Rung.NOTIFY, Rung.FENCE)))
    play.steps(12, GREEDY, MEEK, namespaces={"team": {}})
    assert play.actions == ["fence team/greedy-1"]


@pytest.mark.fault(59)
def test_off_forgets_the_levels_and_keeps_what_was_spent() -> None:
    """Off and on again in the middle of a grace: it starts at 0; tokens and the action in flight stay."""
    play = Play(SHORT)
    play.steps(9, GREEDY, MEEK)
    play.rules = replace(SHORT, mode=Mode.OFF)
    play.step(GREEDY, MEEK)
    assert play.history.levels == {}
    play.rules = SHORT
    play.step(GREEDY, MEEK)
    again = play.monotonic
    play.until_action(GREEDY, MEEK)
    assert play.monotonic - again == 45.0
    play.rules = replace(SHORT, mode=Mode.OFF)
    play.step(GREEDY, MEEK)
    assert play.history.in_flight is not None
    assert len(play.history.spent) == 1


@pytest.mark.fault(55)
def test_a_reload_of_other_rules_waits_for_the_hold_off_and_keeps_the_levels() -> None:
    """Another rule in the middle of a grace: nothing is done for the hold-off, and the level goes on meanwhile."""
    play = Play(replace(SHORT, hold_off=60.0))
    play.steps(9, GREEDY, MEEK)
    play.rules = replace(play.rules, spacing=61.0)
    play.step(GREEDY, MEEK)
    reloaded = play.monotonic
    assert (play.actions, play.reason(GREEDY)) == ([], Reason.HOLD_OFF)
    play.until_action(GREEDY, MEEK)
    assert play.monotonic - reloaded == 60.0
    assert play.history.settled is not None and play.history.settled.vetted


def test_a_reload_of_the_same_rules_changes_nothing() -> None:
    """The twin: rules that are equal are the same rules."""
    play = Play(replace(SHORT, hold_off=60.0))
    play.steps(9, GREEDY, MEEK)
    play.rules = replace(play.rules)
    play.step(GREEDY, MEEK)
    assert play.actions == ["evict team/greedy-1"]


@pytest.mark.parametrize(("grace", "seconds"), [(10.0, 30.0), (60.0, 60.0)])
def test_a_reload_never_shortens_a_grace_that_was_announced(grace: float, seconds: float) -> None:
    """A longer grace applies at once; a shorter one from the next excess on."""
    play = Play(SHORT)
    play.until(State.GRACE, GREEDY, MEEK)
    told = play.monotonic
    play.rules = replace(SHORT, grace=grace)
    play.until_action(GREEDY, MEEK)
    assert play.monotonic - told == seconds


@pytest.mark.fault(56)
def test_a_config_that_cannot_be_used_observes() -> None:
    """Row 56: while the config is invalid nothing is done; when it is repaired what was due is due."""
    broken = Fault("config", "config_invalid", "policy.grace: expected a duration")
    play = Play(SHORT)
    play.steps(9, GREEDY, MEEK)
    verdict = play.steps(20, GREEDY, MEEK, faults=(broken,))
    assert (verdict.mode, play.reason(GREEDY), play.actions) == (Mode.OBSERVE, Reason.CONFIG, [])
    (held,) = [standing for standing in verdict.standings if standing.reason is Reason.CONFIG]
    assert held.detail == broken.message
    play.step(GREEDY, MEEK)
    assert play.actions == ["evict team/greedy-1"]


def test_the_modes_have_one_order() -> None:
    """off < observe < warn < dry-run < enforce."""
    assert [mode.rank for mode in (Mode.OFF, Mode.OBSERVE, Mode.WARN, Mode.DRY_RUN, Mode.ENFORCE)] == [0, 1, 2, 3, 4]


def test_a_pod_that_is_acted_on_has_no_dry_run_beside_it() -> None:
    """The mode comes down to dry-run while an eviction is in flight: another pod has its dry run, the victim none."""
    play = Play(SHORT)
    play.until_action(GREEDY, MEEK)
    play.rules = replace(SHORT, ceilings=(Ceiling(Mode.DRY_RUN, Reason.MODE),))
    play.steps(20, GREEDY, MEEK)
    assert play.actions == ["evict team/greedy-1"]
    other = replace(GREEDY, pod="other-1", used=20 * GIB, limit=10 * GIB)
    play.steps(20, replace(GREEDY, used=40 * GIB), MEEK, other)
    assert play.actions == ["evict team/greedy-1", "evict team/other-1 (dry)"]


def test_a_hold_that_was_written_starts_a_new_grace_also_behind_another_reason() -> None:
    """The namespace's consent was withdrawn while its device was exclusive: its return is announced as ever."""
    play = Play(SHORT)
    play.steps(9, GREEDY, MEEK)
    play.steps(3, GREEDY, MEEK, sharing=Sharing.EXCLUSIVE, namespaces={"team": {}})
    assert (play.actions, play.reason(GREEDY)) == ([], Reason.EXCLUSIVE)
    play.step(GREEDY, MEEK)
    back = play.monotonic
    play.until_action(GREEDY, MEEK)
    assert play.monotonic - back == SHORT.grace


@pytest.mark.parametrize(("mode", "seconds"), [(Mode.OBSERVE, SHORT.grace), (Mode.WARN, 0.0), (Mode.DRY_RUN, 0.0)])
def test_a_grace_that_ran_unannounced_runs_anew(mode: Mode, seconds: float) -> None:
    """What is missing lowers the mode: below `warn` no Event is written, so that the pod is warned when it is there."""
    lowered = replace(SHORT, ceilings=(Ceiling(mode, Reason.NOT_OWNER),))
    play = Play(lowered)
    play.steps(20, GREEDY, MEEK)
    assert (play.actions, play.reason(GREEDY)) == ([], Reason.NOT_OWNER)
    play.rules = SHORT
    play.step(GREEDY, MEEK)
    there = play.monotonic
    if not play.actions:
        play.until_action(GREEDY, MEEK)
    assert play.monotonic - there == seconds


def test_only_a_config_that_cannot_be_used_lowers_the_mode() -> None:
    """Another source that does not answer says nothing of the rules."""
    away = Fault("prometheus", "unreachable", "connection refused")
    play = Play(SHORT)
    assert play.until_action(GREEDY, MEEK, faults=(away,)).pod == GREEDY.pod
