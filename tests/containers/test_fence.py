"""
The action `fence` on real containers, whose processes sit in real cgroups of version 2.

In: pods of workloads on the fake driver. Out: which of them may take more memory. Where the workload itself has to
meet the fence, its container is put into a cgroup as systemd names it. The workload recognises such a name also from a
private cgroup namespace. In each test sidecar and neighbour live, and may take what they like.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from containers.cgroupfs import below, move, paths, start_ticks
from containers.fixtures import RunPod, wait_until
from containers.observed import container as workload_of
from containers.observed import import_workload
from containers.pods import Bed, Container
from default_rules import default_rules
from driver.node import FakeNode, GiB, MiB, Workload, WorkloadError, gpus
from enforcer.actions.fence.actuator import Fencing
from enforcer.actions.fence.cgroup_paths import Leaves, mount_point
from enforcer.actions.fence.nvml import NvmlLimits
from enforcer.actions.interface import Answer, Heard
from enforcer.journal import file as journal_file
from enforcer.journal.file import JournalFile
from enforcer.journal.records import Planned
from enforcer.journal.writer import JournalWriter
from enforcer.policy.history import Action
from enforcer.policy.holder import CaseKey
from enforcer.policy.vocabulary import Rung
from exporter.base.cgroup_owner import USUAL
from exporter.model import ContainerId, DeviceKey, GpuUuid, PodUid
from sources.limits import R615, limits, out_of_memory

__all__ = ["limits"]

pytestmark = pytest.mark.containers

PROC = Path("/proc")
DECISION = "decision-1"


@dataclass
class Running:
    """A container whose first process is a workload."""

    container: Container
    workload: Workload

    @classmethod
    def found(cls, container: Container, workload: Workload) -> Running:
        workload.ready()
        return cls(container, workload)

    def unified(self, bed: Bed) -> Path:
        """Put it where it is on a node with systemd and cgroup version 2."""
        folder = bed.containerd.cgroups.scope_v2(self.container.pod.uid, self.container.id)
        move(self.container.pid, folder)
        return folder

    def takes(self, size: int) -> bool:
        """Take more memory; False when the driver refuses, and the container goes on."""
        refused = out_of_memory(self.workload, size)
        assert self.container.running
        return not refused

    def action(self, gpu: GpuUuid, *, used: int = 0) -> Action:
        uid, id_ = PodUid(self.container.pod.uid), ContainerId(self.container.id)
        key = CaseKey(uid, self.container.spec.name, id_, "", gpu)
        names = ("team-a", self.container.pod.name, self.container.spec.name)
        workload = ("team-a", "Job", "job")
        return Planned(
            Rung.FENCE, key, DeviceKey(gpu), uid, *names, id_, workload, used, 8 * GiB, "policy", 1.0, dry=False
        ).restored()


class Stage:
    """The action `fence`, a pod of two containers and its neighbour."""

    def __init__(self, bed: Bed, run_pod: RunPod, node: FakeNode, limits: NvmlLimits, journal: JournalFile) -> None:
        self.bed, self.run_pod, self.node, self.limits, self.journal = bed, run_pod, node, limits, journal
        self.gpu = GpuUuid(node.gpus[0].uuid)
        self.restart()
        self.main, self.side = self.pod("main", "side")
        (self.neighbour,) = self.pod("main", name="neighbour")
        self.bystanders = {one.container.pid: start_ticks(one.container.pid) for one in (self.side, self.neighbour)}

    def pod(self, *names: str, name: str = "job") -> list[Running]:
        specs = [workload_of(one, self.node) for one in names]
        pod = self.run_pod(*(spec for spec, _ in specs), name=name)
        return [
            Running.found(pod.containers[one], self.node.workload(speaks))
            for one, (_, speaks) in zip(names, specs, strict=True)
        ]

    def restart(self) -> None:
        """Be another daemon."""
        leaves = Leaves(PROC, mount_point(), USUAL)
        assert leaves.unavailable() is None
        self.fencing = Fencing(self.limits, leaves, JournalWriter(self.journal, pytest.fail))

    async def act(self, victim: Running, *, used: int = 0) -> Answer:
        return await self.fencing.act(victim.action(self.gpu, used=used), DECISION)

    async def keep(self, why: str | None, *, seen: int | None = None) -> int:
        """Look after the fences; return how many stand no more."""
        return len(await self.fencing.keep(lambda _: why, lambda _: seen))

    async def hard(self, folder: Path) -> int | None:
        return (await self.limits.read(self.gpu, str(folder))).hard


@pytest.fixture
def stage(bed: Bed, run_pod: RunPod, fake_node: FakeNode, limits: NvmlLimits, tmp_path: Path) -> Iterator[Stage]:
    """A node of 80 GiB. To the end sidecar and neighbour live, and may take what they like."""
    fake_node.write(gpus(1, total=80 * GiB), driver=R615)
    import_workload(bed, fake_node, tmp_path)
    tmp_path.chmod(0o755)
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    journal = journal_file.opened(state / "journal", default_rules())
    made = Stage(bed, run_pod, fake_node, limits, journal)
    yield made
    assert made.side.takes(2 * GiB) and made.neighbour.takes(2 * GiB), "an innocent was fenced"
    assert all(start_ticks(pid) == ticks for pid, ticks in made.bystanders.items()), "an innocent did not live"
    journal.close()


async def test_growth_ends_in_the_container_and_everybody_lives(stage: Stage) -> None:
    """Its allocations fail, it keeps what it has and goes on; without the fence it may take more again."""
    folder = stage.main.unified(stage.bed)
    stage.side.unified(stage.bed)
    assert stage.main.takes(12 * GiB) and stage.side.takes(GiB)
    pid = stage.main.container.pid
    assert await stage.act(stage.main, used=12 * GiB) == Answer(Heard.ACCEPTED, "fenced at 12 GiB")
    assert await stage.fencing.ended(stage.main.action(stage.gpu)) is True
    assert not stage.main.takes(1) and stage.side.takes(4 * GiB) and stage.neighbour.takes(4 * GiB)
    assert stage.main.workload.says().total == 12 * GiB
    stage.main.workload.free()
    assert await stage.keep(None, seen=0) == 0
    assert await stage.hard(folder) == 8 * GiB
    assert stage.main.takes(8 * GiB) and not stage.main.takes(1)
    assert await stage.keep("the mode is observe") == 1
    assert await stage.hard(folder) is None and stage.main.takes(4 * GiB)
    assert stage.main.container.pid == pid and stage.main.container.running


async def test_what_its_processes_hold_together_counts(stage: Stage) -> None:
    """A second process of the container, and memory that a child keeps of a dead parent: one fence for all."""
    folder = stage.main.unified(stage.bed)
    stage.main.workload.children(2, 0, 4 * GiB)
    stage.main.workload.ghost(0, 2 * GiB)
    assert (await stage.act(stage.main)).heard is Heard.ACCEPTED
    assert await stage.hard(folder) == 10 * GiB
    with pytest.raises(WorkloadError, match="out of memory"):
        stage.main.workload.children(1, 0, 2 * MiB)


async def test_the_next_daemon_knows_the_fence_and_takes_it_down(stage: Stage) -> None:
    """By the journal: not set twice, seen to be in force, and gone when its reason is."""
    folder = stage.main.unified(stage.bed)
    assert stage.main.takes(12 * GiB)
    await stage.act(stage.main, used=12 * GiB)
    calls = stage.node.calls("nvmlDeviceSetMemoryLimits")
    stage.restart()
    assert (await stage.act(stage.main, used=12 * GiB)).detail == "it is fenced at 12 GiB already"
    assert stage.node.calls("nvmlDeviceSetMemoryLimits") == calls
    assert await stage.keep("the ladder has no fence") == 1
    assert await stage.hard(folder) is None and stage.main.takes(GiB)


async def test_a_container_that_restarts_has_no_fence(stage: Stage) -> None:
    """Another container, another cgroup: the old one's fence went with it, and is forgotten."""
    folder = stage.main.unified(stage.bed)
    await stage.act(stage.main)
    stage.main.container.restart()
    stage.main.workload.ready()
    wait_until(lambda: not (folder / "cgroup.procs").read_text(), what="the old cgroup is empty")
    folder.rmdir()
    assert await stage.keep(None) == 1 and not stage.journal.kept.fences
    again = stage.main.unified(stage.bed)
    assert again != folder and await stage.hard(again) is None
    assert stage.main.takes(12 * GiB)


