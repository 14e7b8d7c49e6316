"""
The answer: the limits of a pod in bytes, with their holders and the reasons.

What comes in: nothing. What goes out: frozen limits with every candidate that was considered.

The rule: **scope is kept.** A limit of a pod, a claim or a process (MPS) is never copied onto a container.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Self

from exporter.limits.devices import Place
from exporter.limits.rows import Row, Trust, What
from exporter.model import Context, DeviceKey, EnforcedBy, Mechanism, Scope

ZERO = "zero declares nothing"
"""Why an amount of 0 does not count."""


@dataclass(frozen=True, slots=True, order=True)
class Subject:
    """The limit holder: a container, the whole pod (both fields empty), or a claim as `namespace/name`."""

    container: str = ""
    claim: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """
    One declaration that was considered.

    Attributes:
        row: None for a remembered first-seen value.
        system: the system of the row.
        text: as written; long texts are cut.
        bytes: amount of memory; None for compute, and for a declaration without an amount.
        ratio: share of one device, where the declaration is a share (compute, percentages).
        place: the device; None for each device that the limit holder has.
        excluded: why it cannot count; empty if it can.
        grant: it hands out a device and declares no amount.
        enforcement_proven: the enforcement is proven by more than the text of the pod's author.
        mps: it is proven in the same way that the declaring container is a client of an MPS server.
        context: whether the amount includes CUDA contexts.
        alone: the pod's author alone says so, in a resource that the node lacks while it has the system's other one.
        taken: it decided the limit, or (compute) the share.
        why: in words, why it was taken or not.
        doubts: why it must not be enforced, though it counts.
        remarks: additional text of `explain`; no Event and no reason depends on it.
        factor: the whole number by which the installation multiplies the written amount; None while it is unknown.
        key: the key that was found, if the row's key is a pattern; empty for a first-seen value.

    """

    row: Row | None
    system: str
    what: What
    trust: Trust
    subject: Subject
    scope: Scope
    text: str
    bytes: int | None = None
    ratio: Fraction | None = None
    place: Place | None = None
    excluded: str = ""
    invalid: bool = False
    grant: bool = False
    enforced_by: EnforcedBy = EnforcedBy.NONE
    enforcement_proven: bool = True
    doubts: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    taken: bool = False
    why: str = ""
    factor: int | None = 1
    key: str = ""
    mps: bool = False
    context: Context = Context.UNKNOWN
    alone: bool = False

    @property
    def name(self) -> str:
        """The declaration in one line, for people: system, mechanism and the key that was found."""
        return self._called(self.key)

    @property
    def row_name(self) -> str:
        """The row in one line, for people: system, mechanism and the catalogue's key."""
        return self._called("")

    def _called(self, key: str) -> str:
        if self.row is None:
            return f"{self.system} as first seen"
        return f"{self.system} {self.row.mechanism} {key or self.row.key}"

    def invalidated(self, reason: str) -> Self:
        """Return a copy that is invalid for this reason and cannot count."""
        return replace(self, excluded=f"invalid: {reason}", invalid=True)

    @property
    def size(self) -> int | Fraction | None:
        """The amount: a ratio for compute, else bytes."""
        return self.ratio if self.what is What.COMPUTE else self.bytes

    @property
    def valid(self) -> bool:
        """Whether it has an amount, and nothing excludes it."""
        return not self.excluded and self.size is not None


@dataclass(frozen=True, slots=True)
class ResolvedLimit:
    """
    The limit of one limit holder on one device.

    Attributes:
        place: None for each device that the limit holder has.
        bytes: None if no memory is declared, or only invalidly.
        compute: declared share of one device, 0 to 1; never enforced.
        report_only: why this must not be enforced; empty if it may be.
        context, headroom: as in `exporter.model.Limit`.
        problems: for operators and users: invalid, contradictory, refused or uncalibrated declarations.
        mps: a candidate, taken or not, proves that the limit holder is a client of an MPS server.
        vendor: of the devices on which it counts; empty: any.

    """

    subject: Subject
    place: Place | None
    bytes: int | None
    system: str
    source: Mechanism
    scope: Scope
    enforced_by: EnforcedBy
    compute: Fraction | None = None
    candidates: tuple[Candidate, ...] = ()
    problems: tuple[str, ...] = ()
    report_only: tuple[str, ...] = ()
    mps: bool = False
    context: Context = Context.UNKNOWN
    headroom: int | None = None
    vendor: str = ""

    @property
    def remarks(self) -> tuple[str, ...]:
        """The remarks of all candidates, each once."""
        return tuple(dict.fromkeys(remark for candidate in self.candidates for remark in candidate.remarks))

    @property
    def undeclared(self) -> bool:
        """Whether no amount of memory is declared: only a replica, a zero, or a share of the compute."""
        memory = (c for c in self.candidates if c.what is not What.COMPUTE)
        said = self.bytes is not None or self.scope is Scope.PROCESS  # MPS limits each process in any case
        return not said and all(c.grant or c.excluded == ZERO for c in memory)

    @property
    def device(self) -> DeviceKey | None:
        """The device; None for each device that the holder has, and for a device unknown on this node."""
        return self.place.key if self.place else None

    def strictness(self) -> tuple[bool, float]:
        """Sort limits of one holder: the smallest that is enforced first, then those only reported, then the empty."""
        return not self.enforceable, float("inf") if self.bytes is None else self.bytes

    @property
    def enforceable(self) -> bool:
        """Whether there is a limit in bytes, and no reason only to report it."""
        return self.bytes is not None and not self.report_only


