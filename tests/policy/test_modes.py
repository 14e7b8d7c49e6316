"""
Modes: who may say how far it goes, and that the most restrictive word wins.

What comes in: the mode of the node, of what stands above it, and of the namespace. What goes out: what is done.
"""

from dataclasses import replace
from itertools import product

import pytest

from default_rules import default_rules
from enforcer.policy.rules import CONSENT, Ceiling
from enforcer.policy.vocabulary import Mode, Reason, Rung, State
from exporter.model import Fault
from policy.refusals import ENOUGH
from policy.scenes import CONSENTING, GIB, GREEDY, MEEK, UNHURRIED, Play

SHORT = replace(UNHURRIED, grace=30.0)
OWN_LABEL = replace(SHORT, consent=("example.com/may-evict", "yes"))
"""Consent has a label of its own, so that the mode's label may be anything."""


def done(play: Play) -> str:
    return "" if not play.actions else "dry" if play.actions[0].endswith("(dry)") else "real"


def test_the_default_observes() -> None:
    """Who configures nothing has a daemon that never acts."""
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


@pytest.mark.parametrize("missing", [Reason.NOT_ARMED, Reason.JOURNAL, Reason.ADMISSION, Reason.NO_RUNG], ids=str)
def test_who_cannot_act_holds_and_says_what_is_missing(missing: Reason) -> None:
    """Nobody asked for a rehearsal: the refusal is counted under what is missing, in words, and no budget is spent."""
    play = Play(replace(SHORT, ceilings=(Ceiling(Mode.DRY_RUN, missing, "the disk is full"),)))
    verdict = play.steps(12, GREEDY, MEEK)
    assert (play.actions, play.reason(GREEDY), play.history.spent) == ([], missing, ())
    (held,) = [one for one in verdict.standings if one.reason is missing]
    assert (held.state, held.mode, held.detail) == (State.HELD, Mode.DRY_RUN, "the disk is full")


@pytest.mark.parametrize("wish", ["node", "namespace"])
def test_a_rehearsal_that_is_wished_needs_nothing(wish: str) -> None:
    """Where dry-run is written, be it for the node or the namespace, what only acting takes may be missing."""
    missing = (Ceiling(Mode.DRY_RUN, Reason.JOURNAL),)
    play = Play(replace(OWN_LABEL, mode=Mode.DRY_RUN if wish == "node" else Mode.ENFORCE, ceilings=missing))
    label = {} if wish == "node" else {CONSENT: "dry-run"}
    play.steps(12, GREEDY, MEEK, namespaces={"team": {"example.com/may-evict": "yes"} | label})
    assert done(play) == "dry"


@pytest.mark.parametrize("label", ["Enforce", "ENFORCE", "", "on", "dryrun"])
def test_a_mode_that_nobody_can_read_observes(label: str) -> None:
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


def test_a_namespace_may_ask_for_a_rehearsal() -> None:
    """`gpusteward.io/mode: dry-run` on a namespace of an enforcing node: rehearsed there, done elsewhere."""
    play = Play(SHORT)
    play.steps(12, GREEDY, MEEK, namespaces={"team": {CONSENT: "dry-run"}})
    assert play.actions == ["evict team/greedy-1 (dry)"]


def test_a_rehearsing_node_asks_for_consent_all_the_same() -> None:
    """What the node rehearses is what it would do: without the consent it would do nothing."""
    play = Play(replace(SHORT, mode=Mode.DRY_RUN))
    play.steps(ENOUGH, GREEDY, MEEK, namespaces={"team": {}})
    assert (play.actions, play.reason(GREEDY)) == ([], Reason.NO_CONSENT)


def test_notices_need_no_consent() -> None:
    """A ladder that only notifies asks nobody: it is told, and nothing would follow."""
    play = Play(replace(SHORT, ladder=(Rung.NOTIFY,)))
    play.steps(12, GREEDY, MEEK, namespaces={"team": {}})
    assert (play.standing(GREEDY), play.reason(GREEDY)) == (State.HELD, Reason.NO_RUNG)