async def test_a_limit_of_somebody_else_stays(stage: Stage) -> None:
    """The container toolkit, or a person, has set one: it is found, reported, and left as it is."""
    folder = stage.main.unified(stage.bed)
    await stage.limits.limit(stage.gpu, str(folder), 16 * GiB)
    assert (await stage.act(stage.main)).heard is Heard.TAKEN
    await stage.keep("the mode is observe")
    assert await stage.hard(folder) == 16 * GiB


async def test_the_cgroup_that_the_runtime_made_is_found(stage: Stage) -> None:
    """Of version 2, also on a hybrid node (runc from 1.1 on joins it there, too); the fence is on that and no other."""
    root = mount_point()
    assert root is not None
    folder = below(root, stage.main.container.cgroup)
    assert (await stage.act(stage.main)).heard is Heard.ACCEPTED
    assert await stage.hard(folder) == 8 * GiB
    assert not stage.main.takes(9 * GiB) and stage.main.takes(8 * GiB)
    assert await stage.hard(folder.parent) is None
    assert await stage.hard(below(root, stage.side.container.cgroup)) is None
    assert await stage.keep("the mode is observe") == 1
    assert await stage.hard(folder) is None


async def test_a_private_cgroup_namespace_hides_nobody(stage: Stage) -> None:
    """Where a container sees its own cgroup as the root, as with version 2 alone, the fence holds all the same."""
    folder = stage.bed.containerd.cgroups.scope_v2(stage.main.container.pod.uid, stage.main.container.id)
    enter = f'echo $$ > "{folder}/cgroup.procs" && exec unshare --cgroup --mount sh -c "$1" sh "$@"'
    mount = 'mount -t cgroup2 none /sys/fs/cgroup && shift && exec "$@"'
    inside = stage.node.spawn(f"alloc 0 {12 * GiB}", prefix=["sh", "-c", enter, "sh", mount])
    assert paths(inside.pid)[""] == "/" + str(folder.relative_to(mount_point() or ""))
    move(stage.main.container.pid, folder)
    assert await stage.act(stage.main) == Answer(Heard.ACCEPTED, "fenced at 12 GiB")
    assert out_of_memory(inside, 1) and not stage.main.takes(1)
    inside.close()
