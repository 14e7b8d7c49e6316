"""
The answer: what was declared for whom, in bytes, and why.

What comes in: nothing. What goes out: frozen limits with every candidate that was looked at.

The law: **scope is kept.** A pod's limit stays the pod's, a claim's the claim's, a process's (MPS) the process's; none
is ever copied onto a container.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Self

from exporter.limits.devices import Place
from exporter.limits.rows import Row, Trust, What
from exporter.model import Context, DeviceKey, EnforcedBy, Mechanism, Scope

ZERO = "zero: nothing is declared"
"""Why an amount of 0 does not count."""


@dataclass(frozen=True, slots=True, order=True)
class Subject:
    """Who a declaration is about: a container, the whole pod (both names empty), or a claim as `namespace/name`."""

    container: str = ""
    claim: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """
    One declaration that was looked at.

    Attributes:
        row: None for what is remembered from when the pod was first seen.
        system: of the row.
        text: as written; long texts are cut.
        bytes: of memory; None for compute, and for what has no amount.
        ratio: of one device, where the declaration is one (compute, percentages).
        place: the device it is about; None for each device that the subject holds.
        excluded: why it cannot count, empty when it could.
        grant: it hands out a device and declares no amount.
        enforcement_proven: more than what the pod's author wrote tells that somebody enforces it.
        mps: so it is proven that who declares this is a client of an MPS server.
        context: whether the amount includes CUDA contexts.
        taken: it decided the limit, or (compute) the share.
        why: in words, why it was taken or not.
        doubts: why it must not be enforced, though it counts.
        remarks: what `explain` says besides; no Event and no reason hangs on it.
        factor: the whole number by which the installation multiplies what is written; None while it is open.
        key: the key that was found, where the row's is a pattern; empty for what is remembered.

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

    @property
    def name(self) -> str:
        """The declaration in one line, for people: the row's name with the key that was found."""
        return self._called(self.key)

    @property
    def row_name(self) -> str:
        """The row in one line, for people: the system, the mechanism, the key as it stands in the catalogue."""
        return self._called("")

    def _called(self, key: str) -> str:
        if self.row is None:
            return f"{self.system} as first seen"
        return f"{self.system} {self.row.mechanism} {key or self.row.key}"

    def invalidated(self, reason: str) -> Self:
        """Return the same without a chance to count."""
        return replace(self, excluded=f"invalid: {reason}", invalid=True)

    @property
    def size(self) -> int | Fraction | None:
        """The amount: of compute the ratio, else bytes."""
        return self.ratio if self.what is What.COMPUTE else self.bytes

    @property
    def valid(self) -> bool:
        """Whether it has an amount that can count."""
        return not self.excluded and self.size is not None


@dataclass(frozen=True, slots=True)
class ResolvedLimit:
    """
    What one subject may hold of one device.

    Attributes:
        place: None for each device that the subject holds.
        bytes: None where memory is not declared, or not validly.
        compute: declared share of one device, 0 to 1; never enforced.
        report_only: why this must not be enforced; empty when it may be.
        context, headroom: as in `exporter.model.Limit`.
        problems: what an operator or user should know: invalid, contradictory, refused, uncalibrated.
        mps: one of the candidates proves that the subject is a client of an MPS server, whichever of them counts.

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

    @property
    def remarks(self) -> tuple[str, ...]:
        """The remarks of all candidates, each once."""
        return tuple(dict.fromkeys(remark for candidate in self.candidates for remark in candidate.remarks))

    @property
    def undeclared(self) -> bool:
        """Whether nothing declares an amount of memory: a replica, a zero, a share of the compute alone."""
        memory = (c for c in self.candidates if c.what is not What.COMPUTE)
        said = self.bytes is not None or self.scope is Scope.PROCESS  # MPS bounds each process, whatever is declared
        return not said and all(c.grant or c.excluded == ZERO for c in memory)

    @property
    def device(self) -> DeviceKey | None:
        """The device; None for each that the holder has, and for one that is not known here."""
        return self.place.key if self.place else None

    @property
    def enforceable(self) -> bool:
        """Whether a limit is there, and nothing speaks against acting on it."""
        return self.bytes is not None and not self.report_only


@dataclass(frozen=True, slots=True)
class Seen:
    """The value that was seen first; to be kept as long as the pod, also across restarts."""

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
        limits: one per subject, scope and device.
        elsewhere: what still holds on devices that no record names, though a (forgeable) record names others.
        first_seen: to be handed in next time.

    """

    uid: str
    namespace: str
    name: str
    limits: tuple[ResolvedLimit, ...] = ()
    elsewhere: tuple[ResolvedLimit, ...] = ()
    first_seen: tuple[Seen, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """All problems, each once."""
        return tuple(dict.fromkeys(problem for limit in self.limits for problem in limit.problems))

    def on(self, device: DeviceKey, container: str = "", *, scope: Scope | None = None) -> ResolvedLimit | None:
        """
        Find the limit of a container (or, without one, of the pod) on a device where it is seen.

        A record that names the device comes first; then what holds wherever the subject is. `scope` picks one of
        several, such as a process's limit beside a container's; without it a process's does not count.
        """
        mine = [
            limit
            for limit in (*self.limits, *self.elsewhere)
            if limit.subject == Subject(container)
            and (limit.scope is scope if scope else limit.scope is not Scope.PROCESS)
        ]
        exact = (limit for limit in mine if limit.device == device)
        anywhere = (limit for limit in mine if limit.place is None)
        return next(exact, None) or next(anywhere, None)


def declared(resolutions: Iterable[Resolution]) -> Mapping[DeviceKey, int]:
    """
    Sum up what is declared on each device, each declaration once.

    A pod's limit stands for its containers', a claim's counts once however many pods use it; processes' limits have no
    sum. What names no device is not placed here.
    """
    total: dict[DeviceKey, int] = defaultdict(int)
    claims: dict[tuple[str, DeviceKey], int] = {}
    for resolution in resolutions:
        of_pod: dict[DeviceKey, int] = {}
        of_containers: dict[DeviceKey, int] = defaultdict(int)
        for limit in resolution.limits:
            if limit.bytes is None or limit.device is None:
                continue
            if limit.scope is Scope.CLAIM:
                # One claim may consume several shares of one device: those are different limits of one pod's view.
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
    Tell whether an enforcement elsewhere plainly does not hold: more is used than it should let pass.

    `ceiling`: the bytes above which the limit counts as exceeded.

    None where there is nothing to bypass (nobody enforces, or only for each process), and where the use is not known.
    """
    if limit.enforced_by in {EnforcedBy.NONE, EnforcedBy.MPS} or limit.scope is Scope.PROCESS:
        return None
    return None if ceiling is None or used is None else used > ceiling
