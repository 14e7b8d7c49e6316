"""
One thread for a driver, and a deadline on each of its calls.

What comes in: work, a function that makes driver calls and announces each with `beat`. What goes out: its result, or
`DriverHungError` as soon as one call has kept the thread for longer than the deadline.

The rule: the event loop never waits longer than the deadline for progress. One thread is enough, because drivers
serialise their callers (NVML: on one lock in the kernel). A thread in a system call in D state cannot be ended, so it
is left alone. Until its call returns, all further work is refused at once. Then the late result is thrown away, the
rest of the late work is skipped, and the thread serves again. Only a part in `whole` is always finished. It is a daemon
thread of our own: an executor's threads are joined when the interpreter ends.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

DEADLINE = 5.0
"""
Seconds for one call, or one file.

A process list of NVIDIA's takes some 5 ms. A first initialisation may take seconds, and an amdgpu that is being reset
holds its readers as long.
"""
GOODBYE = 0.4
"""Seconds for shutting down: a user of NVML that was killed has frozen a GPU's firmware. The whole daemon has one."""


class DriverHungError(Exception):
    """A call has not returned within the deadline; the message names it."""


class ThreadEndedError(Exception):
    """The thread was closed: the daemon stops."""


class _AbandonedError(Exception):
    """The caller no longer waits for this work."""


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """Work and the future that waits for it. While the work goes on, a future that is done marks it as given up."""

    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class DriverThread:
    """Runs work on one daemon thread, which starts with the first work. `deadline`: seconds for one driver call."""

    def __init__(self, deadline: float, name: str = "nvml") -> None:
        self.deadline = deadline
        self.name = name
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._job: _Job | None = None
        self._call = ""
        self._call_began: float | None = None
        self._whole = False
        self._closed = False

    def beat(self, call: str) -> None:
        """Announce a call of the driver, or what else may block: on the driver thread, directly before it."""
        if self._job is not None and self._job.future.done() and not self._whole:
            raise _AbandonedError
        self._call, self._call_began = call, time.monotonic()

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """On the driver thread: finish this part of the work, even if the caller gave up, so that nothing leaks."""
        self._whole = True
        try:
            yield
        finally:
            self._whole = False

    async def run(self, work: Callable[[], T]) -> T:
        """
        Run `work` on the thread and return its result.

        Raises the errors of `work`, `DriverHungError` while this call or an earlier one overruns the deadline, and
        `ThreadEndedError` after `close`.
        """
        if self._closed:
            raise ThreadEndedError
        return await self._run(work)

    async def close(self, last: Callable[[], None] = lambda: None, within: float = GOODBYE) -> None:
        """Run `last` if the driver permits, then end the thread; after `within` seconds leave it behind."""
        closed, self._closed = self._closed, True  # from now on nothing is queued behind `last`
        if self._thread is not None and not closed:
            with contextlib.suppress(DriverHungError, TimeoutError):
                async with asyncio.timeout(within):
                    await self._run(last)
            self._queue.put(None)

    async def _run(self, work: Callable[[], T]) -> T:
        self._refuse_if_hung()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=self.name, daemon=True)
            self._thread.start()
        self._queue.put(_Job(work, loop, future))

        timers: list[asyncio.TimerHandle] = []
        self._watch(future, timers)
        try:
            return await future
        finally:
            for timer in timers:
                timer.cancel()

    def _watch(self, future: asyncio.Future[Any], timers: list[asyncio.TimerHandle]) -> None:
        """End the wait for `future` once a call hangs; until then look again when the present one would."""
        try:
            self._refuse_if_hung()
        except DriverHungError as error:
            if not future.done():
                future.set_exception(error)
        else:
            timers[:] = [future.get_loop().call_later(self._patience(), self._watch, future, timers)]

    def _patience(self) -> float:
        began = self._call_began
        return self.deadline if began is None else began + self.deadline - time.monotonic()

    def _refuse_if_hung(self) -> None:
        if self._patience() <= 0:
            raise DriverHungError(f"{self._call} has not returned within {self.deadline:g} s")

    def _serve(self) -> None:
        while (job := self._queue.get()) is not None:
            self._job = job
            try:
                deliver = _outcome(job)
            except _AbandonedError:
                continue
            finally:
                self._job = self._call_began = None
            with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
                job.loop.call_soon_threadsafe(deliver)


def _outcome(job: _Job) -> Callable[[], None]:
    """Do the work; return the function that the event loop then calls. A future that was given up gets no result."""
    if job.future.done():
        raise _AbandonedError
    try:
        result = job.work()
    except _AbandonedError:
        raise
    except BaseException as error:  # noqa: BLE001  (the waiter gets every error)
        failure = error
        return lambda: None if job.future.done() else job.future.set_exception(failure)
    return lambda: None if job.future.done() else job.future.set_result(result)
