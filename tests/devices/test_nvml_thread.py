"""A driver that hangs: no round waits for it longer than the deadline, and nothing ends because of it."""

import asyncio
import contextlib
import gc
import threading
import time
import weakref
from collections.abc import Collection
from dataclasses import replace

import pynvml
import pytest

from driver.node import FakeNode, FakeProcess, FakeSample, GiB, gpus, until
from exporter.devices.thread import DriverHungError, DriverThread, ThreadEndedError
from exporter.model import GpuUuid, HostSample
from sources.nvml import Answered, Open, Program

HANGING = "nvmlDeviceGetComputeRunningProcesses"
DEADLINE = 0.2
TWO = gpus(2, processes=(FakeProcess(5, GiB),))
BOTH = {GpuUuid(gpu.uuid): index for index, gpu in enumerate(TWO)}


@pytest.mark.fault(25)
async def test_a_hanging_call_is_a_fault_when_the_deadline_is_over(
    fake_node: FakeNode, nvml: Open, answered: Answered
) -> None:
    """The round ends with `driver_hung`, which names the call; the GPUs that were known stay present."""
    fake_node.write(TWO)
    source = await nvml(deadline=DEADLINE)
    await answered(source)
    fake_node.hang(HANGING)

    async with asyncio.timeout(5):
        sample = await source.sample()

    assert (sample.present, sample.samples) == (BOTH, ())
    (fault,) = sample.faults
    assert (fault.reason, fault.subject, fault.incomplete) == ("driver_hung", "", True)
    assert HANGING in fault.message


@pytest.mark.fault(25)
async def test_later_rounds_do_not_wait_for_a_stuck_thread(fake_node: FakeNode, nvml: Open) -> None:
    """While the call hangs, each further question is answered at once, without another wait and without the driver."""
    fake_node.write(TWO)
    source = await nvml(deadline=DEADLINE)
    fake_node.hang(HANGING)
    await source.sample()
    fake_node.reset_calls()

    async with asyncio.timeout(50 * DEADLINE):  # half of what a hundred questions would take, if they waited
        for _ in range(50):
            assert [fault.reason for fault in (await source.sample()).faults] == ["driver_hung"]
            assert await source.memory(BOTH) == {}

    assert fake_node.all_calls() == {}
    assert source._thread._queue.empty()  # nothing piles up, however long it hangs


async def test_the_event_loop_moves_while_a_call_hangs(fake_node: FakeNode, nvml: Open) -> None:
    """Other tasks run all the time that a round waits for the driver."""
    fake_node.write(TWO)
    source = await nvml(deadline=DEADLINE)
    fake_node.hang(HANGING)
    round_ = asyncio.create_task(source.sample())

    turns = 0
    while not round_.done():
        await asyncio.sleep(0)
        turns += 1

    assert turns > 100


async def test_the_source_resumes_by_itself(fake_node: FakeNode, nvml: Open, answered: Answered) -> None:
    """When the call returns, the next rounds are whole again, with what is true then."""
    fake_node.write(TWO)
    source = await nvml(deadline=DEADLINE)
    fake_node.hang(HANGING)
    await source.sample()
    fake_node.write(gpus(2, processes=(FakeProcess(6, 2 * GiB),)))
    fake_node.clear_switch(f"hang.{HANGING}")

    sample = await answered(source)

    assert sample.faults == ()
    assert [[process.pid for process in gpu.processes or ()] for gpu in sample.samples] == [[6], [6]]


async def test_a_late_answer_is_thrown_away(fake_node: FakeNode, nvml: Open, answered: Answered) -> None:
    """What a round learned too late counts for nothing: its utilization samples are read again."""
    fake_node.write(gpus(1, samples=(FakeSample(1, sm=40, time_us=1_700_000_000_000_000),)))
    source = await nvml(deadline=DEADLINE)
    fake_node.hang("nvmlDeviceGetTotalEccErrors")  # after the samples
    hung = await source.sample()
    fake_node.clear_switch("hang.nvmlDeviceGetTotalEccErrors")

    (gpu,) = (await answered(source)).samples

    assert hung.samples == ()
    assert gpu.utilization is not None
    assert [process.sm for process in gpu.utilization] == [0.4]


async def test_late_work_is_not_finished(fake_node: FakeNode, nvml: Open, answered: Answered) -> None:
    """The rest of a round that missed its deadline is skipped: the driver is not asked for its sake."""
    fake_node.write(TWO)
    source = await nvml(deadline=DEADLINE)
    fake_node.hang(HANGING, gpu=TWO[0].uuid)
    await source.sample()
    fake_node.reset_calls()
    fake_node.clear_switch(f"hang.{HANGING}", gpu=TWO[0].uuid)

    await answered(source)

    assert fake_node.calls(HANGING) == 2  # those of the new round


