"""
The journal's records, one per line.

What comes in: a record and its stamp, or a line. What goes out: the line, or the record with its stamp, or nothing.

    {"sum":"1c291ca3","seq":7,"boot_id":"5e1c…","boottime":81.5,"time":1.7e9,"record":"sent","decision":"0a1b…"}

The rule: a line is whole or it is nothing. `sum` is the CRC-32 of all that follows it, which finds each change of up to
32 bits in a row. Root alone writes the file, so the sum guards against disks, not against people. Each line is JSON, so
that `jq` reads it. Each kind of record of version 0.1 is still read; an unknown field is ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from hashlib import sha256
from math import isfinite
from operator import or_
from typing import Any, Self
from zlib import crc32

import msgspec

from enforcer.actions.fence.fences import Fence
from enforcer.actions.interface import Answer
from enforcer.policy.history import Action, Opened, Result, Spent, Workload
from enforcer.policy.holder import CaseKey, Target
from enforcer.policy.vocabulary import Breaker, Mode, Rung
from exporter.model import ContainerId, DeviceKey, EnforcedBy, Limit, Mechanism, PodUid, Scope

LONGEST = 32_768
"""The most bytes of a record with uncut texts; in a longer one, such as with a server's long answer, they are cut."""
LONGEST_TEXT = 1000
RETIRED_BREAKERS = frozenset({"api", "config", "effectiveness", "sampler"})
"""Breakers of version 0.1 that are gone: a record of one is read and ignored."""
_SUM = len('{"sum":"01234567",')


class Record(msgspec.Struct, frozen=True, tag_field="record"):
    """Something that happened; the subclasses are its kinds."""


class Started(Record, frozen=True, tag="started"):
    """A daemon took over the journal; it looks up all open decisions before anything else."""

    pid: int
    version: str


class Stopped(Record, frozen=True, tag="stopped"):
    """A daemon ended in order; the stamp proves that time passed until then."""


class Planned(msgspec.Struct, frozen=True):
    """
    An action as the journal keeps it: these names and their order are the file's format.

    Attributes:
        container, container_id: of the victim; `key` is the limit holder's, which may be the pod.
        limit: bytes.
        declared: the limit's system, and where it is written, with a blank between.
        allowance: bytes that were allowed above the limit for CUDA contexts.

    """

    rung: Rung
    key: CaseKey
    device: DeviceKey
    pod_uid: PodUid
    namespace: str
    pod: str
    container: str
    container_id: ContainerId | None
    workload: Workload
    used: int
    limit: int
    declared: str
    since: float
    dry: bool
    allowance: int = 0

    @classmethod
    def of(cls, action: Action) -> Self:
        """Take the part of an action that has to outlive the daemon."""
        same = {name: getattr(action, name) for name in cls.__struct_fields__ if name not in ("limit", "declared")}
        return cls(**same, limit=action.limit.memory or 0, declared=action.limit.declared)

    def restored(self) -> Action:
        """Make the action again. The journal has of its limit the amount, the declaration and the holder."""
        system, _, word = self.declared.rpartition(" ")
        limit = Limit(
            pod_uid=self.pod_uid,
            container=self.key.container,
            device=self.device,
            memory=self.limit,
            system=system,
            source=Mechanism(word) if word in tuple(Mechanism) else Mechanism.POLICY,  # of a later version's journal
            scope=Scope.CONTAINER if self.key.container else Scope.CLAIM if self.key.claim else Scope.POD,
            enforced_by=EnforcedBy.NONE,
            claim=self.key.claim,
        )
        names = ("key", "namespace", "pod", "used", "rung", "workload", "since", "dry", "allowance")
        same = {name: getattr(self, name) for name in names}
        victim = Target(self.container, self.container_id) if self.container_id and not self.key.container_id else None
        return Action(**same, limit=limit, largest=victim)


class Intent(Record, frozen=True, tag="intent"):
    """An action will be tried, and uses up budget. `rules` is their digest, `decision` a UUID."""

    decision: str
    action: Planned
    mode: Mode
    rules: str


class Sent(Record, frozen=True, tag="sent"):
    """From here on the call may have been made. The last look follows, which can still forbid it."""

    decision: str


class Acked(Record, frozen=True, tag="acked"):
    """The answer; `ambiguous`: none came, so the call may have been made. No answer is an end."""

    decision: str
    answer: Answer


class Ended(Record, frozen=True, tag="ended"):
    """The end of an action, as far as it was seen."""

    decision: str
    result: Result
    detail: str = ""


class BreakerOpened(Record, frozen=True, tag="breaker_opened"):
    """A breaker that a person has to close; its name may be a retired one."""

    breaker: str
    opened: Opened


