"""
A GPU under test, or one MIG instance of it: tenants that hold it, and the daemon's own eyes on it.

What comes in: a GPU's UUID, perhaps an instance, and the libraries. What goes out: tenants to give orders to, and what
the exporter's driver reader (`NvmlSource`) and a whole daemon say meanwhile.

The law: only processes of our own get orders or are ended, each by its pid; all of them end with the lab.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from daemon.running import Daemon
from exporter.devices.nvml import NvmlSource
from exporter.model import DeviceKey, GpuInstance, GpuProcess, GpuSample, GpuUuid, Memory, Utilization
from gpu.cuda import SONAME
from gpu.protocol import Answer, Do, Order, answer, line

T = TypeVar("T")

PATIENCE = 30.0
"""Seconds for an answer, beyond what was asked for; the first context on a sleeping GPU takes some."""
MIB, GIB = 2**20, 2**30
FOLDER = "gpusteward-names"
"""The cgroup that stands for the one in which a kubelet keeps its pods."""
POD, CONTAINER = "6f0c2f3a-7a4d-4b1e-9a55-0d9c3d0e51ab", "b7" * 32
"""UID of the pod and id of the container that the lab's daemon knows by name, should a tenant be in its cgroup."""
NAMES = f"[{{namespace: lab, pod: tenant, pod_uid: {POD}, container: main, container_id: '{CONTAINER}'}}]\n"
CONFIG = """\
node: {{trust_pid_namespace: true}}
sampling: {{interval: 1s}}
names: {{source: file, file: {names}}}
"""
"""The daemon of a lab has no Kubernetes, and may itself be in a container."""


class TenantError(Exception):
    """A tenant could not carry out an order."""


