"""The driver's limits of cgroups: the daemon's own calls, by the real pynvml, on the fake driver of R615."""

from __future__ import annotations

from dataclasses import replace

import pynvml
import pytest

from driver.node import FakeComputeInstance, FakeGpuInstance, FakeNode, GiB, Variant, gpus, until
from enforcer.actions.fence.driver import CgroupLimits, LimitsDeniedError, LimitsError, LimitsHungError
from enforcer.actions.fence.nvml import NvmlLimits
from exporter.model import GpuUuid
from sources.limits import HASTY, MAIN, R615, SIDE, Ground, ground, limits, scope
from sources.nvml import Program

__all__ = ["ground", "limits"]

SET, GET = "nvmlDeviceSetMemoryLimits", "nvmlDeviceGetMemoryLimits"


async def test_a_hard_limit_refuses_what_is_new_and_takes_nothing(ground: Ground, limits: NvmlLimits) -> None:
    """What is held stays, more fails with out of memory, the process lives; the container beside it is free to take."""
    main, side = ground.workload(f"alloc 0 {4 * GiB}"), ground.workload(f"alloc 0 {GiB}", container=SIDE)
    await limits.limit(ground.gpu, ground.path(), 4 * GiB)
    assert await limits.read(ground.gpu, ground.path()) == CgroupLimits(0, 4 * GiB, 4 * GiB)
    assert ground.refused(main) and not ground.refused(side, 8 * GiB)
    assert main.says().total == 4 * GiB
    main.free()
    assert not ground.refused(main, 4 * GiB) and ground.refused(main, 1)


async def test_a_limit_counts_all_of_the_cgroup(ground: Ground, limits: NvmlLimits) -> None:
    """Two processes, a forked child that keeps a dead parent's memory, and a cgroup below share one limit."""
    first, second = ground.workload(f"alloc 0 {GiB}"), ground.workload(f"alloc 0 {GiB}")
    below = ground.node.spawn(f"alloc 0 {GiB}", env={"FAKE_NVML_CGROUP": f"{scope(MAIN)}/docker/1"})
    first.ghost(0, GiB)
    await limits.limit(ground.gpu, ground.path(), 5 * GiB)
    assert (await limits.read(ground.gpu, ground.path())).used == 4 * GiB
    assert not ground.refused(second)
    assert ground.refused(first) and ground.refused(below) and ground.refused(second)


async def test_without_a_limit_there_is_none(ground: Ground, limits: NvmlLimits) -> None:
    """Soft 0 and no hard one; taken away, everything is as before."""
    main = ground.workload(f"alloc 0 {GiB}")
    assert await limits.read(ground.gpu, ground.path()) == CgroupLimits(0, None, GiB)
    await limits.limit(ground.gpu, ground.path(), GiB)
    assert ground.refused(main)
    await limits.limit(ground.gpu, ground.path(), None)
    assert (await limits.read(ground.gpu, ground.path())).unset
    assert not ground.refused(main)


@pytest.mark.parametrize("code", [3, 6])
async def test_a_back_end_that_tells_nothing_while_nothing_is_set(
    ground: Ground, limits: NvmlLimits, code: int
) -> None:
    """NOT_SUPPORTED and NOT_FOUND are "no limit" then, and nothing is known of the use; set, it tells both."""
    ground.node.set_switch("limits_unset", code)
    assert await limits.read(ground.gpu, ground.path()) == CgroupLimits(0, None, None)
    await limits.limit(ground.gpu, ground.path(), GiB)
    assert await limits.read(ground.gpu, ground.path()) == CgroupLimits(0, GiB, 0)


async def test_a_cgroup_that_goes_takes_its_limit_along(ground: Ground, limits: NvmlLimits) -> None:
    """Another one of the same name has none."""
    await limits.limit(ground.gpu, ground.path(), GiB)
    leaf = ground.mount / scope(MAIN).strip("/")
    leaf.rename(leaf.with_name("gone"))
    assert (await limits.read(ground.gpu, ground.path())).unset
    with pytest.raises(LimitsError):
        await limits.limit(ground.gpu, ground.path(), GiB)
    leaf.mkdir()
    assert (await limits.read(ground.gpu, ground.path())).unset


@pytest.mark.parametrize(
    ("code", "error"), [(4, LimitsDeniedError), (3, LimitsError), (2, LimitsError), (15, LimitsError), (1, LimitsError)]
)
async def test_what_the_driver_refuses_is_not_set(
    ground: Ground, limits: NvmlLimits, code: int, error: type[LimitsError]
) -> None:
    """Not root, not supported, no such cgroup, GPU lost, driver gone: each raises the error of what it means here."""
    ground.node.fail(SET, code)
    with pytest.raises(LimitsError) as told:
        await limits.limit(ground.gpu, ground.path(), GiB)
    assert type(told.value) is error
    ground.node.clear_switch(f"fail.{SET}")
    assert (await limits.read(ground.gpu, ground.path())).unset
    await limits.limit(ground.gpu, ground.path(), GiB)
    assert (await limits.read(ground.gpu, ground.path())).hard == GiB


