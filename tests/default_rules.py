"""The rules that an empty config makes, and changes of them: the defaults are those of the config alone."""

from dataclasses import replace
from typing import Any

from enforcer.policy.rules import Budgets, Protect, Rules
from enforcer.runtime.policy_config import rules_of
from exporter.config import Arguments, load

DEFAULTS = rules_of(load(Arguments()))


def default_rules(**changes: Any) -> Rules:
    """Make the rules of a config with these changes."""
    return replace(DEFAULTS, **changes)


def default_budgets(**changes: Any) -> Budgets:
    """Make budgets of which some are not the default."""
    return replace(DEFAULTS.budgets, **changes)


def default_protection(**changes: Any) -> Protect:
    """Make the protection of a config with these changes."""
    return replace(DEFAULTS.protect, **changes)
