"""
Rules that cannot be meant are refused where they are written.

What comes in: rules with one value changed. What goes out: rules, or an error that names the key.
"""

from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest

from builders import MIB
from default_rules import DEFAULTS, default_budgets, default_rules
from enforcer.policy.rules import Budget, Ceiling, RulesError
from enforcer.policy.vocabulary import Mode, Reason, Rung, Trigger
from exporter.model import Tolerance


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("ladder", {"ladder": ()}),
        ("ladder", {"ladder": (Rung.EVICT, Rung.NOTIFY)}),
        ("ladder", {"ladder": (Rung.NOTIFY, Rung.NOTIFY)}),
        ("grace", {"grace": 29.9}),
        ("grace", {"grace": 3600.1}),
        ("grace", {"grace": nan}),
        ("warn_after", {"warn_after": 4.9}),
        ("warn_after", {"warn_after": 3600.1}),
        ("warn_after", {"interval": 20.0}),
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
        ("budgets.node", {"budgets": default_budgets(node=Budget(-1, 600.0))}),
        ("budgets.namespace", {"budgets": default_budgets(namespace=Budget(1, 0.0))}),
        ("budgets.workload", {"budgets": default_budgets(workload=Budget(1, inf))}),
        ("spacing", {"spacing": 4.9}),
        ("spacing", {"spacing": inf}),
        ("hold_off", {"hold_off": -1.0}),
        ("hold_off", {"hold_off": nan}),
        ("strikes", {"strikes": 0}),
        ("strikes", {"strike_half_life": 0.0}),
        ("strikes", {"strike_half_life": inf}),
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
        {"grace": 30.0},
        {"grace": 3600.0},
        {"warn_after": 5.0},
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
    assert (rules.mode, rules.trigger, rules.mps) == (Mode.OBSERVE, Trigger.CONTENDED, Rung.NOTIFY)
    assert (rules.warn_after, rules.grace, rules.spacing, rules.hold_off) == (15.0, 120.0, 60.0, 300.0)
    assert rules.ladder == (Rung.NOTIFY, Rung.EVICT)
    assert (rules.budgets.node, rules.budgets.namespace) == (Budget(3, 600.0), Budget(2, 600.0))
    assert rules.budgets.workload == Budget(3, 86400.0)
    assert (rules.protect.namespaces, rules.protect.priority_at_least) == (("kube-*", "gpu-operator"), 2_000_000_000)
    assert (rules.consent, rules.strikes) == (("gpusteward.io/mode", "enforce"), 1)


@pytest.mark.parametrize(("limit", "above"), [(0, 256), (1024, 1024 + 256), (12800, 12800 + 256), (102400, 104448)])
def test_the_tolerance_in_mebibytes(limit: int, above: int) -> None:
    """256 MiB up to 12.5 GiB, 2 % beyond."""
    assert DEFAULTS.tolerance.above(limit * MIB) == above * MIB


def test_the_ceiling_is_the_most_restrictive_and_says_why() -> None:
    """Of several the lowest; at the same height the operator's own mode is the reason."""
    stopped, held = Ceiling(Mode.OBSERVE, Reason.STOPPED), Ceiling(Mode.WARN, Reason.BREAKER)
    assert default_rules(mode=Mode.ENFORCE, ceilings=(held, stopped)).ceiling == stopped
    assert default_rules(mode=Mode.OBSERVE, ceilings=(held, stopped)).ceiling == Ceiling(Mode.OBSERVE, Reason.MODE)
    assert default_rules(mode=Mode.ENFORCE).ceiling == Ceiling(Mode.ENFORCE, Reason.MODE)
