"""A driver that fails, recorded and replayed: the real pynvml on the fake driver, and this machine's /proc."""

import os
from collections.abc import Collection
from pathlib import Path

from driver.node import FakeNode, FakeProcess, GiB, MiB, gpus
from exporter.base.clock import SystemClock
from exporter.host.procfs import ProcFs
from exporter.kube.file import FileInventory
from exporter.limits.loading import builtin
from exporter.model import GpuUuid, Snapshot
from exporter.recording import Writing
from exporter.recording.keeping import Keeping
from exporter.recording.tape import Tape
from recordings import assert_same, header, replayed, sampler
from sources.nvml import Open


async def test_a_driver_that_fails_is_replayed_as_it_failed(tmp_path: Path, fake_node: FakeNode, nvml: Open) -> None:
    """The fake driver and this machine's /proc: a GPU is lost, lists cannot be read, processes end; all equal."""
    names = tmp_path / "names.yaml"
    names.write_text(f"- {{namespace: a, pod: p, pod_uid: u, container: main, container_id: {'a' * 64}}}\n")
    own = os.getpid()
    live: list[Snapshot] = []
    fake_node.write(
        gpus(2, total=40 * GiB, processes=(FakeProcess(own, 300 * MiB, sm=7), FakeProcess(4194000, 5 * MiB)))
    )
    source = await nvml()
    tape = Tape(source, ProcFs(Path("/proc"), trusted=True), FileInventory(names))
    with Writing(tmp_path / "r", header(), inventory=Keeping.of(builtin()).inventory) as file:
        sampled = sampler(tape, SystemClock(), file, live)

        async def round_(only: Collection[GpuUuid] | None = None) -> None:
            live.append(await sampled.round(only))
            file.add(tape.round(live[-1]))

        await round_()
        fake_node.fail("nvmlDeviceGetComputeRunningProcesses", 999)
        await round_()
        fake_node.clear_switch("fail.nvmlDeviceGetComputeRunningProcesses")
        await round_([GpuUuid(fake_node.gpus[1].uuid)])
        fake_node.fail("*", 15, gpu=fake_node.gpus[1].uuid)
        await round_()
        names.write_text("- {namespace: 3}\n")
        await round_([GpuUuid(fake_node.gpus[1].uuid)])
        await round_()
    assert {one.complete for one in live} == {True, False}
    assert_same(await replayed(tmp_path / "r"), live)
