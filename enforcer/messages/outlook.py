"""
What the state of a limit holder leaves open: what would let an action follow, and when a wait ends.

What comes in: a state, the snapshot and the rules that it was made of. What goes out: an `Outlook`, for the text.

The rule: nothing is decided here. What these facts do not show is left out.
"""

from dataclasses import dataclass

from enforcer.policy.history import Settled, Standing
from enforcer.policy.rules import Rules
from enforcer.policy.vocabulary import Mode, Reason
from exporter.model import Snapshot


@dataclass(frozen=True, slots=True)
class Outlook:
    """
    What a text adds to a state.

    Attributes:
        remedy: the particulars of what prevents an action, such as the label that a namespace lacks.
        wait: seconds until the hold-off ends; None where that is not what the holder waits for.
        unread: its mode is lower than the node's only because the labels of its namespace were not read yet.

    """

    remedy: str = ""
    wait: float | None = None
    unread: bool = False


NOTHING = Outlook()


def outlook(holder: Standing, snapshot: Snapshot, rules: Rules, settled: Settled | None) -> Outlook:
    """Find what is to be added to the state of a holder."""
    wait = None
    if holder.reason is Reason.HOLD_OFF and settled is not None:
        left = settled.since + rules.hold_off - snapshot.monotonic
        wait = left if left > 0 else None  # afterwards it waits for the labels of namespaces
    lowered = holder.mode is Mode.OBSERVE and rules.ceiling.mode.rank > Mode.OBSERVE.rank
    return Outlook(_remedy(holder, rules), wait, lowered and holder.namespace not in snapshot.namespaces)


def _remedy(holder: Standing, rules: Rules) -> str:
    reason = holder.prevented
    if reason is None or reason is holder.reason:
        return holder.detail
    if reason is Reason.NO_CONSENT:
        key, value = rules.consent
        return f"the namespace needs the label {key}: {value}"
    if reason is Reason.REPORT_ONLY:
        return "; ".join(holder.limit.report_only)
    return next((ceiling.detail for ceiling in rules.ceilings if ceiling.reason is reason), "")
