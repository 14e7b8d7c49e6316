"""
What enforcing would hit right now.

What comes in: a snapshot, the rules, the history. What goes out: the subjects that are over at this moment, each with
what would be done to it or the reason why nothing would, if its grace were over and the mode were enforce.

The law: a preview promises too much rather than too little. Evidence, strikes, spacing and budgets, which only delay,
are not asked; what spares a subject for good is.
"""

from dataclasses import dataclass, replace

from enforcer.policy import breakers
from enforcer.policy.contention import needs
from enforcer.policy.decide import blast
from enforcer.policy.evidence import Phase
from enforcer.policy.history import History, Moment, Standing
from enforcer.policy.holder_states import standing
from enforcer.policy.judgement import judge
from enforcer.policy.limit_holders import cases
from enforcer.policy.rules import Rules
from enforcer.policy.victims import Scene, refusal
from enforcer.policy.vocabulary import Mode
from exporter.model import Snapshot


@dataclass(frozen=True, slots=True)
class Preview:
    """
    What enforcing would hit.

    Attributes:
        would: over now, and spared by nothing: each would be acted on, one after the other.
        held: over now, and held for the reason that they have.
        over: pods over their limits, of `limited` pods with limits that nobody protects.
        trips: so many that the blast-radius breaker would open instead.

    """

    would: tuple[Standing, ...]
    held: tuple[Standing, ...]
    over: int
    limited: int
    trips: bool


def preview(snapshot: Snapshot, rules: Rules) -> Preview:
    """Look at one snapshot as if the mode were enforce, and every grace over."""
    wanted = replace(rules, mode=Mode.ENFORCE, ceilings=())
    # An early round reads some GPUs anew; what was read of the others seconds ago is good enough for a preview.
    snapshot = replace(snapshot, gpus_read=frozenset(device.key.uuid for device in snapshot.devices))
    moment = Moment(snapshot.monotonic, snapshot.monotonic)
    history = History(at=moment, started=moment.monotonic - wanted.hold_off)
    found = [judge(case, snapshot, wanted, history, moment) for case in cases(snapshot)]
    over, limited = blast(found, armed=False)
    due = [
        replace(one, evidence=replace(one.evidence, phase=Phase.DUE, strikes=float("inf")))
        for one in found
        if one.evidence is not None and one.evidence.over
    ]
    scene = Scene(snapshot, needs((one.case for one in found), snapshot), wanted, history, moment)
    reasons = {one.case.key: reason for one in due if (reason := refusal(one, scene)) is not None}
    told = [standing(one, reasons, history) for one in due]
    return Preview(
        tuple(one for one in told if one.reason is None),
        tuple(one for one in told if one.reason is not None),
        over,
        limited,
        breakers.blast(over, limited),
    )
