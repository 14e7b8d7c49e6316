"""
The actions that a ladder may have.

What comes in: nothing. What goes out: `Rung`, for the config of both daemons and for the policy, and two groups of
actions for the policy's rules.

The rule: all actions are defined here, and nowhere else. An action in no group ends no work, and acts on a whole pod.
"""

from enum import StrEnum


class Rung(StrEnum):
    """An action, the gentlest first."""

    NOTIFY = "notify"
    FENCE = "fence"
    EVICT = "evict"
    KILL = "kill"


DESTRUCTIVE = frozenset({Rung.EVICT, Rung.KILL})
"""Actions that lose the work since the last checkpoint: they need the consent of the namespace."""
ON_A_CONTAINER = frozenset({Rung.FENCE, Rung.KILL})
"""Actions on a single container: the ladder skips them if a pod or a claim holds the limit."""
