"""
What stands between tenants: MPS, and the driver's own limit of a cgroup.

What comes in: a lab. What goes out: rows; one that says why, where the machine has no such thing.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from enforcer.actions.fence.driver import LimitsError
from enforcer.actions.fence.nvml import NvmlLimits
from gpu.lab import MIB, Lab, TenantError, leader
from gpu.measuring import PAGES, RELEASED
from gpu.protocol import Do
from gpu.table import Row, held, mib, not_here, within

CGROUP = "gpusteward-gpu"


async def mps(lab: Lab) -> list[Row]:
    """Two clients of MPS: which processes are listed, in which lists, with how much memory."""
    if (control := shutil.which("nvidia-cuda-mps-control")) is None:
        return [not_here("MPS", "no nvidia-cuda-mps-control")]
    with tempfile.TemporaryDirectory() as folder:
        env = {**lab.place.env, "CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        started = await asyncio.to_thread(_run, [control, "-d"], "", env)
        if started.returncode:
            return [not_here("MPS", f"it does not start: {started.stderr.strip()}")]
        try:
            async with lab.tenant(env) as one, lab.tenant(env) as other:
                before = await lab.held_by(one.pid) or 0
                await one.told(Do.ALLOCATE, size=256 * MIB)
                grown = ((await lab.held_by(one.pid) or 0) - before) / MIB
                lists = [sorted({kind for e in await lab.entries(t.pid) for kind in e.kinds}) for t in (one, other)]
                rest = [entry for entry in await lab.listed() if leader(entry.pid) not in {one.pid, other.pid}]
        except TenantError as problem:
            return [not_here("MPS", f"a client could not start: {problem}")]
        finally:
            await asyncio.to_thread(_run, [control], "quit\n", env)
    return [
        within("a client of MPS, 256 MiB", 256, grown, PAGES, " MiB"),
        Row("lists in which clients of MPS are", "compute and mps", "; ".join("+".join(each) for each in lists)),
        Row(
            "others on the GPU meanwhile (the server)",
            "some 30 MiB",
            ", ".join(mib(one.memory) for one in rest) or "none",
        ),
    ]


def _run(command: list[str], text: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, input=text, env={**os.environ, **env}, capture_output=True, text=True, check=False, timeout=60
    )


async def limits(lab: Lab) -> list[Row]:
    """The driver's own limit of a cgroup: does an allocation beyond it fail, and does the tenant live?"""
    what = "the driver's own limit of a cgroup"
    driver = NvmlLimits()
    try:
        if (why := await driver.impossible()) is not None:
            return [not_here(what, why)]
        async with _cgroup(lab) as (cgroup, enter), lab.tenant(context=False) as one:
            enter(one.pid)
            await one.told(Do.CONTEXT)
            own = await lab.held_by(one.pid) or 0
            hard = own + 512 * MIB
            await driver.limit(lab.place.uuid, str(cgroup), hard)
            kept = await driver.read(lab.place.uuid, str(cgroup))
            await one.told(Do.ALLOCATE, size=256 * MIB)
            try:
                await one.told(Do.ALLOCATE, size=512 * MIB)
                beyond = "was given"
            except TenantError as problem:
                beyond = str(problem)
            alive = await lab.held_by(one.pid)
            await driver.limit(lab.place.uuid, str(cgroup), None)
    except (OSError, LimitsError, TenantError) as problem:
        return [not_here(what, str(problem))]
    finally:
        await driver.close()
    return [
        held(f"{what}, read back", mib(hard), mib(kept.hard), good=kept.hard == hard),
        held("512 MiB where 256 MiB are left", "out of memory", beyond, good="OUT_OF_MEMORY" in beyond),
        held("the tenant after that", "lives, with what it had", mib(alive), good=(alive or 0) >= own + 256 * MIB),
    ]


@asynccontextmanager
async def _cgroup(lab: Lab) -> AsyncIterator[tuple[Path, Callable[[int], None]]]:
    """Make a cgroup for a tenant. Raises OSError where that cannot be done."""
    root = lab.place.cgroups
    if not (root / "cgroup.controllers").exists():
        raise OSError(f"{root} is no unified hierarchy of cgroups")
    folder = root / CGROUP
    folder.mkdir()

    def enter(pid: int) -> None:
        (folder / "cgroup.procs").write_text(f"{pid}\n")

    try:
        yield folder, enter
    finally:
        if lab.hello.fake:  # the real one is a folder whose files cannot be removed
            (folder / "cgroup.procs").unlink(missing_ok=True)
        await _removed(folder)


async def _removed(folder: Path) -> None:
    """Remove a cgroup as soon as its processes are gone."""
    async with asyncio.timeout(RELEASED):
        while True:
            try:
                folder.rmdir()  # noqa: ASYNC240  (a system call)
            except OSError:
                await asyncio.sleep(0.01)
            else:
                return
