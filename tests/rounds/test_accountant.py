"""Promises of exporter/rounds/accountant.py: what did not change is not attributed anew, and no figure differs."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from exporter.accounts.accounting import account
from exporter.accounts.attribution import attribute
from exporter.devices import DevicesSample
from exporter.model import (
    Allocation,
    Attribution,
    Container,
    ContainerId,
    DeviceAccount,
    DeviceKey,
    Gpu,
    GpuInstance,
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
    ProcessUtilization,
    Subject,
    Usage,
    Utilization,
)
from exporter.rounds import accountant
from exporter.rounds.accountant import Accountant
from threadless import at_once

GPU = GpuUuid("GPU-0")
PODS = tuple(PodUid(f"{number}" * 8) for number in (1, 2))
CONTAINERS = tuple(ContainerId(letter * 64) for letter in "ab")
OWNERS = (Owner(), *(Owner(((pod, container),)) for pod, container in zip(PODS, CONTAINERS, strict=True)), None)
PIDS = (10, 11, 12)
Made = tuple[tuple[DeviceAccount, ...], tuple[Usage, ...], Mapping[Attribution, int], int, GpuSample]
"""What comes of a round: accounts, usages, how many processes are attributed how, containers cut to 100 %, sample."""


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

    def change(self, kind: str, pid: int, number: int) -> None:
        """Let something happen to a process, or to the view of it."""
        process = self.processes.get(pid)
        self.unreadable, self.proven = frozenset(), True
        match kind:
            case "dies":
                self.processes.pop(pid, None)
            case "zombie" if process:
                self.processes[pid] = replace(process, alive=False)
            case "reused":
                self.processes[pid] = HostProcess(ProcessKey(pid, 2 + number), True, OWNERS[number])
            case "moves" if process:
                self.processes[pid] = replace(process, owner=OWNERS[number])
            case "hidden":
                self.unreadable = frozenset({pid})
            case "unproven":
                self.proven = False

    def sample(self, pids: Collection[int], *, want_living: bool = False) -> HostSample:
        known = {pid: process for pid, process in self.processes.items() if pid in pids}
        living = frozenset(one.owner for one in self.processes.values() if one.alive and one.owner is not None)
        return HostSample(known, self.unreadable, living if want_living else None, pid_domain_proven=self.proven)


def inventory(*, second: bool, handed: int = 0) -> Inventory:
    """Two pods with a container each; the second container may not be known yet, and some were handed the GPU."""
    pods = {pod: Pod(pod, "team", f"pod-{number}") for number, pod in enumerate(PODS)}
    names = zip(PODS, CONTAINERS, strict=True)
    containers = tuple(Container(pod, "main", container) for pod, container in names)
    devices = DeviceKey(GPU), DeviceKey(GPU, 1)
    allocations = tuple(
        Allocation("team", f"pod-{number}", "main", "gpu", device) for number in range(handed) for device in devices
    )
    named = containers if second else containers[:1]
    return Inventory(pods, named, allocations=allocations, known=True, live=True)


EVICTED = [("evicted", 10, seconds) for seconds in (1, 3, 0)]


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
    kinds += ["names", "used", "handed", "busy", "idle", "partial", "evicted", "mig", "live", "gone", "silent"]
    return draw(st.lists(st.tuples(st.sampled_from(kinds), st.sampled_from(PIDS), st.integers(0, 3)), max_size=14))


def anew(names: Inventory) -> Inventory:
    """The same names in other objects, as Kubernetes' are made for each round."""
    pods = {uid: replace(pod) for uid, pod in names.pods.items()}
    return replace(names, pods=pods, containers=tuple(map(replace, names.containers)))


def divided(used: int, mig: int) -> Gpu:
    """A GPU with MIG off (0), on without an instance (1), or on with one of this utilization (2, 3)."""
    memory = Memory(10_000, 10_000 - used)
    one = GpuInstance(1, "1g.10gb", ("MIG-1",), memory, Utilization(sm=mig / 4))
    return Gpu(GPU, 0, "fake", mig=mig > 0, memory=memory, instances=(one,) if mig > 1 else ())


async def played(script: list[tuple[str, int, int]]) -> list[Made]:
    """Play the rounds; return what comes of each."""
    host = Host({pid: HostProcess(ProcessKey(pid, 1), True, OWNERS[1 + pid % 2]) for pid in PIDS})
    one = Accountant(host, StillClock())
    listed: tuple[GpuProcess, ...] | None = tuple(
        GpuProcess(DeviceKey(GPU), pid, frozenset({ProcessKind.COMPUTE}), 1000) for pid in PIDS
    )
    every: tuple[GpuProcess, ...] = listed or ()
    names, used, mig = inventory(second=True), 4000, 0
    busy: tuple[ProcessUtilization, ...] | None = None
    found: list[Made] = []
    for kind, pid, number in script:
        host.change(kind, pid, number)
        partial = False
        match kind:
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
            case "handed":
                names = replace(names, allocations=inventory(second=True, handed=number % 3).allocations)
            case "busy":
                busy = tuple(ProcessUtilization(each, number / 4, None, None, None) for each in PIDS if each != pid)
            case "idle":
                busy = None
            case "partial":
                partial = True
            case "evicted":
                listed = every = tuple(replace(entry, evicted=float(number) or None) for entry in every)
            case "mig":
                mig = number
            case "gone":
                names = replace(names, pods=dict([*names.pods.items()][:1]))
            case "live":
                names = replace(names, live=number > 0)
        if kind == "silent":
            assert await one.account(DevicesSample(), anew(names)) == {}
            continue
        sample = GpuSample(divided(used, mig), 0.0, listed, utilization=busy, partial=partial)
        made = (await one.account(DevicesSample(samples=(sample,)), anew(names)))[GPU].accounts
        found.append((made.accounts, made.usages, made.processes, made.capped, made.sample))
    return found


