"""
A tenant's file system that never answers: real FUSE, and a real process that has a file of it open.

The file is called as DRM's nodes are. `stat` of it waits for the file's server, which never answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from exporter.devices.kernel import KernelSource, Roots
from sources.kernel import Node
from sources.rounds import cgroup

pytestmark = pytest.mark.containers

GPU = "0000:0a:00.0"
MIB = 2**20
MNT_DETACH = 2
SERVER = Path(__file__).parent / "fuse_server.py"


@dataclass(frozen=True, slots=True)
class Tenant:
    """A process that has a file open which never says what it is, as its descriptor 0; `server` is the file's."""

    pid: int
    server: subprocess.Popen[bytes]

    @property
    def link(self) -> str:
        return f"/proc/{self.pid}/fd/0"


@pytest.fixture
def tenant(tmp_path: Path) -> Iterator[Tenant]:
    """Mount the file system, and let a process open its file. The end of the server lets go of all who wait for it."""
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        assert "CI" not in os.environ, "this needs root and /dev/fuse"
        pytest.skip("needs root and /dev/fuse (modprobe fuse)")
    folder = tmp_path / "mounted"
    folder.mkdir()
    with ExitStack() as stack:
        stack.callback(ctypes.CDLL(None).umount2, str(folder).encode(), MNT_DETACH)
        server = subprocess.Popen([sys.executable, str(SERVER), str(folder)], stdout=subprocess.PIPE)
        stack.callback(server.communicate)
        stack.callback(server.kill)
        assert server.stdout is not None and server.stdout.readline() == b"mounted\n"
        script = 'exec 0<"$0"; echo open; exec sleep 1000'
        holder = subprocess.Popen(["/bin/sh", "-c", script, str(folder / "renderD128")], stdout=subprocess.PIPE)
        stack.callback(holder.communicate)
        stack.callback(holder.kill)
        assert holder.stdout is not None and holder.stdout.readline() == b"open\n"
        yield Tenant(holder.pid, server)


def gpu(folder: Path) -> Node:
    """Make a node with one GPU."""
    node = Node(folder / "node")
    node.card(GPU, figures={"mem_info_vram_total": 2**34, "mem_info_vram_used": 0})
    return node


def ask(file: str) -> None:
    """Ask a file what it is."""
    with contextlib.suppress(OSError):
        os.stat(file)  # noqa: PTH116


async def test_a_tenants_file_system_keeps_nobody_waiting(tenant: Tenant, tmp_path: Path) -> None:
    """A process that asks the file what it is waits; the round over the real `/proc` does not ask, and is complete."""
    node = gpu(tmp_path)
    source = KernelSource(Roots(node.roots.sys, Path("/proc"), node.roots.cgroup))
    sample = await source.sample()
    await source.close()
    assert [one.gpu.pci_bus_id for one in sample.samples] == [GPU]
    assert not any(fault.incomplete for fault in sample.faults)
    asking = threading.Thread(target=ask, args=[tenant.link], daemon=True)
    asking.start()
    assert tenant.server.stdout is not None and tenant.server.stdout.readline() == b"asked\n", (
        "the first one that asked"
    )
    assert asking.is_alive()


async def test_a_file_that_was_exchanged_costs_its_tenant(tenant: Tenant, tmp_path: Path) -> None:
    """
    What looked like a file on tmpfs never answers: one round is lost. Then only the tenant's usage is unknown.

    As soon as the file system lets go, all processes are reported again.
    """
    node = gpu(tmp_path)
    text = f"drm-driver:\tamdgpu\ndrm-pdev:\t{GPU}\ndrm-resident-vram:\t1 MiB\ndrm-shared-vram:\t0\ndrm-client-id:\t"
    for pid, name in ((4242, "a"), (5000, "b")):
        node.process(pid, cgroup=f"0::/{cgroup(name)}")
        node.descriptor(pid, 5, f"{text}{pid}", name=tenant.link if name == "a" else "")
    source = KernelSource(node.roots, deadline=2.0)
    (fault,) = (await source.sample()).faults
    assert fault.reason == "driver_hung" and "4242/fd/5" in fault.message
    sample = await source.sample()
    (one,) = sample.samples
    assert [(process.pid, process.memory) for process in one.processes or ()] == [(5000, MIB)]
    assert [fault.reason for fault in sample.faults] == ["fdinfo_denied"]
    tenant.server.kill()
    async with asyncio.timeout(60):
        while (sample := await source.sample()).faults:
            await asyncio.sleep(0.01)
    assert [process.pid for process in sample.samples[0].processes or ()] == [4242, 5000]
    await source.close()
