"""The step `fence` on the fake driver: real calls, real workloads, a real journal; cgroups and /proc are folders."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from default_rules import default_rules
from driver.node import FakeNode, GiB, MiB, Workload
from enforcer.actions.fence.actuator import Fencing
from enforcer.actions.fence.cgroup_paths import Leaves
from enforcer.actions.fence.driver import CgroupLimits
from enforcer.actions.fence.fences import NoCgroup
from enforcer.actions.fence.nvml import NvmlLimits
from enforcer.actions.interface import Answer, Heard
from enforcer.journal import file as journal_file
from enforcer.journal.file import JournalFile
from enforcer.journal.records import Fenced, Planned
from enforcer.journal.writer import JournalWriter
from enforcer.policy.history import Action
from enforcer.policy.holder import CaseKey, Target
from enforcer.policy.vocabulary import Rung
from exporter.base.cgroup_owner import USUAL
from exporter.model import ContainerId, DeviceKey, GpuUuid, PodUid
from sources.limits import HASTY, MAIN, PATIENT, POD, SIDE, Ground, ground, limits, scope

__all__ = ["ground", "limits"]

SET, GET = "nvmlDeviceSetMemoryLimits", "nvmlDeviceGetMemoryLimits"
DECISION = "decision-1"
LIMIT = 8 * GiB
OLD = 2 * GiB


@dataclass
class Stage:
    """A container that is over its limit, its sidecar, and the step `fence`."""

    ground: Ground
    limits: NvmlLimits
    folder: Path
    journal: JournalFile
    lost: list[str] = field(default_factory=list)
    mine: list[Workload] = field(default_factory=list)
    blind: bool = False
    """The process lists could not be read."""

    def __post_init__(self) -> None:
        (self.folder / "proc").mkdir()
        self.main = self.lives(f"alloc 0 {12 * GiB}")
        self.side = self.lives(f"alloc 0 {GiB}", container=SIDE)
        self.fencing = self.made()

    def made(self) -> Fencing:
        """Make the step, as a daemon does at its start."""
        leaves = Leaves(self.folder / "proc", self.ground.mount, USUAL)
        return Fencing(self.limits, leaves, JournalWriter(self.journal, self.lost.append))

    def restart(self) -> None:
        """Be another daemon, with the journal of this one."""
        self.journal.close()
        self.journal = journal_file.opened(self.folder / "journal", default_rules())
        self.fencing = self.made()

    def lives(self, *commands: str, container: str = MAIN) -> Workload:
        workload = self.ground.workload(*commands, container=container)
        folder = self.folder / "proc" / str(workload.pid)
        folder.mkdir()
        (folder / "cgroup").write_text(f"0::{scope(container)}\n")
        if container == MAIN:
            self.mine.append(workload)
        return workload

    def action(self, *, used: int = 12 * GiB, device: DeviceKey | None = None) -> Action:
        gpu = self.ground.gpu
        return Planned(
            Rung.FENCE,
            self.key,
            device or DeviceKey(gpu),
            PodUid(POD),
            "team",
            "train-1",
            "main",
            ContainerId(MAIN),
            ("team", "Job", "train"),
            used,
            LIMIT,
            "policy annotation",
            100.0,
            dry=False,
        ).restored()

    @property
    def key(self) -> CaseKey:
        return CaseKey(PodUid(POD), "main", ContainerId(MAIN), "", self.ground.gpu)

    async def act(self, *, used: int = 12 * GiB) -> Answer:
        return await self.fencing.act(self.action(used=used), DECISION)

    async def keep(self, why: str | None = None) -> Mapping[CaseKey, bool]:
        """Look after the fences; `why` they fall. The process lists see what the workloads say."""
        seen = sum(one.says().total for one in self.mine)
        return await self.fencing.keep(lambda _: why, lambda _: None if self.blind else seen)

    async def told(self) -> CgroupLimits:
        """What the driver keeps of the container."""
        return await self.limits.read(self.ground.gpu, self.ground.path())

    @property
    def noted(self) -> list[tuple[str, int | str]]:
        """What the journal says of fences, a line each."""
        lines = [json.loads(line) for line in (self.folder / "journal").read_bytes().splitlines()]
        return [
            ("fenced", one["fence"]["hard"]) if one["record"] == "fenced" else ("unfenced", one["detail"])
            for one in lines
            if one["record"] in {"fenced", "unfenced"}
        ]

    @property
    def kept(self) -> Any:
        return self.journal.kept.fences


@pytest.fixture
def stage(ground: Ground, limits: NvmlLimits, tmp_path: Path) -> Iterator[Stage]:
    """Give a fresh stage. After each test the sidecar must be able to take memory, and all processes must live."""
    tmp_path.chmod(0o700)
    made = Stage(ground, limits, tmp_path, journal_file.opened(tmp_path / "journal", default_rules()))
    yield made
    assert not ground.refused(made.side, 2 * GiB), "the sidecar was fenced"
    for one in (made.main, made.side):
        assert one.process is not None and one.process.poll() is None
    made.journal.close()


async def test_a_fence_stands_at_what_is_held_and_stops_growth(stage: Stage) -> None:
    """More fails inside the workload, which lives and keeps all; noted before it was set, and seen to be in force."""
    assert await stage.fencing.ended(stage.action()) is False
    answer = await stage.act()
    assert answer == Answer(Heard.ACCEPTED, "fenced at 12 GiB")
    assert await stage.told() == CgroupLimits(0, 12 * GiB, 12 * GiB)
    assert stage.noted == [("fenced", 12 * GiB)]
    assert await stage.fencing.ended(stage.action()) is True
    assert stage.ground.refused(stage.main, 1) and stage.main.says().total == 12 * GiB


@pytest.mark.parametrize(("held", "at"), [(0, 12 * GiB), (MiB, 12 * GiB + 2 * MiB), (GiB, 13 * GiB)])
async def test_the_driver_knows_best_how_much_is_held(stage: Stage, held: int, at: int) -> None:
    """What was taken since the decision counts, in whole pages; so nothing that is held is above the fence."""
    if held:
        stage.main.alloc(0, held)
    assert (await stage.act(used=10 * GiB)).heard is Heard.ACCEPTED
    told = await stage.told()
    assert told.hard == at and told.used is not None and told.used <= at


async def test_where_the_use_shows_only_then_a_fence_is_raised_at_once(stage: Stage) -> None:
    """A back end that counts from the first limit on: what is held turns out to be more, and the fence goes there."""
    stage.ground.node.set_switch("limits_unset", 3)
    assert (await stage.act(used=10 * GiB)).heard is Heard.ACCEPTED
    assert await stage.told() == CgroupLimits(0, 12 * GiB, 12 * GiB)
    assert stage.noted == [("fenced", 10 * GiB), ("fenced", 12 * GiB)]
    assert await stage.fencing.ended(stage.action()) is True


@pytest.mark.parametrize("hard", [4 * GiB, 20 * GiB])
async def test_a_limit_that_somebody_else_set_is_left_alone(stage: Stage, hard: int) -> None:
    """Below or above ours: it is reported, and neither changed nor taken for ours."""
    await stage.limits.limit(stage.ground.gpu, stage.ground.path(), hard)
    calls = stage.ground.node.calls(SET)
    answer = await stage.act()
    assert answer.heard is Heard.TAKEN and "another program" in answer.detail and f"{hard // GiB} GiB" in answer.detail
    assert await stage.keep("it is to fall") == {}
    assert (await stage.told()).hard == hard and stage.ground.node.calls(SET) == calls
    assert stage.noted == []


async def test_a_fence_that_stands_is_not_set_again(stage: Stage) -> None:
    """Also not by the next daemon, which knows it by the journal."""
    await stage.act()
    calls = stage.ground.node.calls(SET)
    assert await stage.act() == Answer(Heard.ACCEPTED, "it is fenced at 12 GiB already")
    stage.restart()
    assert await stage.fencing.ended(stage.action()) is True
    assert (await stage.act()).heard is Heard.ACCEPTED
    assert stage.ground.node.calls(SET) == calls


@pytest.mark.parametrize(
    ("limits", "switch", "value", "heard", "noted"),
    [
        (PATIENT, f"fail.{SET}", 4, Heard.IMPOSSIBLE, ["fenced", "unfenced"]),
        (PATIENT, f"fail.{SET}", 3, Heard.FAILED, ["fenced", "unfenced"]),
        (PATIENT, f"fail.{SET}", 15, Heard.FAILED, ["fenced", "unfenced"]),
        (PATIENT, f"fail.{GET}", 999, Heard.FAILED, []),
        (HASTY, f"hang.{GET}", "", Heard.FAILED, []),
        (PATIENT, "limits_drift", MiB, Heard.FAILED, ["fenced", "unfenced"]),
    ],
    indirect=["limits"],
    ids=["not root", "not supported", "GPU lost", "nothing told", "hung look", "read back differs"],
)
async def test_what_certainly_does_not_stand_is_told_as_such(
    stage: Stage, switch: str, value: object, heard: Heard, noted: list[str]
) -> None:
    """No fence afterwards, neither in the driver nor in the journal, and the workload takes what it likes."""
    stage.ground.node.set_switch(switch, value)
    answer = await stage.act()
    assert answer.heard is heard and answer.detail
    stage.ground.node.clear_switch(switch)
    assert [kind for kind, _ in stage.noted] == noted and not stage.kept
    assert stage.limits is not None and not stage.ground.refused(stage.main)


@pytest.mark.parametrize("limits", [HASTY], indirect=True)
async def test_a_call_that_hangs_may_have_come_about(stage: Stage) -> None:
    """Ambiguous, and noted as a fence that may stand; when it does, it is ours, and can be taken away."""
    stage.ground.node.hang(SET)
    assert (await stage.act()).heard is Heard.AMBIGUOUS
    assert await stage.fencing.ended(stage.action()) is None
    assert [fence.hard for fence in stage.kept.values()] == [12 * GiB]
    stage.ground.node.clear_switch(f"hang.{SET}")
    async with asyncio.timeout(10):
        while (ended := await stage.fencing.ended(stage.action())) is None:
            await asyncio.sleep(0.005)
    assert ended is True
    assert await stage.keep("it is to fall") == {stage.key: True}
    assert (await stage.told()).unset


async def test_what_cannot_be_noted_is_not_set(stage: Stage) -> None:
    """Another program wrote the journal: no fence is set, and the daemon knows that the journal is lost."""
    with (stage.folder / "journal").open("ab") as file:
        file.write(b"{}\n")
    answer = await stage.act()
    assert answer.heard is Heard.FAILED and "journal" in answer.detail and stage.lost
    assert (await stage.told()).unset and not stage.ground.node.calls(SET)


async def test_a_fence_comes_down_with_the_use_and_never_below_the_limit(stage: Stage) -> None:
    """In steps, each noted; at the limit it stays, and holds."""
    small = stage.lives(f"alloc 0 {OLD}")
    await stage.act()
    assert (await stage.told()).hard == 14 * GiB
    small.free()
    stage.blind = True
    assert await stage.keep() == {}
    assert (await stage.told()).hard == 14 * GiB
    stage.blind = False
    assert await stage.keep() == {}
    assert (await stage.told()).hard == 12 * GiB
    stage.main.free()
    await stage.keep()
    await stage.keep()
    assert await stage.told() == CgroupLimits(0, LIMIT, 0)
    assert stage.noted == [("fenced", 14 * GiB), ("fenced", 12 * GiB), ("fenced", LIMIT)]
    stage.main.alloc(0, LIMIT)
    assert stage.ground.refused(small, 1)


async def test_a_fence_falls_with_its_reason(stage: Stage) -> None:
    """Taken away in the driver, then noted, with the reason; growth is free again."""
    await stage.act()
    assert await stage.keep("the ladder has no fence") == {stage.key: True}
    assert (await stage.told()).unset and not stage.kept
    assert stage.noted[1:] == [("unfenced", "the ladder has no fence")]
    assert not stage.ground.refused(stage.main)
    assert await stage.keep("again") == {}


async def test_the_next_daemon_takes_it_down(stage: Stage) -> None:
    """What one has set the next one knows, and takes away when its reason is gone."""
    await stage.act()
    stage.restart()
    assert await stage.keep("the mode is observe") == {stage.key: True}
    assert (await stage.told()).unset
    stage.restart()
    assert not stage.kept


async def test_a_daemon_that_ended_between_note_and_call_still_owns_what_stands(stage: Stage) -> None:
    """The value before, or the new one: either is ours; so a fence that was to come down is not taken for another's."""
    await stage.act()
    (fence,) = stage.kept.values()
    stage.journal.append(Fenced(structs.replace(fence, hard=9 * GiB, before=fence.hard)))
    stage.restart()
    assert await stage.keep() == {}
    assert await stage.keep("it is to fall") == {stage.key: True}
    assert (await stage.told()).unset