async def test_a_slow_driver_is_not_a_hanging_driver(fake_node: FakeNode, nvml: Open) -> None:
    """The deadline is for a call: a round of many slow calls takes its time, and is whole."""
    fake_node.write(TWO)
    source = await nvml(deadline=0.5)
    fake_node.slow("*", 10)  # milliseconds for each of some 75 calls

    started = asyncio.get_running_loop().time()
    sample = await source.sample()

    assert asyncio.get_running_loop().time() - started > 0.5
    assert sample.faults == ()
    assert len(sample.samples) == 2


async def test_a_driver_that_hangs_at_the_start_is_waited_for(
    fake_node: FakeNode, nvml: Open, answered: Answered
) -> None:
    """
    Opening does not fail on a hang, because a restart would not help: the samples report it until it is over.

    The late initialisation counts. A second one would make the daemon two users, of which one stays at the end.
    """
    fake_node.write(TWO)
    fake_node.hang("nvmlInit")

    source = await nvml(deadline=DEADLINE)
    hung = await source.sample()
    fake_node.clear_switch("hang.nvmlInit")

    assert [fault.reason for fault in hung.faults] == ["driver_hung"]
    assert len((await answered(source)).samples) == 2
    await source.close()
    assert fake_node.calls("nvmlInit") == fake_node.calls("nvmlShutdown") > 0


async def test_a_library_that_is_lost_too_late_for_a_round_is_released(
    fake_node: FakeNode, nvml: Open, answered: Answered
) -> None:
    """The round that was given up learns that the driver is gone: it lets go of the library all the same."""
    fake_node.write(TWO)
    source = await nvml(deadline=DEADLINE)
    await answered(source)
    fake_node.hang(HANGING)
    await source.sample()
    fake_node.fail(HANGING, pynvml.NVML_ERROR_UNINITIALIZED)
    fake_node.clear_switch(f"hang.{HANGING}")
    await asyncio.to_thread(until, lambda: fake_node.calls("nvmlShutdown"), "the release")
    fake_node.clear_switch(f"fail.{HANGING}")

    assert len((await answered(source)).samples) == 2
    await source.close()
    assert fake_node.calls("nvmlInit") == fake_node.calls("nvmlShutdown") == 2


async def test_closing_does_not_wait_for_a_hanging_call(fake_node: FakeNode, nvml: Open) -> None:
    """`close` is done within a second, though the deadline is far away and the call never returns."""
    fake_node.write(TWO)
    source = await nvml(deadline=60.0)
    fake_node.hang(HANGING)
    round_ = asyncio.create_task(source.sample())
    await asyncio.to_thread(until, lambda: fake_node.calls(HANGING), "the call that hangs")
    round_.cancel()

    async with asyncio.timeout(1):
        await source.close()


async def test_closing_shuts_the_driver_down(fake_node: FakeNode, nvml: Open) -> None:
    """A well driver is left in order."""
    fake_node.write(TWO)
    source = await nvml()
    fake_node.reset_calls()

    await source.close()

    assert fake_node.calls("nvmlShutdown") == 1


def test_a_process_ends_though_a_call_hangs(fake_node: FakeNode, program: Program) -> None:
    """The interpreter does not join the driver thread: a daemon with a stuck driver can be ended."""
    fake_node.write(TWO)
    fake_node.hang(HANGING)

    done = program(
        """
import asyncio
from exporter.devices.nvml import NvmlSource

async def main():
    source = await NvmlSource.open(deadline=0.1)
    print((await source.sample()).faults[0].reason)
    await source.close()

asyncio.run(main())
"""
    )

    assert (done.stdout, done.returncode) == ("driver_hung\n", 0), done.stderr
    assert fake_node.switched(f"hang.{HANGING}")


async def test_a_cancelled_round_makes_room_for_the_next(fake_node: FakeNode, nvml: Open) -> None:
    """A round that was cancelled in the middle of a call is given up at the next call; the one after it is served."""
    fake_node.write(TWO)
    source = await nvml()
    fake_node.hang(HANGING)
    cancelled = asyncio.create_task(source.sample())
    await asyncio.to_thread(until, lambda: fake_node.calls(HANGING), "the call that hangs")
    cancelled.cancel()
    following = asyncio.create_task(source.sample())
    await asyncio.sleep(0)
    fake_node.clear_switch(f"hang.{HANGING}")

    assert len((await following).samples) == 2
    assert fake_node.calls(HANGING) == 3


