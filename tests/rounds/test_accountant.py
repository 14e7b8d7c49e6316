"""Promises of exporter/rounds/accountant.py: what did not change is not attributed anew, and no figure differs."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.accounts.attribution import attribute
from exporter.devices import DevicesSample
from exporter.model import (
    Container,
    ContainerId,
    DeviceKey,
    Gpu,
    GpuProcess,
    GpuSample,
    GpuUuid,
    HostProcess,
    HostSample,
    Inventory,
    Memory,
    Owner,
    Pod,
    PodUid,
    ProcessKey,
    ProcessKind,
)
from exporter.rounds import accountant
from exporter.rounds.accountant import Accountant

GPU = GpuUuid("GPU-0")
PODS = tuple(PodUid(f"{number}" * 8) for number in (1, 2))
CONTAINERS = tuple(ContainerId(letter * 64) for letter in "ab")
OWNERS = (Owner(), *(Owner(((pod, container),)) for pod, container in zip(PODS, CONTAINERS, strict=True)), None)
PIDS = (10, 11, 12)


class StillClock:
    """No time passes."""

    def time(self) -> float:
        return 0.0

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, _seconds: float) -> None:
        await asyncio.sleep(0)


@dataclass
class Host:
    """What /proc says: the same object for a process that is the same, as `Remembered` answers."""

    processes: dict[int, HostProcess]
    unreadable: frozenset[int] = frozenset()
    proven: bool = True

    def sample(self, pids: Collection[int], *, want_living: bool = False) -> HostSample:
        known = {pid: process for pid, process in self.processes.items() if pid in pids}
        living = frozenset(one.owner for one in self.processes.values() if one.alive and one.owner is not None)
        return HostSample(known, self.unreadable, living if want_living else None, pid_domain_proven=self.proven)


def inventory(*, second: bool) -> Inventory:
    """Two pods with a container each; the second container may not be known yet."""
    pods = {pod: Pod(pod, "team", f"pod-{number}") for number, pod in enumerate(PODS)}
    names = zip(PODS, CONTAINERS, strict=True)
    containers = tuple(Container(pod, "main", container) for pod, container in names)
    return Inventory(pods, containers if second else containers[:1], known=True, live=True)


@st.composite
def changes(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """What happens before each of some rounds: mostly nothing."""
    kinds = ["nothing"] * 4 + [
        "dies",
        "zombie",
        "reused",
        "moves",
        "listed",
        "memory",
        "unlisted",
        "hidden",
        "unproven",
    ]
    kinds += ["names", "used"]
    return draw(st.lists(st.tuples(st.sampled_from(kinds), st.sampled_from(PIDS), st.integers(0, 3)), max_size=14))


async def played(script: list[tuple[str, int, int]]) -> list[object]:
    """Play the rounds; the accounts, usages and faults of each."""
    host = Host({pid: HostProcess(ProcessKey(pid, 1), True, OWNERS[1 + pid % 2]) for pid in PIDS})
    one = Accountant(host, StillClock())
    listed: tuple[GpuProcess, ...] | None = tuple(
        GpuProcess(DeviceKey(GPU), pid, frozenset({ProcessKind.COMPUTE}), 1000) for pid in PIDS
    )
    every: tuple[GpuProcess, ...] = listed or ()
    names, used = inventory(second=True), 4000
    found: list[object] = []
    for kind, pid, number in script:
        process = host.processes.get(pid)
        host.unreadable, host.proven = frozenset(), True
        match kind:
            case "dies":
                host.processes.pop(pid, None)
            case "zombie" if process:
                host.processes[pid] = replace(process, alive=False)
            case "reused":
                host.processes[pid] = HostProcess(ProcessKey(pid, 2 + number), True, OWNERS[number])
            case "moves" if process:
                host.processes[pid] = replace(process, owner=OWNERS[number])
            case "hidden":
                host.unreadable = frozenset({pid})
            case "unproven":
                host.proven = False
            case "listed":
                listed = every
            case "memory":
                listed = every = tuple(replace(entry, memory=1000 + number) for entry in every)
            case "unlisted":
                listed = None if number == 0 else tuple(entry for entry in every if entry.pid != pid)
            case "names":
                names = inventory(second=bool(number % 2))
            case "used":
                used = 4000 + number
        sample = GpuSample(Gpu(GPU, 0, "fake", memory=Memory(10_000, 10_000 - used)), 0.0, listed)
        reading = (await one.account(DevicesSample(samples=(sample,)), names))[GPU]
        found.append((reading.accounts.accounts, reading.accounts.usages, reading.accounts.processes))
    return found


@settings(max_examples=4 * settings().max_examples)
@given(script=changes())
def test_an_attribution_that_is_kept_is_the_one_that_would_be_made(script: list[tuple[str, int, int]]) -> None:
    """Whatever dies, is hidden, gets another's number, moves, or is renamed between the rounds."""
    kept = asyncio.run(played(script))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accountant, "unchanged", lambda *_: None)
        assert asyncio.run(played(script)) == kept


async def test_a_round_without_changes_attributes_nothing_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attribution is made once for rounds that differ in memory alone, and again after a change."""
    made = []

    def counted(*given: Any) -> Any:
        made.append(1)
        return attribute(*given)

    monkeypatch.setattr(accountant, "attribute", counted)
    await played([("nothing", 10, 0), ("used", 10, 1), ("used", 10, 2)])
    assert len(made) == 1
    await played([("nothing", 10, 0), ("dies", 10, 0), ("nothing", 10, 0)])
    assert len(made) == 1 + 3