@settings(max_examples=4 * settings().max_examples)
@given(script=changes())
@example(script=[("handed", 10, 1), ("mig", 10, 2), ("mig", 10, 3)])  # its utilization is the container's
@example(
    script=[("names", 10, 0), ("live", 10, 0), *EVICTED, ("nothing", 10, 0), ("live", 10, 1)]
)  # its sum is dropped
def test_what_is_kept_is_what_would_be_made(script: list[tuple[str, int, int]]) -> None:
    """Attributions and accounts, whatever dies, moves, is hidden, renamed or busy between the rounds."""
    kept = without_a_loop(played(script))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accountant, "unchanged", lambda *_: None)
        patch.setattr(accountant, "same_accounts", lambda *_: None)
        assert without_a_loop(played(script)) == kept


def without_a_loop(play: Coroutine[Any, Any, list[Made]]) -> list[Made]:
    """Run what waits for nothing: 200 event loops with a thread each take half of the time of the test."""
    with at_once():
        try:
            while True:
                play.send(None)
        except StopIteration as end:
            found: list[Made] = end.value
            return found


async def test_new_names_count_in_the_round_in_which_they_came() -> None:
    """A container that is known now has its name; a pod that is gone has no usage any more."""
    first = Subject(PODS[0], "main", CONTAINERS[0])
    played_rounds = await played([("names", 10, 0), ("names", 10, 1), ("gone", 10, 0)])
    assert [{usage.subject for usage in usages} for _, usages, *_ in played_rounds] == [
        {first, Subject(PODS[1], "", CONTAINERS[1])},
        {first, Subject(PODS[1], "main", CONTAINERS[1])},
        {first},
    ]


@pytest.mark.parametrize("gap", [("silent", 10, 0), ("unlisted", 10, 0)], ids=["the GPU", "its lists"])
async def test_a_number_that_changed_hands_unseen_is_nobodys_memory(gap: tuple[str, int, int]) -> None:
    """While the GPU or its lists were not read, another process may have got the number, and the old memory is gone."""
    rounds = await played([("nothing", 10, 0), gap, ("reused", 10, 2), ("listed", 10, 0)])
    _, usages, processes, *_ = rounds[-1]
    assert processes[Attribution.AMBIGUOUS] == 1
    assert {usage.subject.container_id: usage.memory_used for usage in usages} == {
        CONTAINERS[0]: 1000,
        CONTAINERS[1]: 1000,
    }


async def test_a_gpu_that_was_not_asked_is_not_silent() -> None:
    """A round of other GPUs leaves no gap: what a forked child holds under a number stays its container's."""
    host = Host({pid: HostProcess(ProcessKey(pid, 1), True, OWNERS[1]) for pid in PIDS})
    one = Accountant(host, StillClock())
    entries = tuple(GpuProcess(DeviceKey(GPU), pid, frozenset({ProcessKind.COMPUTE}), 1000) for pid in PIDS)
    sample = DevicesSample(samples=(GpuSample(divided(4000, 0), 0.0, entries),))
    names = inventory(second=True)
    await one.account(sample, names)
    await one.account(DevicesSample(), names, {GpuUuid("GPU-1")})
    host.processes[10] = HostProcess(ProcessKey(10, 9), True, OWNERS[2])
    attributed = (await one.account(sample, names))[GPU].accounts.processes
    assert attributed == {Attribution.CONTAINER: 2, Attribution.INHERITED: 1}


@pytest.mark.parametrize(
    ("listed", "attribution", "peak"), [(None, Attribution.INHERITED, 1000), ((), Attribution.GHOST, None)]
)
async def test_instances_that_could_not_be_listed_are_not_gone(
    listed: tuple[GpuProcess, ...] | None, attribution: Attribution, peak: int | None
) -> None:
    """
    One failed listing is like a GPU that does not answer: peaks stay, and what a forked child holds is its container's.

    The twin: the driver answers that there is no instance. A later one of that id is another one.
    """
    host = Host({pid: HostProcess(ProcessKey(pid, 1), True, OWNERS[1]) for pid in PIDS})
    one, names = Accountant(host, StillClock()), inventory(second=True)
    entry = GpuProcess(DeviceKey(GPU, 1), PIDS[0], frozenset({ProcessKind.COMPUTE}), 1000)
    less = replace(entry, memory=400)
    for mig, processes in ((2, (entry,)), (1, listed), (2, (less,))):
        if processes == (less,):
            del host.processes[PIDS[0]]
        sample = GpuSample(divided(4000, mig), 0.0, processes)
        found = (await one.account(DevicesSample(samples=(sample,)), names))[GPU].accounts
    assert found.processes == {attribution: 1}
    assert [usage.memory_peak for usage in found.usages] == ([] if peak is None else [peak])


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


async def test_a_round_in_which_no_figure_changed_makes_no_accounts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are made once for rounds that are alike, and again after a change of what they are made of."""
    made = []

    def counted(*given: Any) -> Any:
        made.append(1)
        return account(*given)

    monkeypatch.setattr(accountant, "account", counted)
    still = [("nothing", 10, 0)] * 3
    await played(still)
    assert len(made) == 1
    for kind in ("used", "handed", "busy", "partial", "evicted", "mig"):
        made.clear()
        await played([*still, (kind, 10, 1), *still])
        assert len(made) == 2 + (kind == "partial"), kind
