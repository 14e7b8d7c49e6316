"""XID errors: every one is counted, no round waits for them, and nothing that happens to the driver loses the count."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from driver.node import FakeNode, gpus, until
from exporter.devices import DevicesSample
from exporter.devices.errors import UnsupportedError
from exporter.devices.nvml import NvmlSource
from exporter.devices.nvml.events import MOST, XidListener
from exporter.devices.nvml.library import EventSet, Library
from exporter.devices.xids import COMMON, UNKNOWN
from exporter.model import GpuUuid, XidErrors
from sources.nvml import Open

NOW = 1_760_000_000.0
PATIENCE = 60.0
TWO = gpus(2)
ONE, OTHER = (GpuUuid(gpu.uuid) for gpu in TWO)
NONE = dict.fromkeys(COMMON, XidErrors())

Listening = Callable[..., Awaitable[NvmlSource]]


@pytest.fixture
def listening(fake_node: FakeNode, nvml: Open) -> Listening:
    """Open a source that listens to every GPU of the node that can be listened to."""

    async def open_listening(**settings: float) -> NvmlSource:
        source = await nvml(events=True, clock=lambda: NOW, **settings)
        able = {gpu.uuid for gpu in fake_node.gpus if gpu.events}
        await _until(source, lambda: source._xids is not None and source._xids.counts.keys() == able)
        return source

    return open_listening


async def _until(source: NvmlSource, condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(
        until, condition, f"the listener; it heard {source._xids and source._xids.counts}", PATIENCE
    )


async def heard(source: NvmlSource, uuid: str, code: int, count: int) -> DevicesSample:
    """Wait until an XID was heard so often; give a round after that."""
    assert source._xids is not None
    listener = source._xids
    await _until(source, lambda: listener.counts.get(GpuUuid(uuid), {}).get(code, XidErrors()).count == count)
    return await source.sample()


async def test_an_xid_is_counted_on_its_gpu(fake_node: FakeNode, listening: Listening) -> None:
    """Each XID counts by GPU and number, with its time; the common ones of a GPU stand at 0 before."""
    fake_node.write(TWO)
    source = await listening()
    assert (await source.sample()).xid_errors == {ONE: NONE, OTHER: NONE}

    fake_node.inject_xid(ONE, 79)
    fake_node.inject_xid(ONE, 31, times=2)

    sample = await heard(source, ONE, 31, 2)
    assert sample.xid_errors == {ONE: NONE | {79: XidErrors(1, NOW), 31: XidErrors(2, NOW)}, OTHER: NONE}
    assert sample.faults == ()


async def test_a_round_of_some_gpus_tells_all_xids(fake_node: FakeNode, listening: Listening) -> None:
    """An early round reads one GPU, and still knows what was heard of the others."""
    fake_node.write(TWO)
    source = await listening()
    fake_node.inject_xid(OTHER, 48)
    await heard(source, OTHER, 48, 1)

    assert (await source.sample({ONE})).xid_errors[OTHER][48].count == 1


async def test_the_mig_instance_is_kept_when_the_driver_names_one(fake_node: FakeNode, listening: Listening) -> None:
    """0xFFFFFFFF is no instance; instance 0 is one."""
    fake_node.write(TWO)
    source = await listening()
    fake_node.inject_xid(ONE, 13, gpu_instance=0)
    fake_node.inject_xid(ONE, 43)

    errors = (await heard(source, ONE, 43, 1)).xid_errors[ONE]

    assert (errors[13].gpu_instance, errors[43].gpu_instance) == (0, None)


async def test_a_gpu_without_events_has_no_counters(fake_node: FakeNode, listening: Listening) -> None:
    """Unknown is not zero: a GPU without events has no counter, and that is no fault."""
    fake_node.write([TWO[0], replace(TWO[1], events=0)])
    source = await listening()

    sample = await source.sample()

    assert (sample.xid_errors, sample.faults) == ({ONE: NONE}, ())


async def test_a_gpu_that_cannot_be_listened_to_is_told(fake_node: FakeNode, nvml: Open) -> None:
    """A refusal is a fault that leaves the round complete; the other GPU is listened to."""
    fake_node.write(TWO)
    fake_node.fail("nvmlDeviceRegisterEvents", 4, gpu=OTHER)
    source = await nvml(events=True)
    await _until(source, lambda: source._xids is not None and bool(source._xids.faults()))

    (fault,) = (await source.sample()).faults

    assert (fault.reason, fault.subject, fault.incomplete) == ("xids_unheard", OTHER, False)
    assert "nvmlDeviceRegisterEvents" in fault.message
    fake_node.inject_xid(ONE, 31)
    assert OTHER not in (await heard(source, ONE, 31, 1)).xid_errors


@pytest.mark.parametrize("function", ["nvmlEventSetCreate", "nvmlDeviceRegisterEvents"])
async def test_a_driver_without_events_is_no_fault(fake_node: FakeNode, nvml: Open, function: str) -> None:
    """NOT_SUPPORTED means that there is nothing to hear."""
    fake_node.write(TWO)
    fake_node.fail(function, 3)
    source = await nvml(events=True)
    await asyncio.to_thread(until, lambda: fake_node.calls(function) >= 1, "the attempt", PATIENCE)

    sample = await source.sample()

    assert (sample.xid_errors, sample.faults) == ({}, ())


async def test_a_driver_that_cannot_wait_is_asked_once(fake_node: FakeNode, nvml: Open) -> None:
    """NOT_SUPPORTED ends the listening without a fault. A library that lacks the function says the same."""
    fake_node.write(TWO)
    fake_node.fail("nvmlEventSetWait", 3)
    source = await nvml(events=True)
    await asyncio.to_thread(until, lambda: fake_node.calls("nvmlEventSetWait") >= 1, "the attempt", PATIENCE)
    thread = source._xids._thread if source._xids else None
    assert thread is not None
    await asyncio.to_thread(thread.join, PATIENCE)

    assert (await source.sample()).faults == ()
    assert fake_node.calls("nvmlEventSetWait") == 1
    with pytest.raises(UnsupportedError, match="nvmlEventSetWait_v2"):
        Library(lambda _: None).wait(EventSet(None), 1)


async def test_a_burst_costs_a_counter(fake_node: FakeNode, listening: Listening) -> None:
    """Ten thousand events are ten thousand counts, and no more memory than one; rounds go on meanwhile."""
    fake_node.write(TWO)
    source = await listening()
    fake_node.inject_xid(ONE, 31, times=10_000)

    during = await source.sample()
    sample = await heard(source, ONE, 31, 10_000)

    assert len(during.samples) == 2
    assert sample.xid_errors[ONE].keys() == NONE.keys()


async def test_invented_numbers_are_bounded(fake_node: FakeNode, listening: Listening) -> None:
    """A driver that makes numbers up fills no memory: beyond a bound they count as `999`, the driver's unknown."""
    fake_node.write(TWO)
    source = await listening()
    for code in range(1000, 1000 + 2 * MOST):
        fake_node.inject_xid(ONE, code)

    beyond = 2 * MOST - (MOST - len(NONE))
    errors = (await heard(source, ONE, UNKNOWN, beyond)).xid_errors[ONE]

    assert len(errors) == MOST + 1
    assert sum(one.count for one in errors.values()) == 2 * MOST