class BreakerClosed(Record, frozen=True, tag="breaker_closed"):
    """A person closed a breaker; `by` is the name."""

    breaker: str
    by: str
    detail: str = ""


class Struck(Record, frozen=True, tag="struck"):
    """Version 0.1 counted the excesses of a workload. The record is read and ignored."""


class Exceeds(Record, frozen=True, tag="exceeds"):
    """Version 0.1 noted the beginning of an excess. The record is read and ignored."""


class Within(Record, frozen=True, tag="within"):
    """Version 0.1 noted the end of an excess. The record is read and ignored."""


class Fenced(Record, frozen=True, tag="fenced"):
    """A fence is about to be set, or to be moved: from here on such a limit may be ours."""

    fence: Fence


class Unfenced(Record, frozen=True, tag="unfenced"):
    """A fence is no longer in force; `detail` says why."""

    key: CaseKey
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Open:
    """
    A decision that has not ended.

    Attributes:
        at: boot seconds of the intent; below zero for one of an earlier boot.
        sent: its call may have been made; False only where it certainly was not.
        answer: the last one; None before.
        rebooted: the node was rebooted since: its processes and containers ended, its pods may still exist.

    """

    action: Planned
    at: float
    sent: bool = False
    answer: Answer | None = None
    rebooted: bool = False


class Token(msgspec.Struct, frozen=True, omit_defaults=True):
    """One used part of the budgets in a `State`. Those of version 0.1 have no `time`, and count no dry run."""

    at: float
    workload: Workload
    time: float = 0.0
    dry: bool = False

    @property
    def spent(self) -> Spent:
        """The same as the policy's type."""
        return Spent(self.at, self.workload, self.time)


class State(Record, frozen=True, tag="state"):
    """The state after all earlier lines, in place of them. Each file begins with one."""

    spent: tuple[Token, ...] = ()
    breakers: Mapping[str, Opened] = {}
    open: Mapping[str, Open] = {}
    detail: str = ""
    fences: tuple[Fence, ...] = ()


class Stamp(msgspec.Struct, frozen=True):
    """Which record, and when: seconds of CLOCK_BOOTTIME in the boot of that id; `time` is Unix time, for people."""

    seq: int
    boot_id: str
    boottime: float
    time: float


_ENCODER = msgspec.json.Encoder()
_STAMP = msgspec.json.Decoder(Stamp)
_BREAKERS = RETIRED_BREAKERS | set(Breaker)
_RECORD: msgspec.json.Decoder[Record] = msgspec.json.Decoder(reduce(or_, Record.__subclasses__()))


def encode(stamp: Stamp, record: Record) -> bytes:
    """Write a line, with its end. It never raises: text that cannot be encoded is written as `?`."""
    try:
        body = _ENCODER.encode(record)
    except UnicodeEncodeError:
        body = b""
    if not body or (len(body) > LONGEST and not isinstance(record, State)):
        body = _ENCODER.encode(_short(msgspec.to_builtins(record)))
    rest = _ENCODER.encode(stamp)[1:-1] + b"," + body[1:]
    return b'{"sum":"%08x",' % crc32(rest) + rest + b"\n"


def decode(line: bytes) -> tuple[Stamp, Record] | None:
    """Read a line without its end; None if it is not a whole line of the journal."""
    rest = line[_SUM:]
    if line[:_SUM] != b'{"sum":"%08x",' % crc32(rest):
        return None
    try:
        stamp, record = _STAMP.decode(line), _RECORD.decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    sane = stamp.seq > 0 and isfinite(stamp.boottime) and stamp.boottime >= 0
    return (stamp, record) if sane and _breakers_of(record) <= _BREAKERS else None


def kind(line: bytes) -> str:
    """Tell which kind of record a torn line began; empty when it ends before that."""
    _, opened, rest = line.partition(b'"record":"')
    name, ended, _ = rest.partition(b'"')
    return name.decode("ascii", "replace") if opened and ended else ""


def digest(rules: object) -> str:
    """Name the rules (a frozen dataclass) by sixteen letters that are the same in each process."""
    return sha256(msgspec.json.encode(rules, order="sorted")).hexdigest()[:16]


def _breakers_of(record: Record) -> frozenset[str]:
    match record:
        case BreakerOpened(breaker) | BreakerClosed(breaker):
            return frozenset({breaker})
        case State():
            return frozenset(record.breakers)
    return frozenset()


def _short(data: Any) -> Any:
    if isinstance(data, str):
        return data.encode(errors="replace").decode()[:LONGEST_TEXT]
    if isinstance(data, Mapping):
        return {_short(key): _short(value) for key, value in data.items()}
    return [_short(item) for item in data] if isinstance(data, list | tuple) else data
