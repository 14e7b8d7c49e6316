"""
What an action needs of the world: the steps that are there, and ways to look.

Nothing comes in. What goes out: one value that the executor and the watches share.

The rule: all of it is handed in, so that a dry run gets hands that cannot change anything.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

from enforcer.actions.interface import Actuator
from enforcer.policy.history import Action
from enforcer.policy.last_look import Live
from enforcer.policy.vocabulary import Reason, Rung
from exporter.model import GpuUuid, Snapshot

Ask = Callable[[Action], Awaitable[Live]]
"""Asks the API server for the action's pod and namespace. Raises KubeError."""
Fresh = Callable[[Collection[GpuUuid]], Awaitable[Snapshot | None]]
"""Makes a round of these GPUs now, which the decider hears, too; None when none comes."""


@dataclass(frozen=True, slots=True)
class Hands:
    """What an action needs: the steps that are there, and ways to look."""

    rungs: Mapping[Rung, Actuator]
    ask: Ask
    fresh: Fresh
    spared: Callable[[], Reason | None] = lambda: None
    """Says, without waiting, why no pod may be acted on any more: the lock was lost."""
