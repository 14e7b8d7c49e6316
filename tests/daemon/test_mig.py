"""
The driver shows what MIG instances hold only to a process that can open the device of mig/monitor.

The daemon runs with and without that device.

In: a node with a GPU, and one with MIG on that its driver guards; a daemon of its own, `gpusteward check`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from daemon.commands import checks_and_fixes
from daemon.fixtures import StartDaemon
from driver.node import FakeComputeInstance, FakeGpuInstance, FakeNode, GiB, gpus
from patience import PATIENCE
from scraped import series

pytestmark = pytest.mark.daemon

COMMAND = Path(sys.executable).with_name("gpusteward")
MINOR = 2
"""Of mig/monitor, in /proc/driver/nvidia-caps/mig-minors of drivers with MIG."""


@pytest.fixture
def node(fake_node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    """GPU 0 holds 1 GiB; GPU 1 has one instance of 10 GiB, which holds 3. No capability device is there."""
    (tmp_path / "nvidia-caps").mkdir()
    monkeypatch.setenv("FAKE_NVML_CAPABILITIES", str(tmp_path / "nvidia-caps"))
    plain, card = gpus(2, total=40 * GiB)
    fake_node.write([plain, replace(card, mig="on", instances=(_instance(),))])
    fake_node.set_switch("mig_monitor", MINOR)
    fake_node.spawn(f"alloc 0 {GiB}")
    fake_node.spawn(f"alloc MIG-1 {3 * GiB}")
    return fake_node


def _instance() -> FakeGpuInstance:
    return FakeGpuInstance(7, 10 * GiB, (FakeComputeInstance("MIG-1", 0),), profile="1g.10gb")


def check(node: FakeNode) -> tuple[int, str]:
    """Exit code of `gpusteward check`, and its verdict and message about the driver, in one line."""
    flags = ("--web.listen-address=127.0.0.1:0", "--names.source=none", "--node.trust-pid-namespace")
    ended = subprocess.run(
        [str(COMMAND), "check", *flags],
        env={**os.environ, **node.environment(), "NODE_NAME": "test-node"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    verdict, message = checks_and_fixes(ended.stdout)[0]["driver"]
    return ended.returncode, f"{verdict}  {message}"


def test_without_the_capability_there_is_a_fault_and_no_number(node: FakeNode, start_daemon: StartDaemon) -> None:
    """The instance's usage is absent, never 0; log and check say what to do. GPU 0 is complete, and GPU 1 is seen."""
    daemon = start_daemon()
    snapshot = daemon.snapshot()
    page = daemon.page()
    assert series(page, "device_memory_used_bytes", "gpu", "gpu_instance") == {("0", ""): GiB}
    assert ("1", "7") not in series(page, "device_memory_total_bytes", "gpu", "gpu_instance")
    assert series(page, "device_info", "gpu", "gpu_instance", "profile")[("1", "7", "1g.10gb")] == 1
    assert series(page, "gpu_power_watts", "gpu").keys() == {("0",), ("1",)}
    assert daemon.get("/readyz") == (503, "not ready yet: devices: no_permission\n")
    assert series(page, "rounds_incomplete_total", "reason")[("no_permission",)] >= 1
    (fault,) = (one for one in snapshot["faults"] if one["reason"] == "no_permission")
    code, line = check(node)
    assert (code, line.split()[0]) == (1, "fail")
    for said in (fault["message"], daemon.log, line):
        assert "mig/monitor" in said and "nvml.mig" in said and "/dev/nvidia-caps" in said


def test_with_the_capability_all_is_told(node: FakeNode, start_daemon: StartDaemon, tmp_path: Path) -> None:
    """The device alone brings the numbers, and check is content."""
    (tmp_path / "nvidia-caps" / f"nvidia-cap{MINOR}").touch()
    daemon = start_daemon()
    snapshot = daemon.snapshot()
    page = daemon.page()
    assert series(page, "device_memory_used_bytes", "gpu", "gpu_instance") == {("0", ""): GiB, ("1", "7"): 3 * GiB}
    assert ("no_permission",) not in series(page, "rounds_incomplete_total", "reason")
    assert not [one for one in snapshot["faults"] if one["reason"] == "no_permission"]
    assert check(node)[1].split()[0] == "ok"
