"""
Rules that cannot be meant are refused where they are written.

Rules with one value changed come in. Rules go out, or an error that names the key.
"""

from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest

from builders import MIB
from default_rules import DEFAULTS, default_budgets, default_rules
from enforcer.policy.rules import CONSENT, Budget, Ceiling, RulesError
from enforcer.policy.vocabulary import Mode, Reason, Rung, Trigger
from exporter.model import Tolerance


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("ladder", {"ladder": ()}),
        ("ladder", {"ladder": (Rung.EVICT, Rung.NOTIFY)}),
        ("ladder", {"ladder": (Rung.NOTIFY, Rung.NOTIFY)}),
        ("grace", {"grace": -0.1}),
        ("grace", {"grace": 3600.1}),
        ("grace", {"grace": nan}),
        ("warn_after", {"warn_after": -0.1}),
        ("warn_after", {"warn_after": nan}),
        ("warn_after", {"warn_after": 3600.1}),
        ("interval", {"interval": 0.0}),
        ("interval", {"interval": inf}),
        ("tolerance", {"tolerance": Tolerance(-0.1, 0, 0)}),
        ("tolerance", {"tolerance": Tolerance(1.1, 0, 0)}),
        ("tolerance", {"tolerance": Tolerance(0.0, -1, 0)}),
        ("tolerance", {"tolerance": Tolerance(0.0, 0, -1)}),
        ("when_blocked", {"ladder": (Rung.EVICT, Rung.KILL)}),
        ("when_blocked", {"ladder": (Rung.NOTIFY, Rung.EVICT), "kill_when_blocked": True}),
        ("mps", {"mps": Rung.KILL}),
        ("mps", {"mps": Rung.FENCE}),
        ("namespaces.label", {"consent": (CONSENT, "Enforce")}),
        ("namespaces.label", {"consent": (CONSENT, "")}),
        ("budgets.node", {"budgets": default_budgets(node=Budget(-1, 600.0))}),
        ("budgets.namespace", {"budgets": default_budgets(namespace=Budget(1, 0.0))}),
        ("budgets.namespace", {"budgets": default_budgets(namespace=Budget(1, inf))}),
        ("spacing", {"spacing": 4.9}),
        ("spacing", {"spacing": inf}),
        ("hold_off", {"hold_off": -1.0}),
        ("hold_off", {"hold_off": nan}),
    ],
)
def test_what_cannot_be_meant(key: str, change: dict[str, Any]) -> None:
    """The error names the key, and what would make sense."""
    with pytest.raises(RulesError, match=rf"^policy\.{key}: expected ") as raised:
        default_rules(**change)
    assert (raised.value.key, bool(raised.value.expected)) == (key, True)


@pytest.mark.parametrize(
    "change",
    [
        {"grace": 0.0},
        {"warn_after": 0.0},
        {"warn_after": 0.0, "grace": 0.0},
        {"warn_after": 3600.0},
        {"grace": 3600.0},
        {"spacing": 5.0},
        {"hold_off": 0.0},
        {"budgets": default_budgets(node=Budget(0, 1.0))},
        {"tolerance": Tolerance(0.0, 0, 0)},
        {"ladder": tuple(Rung), "kill_when_blocked": True},
        {"ladder": (Rung.KILL,)},
        {"mps": Rung.EVICT},
    ],
)
def test_bounds_are_allowed(change: dict[str, Any]) -> None:
    """The last value that makes sense does."""
    assert replace(default_rules(), **change) == default_rules(**change)


def test_the_defaults_are_those_that_are_promised() -> None:
    """The documented defaults: no action unless written, and the numbers of the configuration's reference."""
    rules = default_rules()
    assert (rules.mode, rules.trigger, rules.mps) == (Mode.OBSERVE, Trigger.LIMIT, Rung.NOTIFY)
    assert (rules.warn_after, rules.grace, rules.spacing, rules.hold_off) == (15.0, 120.0, 60.0, 300.0)
    assert rules.ladder == (Rung.NOTIFY, Rung.EVICT)
    assert (rules.budgets.node, rules.budgets.namespace) == (Budget(3, 600.0), Budget(2, 600.0))
    assert (rules.protect.namespaces, rules.protect.priority_at_least) == (("kube-*", "gpu-operator"), 2_000_000_000)
    protect = rules.protect
    assert (protect.bare_pods, protect.daemon_sets, protect.third_party) == (False, False, True)
    assert rules.consent == ("gpusteward.io/mode", "enforce")


@pytest.mark.parametrize(
    ("limit", "above"), [(0, 0), (512, 563), (1024, 1126), (2560, 2560 + 256), (12800, 12800 + 256), (102400, 104448)]
)
def test_the_tolerance_in_mebibytes(limit: int, above: int) -> None:
    """A tenth up to 2.5 GiB, 256 MiB up to 12.5 GiB, 2 % beyond."""
    assert DEFAULTS.tolerance.above(limit * MIB) // MIB == above


@pytest.mark.parametrize(
    ("warn_after", "grace", "capacity"), [(15.0, 120.0, 135.0), (0.0, 0.0, 10.0), (5.0, 0.0, 10.0), (10.0, 0.5, 10.5)]
)
def test_an_action_needs_two_intervals_of_excess_at_least(warn_after: float, grace: float, capacity: float) -> None:
    """The sum of both times; without any grace still three readings, which span two intervals."""
    assert default_rules(warn_after=warn_after).capacity(grace) == capacity


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"grace": 60.0}, True),
        ({"build": "the next version"}, True),
        ({"trusted_vendors": frozenset({"amd"})}, True),
        ({"ceilings": (Ceiling(Mode.OBSERVE, Reason.STOPPED),)}, False),
        ({}, False),
    ],
    ids=str,
)
def test_a_change_of_ours_is_another_rule_or_build_and_no_ceiling(change: dict[str, Any], differs: bool) -> None:
    """A stop file that comes and goes, or a journal that is full for a while, starts no hold-off."""
    assert default_rules().differs(default_rules(**change)) is differs


def test_the_ceiling_is_the_most_restrictive_and_says_why() -> None:
    """Of several the lowest; at the same height the operator's own mode is the reason."""
    stopped, held = Ceiling(Mode.OBSERVE, Reason.STOPPED), Ceiling(Mode.WARN, Reason.BREAKER)
    assert default_rules(mode=Mode.ENFORCE, ceilings=(held, stopped)).ceiling == stopped
    assert default_rules(mode=Mode.OBSERVE, ceilings=(held, stopped)).ceiling == Ceiling(Mode.OBSERVE, Reason.MODE)
    assert default_rules(mode=Mode.ENFORCE).ceiling == Ceiling(Mode.ENFORCE, Reason.MODE)
