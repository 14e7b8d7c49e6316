"""
From the kernel's files to the policy: what follows from an excess, what is held, and why.

GPUs of other vendors, whose figures were never compared with hardware; and NVIDIA's, where the kernel counts by cgroup.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from default_rules import default_rules
from driver.node import FakeComputeInstance, FakeGpuInstance, FakeNode, FakeProcess, gpus
from enforcer.policy.decide import decide
from enforcer.policy.history import History, Moment, Standing
from enforcer.policy.outcomes import rehearsed
from enforcer.policy.rules import Rules
from enforcer.policy.vocabulary import Mode, Reason, State, Trigger
from exporter.devices import DeviceSource
from exporter.devices.kernel import KernelSource
from exporter.model import PodUid
from sources.kernel import Node
from sources.nvml import Open, nvml
from sources.rounds import Pods, Rounds, cgroup, uid

__all__ = ["nvml"]

BUS = "0000:03:00.0"
GIB = 2**30


class Judging:
    """Pods `a` and `b` on a GPU, and the policy over its rounds."""

    def __init__(self, node: Node, pods: Pods, rules: Rules, devices: DeviceSource | None = None) -> None:
        self.node = node
        self.rounds = Rounds(node, pods, devices)
        self.rules = rules
        self.history = History()
        for pid, name in ((100, "a"), (200, "b")):
            self.node.process(pid, cgroup=f"0::/{cgroup(name)}")

    async def judged(self) -> Mapping[PodUid, tuple[State, Reason | None]]:
        """Judge some rounds, an interval apart; where each pod stands then."""
        standings: tuple[Standing, ...] = ()
        for number in range(1, 13):  # 60 s; due after 35
            at = 1000.0 + number * self.rules.interval
            snapshot = replace(await self.rounds.next(), monotonic=at)
            self.history, verdict = decide(snapshot, self.rules, self.history, Moment(at, at))
            if verdict.action is not None:  # a dry run: nothing is done
                self.history = rehearsed(self.history, verdict.action, Moment(at, at))
            standings = verdict.standings
        await self.rounds.close()
        return {one.key.pod_uid: (one.state, one.reason) for one in standings}


class Stage(Judging):
    """An Intel GPU that two pods share, each of which may hold 1 GiB."""

    def __init__(self, folder: Path, rules: Rules) -> None:
        node = Node(folder / "node")
        node.card(BUS, driver="xe", number=1, figures={"tile0/physical_vram_size_bytes": 16 * GIB})
        asked = {"gpu.intel.com/xe": "1", "gpu.intel.com/memory.max": "1Gi"}
        pods = Pods(
            handed={"a": ("gpu.intel.com/xe", ("card1-0",)), "b": ("gpu.intel.com/xe", ("card1-1",))},
            asked={"a": asked, "b": asked},
            offered={"gpu.intel.com/xe": ("card1-0", "card1-1")},
        )
        super().__init__(node, pods, rules)

    def holds(self, pid: int, size: int, *, shared: int = 0) -> None:
        """Let a process hold bytes, of which some buffers are shared."""
        text = f"drm-driver:\txe\ndrm-client-id:\t{pid}\ndrm-pdev:\t{BUS}\ndrm-resident-vram0:\t{size}"
        self.node.descriptor(pid, 5, f"{text}\ndrm-shared-vram0:\t{shared}")


RULES = default_rules(mode=Mode.DRY_RUN, trigger=Trigger.LIMIT, grace=20.0, hold_off=0.0)
TRUSTED = replace(RULES, trusted_vendors=frozenset({"nvidia", "intel"}))


async def test_an_excess_is_held_until_somebody_trusts_the_vendor(tmp_path: Path) -> None:
    """3 GiB of 1 are seen and held, because these figures were never compared with hardware. The other pod is `ok`."""
    stage = Stage(tmp_path, RULES)
    stage.holds(100, 3 * GIB)
    stage.holds(200, GIB // 2)
    assert await stage.judged() == {uid("a"): (State.HELD, Reason.UNVERIFIED_BACKEND), uid("b"): (State.OK, None)}


async def test_a_trusted_vendor_is_judged_like_any(tmp_path: Path) -> None:
    """The operator named the vendor: the excess leads to an action, here in a dry run."""
    stage = Stage(tmp_path, TRUSTED)
    stage.holds(100, 3 * GIB)
    stage.holds(200, GIB // 2)
    assert (await stage.judged())[uid("a")][0] in {State.DUE, State.ACTING}


async def test_shared_buffers_convict_nobody(tmp_path: Path) -> None:
    """Of 3 GiB all but a half may be another pod's: then the usage is unknown, and nothing follows."""
    stage = Stage(tmp_path, TRUSTED)
    stage.holds(100, 3 * GIB, shared=5 * GIB // 2)
    assert (await stage.judged())[uid("a")][0] is State.UNJUDGED


async def test_what_is_surely_ones_own_convicts(tmp_path: Path) -> None:
    """Of 3 GiB a half may be another pod's: the rest alone is above the limit."""
    stage = Stage(tmp_path, TRUSTED)
    stage.holds(100, 3 * GIB, shared=GIB // 2)
    assert (await stage.judged())[uid("a")][0] in {State.DUE, State.ACTING}


async def test_who_hides_a_process_is_unjudged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """3 GiB of 1, but with more descriptors than are looked at: the usage is unknown, neither within nor over."""
    monkeypatch.setattr("exporter.devices.kernel.holders.MOST", 16)
    stage = Stage(tmp_path, TRUSTED)
    stage.holds(100, 3 * GIB)
    for number in range(20):
        stage.node.descriptor(100, 10 + number, "")
    stage.holds(200, GIB // 2)
    stage.node.cgroup("", {"capacity": f"drm/{BUS}/vram0 {16 * GIB}\n", "current": f"drm/{BUS}/vram0 {4 * GIB}\n"})
    assert await stage.judged() == {uid("a"): (State.UNJUDGED, Reason.READING_UNKNOWN), uid("b"): (State.OK, None)}


async def test_by_kfd_who_is_in_no_list_is_unjudged(tmp_path: Path) -> None:
    """Such a pod may hold unseen memory by DRM: it is neither within nor short. One over by ROCm's bytes is over."""
    node = Node(tmp_path / "node")
    node.card(BUS, figures={"mem_info_vram_total": 80 * GIB, "mem_info_vram_used": 80 * GIB})
    node.rocm_node(1, 41657, location_id=0x300, domain=0, drm_render_minor=128, bank=80 * GIB)
    asked = {name: {"amd.com/gpu": "1", "amd.com/gpumem": str(size * 1024)} for name, size in (("a", 40), ("b", 32))}
    pods = Pods(dict.fromkeys("ab", ("amd.com/gpu", (BUS,))), asked)
    rules = replace(RULES, trusted_vendors=frozenset({"amd"}))
    judging = Judging(node, pods, rules, KernelSource(node.roots, name="kfd"))
    node.rocm(100, {41657: 48 * GIB}, queues=(41657,))
    assert await judging.judged() == {
        uid("a"): (State.DUE, Reason.DRY_RUN),  # AMD's plugin hands GPUs out whole, and yet two pods are on this one
        uid("b"): (State.UNJUDGED, Reason.READING_UNKNOWN),
    }


(CARD,) = gpus(1)
REGION = f"nvidia/{CARD.pci.lower()}/vidmem"
OVER = {State.DUE, State.ACTING}


@pytest.fixture
def counted(fake_node: FakeNode, tmp_path: Path) -> Node:
    """A GPU of NVIDIA's with driver R615, whose memory the kernel counts."""
    fake_node.write([CARD], driver="615.71.09")
    node = Node(tmp_path / "node")
    node.cgroup("", {"capacity": f"{REGION} {40 * GIB}\n", "current": f"{REGION} {20 * GIB}\n"})
    return node


def counts(node: Node, name: str, used: int, *, limit: int | str = "max") -> None:
    """Let the kernel count bytes of a pod's container, and keep it to a limit."""
    node.cgroup(cgroup(name), {"current": f"{REGION} {used}\n", "max": f"{REGION} {limit}\n"})


def lists(node: FakeNode, first: int, second: int) -> None:
    """Let the driver list what the processes of `a` and `b` hold."""
    held = (FakeProcess(100, first), FakeProcess(200, second))
    node.write([replace(CARD, other=10 * GIB, processes=held)], driver="615.71.09")


def nvidia(node: Node, devices: DeviceSource, resource: str, *ids: str) -> Judging:
    """Hand a device to each pod, which declares 1 GiB on it."""
    handed: dict[str, tuple[str, tuple[str, ...]]] = {
        name: (resource, (each,)) for name, each in zip("ab", ids, strict=True)
    }
    noted = {name: {"nvidia.com/container.main.gpu-memory.limit": "1Gi"} for name in handed}
    return Judging(node, Pods(handed=handed, noted=noted, offered={resource: ids}), RULES, devices)


def shared(node: Node, devices: DeviceSource) -> Judging:
    """Let both pods share the GPU by time."""
    return nvidia(node, devices, "nvidia.com/gpu.shared", f"{CARD.uuid}::0", f"{CARD.uuid}::1")


async def test_what_the_kernel_counts_decides(fake_node: FakeNode, nvml: Open, counted: Node) -> None:
    """
    NVIDIA: a pod above its limit by the kernel's count is over, and one below it is `ok`.

    The driver's lists show less: a buffer whose process has ended is not in them.
    """
    lists(fake_node, GIB // 2, GIB // 4)
    counts(counted, "a", 3 * GIB)
    counts(counted, "b", GIB // 2)
    judged = await shared(counted, await nvml()).judged()
    assert judged[uid("a")][0] in OVER
    assert judged[uid("b")] == (State.OK, None)


async def test_where_the_kernel_counts_less_both_have_to_convict(
    fake_node: FakeNode, nvml: Open, counted: Node
) -> None:
    """
    The lists say more than the kernel counts: bytes that were charged elsewhere, or a buffer that is in two lists.

    A pod over by both is over. A pod over by the lists alone is neither over nor within.
    """
    lists(fake_node, 4 * GIB, 3 * GIB)
    counts(counted, "a", 3 * GIB)
    counts(counted, "b", GIB // 2)
    judged = await shared(counted, await nvml()).judged()
    assert judged[uid("a")][0] in OVER
    assert judged[uid("b")] == (State.UNJUDGED, Reason.READING_UNKNOWN)


async def test_a_limit_in_the_kernel_is_no_declaration(fake_node: FakeNode, nvml: Open, counted: Node) -> None:
    """
    A fence (or NVIDIA's own tool) keeps a cgroup to some bytes; what was declared is what counts.

    Fenced above its limit, because it held more than that already, it is over all the same; kept below it, it is well.
    """
    lists(fake_node, 0, 0)
    counts(counted, "a", 3 * GIB, limit=3 * GIB)
    counts(counted, "b", GIB // 4, limit=GIB // 2)
    judged = await shared(counted, await nvml()).judged()
    assert judged[uid("a")][0] in OVER
    assert judged[uid("b")] == (State.OK, None)


async def test_a_count_of_the_whole_gpu_convicts_nobody_on_an_instance(
    fake_node: FakeNode, nvml: Open, counted: Node
) -> None:
    """
    MIG: the driver's list of the instance is what its container holds, whatever the kernel counts of the GPU.

    What follows from an excess there is told apart: hardware keeps the neighbours from harm.
    """
    instances = tuple(
        FakeGpuInstance(1 + slot, 10 * GIB, (FakeComputeInstance(f"MIG-{slot}", slot=slot),)) for slot in (0, 1)
    )
    held = (FakeProcess(100, 3 * GIB, device="MIG-0"), FakeProcess(200, GIB // 2, device="MIG-1"))
    fake_node.write([replace(CARD, mig="on", instances=instances, processes=held)], driver="615.71.09")
    counts(counted, "a", GIB // 2)
    counts(counted, "b", 3 * GIB)
    judged = await nvidia(counted, await nvml(), "nvidia.com/mig-1g.10gb", "MIG-0", "MIG-1").judged()
    assert judged == {uid("a"): (State.HELD, Reason.MIG), uid("b"): (State.OK, None)}
