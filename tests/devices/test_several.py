"""Sources of several vendors on one node: their answers together, and what becomes of the others when one fails."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pytest

from exporter.devices import DeviceError, DevicesSample, DriverReplacedError, Identify
from exporter.devices.several import Several
from exporter.model import DeviceKey, Fault, Gpu, GpuSample, GpuUuid, Memory, XidCounts, XidErrors

GIB = 2**30
N, A, B = GpuUuid("GPU-1"), GpuUuid("0000:0a:00.0"), GpuUuid("0000:0b:00.0")


@dataclass(eq=False)
class Source:
    """A source at the seam: it has GPUs, and fails with `failure`."""

    name: str
    gpus: tuple[GpuUuid, ...]
    failure: Exception | None = None
    faults: tuple[Fault, ...] = ()
    xid_errors: XidCounts = field(default_factory=dict)
    asked: list[frozenset[GpuUuid] | None] = field(default_factory=list)
    closed: bool = False

    async def sample(self, only: Collection[GpuUuid] | None = None, _identify: Identify | None = None) -> DevicesSample:
        self.asked.append(None if only is None else frozenset(only))
        if self.failure is not None:
            raise self.failure
        samples = tuple(
            GpuSample(Gpu(uuid, index, "a GPU"), 1.0, ())
            for index, uuid in enumerate(self.gpus)
            if only is None or uuid in only
        )
        present = {uuid: index for index, uuid in enumerate(self.gpus)}
        return DevicesSample(present, samples, self.faults, self.xid_errors)

    async def memory(self, only: Collection[GpuUuid]) -> Mapping[DeviceKey, Memory]:
        if self.failure is not None:
            raise self.failure
        return {DeviceKey(uuid): Memory(GIB, 0) for uuid in only}

    async def close(self) -> None:
        self.closed = True
        if self.failure is not None:
            raise self.failure


async def test_their_gpus_are_told_together() -> None:
    """Each keeps its own index, so two are number 0; the UUID tells them apart; each source is up."""
    sample = await Several([Source("nvml", (N,)), Source("drm", (A, B))]).sample()
    assert sample.present == {N: 0, A: 0, B: 1}
    assert [one.gpu.uuid for one in sample.samples] == [N, A, B]
    assert sample.sources_up == {"nvml": True, "drm": True}


@pytest.mark.parametrize("failure", [DeviceError("gone"), ValueError("a bug")])
async def test_one_that_fails_is_not_the_end_of_the_others(failure: Exception) -> None:
    """A fault that names it, and it is down; its GPUs stay counted, and the others answer."""
    bad, good = Source("dcmi", (A,)), Source("nvml", (N,))
    several = Several([bad, good])
    await several.sample()
    bad.failure = failure
    sample = await several.sample()
    assert [one.gpu.uuid for one in sample.samples] == [N]
    assert sample.present == {A: 0, N: 0}
    assert sample.sources_up == {"dcmi": False, "nvml": True}
    (fault,) = sample.faults
    assert fault.incomplete and "dcmi: " in fault.message and str(failure) in fault.message
    assert await several.memory({A, N}) == {DeviceKey(N): Memory(GIB, 0)}


async def test_a_fault_of_one_gpu_leaves_its_source_up() -> None:
    """A lost GPU is the GPU's matter; a fault of the whole source is the source's."""
    lost = Source("drm", (A,), faults=(Fault("devices", "lost", "", subject=A),))
    assert (await Several([lost, Source("nvml", (N,))]).sample()).sources_up == {"drm": True, "nvml": True}
    lost.faults = (Fault("devices", "driver_hung", ""),)
    assert (await Several([lost, Source("nvml", (N,))]).sample()).sources_up == {"drm": False, "nvml": True}


async def test_what_only_a_new_process_cures_ends_this_one() -> None:
    """As it does where NVIDIA's driver is alone."""
    with pytest.raises(DriverReplacedError):
        await Several([Source("nvml", (N,), DriverReplacedError("new library")), Source("drm", (A,))]).sample()


async def test_an_early_round_asks_those_who_have_the_gpus() -> None:
    """The others keep what they said of themselves."""
    first, second = Source("nvml", (N,)), Source("drm", (A, B))
    several = Several([first, second])
    await several.sample()
    sample = await several.sample({B})
    assert (first.asked, second.asked) == ([None], [None, frozenset({B})])
    assert [one.gpu.uuid for one in sample.samples] == [B]
    assert (sample.present, sample.sources_up) == ({N: 0, A: 0, B: 1}, {"nvml": True, "drm": True})


async def test_a_gpu_that_two_sources_know_counts_once() -> None:
    """It belongs to the first."""
    sample = await Several([Source("drm", (A,)), Source("other", (B, A))]).sample()
    assert [one.gpu.uuid for one in sample.samples] == [A, B]
    assert sample.present == {A: 0, B: 0}


async def test_all_are_let_go() -> None:
    """Also when the first fails at that."""
    sources = [Source("nvml", (N,), ValueError("x")), Source("drm", (A,))]
    await Several(sources).close()
    assert all(source.closed for source in sources)


async def test_xids_stay_in_a_round_that_does_not_ask_their_source() -> None:
    """An early round asks only the source of one GPU; the XIDs counted of the others are reported all the same."""
    heard = {N: {79: XidErrors(1, 5.0)}}
    several = Several([Source("nvml", (N,), xid_errors=heard), Source("drm", (A,))])
    assert (await several.sample()).xid_errors == heard
    assert (await several.sample({A})).xid_errors == heard
