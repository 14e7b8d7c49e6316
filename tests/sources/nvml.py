"""
Fixtures: NVML sources on a fake node. The real pynvml loads the fake driver into the process of the tests.

A process can load one variant of the library only. It is the modern one here. For the others, `probe` runs a source in
a process of its own: a fork of one that has imported the exporter, which takes 0.25 s. `program` starts a process for
what ends one.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path

import msgspec
import pytest

from driver.node import FakeNode, Variant
from exporter.devices import DeviceError, DevicesSample
from exporter.devices.nvml import NvmlSource, events
from exporter.devices.thread import ThreadEndedError
from exporter.model import GpuSample
from patience import PATIENCE

ROOT = Path(__file__).parents[2]

SAMPLES = """
import asyncio, ctypes, msgspec, os, sys, traceback
from exporter.devices.nvml import NvmlSource

async def sample():
    source = await NvmlSource.open()
    print(msgspec.json.encode(await source.sample()).decode(), flush=True)
    await source.close()

for line in sys.stdin:
    library, os.environ["FAKE_NVML_STATE"] = line.strip().split("\\t")
    if (child := os.fork()) == 0:
        try:
            ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)  # its name is libnvidia-ml.so.1, which pynvml looks for
            asyncio.run(sample())
        except BaseException:
            traceback.print_exc(file=sys.stdout)
            sys.stdout.flush()
            os._exit(1)
        os._exit(0)
    print("\\nended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""A line names the library's file and the state folder; the answer is a sample or a traceback, and how it ended."""

Open = Callable[..., Awaitable[NvmlSource]]
ReadOne = Callable[[], Awaitable[GpuSample]]
Answered = Callable[[NvmlSource], Awaitable[DevicesSample]]
Program = Callable[..., subprocess.CompletedProcess[str]]
Probe = Callable[[Variant], DevicesSample]


async def _answered(source: NvmlSource) -> DevicesSample:
    async with asyncio.timeout(10):
        while True:
            sample = await source.sample()
            if not any(fault.reason == "driver_hung" for fault in sample.faults):
                return sample
            await asyncio.sleep(0.005)


@pytest.fixture
async def nvml(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Open]:
    """Open sources on `fake_node`; calls that a test left hanging are released, so that the thread can end."""
    monkeypatch.setenv("FAKE_NVML_STATE", str(fake_node.folder))
    monkeypatch.setattr(events, "SLICE_MS", 40)  # so long is a listener waited for at the end
    fake_node.preload()
    opened: list[NvmlSource] = []

    async def open_source(**settings: float) -> NvmlSource:
        opened.append(await NvmlSource.open(**settings))  # type: ignore[arg-type]
        return opened[-1]

    yield open_source
    for switch in (fake_node.folder / "switches").iterdir():
        switch.unlink(missing_ok=True)
    for source in opened:
        with contextlib.suppress(DeviceError, ThreadEndedError):  # ended by the driver, or closed by the test
            await _answered(source)
        await source.close()


@pytest.fixture
def answered() -> Answered:
    """Sample until the driver no longer hangs; TimeoutError when it still does after a while."""
    return _answered


@pytest.fixture
def read_one(nvml: Open) -> ReadOne:
    """Read the only GPU of the node once, with a fresh source that has no faults of its own to report."""

    async def read() -> GpuSample:
        sample = await (await nvml()).sample()
        assert sample.faults == ()
        (gpu,) = sample.samples
        return gpu

    return read


@pytest.fixture
def program(fake_node: FakeNode) -> Program:
    """Run a Python program on the exporter, in an environment that finds the fake driver (or another, if given)."""

    def run(text: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", text],
            cwd=ROOT,
            env={**os.environ, **(fake_node.environment() if environment is None else environment)},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )

    return run


@pytest.fixture(scope="session")
def samples() -> Iterator[subprocess.Popen[str]]:
    """The process whose forks take samples; it loads no library itself."""
    words = [sys.executable, "-c", SAMPLES]
    with subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


@pytest.fixture
def probe(fake_node: FakeNode, samples: subprocess.Popen[str]) -> Probe:
    """Take one sample in a process of its own, which loads a variant of the driver's library."""

    def sample(variant: Variant) -> DevicesSample:
        assert samples.stdin is not None and samples.stdout is not None
        stuck = threading.Timer(PATIENCE, samples.kill)
        stuck.start()
        try:
            print(fake_node.library(variant), fake_node.folder, sep="\t", file=samples.stdin, flush=True)
            *said, ended = _until_it_ended(samples.stdout)
        finally:
            stuck.cancel()
        assert ended == "ended 0", said
        return msgspec.json.decode("".join(said), type=DevicesSample)

    return sample


def _until_it_ended(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield line.rstrip("\n")
        if line.startswith("ended "):
            return
