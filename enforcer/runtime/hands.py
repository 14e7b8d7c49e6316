"""
The means of an action: the available steps, and the ways to look.

Nothing comes in. What goes out: one value that the executor and the watches share.

The rule: its creator chooses every part, so a dry run gets parts that cannot change anything.
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
"""Makes a round of these GPUs now, which the decider gets, too; None if no round comes."""


@dataclass(frozen=True, slots=True)
class Hands:
    """The means of an action: the available steps, and the ways to look."""

    rungs: Mapping[Rung, Actuator]
    ask: Ask
    fresh: Fresh
    spared: Callable[[], Reason | None] = lambda: None
    """Says, without waiting, why no pod may be acted on any more: the lock was lost."""