@dataclass(frozen=True, slots=True)
class Seen:
    """A first-seen value: the daemon keeps it for the life of the pod, also across its own restarts."""

    subject: Subject
    scope: Scope
    place: str | None
    trust: Trust
    system: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Resolution:
    """
    All limits of one pod.

    Attributes:
        limits: one per limit holder, scope, vendor and device.
        elsewhere: limits on devices that no record names, where a (forgeable) record names other devices.
        first_seen: the input of the next call.

    """

    uid: str
    namespace: str
    name: str
    limits: tuple[ResolvedLimit, ...] = ()
    elsewhere: tuple[ResolvedLimit, ...] = ()
    first_seen: tuple[Seen, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """The problems of all limits, each once."""
        return tuple(dict.fromkeys(problem for limit in self.limits for problem in limit.problems))

    def on(
        self,
        device: DeviceKey,
        container: str = "",
        *,
        scope: Scope | None = None,
        foreign: Callable[[ResolvedLimit, DeviceKey], bool] = lambda *_: False,
    ) -> ResolvedLimit | None:
        """
        Find the limit of a container on a device where it is seen; without a container, the limit of the pod.

        A limit that names the device comes before one that names none, which counts on devices that are not `foreign`
        to it. Where the pod has one as a whole, and another system reads one from its annotations, the smaller counts.
        `scope` picks one of several, such as a process's limit beside a container's. Without `scope`, limits of
        processes are ignored.
        """
        mine = [
            limit
            for limit in (*self.limits, *self.elsewhere)
            if limit.subject == Subject(container)
            and (limit.scope is scope if scope else limit.scope is not Scope.PROCESS)
        ]
        exact = [limit for limit in mine if limit.device == device]
        anywhere = [limit for limit in mine if limit.place is None and not foreign(limit, device)]
        firsts = [
            next(limit for limit in (*exact, *anywhere) if (limit.scope is Scope.POD) is pods)
            for pods in {limit.scope is Scope.POD for limit in (*exact, *anywhere)}
        ]
        return min(firsts, key=ResolvedLimit.strictness, default=None)


def declared(pods: Iterable[Iterable[ResolvedLimit]]) -> Mapping[DeviceKey, int]:
    """
    Sum the declared bytes of each device, each declaration once. What comes in are the limits of each pod.

    The limit of a pod replaces those of its containers. The limit of a claim counts once for all its pods. Limits of
    processes have no sum. Limits that name no device are left out.
    """
    total: dict[DeviceKey, int] = defaultdict(int)
    claims: dict[tuple[str, DeviceKey], int] = {}
    for limits in pods:
        of_pod: dict[DeviceKey, int] = {}
        of_containers: dict[DeviceKey, int] = defaultdict(int)
        for limit in limits:
            if limit.bytes is None or limit.device is None:
                continue
            if limit.scope is Scope.CLAIM:
                # All pods that use the claim have this limit: it counts once.
                claims[limit.subject.claim, limit.device] = limit.bytes
            elif limit.scope is Scope.POD:
                of_pod[limit.device] = limit.bytes
            elif limit.scope is not Scope.PROCESS:
                of_containers[limit.device] += limit.bytes
        for device, amount in {**of_containers, **of_pod}.items():
            total[device] += amount
    for (_, device), amount in claims.items():
        total[device] += amount
    return dict(total)


def bypassed(limit: ResolvedLimit, used: int | None, ceiling: int | None) -> bool | None:
    """
    Return whether the usage exceeds a limit that another system enforces.

    `ceiling`: the bytes above which the limit counts as exceeded.

    None if no other system enforces the limit, or only for each process, and if usage or ceiling is unknown.
    """
    if limit.enforced_by in {EnforcedBy.NONE, EnforcedBy.MPS} or limit.scope is Scope.PROCESS:
        return None
    return None if ceiling is None or used is None else used > ceiling
