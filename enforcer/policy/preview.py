"""
What enforcing would do from now on.

A snapshot, the rules and the history come in. The limit holders that are over their limits go out, each with its real
level, as if the mode were enforce: those that would be acted on, and those that are held, with the reason.

The rule: a preview promises too much rather than too little. Reasons that end by themselves (budgets, spacing, the
hold-off) only delay, and hold no action back here; every other reason does.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from enforcer.policy import breakers
from enforcer.policy.decide import scene_of
from enforcer.policy.history import History, Moment, Standing
from enforcer.policy.holder_states import Reasons, standings
from enforcer.policy.judgement import Judged, judge_all
from enforcer.policy.levels import Excess, Level, Terms
from enforcer.policy.rules import READINGS, Rules
from enforcer.policy.settling import blast
from enforcer.policy.victims import Scene, Why, due, refusal
from enforcer.policy.vocabulary import Kind, Mode, Reason, State
from exporter.model import Snapshot


@dataclass(frozen=True, slots=True)
class Preview:
    """
    What enforcing would do.

    Attributes:
        at: monotonic seconds of the snapshot.
        would: over their limits, and held back by nothing but time: each would be acted on, one after the other.
        held: over their limits, and held for the reason that they have.
        over: workloads over their limits, of `limited` workloads with limits that could be acted on.
        trips: so many that the breaker blast_radius would open instead.

    """

    at: float
    would: tuple[Standing, ...]
    held: tuple[Standing, ...]
    over: int
    limited: int
    trips: bool


def preview(snapshot: Snapshot, rules: Rules, history: History) -> Preview:
    """Look at the newest snapshot, which `history` has seen, as if the mode were enforce."""
    wanted = replace(rules, mode=Mode.ENFORCE, ceilings=())
    # An early round reads some GPUs anew; what was read of the others seconds ago is good enough for a preview.
    snapshot = replace(snapshot, gpus_read=frozenset(device.key.uuid for device in snapshot.devices))
    now = Moment(snapshot.monotonic, history.at.boot if history.at else snapshot.monotonic)
    present, _ = judge_all(snapshot, wanted, history, now)
    judged = [each.at(history.levels.get(each.case.key.holder)) for each in present]
    would, held = _split([each for each in judged if _concerns(each)], scene_of(judged, snapshot, wanted, history, now))
    over, limited = blast(judged)
    return Preview(snapshot.monotonic, tuple(would), tuple(held), over, limited, breakers.blast(over, limited))


def _concerns(judged: Judged) -> bool:
    """Tell whether a holder is over on this device now, or was and its level has not fallen to 0."""
    if judged.shield is not None:
        return False
    return bool(judged.over) or judged.excess is not None


def _split(concerned: Sequence[Judged], scene: Scene) -> tuple[list[Standing], list[Standing]]:
    would, held = [], []
    for judged in concerned:
        why = refusal(_ripe(judged, scene), scene)
        if why is None or _passes(why[0], scene.rules):
            reasons: Reasons = {judged.case.key: why} if due(judged, scene.now.monotonic, scene.rules) else {}
            would += _described(judged, reasons, scene)
        else:
            held += [_held(state, why) for state in _described(judged, {}, scene)]
    return would, held


def _passes(reason: Reason, rules: Rules) -> bool:
    """Tell whether a reason ends by itself. A budget of 0 actions is never free again."""
    if reason is Reason.BUDGET_NODE:
        return rules.budgets.node.most > 0
    if reason is Reason.BUDGET_NAMESPACE:
        return rules.budgets.namespace.most > 0
    return reason.kind is Kind.WAITING


def _ripe(judged: Judged, scene: Scene) -> Judged:
    """Suppose that the holder is over, was warned of the next step, and its level is full."""
    rules, device = scene.rules, judged.case.limit.device
    at = scene.snapshot.monotonic
    level = judged.level or Level(at)
    full = replace(
        level,
        read_at=at,
        seconds=rules.capacity(judged.grace),
        due_at=at,
        place_at=level.place_at if level.place_at is not None else at,
        own={level.victim: rules.capacity(judged.grace)},
        terms=Terms(Mode.ENFORCE, judged.allowed.rung, rules.trigger, rules.ladder, rules.mps),
        excesses={**level.excesses, device: Excess(READINGS, at, 0, 0)},
    )
    return replace(judged.at(full), over=True)


def _described(judged: Judged, reasons: Reasons, scene: Scene) -> list[Standing]:
    """Name an excess of which there is no level yet: in mode off nothing is counted."""
    states = standings([judged], reasons, scene.history, scene.rules)
    return [replace(each, state=State.OVER) if each.over and each.state is State.OK else each for each in states]


def _held(state: Standing, why: Why) -> Standing:
    return replace(state, state=State.HELD, reason=why[0], detail=why[1], prevented=why[0])
