"""The command itself, on stand-ins: that it runs to its end and says so. On a machine with a GPU: the real thing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from driver.fixtures import driver_build, fake_node
from driver.node import FakeComputeInstance, FakeGpu, FakeGpuInstance, FakeNode, FakeProcess, GiB, MiB, gpus
from gpu.build import build

__all__ = ["driver_build", "fake_node"]

pytestmark = pytest.mark.daemon

ROOT = Path(__file__).parents[2]
DRIVER = Path("/dev/nvidiactl").exists()
HOPPER = FakeGpu(name="NVIDIA H100 80GB HBM3", gpm=1, total=80 * GiB, reserved=600 * MiB)
TIMED = ("duty ",)
"""Rows on shares of time: a loaded machine misses them, and stand-ins have nothing to say on them."""


def command(*flags: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpu", *flags],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests"), **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture(scope="session")
def libcuda(driver_build: Path) -> Path:
    """The stand-in for CUDA, compiled once for all runs."""
    return build(driver_build.parent)


MIG = "MIG-0f0e0d0c-0b0a-4908-8706-050403020100"
"""The UUID of a MIG device as drivers of R470 and later print it."""


def table(page: list[str]) -> tuple[list[list[str]], dict[str, list[str]]]:
    """Read all rows of a page of stand-ins, and its findings by what was asked."""
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in page if row.startswith("|")]
    return rows, {row[0]: row for row in rows if len(row) == 4 and row[3].startswith("fake, ")}


def differing(found: Mapping[str, list[str]]) -> list[list[str]]:
    """Name the rows that differ, but for those on shares of time."""
    return [row for row in found.values() if "differs" in row[3] and not row[0].startswith(TIMED)]


def test_it_runs_to_its_end_on_stand_ins(fake_node: FakeNode, libcuda: Path, tmp_path: Path) -> None:
    """
    Every question is asked of the fake driver by real processes, and the page calls itself fake.

    What has nothing to do with time comes out as on a GPU that behaves: memory to the page, accounts that close, a
    dead parent's memory, the driver's own limit.
    """
    hierarchy = tmp_path / "cgroups"
    hierarchy.mkdir()
    (hierarchy / "cgroup.controllers").touch()
    fake_node.write(gpus(1, HOPPER), driver="615.10", cuda=13040, sample_period_us=20_000, cgroups=hierarchy)
    fake_node.set_switch("limits_for_all")
    flags = ("--seconds=0.2", f"--libcuda={libcuda}", f"--cgroups={hierarchy}")

    done = command(*flags, env={**fake_node.environment(), "FAKE_NVML_CGROUP": "/gpusteward-gpu"})

    assert done.returncode in {0, 1}, done.stderr
    page = done.stdout.splitlines()
    assert page[0] == "### FAKE, no GPU: measured on NVIDIA H100 80GB HBM3"
    rows, found = table(page)
    assert differing(found) == []
    for asked in (
        "growth in the process list after 1 GiB",
        "the daemon's account of the device",
        "process 4 of four, 512 MiB",
        "memory of a container, by the daemon",
        "memory of a dead parent whose forked child lives",
        "duty 0.5 on all SMs: SMs busy (GPM)",
        "from SIGKILL to 1 GiB released",
        "512 MiB where 256 MiB are left",
        "XID errors during all of this",
    ):
        assert asked in found, asked
    assert found["memory of a dead parent whose forked child lives"][2] == "stays, under the dead number"
    costs = [row for row in rows if len(row) == 16]
    assert [row[0] for row in costs] == ["processes", "---", "0", "1", "4", "16"]
    assert all(cell.isdecimal() for row in costs[2:] for cell in row)


def test_a_mig_instance_is_asked_by_itself(fake_node: FakeNode, libcuda: Path) -> None:
    """
    Of a GPU with MIG on: memory, lists and accounts of one instance, whatever its neighbours hold.

    The tenants are led there by CUDA_VISIBLE_DEVICES; what has no instances of its own is said to be not here.
    """
    instances = (
        FakeGpuInstance(1, 20 * GiB, (FakeComputeInstance("MIG-neighbour", slot=0),), "2g.20gb"),
        FakeGpuInstance(5, 40 * GiB, (FakeComputeInstance(MIG, slot=1),), "3g.40gb"),
    )
    neighbour = (FakeProcess(4711, 9 * GiB, device="MIG-neighbour"),)
    fake_node.write(
        gpus(1, HOPPER, mig="on", instances=instances, processes=neighbour), driver="580.65.06", sample_period_us=20_000
    )

    done = command("--seconds=0.2", f"--libcuda={libcuda}", "--instance=5", env=fake_node.environment())

    assert done.returncode in {0, 1}, done.stderr
    page = done.stdout.splitlines()
    assert {"- MIG instance: 3g.40gb", "- memory: 40.0 GiB"} <= set(page)
    rows, found = table(page)
    assert differing(found) == []
    assert found["the daemon's account of the device"][3] == "fake, as expected"
    assert found["from SIGKILL to 1 GiB released"][3] == "fake, as expected"
    assert found["duty 1 on all SMs: SMs of the process (NVML)"][3] == "fake, not here"
    (busy,) = [row for row in rows if row[0] == "16"]
    assert "-" not in busy[1:5] and busy[5:7] == ["-", "-"], "memory and lists are the instance's; samples are nobody's"


@pytest.mark.parametrize(
    ("flags", "why"),
    [((), "GPU 0 has MIG on, and no instance"), (("--instance=3",), "GPU 0 has MIG on, and no instance 3")],
)
def test_mig_without_the_instance_is_said(fake_node: FakeNode, flags: tuple[str, ...], why: str) -> None:
    """Exit code 2: the command makes no instances itself."""
    fake_node.write(gpus(1, HOPPER, mig="on"))
    done = command(*flags, env=fake_node.environment())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"there is no GPU here to ask: {why}\n"


@pytest.mark.skipif(DRIVER, reason="there is an NVIDIA driver on this machine")
def test_without_a_driver_it_says_so() -> None:
    """Exit code 2 and one sentence: nothing was measured, and nothing was found to differ."""
    done = command(env={"LD_LIBRARY_PATH": ""})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("there is no GPU here to ask: the NVIDIA driver cannot be used:"), done.stderr


@pytest.mark.skipif(not DRIVER, reason="no NVIDIA driver on this machine: CI has none")
def test_a_real_gpu_does_as_expected() -> None:
    """The whole command on silicon: nothing differs from what we expect."""
    done = command(env={})
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