async def test_a_fence_that_somebody_changed_is_theirs(stage: Stage) -> None:
    """Left as it is, and forgotten: a person's hand is above ours."""
    await stage.act()
    await stage.limits.limit(stage.ground.gpu, stage.ground.path(), 20 * GiB)
    assert await stage.keep("it is to fall") == {stage.key: True}
    assert (await stage.told()).hard == 20 * GiB
    assert stage.noted[1:] == [("unfenced", "another program has set 20 GiB")]


async def test_a_fence_that_somebody_took_away_is_not_put_back(stage: Stage) -> None:
    """Forgotten; whether there is to be another one the policy says."""
    await stage.act()
    await stage.limits.limit(stage.ground.gpu, stage.ground.path(), None)
    assert await stage.keep() == {stage.key: True}
    assert (await stage.told()).unset and not stage.kept


async def test_a_fence_goes_with_its_cgroup(stage: Stage) -> None:
    """The container ended: nothing is asked of the driver, and nothing stands."""
    await stage.act()
    leaf = stage.ground.mount / scope(MAIN).strip("/")
    leaf.rename(leaf.with_name("gone"))
    calls = stage.ground.node.calls(GET)
    assert await stage.keep() == {stage.key: False}
    assert stage.ground.node.calls(GET) == calls
    assert stage.noted[1:] == [("unfenced", "its cgroup is gone")]