def test_a_fence_needs_no_consent() -> None:
    """Nobody's work is lost by a fence."""
    play = Play(replace(SHORT, ladder=(Rung.NOTIFY, Rung.FENCE)))
    play.steps(12, GREEDY, MEEK, namespaces={"team": {}})
    assert play.actions == ["fence team/greedy-1"]


@pytest.mark.fault(59)
def test_off_forgets_the_evidence_and_keeps_what_was_spent() -> None:
    """Off and on again in the middle of a grace: it begins anew; tokens and the action in flight stay."""
    play = Play(SHORT)
    play.steps(9, GREEDY, MEEK)
    play.rules = replace(SHORT, mode=Mode.OFF)
    play.step(GREEDY, MEEK)
    play.rules = SHORT
    play.steps(9, GREEDY, MEEK)
    assert play.actions == []
    play.step(GREEDY, MEEK)
    assert play.actions == ["evict team/greedy-1"]
    play.rules = replace(SHORT, mode=Mode.OFF)
    play.step(GREEDY, MEEK)
    assert play.history.in_flight is not None
    assert len(play.history.spent) == 1


@pytest.mark.fault(55)
def test_a_reload_of_other_rules_voids_the_evidence() -> None:
    """INV-7, row 55: any other rule in the middle of a grace: from the beginning."""
    play = Play(SHORT)
    play.steps(9, GREEDY, MEEK)
    play.rules = replace(SHORT, spacing=61.0)
    assert play.step(GREEDY, MEEK).action is None
    assert play.standing(GREEDY) is State.OVER
    play.steps(8, GREEDY, MEEK)
    assert play.actions == []
    play.step(GREEDY, MEEK)
    assert play.actions == ["evict team/greedy-1"]


def test_a_reload_of_the_same_rules_voids_nothing() -> None:
    """The twin: rules that are equal are the same rules."""
    play = Play(SHORT)
    play.steps(9, GREEDY, MEEK)
    play.rules = replace(SHORT)
    play.step(GREEDY, MEEK)
    assert play.actions == ["evict team/greedy-1"]


@pytest.mark.fault(56)
def test_a_config_that_cannot_be_used_observes() -> None:
    """Row 56: while the config is invalid the node observes; afterwards a whole grace passes."""
    broken = Fault("config", "config_invalid", "policy.grace: expected a duration")
    play = Play(SHORT)
    play.steps(9, GREEDY, MEEK)
    verdict = play.steps(20, GREEDY, MEEK, faults=(broken,))
    assert (verdict.mode, play.reason(GREEDY), play.actions) == (Mode.OBSERVE, Reason.BREAKER, [])
    begun = play.monotonic
    play.until_action(GREEDY, MEEK)
    assert play.monotonic - begun >= SHORT.grace


def test_the_modes_have_one_order() -> None:
    """off < observe < warn < dry-run < enforce."""
    assert [mode.rank for mode in (Mode.OFF, Mode.OBSERVE, Mode.WARN, Mode.DRY_RUN, Mode.ENFORCE)] == [0, 1, 2, 3, 4]


def test_what_happens_is_not_rehearsed() -> None:
    """The mode comes down to dry-run while an eviction is in flight: its victim is not rehearsed on beside it."""
    play = Play(SHORT)
    play.until_action(GREEDY, MEEK)
    play.rules = replace(SHORT, ceilings=(Ceiling(Mode.DRY_RUN, Reason.MODE),))
    play.steps(20, GREEDY, MEEK)
    assert play.actions == ["evict team/greedy-1"]
    other = replace(GREEDY, pod="other-1", used=20 * GIB, limit=10 * GIB)
    play.steps(20, replace(GREEDY, used=40 * GIB), MEEK, other)
    assert play.actions == ["evict team/greedy-1", "evict team/other-1 (dry)"], "others are"
