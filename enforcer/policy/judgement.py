"""
One case, judged: its protection, its permission, its level.

A case of the snapshot comes in, and what is remembered of its holder. All that is to be known before a victim is chosen
goes out.

The rule: each holder is judged by itself. Nothing of another holder enters its level.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from enforcer.policy.cases import cases
from enforcer.policy.history import History, Moment
from enforcer.policy.holder import HolderKey
from enforcer.policy.levels import Announcement, Excess, Level, OnDevice, Reading, Terms, prevents
from enforcer.policy.limit_holders import NEVER, Case
from enforcer.policy.protection import Permission, Protection
from enforcer.policy.rules import Rules
from enforcer.policy.vocabulary import ON_A_CONTAINER, Kind, Mode, Reason, Rung
from enforcer.policy.weighing import weigh
from exporter.model import Snapshot

_ORDER = {rung: place for place, rung in enumerate(Rung)}


@dataclass(slots=True)  # as `Case`
class Judged:
    """
    A case, and all that was found about it. Nothing changes it.

    Attributes:
        holder: whose case it is.
        shield: why it is left alone, whatever it uses.
        over: this device is certainly above its ceiling (True), certainly not (False), or unknown (None).
        level: of its holder; None: it is 0.
        grace: seconds that the holder has.
        allowance: bytes that are allowed above the limit for the CUDA contexts of its processes.
        bound: the declared limit and the tolerance, bytes; 0 without a limit.
        excess: what the level counted on this device; None: this device has no part in it.

    """

    case: Case
    holder: HolderKey
    shield: Reason | None
    allowed: Permission
    over: bool | None
    level: Level | None
    grace: float
    allowance: int = 0
    bound: int = 0
    excess: Excess | None = None

    def at(self, level: Level | None) -> "Judged":
        """Make the same with another level."""
        return replace(self, level=level, excess=_excess(level, self.case))


def judge_all(
    snapshot: Snapshot, rules: Rules, history: History, now: Moment
) -> tuple[list[Judged], dict[HolderKey, Level]]:
    """Judge the cases of a snapshot, and return the new levels of their holders."""
    protection = Protection(rules, snapshot.namespaces)
    # In a stall of ours, or with a clock that is not ours, a snapshot says nothing about the present.
    stale = not abs(now.monotonic - snapshot.monotonic) <= rules.in_a_row
    known, result = history.levels, list[Judged]()
    by_holder: dict[HolderKey, list[Judged]] = {}
    for case in cases(snapshot, rules.in_a_row, protection.spared):
        judged = _judge(case, protection, rules, history, now)
        if stale:
            judged.over = None
        group = by_holder.get(judged.holder)
        if group is None:
            by_holder[judged.holder] = [judged]
        else:
            group.append(judged)
    levels: dict[HolderKey, Level] = {}
    for holder, group in by_holder.items():
        result += group
        level = known.get(holder) if known else None
        if snapshot.by_time and (level is not None or True in [judged.over for judged in group]):
            level = _level(level, group, snapshot.monotonic, history.round_at, rules)
        if level is None:
            continue
        levels[holder] = level
        for judged in group:
            judged.level, judged.excess = level, _excess(level, judged.case)
    return result, levels


def _excess(level: Level | None, case: Case) -> Excess | None:
    return None if level is None else level.excesses.get(case.limit.device)


def _judge(case: Case, protection: Protection, rules: Rules, history: History, now: Moment) -> Judged:
    shield = protection.shield(case)
    pod = case.pod
    deleted_for = None
    if pod is not None and pod.terminating:
        deleted_for = now.monotonic - history.deleted.get(pod.uid, now.monotonic)
    allowed = protection.permission(case, history.done, history.fenced, deleted_for=deleted_for)
    limit, holder = case.limit, case.key.holder
    bound = 0 if limit.memory is None else rules.tolerance.above(limit.memory)
    if case.unknown is not None:  # as where there is no limit
        return Judged(case, holder, shield, allowed, None, None, protection.grace(pod), 0, bound)
    allowance = rules.tolerance.contexts(limit, case.processes)
    ceiling, high = bound + allowance, case.high
    over: bool | None = case.low > ceiling
    if not over and (high is None or high > ceiling):
        over = None
    return Judged(case, holder, shield, allowed, over, None, protection.grace(pod), allowance, bound)


def _level(before: Level | None, group: list[Judged], at: float, earlier: float | None, rules: Rules) -> Level | None:
    """Weigh the devices of one holder together. Its earlier generations, and limits that bind nothing, do not count."""
    counted = [each for each in group if each.case.present and each.case.unknown not in NEVER]
    shields = [each.shield for each in counted if each.shield is not None]
    if Kind.CHOSEN in [shield.kind for shield in shields]:
        return None  # protected: from the beginning, when the protection ends
    if before is not None and at <= before.read_at:
        return before
    grace = max([each.grace for each in group])
    if not counted or shields:
        return weigh(before, Reading(at, (), earlier=earlier), _announcement(_accused(group), rules), grace, rules)
    if True in [each.case.pending for each in counted]:
        return before  # an early round: the next full one reads all of its devices
    devices = tuple([_on_device(each, rules) for each in counted])
    accused = _accused(counted)
    first = accused[0]
    # A claim may pass from one pod to the next: none is acted on for the excess of another one.
    reading = Reading(at, devices, victim_of(first), earlier=earlier, several=bool(first.case.key.claim))
    return weigh(before, reading, _announcement(accused, rules), grace, rules)


def _accused(counted: list[Judged]) -> list[Judged]:
    """Return the devices that are over and not held, or those that are over, or all; the gentlest step first."""
    if len(counted) == 1:
        return counted
    accused = [each for each in counted if each.over] or counted
    accused = [each for each in accused if each.allowed.held is None] or accused
    return sorted(accused, key=lambda each: _ORDER[each.allowed.rung] if each.allowed.rung else len(_ORDER))


def victim_of(judged: Judged) -> str:
    """Name what an action would end: a container in its generation, or a pod."""
    case = judged.case
    if case.key.container_id:
        return case.key.container_id
    if case.largest is not None and not case.key.claim and judged.allowed.rung in ON_A_CONTAINER:
        return case.largest.id
    return case.limit.pod_uid


def _announcement(accused: Sequence[Judged], rules: Rules) -> Announcement:
    """Say what would be announced: the gentlest step on the devices that are over, and what prevents it."""
    allowed = accused[0].allowed
    prevented = [each.allowed.written_hold or prevents(each.allowed.held) for each in accused]
    terms = (
        None
        if allowed.written is None
        else Terms(allowed.written, allowed.rung, rules.trigger, rules.ladder, rules.mps)
    )
    # Where the mode was written as low as that, it prevents the action.
    silent = allowed.mode.rank < Mode.WARN.rank
    return Announcement(terms, None if None in prevented else prevented[0], silent=silent)


def _on_device(judged: Judged, rules: Rules) -> OnDevice:
    case, limit = judged.case, judged.case.limit
    return OnDevice(limit.device, judged.over, case.low - judged.allowance, judged.bound, rules.tolerance.cap(limit))


__all__ = ["Judged", "judge_all", "victim_of"]