@pytest.mark.parametrize(("function", "code"), [(GET, 999), (SET, 4), (SET, 15)])
async def test_a_driver_that_does_not_answer_ends_no_fence(stage: Stage, function: str, code: int) -> None:
    """It stands, in the driver and in the journal, until it certainly does not; the next round tries again."""
    await stage.act()
    stage.ground.node.fail(function, code)
    for _ in range(3):
        assert await stage.keep("it is to fall") == {}
    assert stage.kept and stage.ground.refused(stage.main)
    stage.ground.node.clear_switch(f"fail.{function}")
    assert await stage.keep("it is to fall") == {stage.key: True}
    assert (await stage.told()).unset


async def test_a_container_that_is_gone_is_not_fenced(stage: Stage) -> None:
    """No process of it: its end came first."""
    for folder in (stage.folder / "proc").iterdir():
        (folder / "cgroup").write_text(f"0::{scope(SIDE)}\n")
    assert await stage.act() == Answer(Heard.GONE, NoCgroup.NOT_FOUND.value)
    assert not stage.ground.node.calls(SET)


async def test_on_a_hybrid_node_nobody_is_fenced(stage: Stage) -> None:
    """Version 1 names the container, version 2 the runtime's service, in which all containers are: it is left alone."""
    text = f"4:memory:/kubepods/burstable/pod{POD}/{MAIN}\n0::/system.slice/containerd.service\n"
    (stage.folder / "proc" / str(stage.main.pid) / "cgroup").write_text(text)
    assert await stage.act() == Answer(Heard.IMPOSSIBLE, NoCgroup.NOT_UNIFIED.value)
    assert not stage.ground.node.calls(SET)


