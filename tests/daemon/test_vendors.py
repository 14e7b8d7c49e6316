"""A node with GPUs of two vendors: one daemon, two sources, and what becomes of the one when the other hangs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from daemon.running import Daemon, until
from driver.node import FakeNode, GiB, gpus
from scraped import series
from sources.kernel import Node

pytestmark = pytest.mark.daemon

AMD = "0000:63:00.0"


def page_with(daemon: Daemon, up: dict[tuple[str, ...], float], what: str) -> str:
    """Wait for a page on which these GPUs are up or not; that page."""

    def there() -> str | None:
        page = daemon.get("/metrics")[1]
        return page if series(page, "gpu_up", "uuid") == up else None

    return until(there, what, daemon)


def test_two_vendors_on_one_node(fake_node: FakeNode, tmp_path: Path) -> None:
    """Both are reported, each by its own index. If a file of one never answers, the other still works."""
    fake_node.write(gpus(1, total=40 * GiB))
    node = Node(tmp_path / "node", Path("/proc"))
    node.card(AMD, figures={"mem_info_vram_total": 64 * GiB, "mem_info_vram_used": 3 * GiB})
    node.rocm_node(1, 41657, location_id=0x6300, domain=0, drm_render_minor=128, bank=64 * GiB)
    node.show(os.getpid())
    node.rocm(os.getpid(), {41657: 2 * GiB}, queues=(41657,))
    flags = ("--devices=nvml,kfd", f"--node.host-root={node.root}", "--node.trust-pid-namespace", "--log.format=json")
    nvidia = fake_node.gpus[0].uuid
    with Daemon(*flags, "--sampling.interval=1s", env=fake_node.environment()) as daemon:
        page = page_with(daemon, {(nvidia,): 1, (AMD,): 1}, "both GPUs")
        assert series(page, "gpu_info", "uuid", "vendor", "gpu") == {(nvidia, "nvidia", "0"): 1, (AMD, "amd", "0"): 1}
        assert series(page, "device_memory_host_bytes", "uuid") == {(nvidia,): 0, (AMD,): 2 * GiB}
        up = series(page, "source_up", "source")
        assert (up["nvml",], up["kfd",], up["devices",]) == (1, 1, 1)

        figure = node.root / f"sys/devices/pci0000:00/{AMD}/gpu_busy_percent"
        os.mkfifo(figure)
        # The round in which it begins to hang takes the whole deadline and ends stale: the next one shows it.
        page = page_with(daemon, {(nvidia,): 1, (AMD,): 0}, "the other GPU alone")
        up = series(page, "source_up", "source")
        assert (up["nvml",], up["kfd",], up["devices",]) == (1, 0, 0)
        assert series(page, "device_memory_used_bytes", "uuid") == {(nvidia,): 0}
        assert any(fault["reason"] == "driver_hung" for fault in daemon.snapshot()["faults"])
        assert daemon.get("/healthz") == (200, "ok\n")
        assert daemon.stop()[0] == 0
        assert "Traceback" not in daemon.log