class Tenant:
    """A process that holds the GPU. `orders` are answered one by one."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid

    async def told(self, do: Do, **more: float) -> Answer:
        """Give an order and wait for its answer. Raises TenantError."""
        self.tell(do, **more)
        return await self.heard(PATIENCE + more.get("seconds", 0))

    def tell(self, do: Do, **more: float) -> None:
        """Give an order."""
        assert self._process.stdin is not None
        self._process.stdin.write(line(Order(do, **more)))  # type: ignore[arg-type]
        self._process.stdin.flush()

    async def heard(self, within: float = PATIENCE) -> Answer:
        """Wait for an answer. Raises TenantError, also for the silence of a tenant that ended."""
        assert self._process.stdout is not None
        async with asyncio.timeout(within):
            text = await asyncio.to_thread(self._process.stdout.readline)
        given = answer(text) if text else Answer(problem=f"it ended with {self._process.wait()}")
        if given.problem:
            raise TenantError(given.problem)
        return given

    def kill(self) -> None:
        """End it as the kernel's OOM killer would."""
        self._process.kill()

    def close(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.communicate()


@dataclass(frozen=True, slots=True)
class Place:
    """
    Where it is measured.

    Attributes:
        instance: the MIG instance, of a GPU with MIG on.
        cgroups: the unified hierarchy, for the driver's own limits.
        seconds: of work for each SM ratio.

    """

    uuid: GpuUuid
    library: str = SONAME
    cgroups: Path = Path("/sys/fs/cgroup")
    seconds: float = 3.0
    instance: GpuInstance | None = None

    @property
    def key(self) -> DeviceKey:
        """Name the device."""
        return DeviceKey(self.uuid, None if self.instance is None else self.instance.id)

    @property
    def device(self) -> str:
        """Give the UUID by which CUDA knows it: the GPU's, or that of the first MIG device of the instance."""
        return self.uuid if self.instance is None else self.instance.mig_uuids[0]

    @property
    def env(self) -> Mapping[str, str]:
        """Give what leads a tenant there. CUDA shows one MIG device at a time, and only the one that is named."""
        return {} if self.instance is None else {"CUDA_VISIBLE_DEVICES": self.device}


class Lab:
    """Made with `open`."""

    def __init__(self, place: Place, source: NvmlSource, daemon: Daemon) -> None:
        self.hello = Answer()
        """What the last tenant said of the device."""
        self.place = place
        self.source = source
        self.daemon = daemon
        self.key = place.key

    @classmethod
    @asynccontextmanager
    async def open(cls, place: Place, folder: Path) -> AsyncIterator[Self]:
        """Open the reader, and start a daemon whose files are in `folder`."""
        names, config = folder / "names.yaml", folder / "config.yaml"
        names.write_text(NAMES)
        config.write_text(CONFIG.format(names=names))
        source = await NvmlSource.open(events=True)
        try:
            with Daemon(
                "--devices=nvml", f"--config={config}", f"--node.pods-cgroup=/{FOLDER}", "--log.format=json"
            ) as daemon:
                lab = cls(place, source, daemon)
                async with lab.tenant(context=False):
                    pass  # a tenant that starts here says what CUDA there is
                yield lab
        finally:
            await source.close()

    @asynccontextmanager
    async def tenant(self, env: Mapping[str, str] | None = None, *, context: bool = True) -> AsyncIterator[Tenant]:
        """Start a tenant, which ends with the block."""
        process = subprocess.Popen(  # noqa: ASYNC220  (milliseconds, and no other task runs meanwhile)
            [sys.executable, "-m", "gpu.tenant", self.place.device, self.place.library],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), **self.place.env, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        one = Tenant(process)
        try:
            self.hello = await one.heard()
            if context:
                await one.told(Do.CONTEXT)
            yield one
        finally:
            one.close()

    async def sample(self) -> GpuSample:
        """Read the GPU as a round does. Raises LookupError when it does not answer."""
        answered = await self.source.sample({self.place.uuid})
        for gpu in answered.samples:
            return gpu
        raise LookupError("; ".join(fault.message for fault in answered.faults) or "the GPU is not there")

    async def memory(self) -> Memory:
        """Read the device's memory alone. Raises LookupError."""
        return (await self.source.memory({self.place.uuid}))[self.key]

    async def entries(self, pid: int) -> tuple[GpuProcess, ...]:
        """Give what the driver lists of a process, under its number or that of one of its threads."""
        return tuple(one for one in await self.listed() if one.pid == pid or leader(one.pid) == pid)

    async def listed(self) -> tuple[GpuProcess, ...]:
        """Give what the driver lists on the device; of a MIG instance what is there, and not on its neighbours."""
        return tuple(one for one in (await self.sample()).processes or () if one.device == self.key)

    def utilization(self, sample: GpuSample) -> Utilization:
        """Say how busy the device was."""
        return next(found for key, _, found in sample.gpu.leaves() if key == self.key)

    async def held_by(self, pid: int) -> int | None:
        """Sum up what the driver says that a process holds; None where it says nothing of it."""
        entries = await self.entries(pid)
        sizes = [one.memory for one in entries]
        return None if not sizes or None in sizes else sum(size or 0 for size in sizes)

    async def daemon_says(self, condition: Callable[[dict[str, Any]], T | None]) -> T | None:
        """Wait until the daemon's snapshot fulfils a condition; None when it does not for a minute."""
        try:
            return await asyncio.to_thread(self.daemon.until, condition, "the daemon's word")
        except AssertionError:
            return None

    async def until(self, condition: Callable[[Memory], bool], within: float) -> float | None:
        """Look at the device's memory until a condition holds; the seconds that took, or None."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while (passed := loop.time() - began) < within:
            if condition(await self.memory()):
                return passed
            await asyncio.sleep(0.001)
        return None


def leader(tid: int) -> int | None:
    """Say which process a thread belongs to."""
    try:
        status = Path(f"/proc/{tid}/status").read_text()
    except OSError:
        return None
    fields: Mapping[str, str] = dict(row.split(":\t", 1) for row in status.splitlines() if ":\t" in row)
    return int(fields["Tgid"]) if "Tgid" in fields else None