async def test_rounds_do_not_wait_for_a_hanging_listener(fake_node: FakeNode, listening: Listening) -> None:
    """A wait that never returns is a fault after the deadline; rounds and the source's end do not wait for it."""
    fake_node.write(TWO)
    source = await listening(deadline=1.0)
    fake_node.inject_xid(ONE, 31)
    await heard(source, ONE, 31, 1)
    fake_node.hang("nvmlEventSetWait")
    assert source._xids is not None
    listener = source._xids
    await _until(source, lambda: bool(listener.faults()))

    sample = await source.sample()

    assert len(sample.samples) == 2
    assert sample.xid_errors[ONE][31].count == 1
    (fault,) = sample.faults
    assert (fault.reason, fault.incomplete) == ("xids_unheard", False)
    assert "nvmlEventSetWait_v2 has not returned" in fault.message
    async with asyncio.timeout(5):
        await source.close()
    assert fake_node.switched("hang.nvmlEventSetWait")


async def test_a_wait_that_fails_is_tried_again(
    fake_node: FakeNode, listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost GPU ends the wait for all: the set is made anew, the counts go on, and nothing is forgotten."""
    monkeypatch.setattr("exporter.devices.opening.RETRY_FIRST", 0.01)
    fake_node.write(TWO)
    source = await listening()
    fake_node.inject_xid(ONE, 79)
    await heard(source, ONE, 79, 1)
    sets = fake_node.calls("nvmlEventSetCreate")
    fake_node.fail("nvmlEventSetWait", 15, times=1)
    await asyncio.to_thread(until, lambda: fake_node.calls("nvmlEventSetCreate") > sets, "a new set", PATIENCE)
    waits = fake_node.calls("nvmlEventSetWait")
    await asyncio.to_thread(until, lambda: fake_node.calls("nvmlEventSetWait") > waits, "the next wait", PATIENCE)

    fake_node.inject_xid(ONE, 79)

    assert (await heard(source, ONE, 79, 2)).faults == ()
    assert fake_node.calls("nvmlEventSetFree") == sets


async def test_the_count_outlives_the_driver(
    fake_node: FakeNode, listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver is unloaded and comes back: errors that were counted stay, and later ones are added."""
    monkeypatch.setattr("exporter.devices.opening.RETRY_FIRST", 0.01)
    fake_node.write(TWO)
    source = await listening()
    fake_node.inject_xid(ONE, 31)
    await heard(source, ONE, 31, 1)
    assert source._xids is not None
    listener = source._xids
    fake_node.unload_driver()
    await _until(source, lambda: bool(listener.faults()))
    gone = await source.sample()
    sets = fake_node.calls("nvmlEventSetCreate")
    fake_node.write(TWO)
    await asyncio.to_thread(until, lambda: fake_node.calls("nvmlEventSetCreate") > sets, "a new set", PATIENCE)
    await _until(source, lambda: not listener.faults())

    fake_node.inject_xid(ONE, 31)

    assert (await heard(source, ONE, 31, 2)).xid_errors[OTHER] == NONE
    assert [fault.reason for fault in gone.faults] == ["driver_gone"]  # one fault, not one of each of the two threads
    assert gone.xid_errors[ONE][31].count == 1


async def test_a_gpu_that_comes_later_is_listened_to(
    fake_node: FakeNode, nvml: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU that did not answer at first is looked for again, and no GPU is registered twice."""
    monkeypatch.setattr("exporter.devices.nvml.events.LOOK_AGAIN", 0.0)
    fake_node.write(TWO)
    fake_node.fail("nvmlDeviceGetUUID", 15, gpu=OTHER)
    source = await nvml(events=True)
    assert source._xids is not None
    listener = source._xids
    await _until(source, lambda: listener.counts.keys() == {ONE})
    fake_node.clear_switch("fail.nvmlDeviceGetUUID", gpu=OTHER)
    await _until(source, lambda: listener.counts.keys() == {ONE, OTHER})

    fake_node.inject_xid(OTHER, 74)

    assert (await heard(source, OTHER, 74, 1)).faults == ()
    assert fake_node.calls("nvmlDeviceRegisterEvents") == 2


async def test_a_gpu_that_comes_back_is_listened_to_anew(
    fake_node: FakeNode, listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU that went away took its registration along: back under its uuid it is registered again; counts go on."""
    monkeypatch.setattr("exporter.devices.nvml.events.LOOK_AGAIN", 0.0)
    fake_node.write(TWO)
    source = await listening()
    fake_node.inject_xid(OTHER, 79)
    await heard(source, OTHER, 79, 1)
    assert source._xids is not None
    listener = source._xids
    fake_node.write(TWO[:1])
    await _until(source, lambda: listener._registered.get(OTHER) == 0)
    waits = fake_node.calls("nvmlEventSetWait")
    await asyncio.to_thread(
        until, lambda: fake_node.calls("nvmlEventSetWait") > waits + 1, "a wait without it", PATIENCE
    )
    registered = fake_node.calls("nvmlDeviceRegisterEvents")
    fake_node.write(TWO)
    await asyncio.to_thread(
        until, lambda: fake_node.calls("nvmlDeviceRegisterEvents") >= registered + 2, "a new set", PATIENCE
    )

    fake_node.inject_xid(OTHER, 79)

    assert (await heard(source, OTHER, 79, 2)).faults == ()
    assert fake_node.calls("nvmlEventSetFree") == fake_node.calls("nvmlEventSetCreate") - 1
    assert fake_node.calls("nvmlShutdown") == 0, "the library stays initialised meanwhile"


async def test_a_bug_of_ours_does_not_make_the_listener_deaf(
    fake_node: FakeNode, nvml: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unexpected exception is a fault while it stops the listener, and then the listener tries again."""
    monkeypatch.setattr("exporter.devices.opening.RETRY_FIRST", 0.01)
    broken = threading.Event()
    broken.set()
    fake_node.write(TWO)

    def clock() -> float:
        if broken.is_set():
            raise OverflowError("no such time")
        return NOW

    await nvml()  # the library is loaded, and this listener listens on its own
    listener = XidListener(60.0, clock)
    listener.start()
    try:
        await asyncio.to_thread(until, lambda: ONE in listener.counts, "the first look", PATIENCE)
        sets = fake_node.calls("nvmlEventSetCreate")
        fake_node.hang("nvmlEventSetCreate")
        fake_node.inject_xid(ONE, 31)
        await asyncio.to_thread(until, lambda: fake_node.calls("nvmlEventSetCreate") > sets, "a new set", PATIENCE)
        (fault,) = listener.faults()
        assert (fault.reason, fault.incomplete) == ("xids_unheard", False)
        assert "OverflowError: no such time" in fault.message

        broken.clear()
        waits = fake_node.calls("nvmlEventSetWait")
        fake_node.clear_switch("hang.nvmlEventSetCreate")
        await asyncio.to_thread(until, lambda: fake_node.calls("nvmlEventSetWait") > waits, "the next wait", PATIENCE)
        fake_node.inject_xid(ONE, 31)
        await asyncio.to_thread(
            until, lambda: listener.counts[ONE].get(31, XidErrors()).count == 1, "the next error", PATIENCE
        )
        await asyncio.to_thread(until, lambda: not listener.faults(), "no fault any more", PATIENCE)
    finally:
        fake_node.clear_switch("hang.nvmlEventSetCreate")
        await listener.close(PATIENCE)


async def test_closing_lets_go_of_both_threads(fake_node: FakeNode, listening: Listening) -> None:
    """The listener frees its set and shuts its share of the library down, as the reader does; no thread is left."""
    fake_node.write(TWO)
    source = await listening()
    fake_node.reset_calls()

    await source.close()

    assert (fake_node.calls("nvmlEventSetFree"), fake_node.calls("nvmlShutdown")) == (1, 2)
    assert "nvml-events" not in {thread.name for thread in threading.enumerate()}


async def test_a_source_that_was_not_asked_does_not_listen(fake_node: FakeNode, nvml: Open) -> None:
    """Without `events` (a check, a test of the rounds) there is one thread, and no counter."""
    fake_node.write(TWO)
    source = await nvml()

    assert (await source.sample()).xid_errors == {}
    assert fake_node.calls("nvmlEventSetCreate") == 0


async def test_a_gpu_by_another_handle_is_asked_who_it_is(fake_node: FakeNode, listening: Listening) -> None:
    """
    An event counts also where its handle is not the registered one.

    If the GPU of such an event does not answer, a fault says so.
    """
    fake_node.write(TWO)
    source = await listening()
    assert source._xids is not None
    source._xids._listened.clear()
    fake_node.inject_xid(ONE, 31)
    assert (await heard(source, ONE, 31, 1)).faults == ()
    fake_node.fail("nvmlDeviceGetUUID", 15, gpu=OTHER)
    fake_node.inject_xid(OTHER, 79)

    await _until(source, lambda: source._xids is not None and bool(source._xids.faults()))

    (fault,) = source._xids.faults()
    assert (fault.reason, fault.incomplete) == ("xids_unheard", False)
    assert "1 were of a GPU" in fault.message


class Paused(threading.Event):
    """An end that notes how long each caller would wait for it, and comes after nine waits."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout)
        if len(self.pauses) == 9:
            self.set()
        return self.is_set()


async def test_attempts_to_listen_grow_rarer(fake_node: FakeNode, nvml: Open) -> None:
    """A driver that refuses every wait is not asked ever faster: the pause doubles up to its bound."""
    fake_node.write(TWO)
    fake_node.fail("nvmlEventSetWait", 999)
    listener = XidListener(60.0, lambda: NOW)
    listener._ending = ending = Paused()

    listener.start()
    await asyncio.to_thread(until, ending.is_set, "nine attempts", PATIENCE)
    await listener.close(PATIENCE)

    assert ending.pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    assert fake_node.calls("nvmlShutdown") == fake_node.calls("nvmlInit") == 9