async def test_the_processes_are_identified_on_the_drivers_thread(fake_node: FakeNode, nvml: Open) -> None:
    """Right after the lists, and with all of their PIDs; a source that is not asked to does not do it."""
    fake_node.write([replace(one, processes=(FakeProcess(100 + number, GiB),)) for number, one in enumerate(gpus(2))])
    source = await nvml()
    asked: list[tuple[str, set[int]]] = []

    def identify(pids: Collection[int]) -> HostSample:
        assert len(pids) == 2 and 100 in pids
        asked.append((threading.current_thread().name, {*pids}))
        return HostSample(pid_domain_proven=True)

    assert (await source.sample()).host is None and not asked
    assert (await source.sample(None, identify)).host == HostSample(pid_domain_proven=True)
    assert asked == [("nvml", {100, 101})]


async def test_a_process_that_cannot_be_looked_at_is_not_the_drivers_fault(
    fake_node: FakeNode, nvml: Open, answered: Answered
) -> None:
    """The deadline is for one process; the fault names the kernel, and the late work is dropped at the next process."""
    fake_node.write([replace(one, processes=(FakeProcess(100 + number, GiB),)) for number, one in enumerate(gpus(4))])
    source = await nvml(deadline=1.0)
    release, looked = threading.Event(), list[int]()

    def slow(pids: Collection[int]) -> HostSample:
        for pid in pids:
            time.sleep(0.3)  # less than the deadline; all four take longer
            looked.append(pid)
        return HostSample()

    def hang(pids: Collection[int]) -> HostSample:
        for pid in pids:
            release.wait()
            looked.append(pid)
        return HostSample()

    assert (await source.sample(None, slow)).faults == () and len(looked) == 4
    looked.clear()
    for _ in range(2):  # also of a round that finds the thread there
        sample = await source.sample(None, hang)
        (fault,) = sample.faults
        assert fault.reason == "driver_hung"
        assert fault.message == "the kernel hangs: a look at a process in /proc has not returned within 1 s"
    assert sample.present.keys() == {gpu.uuid for gpu in fake_node.gpus}
    release.set()
    assert (await answered(source)).samples
    assert len(looked) == 1


async def test_an_answer_is_let_go_of_with_its_taker() -> None:
    """No cycle keeps it until Python looks for cycles, which is after 50,000 objects."""

    class Answer:
        """As large as those of a driver."""

    thread = DriverThread(deadline=1.0)
    gc.disable()
    try:
        answer = weakref.ref(await thread.run(Answer))
        await asyncio.sleep(0)
        await thread.run(lambda: None)
        assert answer() is None
    finally:
        gc.enable()
    await thread.close(lambda: None, within=1.0)


async def test_what_the_work_raises_reaches_who_asked() -> None:
    """An error in the work is the caller's, and the thread serves on."""
    thread = DriverThread(deadline=1.0)

    def broken() -> None:
        raise LookupError("nothing here")

    with pytest.raises(LookupError, match="nothing here"):
        await thread.run(broken)
    assert await thread.run(lambda: 42) == 42
    await thread.close(lambda: None, within=1.0)


async def test_a_thread_that_has_ended_takes_no_work() -> None:
    """Work after `close` is refused: it would wait for ever."""
    thread = DriverThread(deadline=1.0)
    assert await thread.run(lambda: 1) == 1
    await thread.close(lambda: None, within=1.0)

    with pytest.raises(ThreadEndedError):
        await thread.run(lambda: 2)


async def test_a_thread_that_is_being_closed_takes_no_work() -> None:
    """What a caller wants meanwhile would use the driver after its release."""
    thread, begun, release = DriverThread(deadline=60.0), threading.Event(), threading.Event()
    done: list[str] = []

    def last() -> None:
        begun.set()
        release.wait()
        done.append("released")

    await thread.run(lambda: None)
    closing = asyncio.create_task(thread.close(last, within=60.0))
    await asyncio.to_thread(begun.wait)
    with pytest.raises(ThreadEndedError):
        async with asyncio.timeout(1):
            await thread.run(lambda: done.append("used"))
    release.set()
    await closing
    assert done == ["released"]


async def test_the_result_of_a_hung_call_has_no_taker() -> None:
    """The message names the call that hangs, for a search in the kernel's stacks; its late result disturbs no other."""
    release, thread = threading.Event(), DriverThread(deadline=0.05)
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))

    def hang() -> str:
        thread.beat("nvmlSomething")
        release.wait()
        return "late"

    with pytest.raises(DriverHungError, match=r"nvmlSomething has not returned within 0\.05 s"):
        await thread.run(hang)
    release.set()
    async with asyncio.timeout(5):
        while True:
            with contextlib.suppress(DriverHungError):
                assert await thread.run(lambda: "in time") == "in time"
                break
            await asyncio.sleep(0.001)
    await thread.close(lambda: None, within=1.0)
    assert complaints == []
