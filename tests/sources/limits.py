"""
A node of the fake driver whose GPUs can be limited, with the unified cgroup hierarchy played by a folder: no root.

In: a fake node. Out: limits as the daemon sets them, cgroups, workloads in them. The folder stands for the kernel's;
what is real is the library, pynvml, and each process.
"""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from driver.node import FakeNode, GiB, Workload, WorkloadError, gpus
from enforcer.actions.fence.driver import LimitsError
from enforcer.actions.fence.nvml import NvmlLimits
from exporter.model import GpuUuid

R615 = "615.43.02"
POD = "8c5bb2f4-5e6f-4f0c-9d6b-0a7c1d2e3f40"
SLICE = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod8c5bb2f4_5e6f_4f0c_9d6b_0a7c1d2e3f40.slice"
MAIN, SIDE = "a" * 64, "b" * 64
PATIENT, HASTY = 30.0, 0.5
"""Seconds of a call's deadline: longer than a busy machine takes, and as long as a test waits for a call that hangs."""


def scope(container: str) -> str:
    """Name the cgroup of a container of `POD` as containerd does with the systemd driver."""
    return f"{SLICE}/cri-containerd-{container}.scope"


def out_of_memory(workload: Workload, size: int, device: int | str = 0) -> bool:
    """Have it take more of a GPU; say whether that fails. Any other end is an error."""
    try:
        workload.alloc(device, size)
    except WorkloadError as error:
        if not str(error).endswith("out of memory"):
            raise
        return True
    return False


class Ground:
    """A node with one GPU of 40 GiB, and the cgroups of one pod with two containers."""

    def __init__(self, node: FakeNode, folder: Path) -> None:
        self.node = node
        self.mount = folder / "cgroup"
        for container in (MAIN, SIDE):
            (self.mount / scope(container).strip("/")).mkdir(parents=True)
        node.write(gpus(1), driver=R615, cgroups=self.mount)
        node.set_switch("limits_for_all")
        self.gpu = GpuUuid(node.gpus[0].uuid)

    def path(self, container: str = MAIN) -> str:
        """Say where its cgroup is."""
        return f"{self.mount}{scope(container)}"

    def workload(self, *commands: str, container: str = MAIN) -> Workload:
        """Start a workload in the cgroup of a container."""
        return self.node.spawn(*commands, env={"FAKE_NVML_CGROUP": scope(container)})

    @staticmethod
    def refused(workload: Workload, size: int = GiB) -> bool:
        """Say whether an allocation fails; a process whose allocation is refused has to live."""
        refused = out_of_memory(workload, size)
        assert workload.process is not None and workload.process.poll() is None
        return refused


@pytest.fixture
def ground(fake_node: FakeNode, tmp_path: Path) -> Ground:
    """Give a node whose GPU can be limited."""
    return Ground(fake_node, tmp_path)


@pytest.fixture
async def limits(
    request: pytest.FixtureRequest, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[NvmlLimits]:
    """
    Give the daemon's own limits, on the fake driver; calls that a test left hanging are released.

    Its deadline is `PATIENT`, or the parameter: `HASTY` where a call hangs.
    """
    monkeypatch.setenv("FAKE_NVML_STATE", str(fake_node.folder))
    fake_node.preload()
    made = NvmlLimits(deadline=getattr(request, "param", PATIENT))
    yield made
    for switch in (fake_node.folder / "switches").iterdir():
        switch.unlink(missing_ok=True)
    with contextlib.suppress(LimitsError):
        await made.impossible()
    await made.close()