async def test_the_limit_of_a_pod_fences_the_container_that_alone_uses_the_device(stage: Stage) -> None:
    """The fence is kept under the pod's limit, names the container, and stands for no second one."""
    whole = replace(stage.key, container="", container_id=ContainerId(""))
    action = replace(stage.action(), key=whole, largest=Target("main", ContainerId(MAIN)))
    assert (await stage.fencing.act(action, DECISION)).heard is Heard.ACCEPTED
    assert [(fence.key, fence.fenced) for fence in stage.kept.values()] == [(whole, "main")]
    assert (await stage.told()).hard == 12 * GiB
    assert await stage.fencing.ended(action) is True
    other = replace(action, largest=Target("side", ContainerId(SIDE)))
    answer = await stage.fencing.act(other, DECISION)
    assert (answer.heard, "(main)" in answer.detail) == (Heard.IMPOSSIBLE, True)
    assert [fence.fenced for fence in stage.kept.values()] == ["main"]
    stage.restart()
    assert [fence.fenced for fence in stage.kept.values()] == ["main"]
    assert await stage.keep("it declares no limit") == {whole: True}


async def test_what_no_driver_could_limit_is_not_tried(stage: Stage) -> None:
    """A MIG instance, and a limit of a pod that names no container."""
    instance = stage.action(device=DeviceKey(GpuUuid(stage.ground.gpu), 1))
    pod = replace(stage.action(), key=replace(stage.key, container_id=ContainerId("")))
    for one in (instance, pod):
        assert stage.fencing.preflight(one) is not None
        assert (await stage.fencing.act(one, DECISION)).heard is Heard.IMPOSSIBLE
    assert stage.fencing.preflight(stage.action()) is None
    assert await stage.fencing.insist(stage.action(), DECISION) is None
    assert not stage.ground.node.calls(GET)


def test_where_no_cgroup_can_be_found_that_is_known_before(tmp_path: Path, fake_node: FakeNode) -> None:
    """No cgroup version 2, a private cgroup namespace, no `/proc`: each has an explanation in words."""
    one = tmp_path / "1"
    one.mkdir()
    (one / "cgroup").write_text("4:memory:/init.scope\n")
    assert "is not mounted" in (Leaves(tmp_path, None, USUAL).unavailable() or "")
    assert Leaves(tmp_path, tmp_path, USUAL).unavailable() == "this node has no cgroup version 2"
    (one / "cgroup").write_text("0::/../../../init.scope\n")
    assert "private cgroup namespace" in (Leaves(tmp_path, tmp_path, USUAL).unavailable() or "")
    assert Leaves(tmp_path, tmp_path, USUAL).unavailable(rights=False) is None
    (one / "cgroup").write_text("0::/init.scope\n")
    assert Leaves(tmp_path, tmp_path, USUAL).unavailable() is None
    (one / "cgroup").unlink()
    assert "cannot read" in (Leaves(tmp_path, tmp_path, USUAL).unavailable() or "")
