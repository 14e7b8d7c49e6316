"""
What the kernel reports of GPUs, on real containers: real processes, cgroups and device nodes. What a driver would say
comes from files, and for NVIDIA's GPUs also from the fake driver's lists.

The device nodes are made with mknod and never opened: their numbers are what the kernel would show through the link.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from containers.fixtures import RunPod
from containers.pods import Bed, Container
from daemon.running import Daemon, until
from driver.node import FakeNode, FakeProcess, gpus
from scraped import series
from sources.kernel import Node

pytestmark = pytest.mark.containers

MIB, GIB = 2**20, 2**30
GPU = "0000:0a:00.0"


@dataclass
class Stage:
    """Real containers, a node of files around them, and the daemon over both."""

    bed: Bed
    node: Node
    run_pod: RunPod
    start: Callable[..., Daemon]

    def container(self, name: str) -> Container:
        """Start a pod with one container that does nothing, and show its process."""
        found = self.run_pod("main", name=name).containers["main"]
        self.node.show(found.pid)
        return found

    def daemon(self, devices: str = "drm", **more: Any) -> Daemon:
        """Start the daemon on what there is; `more` is for `Daemon`."""
        names = self.bed.write_inventory(self.node.root / "names.json")
        return self.start(f"--devices={devices}", f"--names.file={names}", f"--node.host-root={self.node.root}", **more)


@pytest.fixture
def stage(bed: Bed, run_pod: RunPod, tmp_path: Path) -> Iterator[Stage]:
    """An empty node."""
    with ExitStack() as stack:

        def start(*flags: str, **more: Any) -> Daemon:
            always = ("--sampling.interval=500ms", "--log.format=json")
            return stack.enter_context(Daemon(*always, *flags, **more))

        yield Stage(bed, Node(tmp_path / "node", Path("/proc")), run_pod, start)


def used(snapshot: dict[str, Any]) -> dict[tuple[str, int | None], int | None]:
    """Read who holds what: pod and partition to bytes."""
    return {(c["pod"], c["gpu_instance"]): c["memory_used_bytes"] for c in snapshot["containers"]}


def page_with(daemon: Daemon, held: dict[tuple[str, ...], float], what: str) -> str:
    """Wait for a page on which pods hold these bytes (by pod and partition); that page."""

    def there() -> str | None:
        page = daemon.get("/metrics")[1]
        return page if series(page, "container_memory_used_bytes", "pod", "gpu_instance") == held else None

    return until(there, what, daemon)


def amdgpu(number: int, mib: int) -> str:
    """Write a client; all partitions of a GPU print the same address."""
    return (
        f"drm-driver:\tamdgpu\ndrm-pdev:\t{GPU}\ndrm-client-id:\t{number}\n"
        f"drm-resident-vram:\t{mib} MiB\ndrm-shared-vram:\t0"
    )


def test_partitions_of_amd_by_container(stage: Stage) -> None:
    """
    Two containers on two partitions of one GPU, which only the minor numbers of the opened nodes tell apart.

    A child of one holds its parent's client. While the driver says nothing of a descriptor, its container's usage is
    unknown, and not zero. What ends is gone.
    """
    node = stage.node
    node.card(GPU, figures={"mem_info_vram_total": 192 * GIB, "mem_info_vram_used": 9 * GIB})
    node.xcp(0, 129)
    for partition in (0, 1):
        place = {"location_id": 0x0A00 + partition, "drm_render_minor": 128 + partition}
        node.rocm_node(1 + partition, 10 + partition, domain=0, bank=96 * GIB, **place)
    one, two = stage.container("one"), stage.container("two")
    node.descriptor(one.pid, 5, amdgpu(7, 64), minor=128)
    node.descriptor(two.pid, 5, amdgpu(8, 32), minor=129)
    node.rocm(two.pid, {10: 0, 11: 3 * GIB}, queues=(11,))
    child = one.spawn("/bin/sleep", "1000")
    node.show(child)
    node.descriptor(child, 5, amdgpu(7, 64), minor=128)

    daemon = stage.daemon()
    wanted = {("one", 0): 64 * MIB, ("two", 1): 3 * GIB}
    daemon.until(lambda s: used(s) == wanted and s["complete"], "two containers on two partitions")
    page = page_with(daemon, {("one", "0"): 64 * MIB, ("two", "1"): 3 * GIB}, "both on the page")
    assert series(page, "container_processes", "pod", "gpu_instance") == {("one", "0"): 2, ("two", "1"): 1}
    assert {uuid for (uuid,) in series(page, "gpu_up", "uuid")} == {GPU}
    assert series(page, "gpu_info", "vendor", "mig") == {("amd", "true"): 1}

    node.fdinfo(one.pid, 5, "")
    daemon.until(lambda s: used(s).get(("one", 0), 0) is None, "an unknown container")
    page_with(daemon, {("two", "1"): 3 * GIB}, "the unknown container to be absent")
    node.fdinfo(one.pid, 5, amdgpu(7, 96))
    node.fdinfo(child, 5, amdgpu(7, 96))
    daemon.until(lambda s: used(s).get(("one", 0)) == 96 * MIB, "growth")

    one.stop()
    daemon.until(lambda s: ("one", 0) not in used(s), "what ended to be gone")
    assert "Traceback" not in daemon.log


def test_intel_by_cgroup_and_by_client(stage: Stage) -> None:
    """A container whose cgroup the kernel counts, and one whose clients alone are known, on one GPU of Intel's."""
    node = stage.node
    node.card(GPU, driver="xe", number=1, minor=128)
    counted, plain = stage.container("counted"), stage.container("plain")

    def xe(number: int, mib: int) -> str:
        return (
            f"drm-driver:\txe\ndrm-pdev:\t{GPU}\ndrm-client-id:\t{number}\n"
            f"drm-resident-vram0:\t{mib} MiB\ndrm-shared-vram0:\t0"
        )

    node.descriptor(counted.pid, 4, xe(1, 350), minor=128)
    node.descriptor(plain.pid, 4, xe(2, 250), minor=128)
    region = f"drm/{GPU}/vram0"
    node.cgroup("", {"capacity": f"{region} {16 * GIB}\n", "current": f"{region} {800 * MIB}\n"})
    node.cgroup(counted.cgroup.lstrip("/"), {"current": f"{region} {400 * MIB}\n", "max": f"{region} {GIB}\n"})
    daemon = stage.daemon()
    wanted = {("counted", None): 400 * MIB, ("plain", None): 250 * MIB}
    snapshot = daemon.until(lambda s: s if used(s) == wanted and s["complete"] else None, "both containers")
    (device,) = snapshot["devices"]
    parts = {part: device[f"memory_{part}_bytes"] for part in ("used", "attributed", "unattributed", "host", "ghost")}
    assert parts == {
        "used": 800 * MIB,
        "attributed": 650 * MIB,
        "unattributed": 150 * MIB,
        "host": 0,
        "ghost": 0,
    }
    page = page_with(daemon, {("counted", ""): 400 * MIB, ("plain", ""): 250 * MIB}, "both on the page")
    assert series(page, "container_memory_kernel_limit_bytes", "pod") == {("counted",): GIB}
    assert json.dumps(snapshot["faults"]) == "[]"