async def test_who_is_not_root_may_not_set_and_may_look(ground: Ground, limits: NvmlLimits) -> None:
    """The driver's own rule (in the fake, a switch stands for root where the tests are not root)."""
    ground.node.clear_switch("limits_for_all")
    ground.node.fail(SET, 4)
    with pytest.raises(LimitsDeniedError):
        await limits.limit(ground.gpu, ground.path(), GiB)
    assert (await limits.read(ground.gpu, ground.path())).unset


@pytest.mark.parametrize("limits", [HASTY], indirect=True)
async def test_a_driver_that_hangs_is_waited_for_no_longer_than_the_deadline(
    ground: Ground, limits: NvmlLimits
) -> None:
    """The error says that the call has not returned, because it may still take effect; afterwards limits work again."""
    ground.node.hang(SET)
    with pytest.raises(LimitsHungError, match="has not returned"):
        await limits.limit(ground.gpu, ground.path(), GiB)
    with pytest.raises(LimitsHungError):
        await limits.read(ground.gpu, ground.path())
    ground.node.clear_switch(f"hang.{SET}")

    def set_() -> bool:
        return any((ground.node.folder / "limits").iterdir())

    until(set_, "the late call to come about")


@pytest.mark.parametrize("limits", [HASTY], indirect=True)
async def test_a_driver_that_is_lost_while_a_call_hangs_is_released(ground: Ground, limits: NvmlLimits) -> None:
    """The call reports it after its caller gave up: the daemon does not stay a user of the driver."""
    assert (await limits.read(ground.gpu, ground.path())).unset
    ground.node.hang(GET)
    with pytest.raises(LimitsHungError):
        await limits.read(ground.gpu, ground.path())
    released = ground.node.calls("nvmlShutdown")
    ground.node.fail(GET, pynvml.NVML_ERROR_UNINITIALIZED)
    ground.node.clear_switch(f"hang.{GET}")
    until(lambda: ground.node.calls("nvmlShutdown") > released, "the release")


@pytest.mark.parametrize(
    ("driver", "why"), [(R615, None), ("580.65.06", "driver 580.65.06 limits no cgroups: R615 and later do")]
)
async def test_an_older_driver_cannot(ground: Ground, limits: NvmlLimits, driver: str, why: str | None) -> None:
    """Known from its version, and nothing is set to find out."""
    ground.node.write(ground.node.gpus, driver=driver, cgroups=ground.mount)
    assert await limits.impossible() == why
    assert not ground.node.calls(SET)


def test_a_library_without_the_calls_cannot(fake_node: FakeNode, program: Program) -> None:
    """Found out by looking for them."""
    fake_node.write(gpus(1), driver="470.57.02")
    text = (
        "import asyncio; from enforcer.actions.fence.nvml import NvmlLimits as N; print(asyncio.run(N().impossible()))"
    )
    done = program(text, fake_node.environment(Variant.OLD))
    assert done.stdout == f"the driver's library has no {SET}_v1: R615 and later have it\n", done.stderr


async def test_a_gpu_in_mig_mode_cannot(ground: Ground, limits: NvmlLimits) -> None:
    """Where all GPUs are in MIG mode, no limit is possible; one GPU that is not in MIG mode is enough."""
    instance = FakeGpuInstance(1, 10 * GiB, (FakeComputeInstance("MIG-1", 0),))
    split = replace(gpus(1)[0], mig="on", instances=(instance,))
    ground.node.write([split], driver=R615, cgroups=ground.mount)
    assert await limits.impossible() == "all GPUs are in MIG mode, which has no limits of cgroups"
    with pytest.raises(LimitsError):
        await limits.limit(GpuUuid(split.uuid), ground.path(), GiB)
    ground.node.write([split, gpus(2)[1]], driver=R615, cgroups=ground.mount)
    assert await limits.impossible() is None


async def test_whether_a_driver_that_is_not_there_can_is_unknown(fake_node: FakeNode, limits: NvmlLimits) -> None:
    """It may come back, so it is no reason to pass over the step; once it is there, it can."""
    with pytest.raises(LimitsError, match="Driver Not Loaded"):
        await limits.impossible()
    fake_node.write(gpus(1), driver=R615)
    assert await limits.impossible() is None


async def test_cgroups_of_version_1_cannot(ground: Ground, limits: NvmlLimits) -> None:
    """A folder that is in no unified hierarchy is refused."""
    with pytest.raises(LimitsError):
        await limits.limit(ground.gpu, "/proc", GiB)
