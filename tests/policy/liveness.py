"""
The second law, checked from outside: the limit holds.

A trace comes in, and one limit holder in it for which all conditions of the law are true: the honest victim. Goes out:
nothing while the victim was acted on, or its bound has not passed; else what is late, in words.

The rule: the bound is the one that docs/policy.md states, and no judgement of the policy is used here.

    part       seconds
    level      T(d, P, C, h): until the level of usage that is over for a fraction d of each period P is C
    warning    60, where the API server must accept the warning first
    hold-off   after a start with other rules; and 60 s or warn_after, for namespaces whose labels cannot be read
    gaps       of each gap between readings its length, and one period more
    pace       for each holder that was over earlier, and for each that was tried in vain: a request, and its pause
    budgets    for k holders that were due earlier: the windows that pass until k + 1 tokens were given
"""

from dataclasses import dataclass, field
from math import ceil, inf

from enforcer.policy.holder import HolderKey
from enforcer.policy.rules import Budget, Rules
from exporter.model import PodUid
from policy.facts import Step, in_a_row
from policy.invariants import MAY_HAVE_ACTED, PATIENCE, Watch

JITTER = 1.2
"""Intervals between two readings at most, while no round is missing."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage that is over its ceiling in the first `share` of each `period` seconds."""

    share: float = 1.0
    period: float = 0.0

    def over(self, at: float) -> bool:
        """Tell whether it is over now."""
        return self.period <= 0 or (at % self.period) / self.period < self.share

    def bound(self, capacity: float, apart: float) -> float:
        """Return T: the seconds after which a level has reached `capacity`, with readings `apart` at most."""
        if self.period <= 0:
            return capacity + 2 * apart
        rate = (3 * self.share - 1) / 2 - 2 * apart / self.period
        assert rate > 0, "such usage may never be acted on"
        return capacity / rate + self.period + 2 * apart


@dataclass(slots=True)
class Promise:
    """
    What the second law promises to one victim, step by step.

    Attributes:
        holder, namespace: of the victim.
        usage: of the victim.
        flight: seconds that a request takes at most until it is concluded.
        start: monotonic seconds since when all conditions are true.
        gaps: seconds by which gaps between readings may delay it.
        earlier: the pods that were due before it, by namespace; `before` the actions before it was due.
        blur: seconds by which gaps, or a warning that was not accepted, may have delayed its place in the order, which
            `Watch` puts too early then.
        met: when it was acted on.
        vetted: nothing of ours has changed.
        pace: seconds from one round to the next, where the node is too slow for its interval.

    """

    holder: HolderKey
    namespace: str
    usage: Usage
    flight: float
    start: float | None = None
    gaps: float = 0.0
    shown: float | None = None
    earlier: dict[PodUid, str] = field(default_factory=dict)
    before: int = 0
    blur: float | None = None
    met: float | None = None
    vetted: bool = False
    pace: float = 0.0

    def interval(self, rules: Rules) -> float:
        """Return the seconds from one round to the next on average: on a slow node more than the rules say."""
        return max(rules.interval, self.pace)

    def step(self, step: Step, watch: Watch) -> list[str]:
        """Add a step that `watch` has seen, too; name what is late."""
        at, rules = step.snapshot.monotonic, step.rules
        action = step.verdict.action
        if self.start is None or step.began == "new":
            self.start, self.gaps = at, 0.0
        self.vetted = self.vetted and step.began != "new"
        if self.shown is not None and at - self.shown > in_a_row(rules):
            self.gaps += 2 * (at - self.shown) + self.usage.period + 3 * self.interval(rules)
        if step.closed:
            self.gaps += 3 * self.interval(rules)
        if step.began == "restored":
            self.gaps += self.usage.period + 5 * self.interval(rules)
        self.shown = at
        if action is not None and not action.dry and action.key.holder == self.holder:
            self.met = at if self.met is None else self.met
        self._count(step, watch)
        if self.met is not None or step.now.monotonic <= self.deadline(rules):
            return []
        late = step.now.monotonic - self.deadline(rules)
        bound = f"not acted on {late:.0f} s after its bound of {self.deadline(rules) - self.start:.0f} s"
        return [f"liveness: {bound}; {len(self.earlier)} holders were due earlier, {self.before} actions came before"]

    def deadline(self, rules: Rules) -> float:
        """Return the monotonic seconds at which the victim must have been acted on."""
        assert self.start is not None
        apart, period = JITTER * self.interval(rules), self.usage.period
        capacity = max(rules.warn_after + rules.grace, 2 * rules.interval)
        level = self.usage.bound(capacity, apart) + (PATIENCE + apart if rules.confirm else 0.0)
        hold_off = 0.0 if self.vetted else rules.hold_off + max(60.0, rules.warn_after) + 2 * apart
        k = len(self.earlier) + self.before
        requests = 2 * (k + 1) * (self.flight + max(5.0, rules.spacing) + 2 * apart + period)
        return self.start + level + hold_off + self.gaps + requests + self.waits(rules)

    def waits(self, rules: Rules) -> float:
        """Return the seconds for which budgets may delay it."""
        near = sum(namespace == self.namespace for namespace in self.earlier.values())
        node = _windows(len(self.earlier) + self.before, rules.budgets.node)
        return max(node, _windows(near + self.before, rules.budgets.namespace))

    def _count(self, step: Step, watch: Watch) -> None:
        mine = watch.tallies.get(self.holder)
        place = mine.place if mine is not None else None
        if place is None and step.ended in MAY_HAVE_ACTED:
            self.before += 1
        if place is None:
            self.blur = None
        elif self.blur is None:
            self.blur = self.gaps + (PATIENCE + 2 * JITTER * self.interval(step.rules) if step.rules.confirm else 0.0)
        last = inf if place is None else place + (self.blur or 0.0)
        for holder, tally in watch.tallies.items():
            if holder == self.holder or tally.place is None or tally.place > last:
                continue
            for fact in watch.facts.holders.get(holder, ()) if watch.facts else ():
                for uid in fact.pods:
                    pod = step.snapshot.pods.get(uid)
                    self.earlier[uid] = pod.namespace if pod else ""


def _windows(earlier: int, budget: Budget) -> float:
    return ceil((earlier + 1) / budget.most) * budget.window