def test_nvidia_by_cgroup_and_by_list(stage: Stage, fake_node: FakeNode) -> None:
    """
    A container whose cgroup the kernel counts, and one that the driver's lists alone tell of, on one GPU of NVIDIA's.

    The kernel's bytes stand in place of the list's; without the count, and where it has less, the list's are back.
    """
    node = stage.node
    counted, plain = stage.container("counted"), stage.container("plain")
    (card,) = gpus(1)
    listed = (FakeProcess(counted.pid, 350 * MIB), FakeProcess(plain.pid, 250 * MIB))
    fake_node.write([replace(card, other=GIB, processes=listed)], driver="615.71.09")
    region = f"nvidia/{card.pci.lower()}/vidmem"
    node.cgroup("", {"capacity": f"{region} {40 * GIB}\n", "current": f"{region} {2 * GIB}\n"})
    path = counted.cgroup.lstrip("/")
    node.cgroup(path, {"current": f"{region} {400 * MIB}\n", "max": f"{region} {GIB}\n", "peak": f"{region} {GIB}\n"})
    daemon = stage.daemon("nvml", env=fake_node.environment())
    page = page_with(daemon, {("counted", ""): 400 * MIB, ("plain", ""): 250 * MIB}, "both on the page")
    assert series(page, "container_memory_kernel_limit_bytes", "pod") == {("counted",): GIB}
    assert series(page, "container_memory_peak_bytes", "pod") == {("counted",): GIB, ("plain",): 250 * MIB}
    assert series(page, "container_processes", "pod") == {("counted",): 1, ("plain",): 1}
    node.cgroup(path, {"current": f"{region} 0\n"})
    page_with(daemon, {("counted", ""): 350 * MIB, ("plain", ""): 250 * MIB}, "the list's word")
    daemon.until(lambda s: [fault["reason"] for fault in s["faults"]] == ["dmem_short"], "why it is the list's")
    (node.roots.cgroup / path / "dmem.current").unlink()
    daemon.until(lambda s: s["faults"] == [], "nothing to be counted")
    page_with(daemon, {("counted", ""): 350 * MIB, ("plain", ""): 250 * MIB}, "the list's word again")
    assert "Traceback" not in daemon.log
