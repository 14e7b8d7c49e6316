"""
The report of a ledger: shares of the memory, sums by group, idle allocations.

What comes in: a ledger, the grouping, the prices. What goes out: a `Report`.

The rule: capacity x time is the sum of its parts by construction. Time without samples, and time in which the driver
did not answer, are parts of it: what was allocated then is unknown. Of the allocated time, the part in which SMs were
not in use is idle, and the rest is used. Of a container whose use of the SMs is unknown it is neither. With prices, the
costs of all rows add up to the price of the GPUs, but for the unknown time. So what was handed out twice is a row, too.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from exporter.history.owners import Workload
from exporter.report.ledger import PARTS, Ledger
from exporter.report.names import Holder, Place, Pod

UNANSWERED, MISSING = "driver did not answer", "no samples"
NOT_ALLOCATED, UNCOVERED, TWICE = "(not allocated)", "(no MIG instance)", "(handed out twice)"
SHORT = 600.0
"""Seconds of a GPU below which a pod without any sample of its workload is one of the short pods of its namespace."""
SHORT_PODS = Workload("", "(short pods)")


class By(StrEnum):
    """What the rows of a report are."""

    NAMESPACE = "namespace"
    WORKLOAD = "workload"
    NODE = "node"
    MODEL = "model"


@dataclass(frozen=True, slots=True)
class Prices:
    """Price of an hour of a whole GPU by model; `default` is for the others. Empty without prices."""

    currency: str = ""
    of_model: Mapping[str, float] = field(default_factory=dict)
    default: float | None = None

    def of(self, model: str) -> float:
        """Return the price of an hour. Raises KeyError for a model without one."""
        if (price := self.of_model.get(model, self.default)) is None:
            raise KeyError(model)
        return price


@dataclass(slots=True)
class Group:
    """
    One row; GPU time in seconds of a whole GPU, memory in byte-seconds.

    Attributes:
        capacity: the time of the group's GPUs; 0 for groups of containers.
        allocated: handed out by the kubelet: `used` + `idle` + `unmeasured`.
        used: of the allocated time, that of SMs in use; more than was allocated at a time counts as all of it.
        unmeasured: allocated to containers whose use of the SMs is unknown.
        memory, declared: bytes held, and bytes of declared limits, over time.
        within: of `memory`, what the holders of declared limits held.
        cost, idle_cost: of `allocated` and of `idle`.
    """

    name: str
    capacity: float = 0.0
    allocated: float = 0.0
    used: float = 0.0
    idle: float = 0.0
    unmeasured: float = 0.0
    memory: float = 0.0
    declared: float = 0.0
    within: float = 0.0
    cost: float = 0.0
    idle_cost: float = 0.0

    @property
    def unused_share(self) -> float | None:
        """The share of the declared memory that was not used; None without declarations."""
        return max(0.0, 1 - self.within / self.declared) if self.declared else None


@dataclass(frozen=True, slots=True)
class Idle:
    """
    The allocated and idle time of one container name of a workload on one model, in seconds of a whole GPU.

    `allocated` is that of all its pods and devices, used, idle or unknown. `cost` is that of the idle time.
    """

    cluster: str
    namespace: str
    workload: Workload
    container: str
    model: str
    allocated: float
    idle: float
    cost: float


@dataclass(frozen=True, slots=True)
class Report:
    """
    A whole report.

    Attributes:
        clusters: there are several, and names begin with theirs.
        memory: byte-seconds of each part; their sum is capacity x time.
        total: the sum of `groups`.
        not_allocated, uncovered, unknown: seconds of whole GPUs that no container was allocated, that no MIG instance
            covered, and of which nothing is known. With `total.allocated` they are the time of all GPUs, and `twice`.
        twice: of `total.allocated`, what was handed out of devices above their own time.
    """

    by: By
    currency: str
    priced: bool
    gpus: int
    nodes: int
    clusters: bool
    memory: Mapping[str, float]
    groups: tuple[Group, ...]
    total: Group
    not_allocated: float
    not_allocated_cost: float
    uncovered: float
    uncovered_cost: float
    twice: float
    twice_cost: float
    unknown: float
    idle: tuple[Idle, ...]
    notes: tuple[str, ...]

    @property
    def whole(self) -> float:
        """The time of all GPUs, in seconds."""
        return self.total.allocated - self.twice + self.not_allocated + self.uncovered + self.unknown

    @property
    def whole_cost(self) -> float:
        """The price of all GPUs, without unknown time."""
        return self.total.cost - self.twice_cost + self.not_allocated_cost + self.uncovered_cost


def summarize(ledger: Ledger, by: By, prices: Prices | None, notes: Iterable[str] = ()) -> Report:
    """Make the report. Raises KeyError for a model without price."""
    named = _Names(ledger, by)
    groups: dict[str, Group] = {}

    def group(name: str) -> Group:
        return groups.setdefault(name, Group(name))

    def price(place: Place) -> float:
        return prices.of(place.model) / 3600 if prices else 0.0

    total, free, unknown, free_cost, bare, bare_cost = Group("total"), 0.0, 0.0, 0.0, 0.0, 0.0
    twice, twice_cost = 0.0, 0.0
    idle: dict[tuple[str, str, Workload, str, str], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for holder in ledger.allocated.keys() | ledger.memory.keys():
        allocated, rest = ledger.allocated.get(holder, 0.0), ledger.idle(holder)
        unmeasured = min(allocated, ledger.unmetered.get(holder, 0.0))
        used = allocated - rest - unmeasured
        each = price(holder.place) if allocated else 0.0
        for row in (group(named.of(holder)), total):
            row.allocated += allocated
            row.used += used
            row.idle += rest
            row.unmeasured += unmeasured
            row.memory += ledger.memory.get(holder, 0.0)
            row.cost += allocated * each
            row.idle_cost += rest * each
        where = (holder.place.node.cluster, holder.namespace)
        key = (*where, named.workload(holder), holder.container, holder.place.model)
        for index, amount in enumerate((allocated, rest, rest * each)):
            idle[key][index] += amount
    for holder, declared in ledger.declared.items():
        for row in (group(named.of(holder)), total):
            row.declared += declared
            row.within += ledger.within.get(holder, 0.0)
    for place in ledger.capacity:
        answered = ledger.observed.get(place, 0.0)
        silent = ledger.unanswered.get(place, 0.0) + ledger.missing(place)[0]
        rest, above = ledger.handed_out(place)
        free, twice, unknown = free + rest, twice + above, unknown + silent
        free_cost += rest * (price(place) if rest else 0.0)
        twice_cost += above * (price(place) if above else 0.0)
        total.capacity += answered + silent
        if (name := named.of_place(place)) is not None:
            group(name).capacity += answered + silent
    uncovered = ledger.uncovered()
    for gpu, (seconds, silent) in uncovered.items():
        bare, unknown = bare + seconds, unknown + silent
        bare_cost += seconds * (price(gpu) if seconds else 0.0)
        total.capacity += seconds + silent
        if (name := named.of_place(gpu)) is not None:
            group(name).capacity += seconds + silent
    stood = (Idle(*key, *amounts) for key, amounts in idle.items() if amounts[1])
    worst = sorted(stood, key=lambda one: (-one.cost, -one.idle, one.cluster, one.namespace, one.workload))
    return Report(
        by=by,
        currency=prices.currency if prices else "",
        priced=prices is not None,
        gpus=len({place.gpu for place in (*ledger.capacity, *uncovered)}),
        nodes=len(ledger.spans),
        clusters=named.many,
        memory=memory_of(ledger),
        groups=tuple(sorted(groups.values(), key=lambda row: (-row.allocated, -row.memory, row.name))),
        total=total,
        not_allocated=free,
        not_allocated_cost=free_cost,
        uncovered=bare,
        uncovered_cost=bare_cost,
        twice=twice,
        twice_cost=twice_cost,
        unknown=unknown,
        idle=tuple(worst),
        notes=tuple(notes),
    )


def memory_of(ledger: Ledger) -> dict[str, float]:
    """Return the byte-seconds of each part; their sum is capacity x time."""
    sums = dict.fromkeys((*PARTS, UNANSWERED, MISSING), 0.0)
    for place in ledger.capacity:
        for part, amount in ledger.parts.get(place, {}).items():
            sums[part if part in PARTS else "unknown"] += amount
        sums[UNANSWERED] += ledger.silent.get(place, 0.0)
        sums[MISSING] += ledger.missing(place)[1]
    return sums


class _Names:
    """The name of the row to which a container or a device belongs."""

    def __init__(self, ledger: Ledger, by: By) -> None:
        self._by = by
        self.many = len({node.cluster for node in ledger.spans}) > 1
        self._times: dict[Pod, float] = defaultdict(float)
        for holder, seconds in ledger.allocated.items():
            self._times[holder.its_pod] += seconds

    def of(self, holder: Holder) -> str:
        workload = self.workload(holder)
        match self._by:
            case By.NAMESPACE:
                return self._in(holder.place, holder.namespace)
            case By.WORKLOAD:
                return self._in(holder.place, "/".join(filter(None, (holder.namespace, *workload))))
            case _:
                return self.of_place(holder.place) or ""

    def of_place(self, place: Place) -> str | None:
        """Name the row of a device; None where the rows are of containers."""
        match self._by:
            case By.NODE:
                return self._in(place, place.node.name)
            case By.MODEL:
                return self._in(place, place.model)
            case _:
                return None

    def workload(self, holder: Holder) -> Workload:
        """Return the workload; of a pod that no sample describes, the pod itself, or all that were as short."""
        if holder.workload.kind:
            return holder.workload
        return SHORT_PODS if 0 < self._times.get(holder.its_pod, 0.0) < SHORT else Workload("Pod", holder.pod)

    def _in(self, place: Place, name: str) -> str:
        return f"{place.node.cluster}/{name}" if self.many else name
