"""
The actions that a ladder is written of.

What comes in: nothing. What goes out: `Rung`, for the config of both daemons and for the policy, and the groups that
the policy's rules ask for.

The rule: each action stands here, and nowhere else. An action in no group ends no work and acts on a whole pod.
"""

from enum import StrEnum


class Rung(StrEnum):
    """What can be done, the gentlest first."""

    NOTIFY = "notify"
    FENCE = "fence"
    EVICT = "evict"
    KILL = "kill"


DESTRUCTIVE = frozenset({Rung.EVICT, Rung.KILL})
"""Actions that lose the work since the last checkpoint: these need the consent of the namespace."""
ON_A_CONTAINER = frozenset({Rung.FENCE, Rung.KILL})
"""Actions on a single container: the ladder passes over these where a pod or a claim holds the limit."""
