"""
A tenant: a process that holds memory of a GPU and keeps it busy, by orders. `python -m gpu.tenant UUID [LIBRARY]`.

What comes in: orders, a line each (`protocol`). What goes out: an answer to each.

The law: it ends when its orders end. A forked child may not use CUDA any more, but holds what its parent held. It ends
by itself after `CHILD` seconds, unless it is ended before.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import msgspec

from gpu.cuda import SONAME, Block, Cuda, CudaError
from gpu.duty import Done, Duty
from gpu.protocol import Answer, Do, Order, line, order

CHILD = 60
SECOND = 1_000_000_000


class Tenant:
    """What one process holds."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._held: list[Block] = []
        self._ending = threading.Event()

    def obey(self, told: Order) -> Answer:
        """Do it, and say what came of it."""
        match told.do:
            case Do.CONTEXT:
                self._cuda.context()
            case Do.ALLOCATE:
                self._held.append(self._cuda.allocate(told.size))
            case Do.FREE:
                while self._held:
                    self._cuda.free(self._held.pop())
            case Do.THREAD:
                self._in_a_thread(told.size)
            case Do.FORK:
                return Answer(_child())
            case Do.BUSY:
                return Answer(os.getpid(), self._busy(told))
            case Do.END:
                self._ending.set()
        return Answer(os.getpid())

    def _in_a_thread(self, size: int) -> None:
        """Make a context and allocate in a thread that stays: some drivers then list the thread, not the process."""
        done, problems = threading.Event(), list[CudaError]()

        def hold() -> None:
            try:
                self._cuda.context()
                self._cuda.allocate(size)
            except CudaError as problem:
                problems.append(problem)
            done.set()
            self._ending.wait()

        threading.Thread(target=hold, daemon=True).start()
        done.wait()
        for problem in problems:
            raise problem

    def _busy(self, told: Order) -> float | None:
        duty, done = Duty(told.share), Done()
        if duty.burst_ns:
            self._cuda.spin(0, 1)  # the driver compiles the kernel at its first launch
        end = time.monotonic_ns() + round(told.seconds * SECOND)
        while (begin := time.monotonic_ns()) < end:
            if duty.burst_ns:
                self._cuda.spin(duty.burst_ns, told.blocks or self._cuda.multiprocessors)
            busy = time.monotonic_ns() - begin if duty.burst_ns else 0
            time.sleep(duty.rest_ns(time.monotonic_ns() - begin) / SECOND)
            done = done.with_burst(busy, time.monotonic_ns() - begin)
        return done.share


def _child() -> int:
    child = os.fork()
    if child == 0:
        os.close(0)
        os.close(1)
        signal.alarm(CHILD)
        while True:
            signal.pause()
    return child


def main(uuid: str, library: str = SONAME) -> int:
    """Obey until the orders end."""
    try:
        cuda = Cuda(uuid, library)
        hello = Answer(os.getpid(), None, cuda.multiprocessors, cuda.version(), cuda.fake)
    except (OSError, CudaError) as problem:
        print(line(Answer(os.getpid(), problem=str(problem))), end="", flush=True)
        return 1
    print(line(hello), end="", flush=True)
    tenant = Tenant(cuda)
    for text in sys.stdin:
        try:
            given = tenant.obey(order(text))
        except (CudaError, OSError, ValueError, msgspec.DecodeError) as problem:
            given = Answer(os.getpid(), problem=str(problem))
        print(line(given), end="", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
