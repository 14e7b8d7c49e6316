"""
Journals for tests: decisions as the policy makes them, records as a daemon writes them, and clocks that a test sets.

In: nothing. Out: records, and files full of them. Rule: what was promised is counted here, apart from the code that
keeps it: tokens by intents, open decisions by intents without ends.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from msgspec import structs

from enforcer.actions.fence.fences import Fence
from enforcer.actions.interface import Answer, Heard
from enforcer.journal.file import Given
from enforcer.journal.records import (
    Acked,
    BreakerClosed,
    BreakerOpened,
    Ended,
    Fenced,
    Intent,
    Planned,
    Record,
    Sent,
    Stamp,
    Started,
    State,
    Stopped,
    Unfenced,
    encode,
)
from enforcer.policy.history import Action, Opened, Result
from enforcer.policy.holder import CaseKey
from enforcer.policy.last_look import Spared
from enforcer.policy.vocabulary import Breaker, Mode, Reason, Rung
from enforcer.runtime.last_looks import unanswered
from exporter.model import ContainerId, DeviceKey, GpuUuid, PodUid

BOOT, LATER = "aaaaaaaa-0000-4000-8000-000000000001", "bbbbbbbb-0000-4000-8000-000000000002"


def uuid(number: int) -> str:
    """Name a decision."""
    return str(UUID(int=number, version=4))


def action(number: int = 1, *, rung: Rung = Rung.EVICT, workload: str = "train", dry: bool = False) -> Action:
    """Make an action on a pod of `workload`."""
    pod, container = PodUid(f"uid-{number}"), ContainerId(hashlib.sha256(b"%d" % number).hexdigest())
    return Planned(
        rung,
        CaseKey(pod, "main", container, "", "GPU-0"),
        DeviceKey(GpuUuid("GPU-0")),
        pod,
        "team",
        f"{workload}-{number}",
        "main",
        container,
        ("team", "Deployment", workload),
        70 << 30,
        8 << 30,
        "hami-nvidia resource",
        12.5,
        dry,
    ).restored()


def intent(number: int = 1, *, rung: Rung = Rung.EVICT, workload: str = "train", dry: bool = False) -> Intent:
    """Make an intent."""
    return intended(uuid(number), action(number, rung=rung, workload=workload, dry=dry))


def intended(decision: str, what: Action) -> Intent:
    """Make the intent of an action."""
    return Intent(decision, Planned.of(what), Mode.ENFORCE, "0123456789abcdef")


FENCE = Fence(action(3).key, "/kubepods/pod3/abc", 9 << 30, 12 << 30, 8 << 30)

STORY: tuple[Record, ...] = (
    State(),
    Started(7, "1.0"),
    intent(1),
    Sent(uuid(1)),
    Acked(uuid(1), Answer(Heard.ACCEPTED, "", 201)),
    Ended(uuid(1), Result.VERIFIED),
    BreakerOpened(Breaker.INTERNAL, Opened(110.0, 'a "no",\nin a row')),
    intent(2, workload="other"),
    Acked(uuid(2), Answer(Heard.AMBIGUOUS, "the connection was lost")),
    BreakerClosed(Breaker.INTERNAL, "ann"),
    intent(3, rung=Rung.KILL),
    Fenced(FENCE),
    Fenced(structs.replace(FENCE, key=action(4).key)),
    Unfenced(action(4).key, "its cgroup is gone"),
    Stopped(),
)
"""
Records of each kind, a hundred seconds after the boot and a second apart; 2 and 3 have not ended, one fence stands.
"""


@dataclass
class Writing:
    """A file in memory, written by hand: stamps go on by a second."""

    boot: str = BOOT
    boottime: float = 100.0
    seq: int = 0
    data: bytes = b""
    lines: list[bytes] = field(default_factory=list)

    def write(self, *records: Record) -> Writing:
        """Write records."""
        for record in records:
            self.seq, self.boottime = self.seq + 1, self.boottime + 1
            line = encode(Stamp(self.seq, self.boot, self.boottime, 1.7e9 + self.boottime), record)
            self.lines.append(line)
            self.data += line
        return self

    def reboot(self, name: str = LATER, boottime: float = 0.0) -> Writing:
        """Begin another boot."""
        self.boot, self.boottime = name, boottime
        return self


@dataclass
class Hands:
    """Clocks that a test sets."""

    boottime: float = 200.0
    boot: str = BOOT
    limit: int = 4 << 20

    @property
    def given(self) -> Given:
        """Return what the kernel would say."""
        return Given(self.boot, lambda: (self.boottime, 1.7e9 + self.boottime), self.limit)


UNANSWERED = {str(why) for why in (*Spared, *Reason) if unanswered(why)}


def decided(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """
    Return the records of decisions, without those whose last look came too late or was not answered.

    Nothing was asked for these, and the policy decides anew. An emulated node took 34 s for one look.
    """
    blind = {one["decision"] for one in records if one.get("result") == "failed" and one.get("detail") in UNANSWERED}
    return [one for one in records if "decision" in one and one["decision"] not in blind]
