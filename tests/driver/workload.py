"""A workload seen from the test: commands go into its FIFO, what it says that it holds comes out of its file.

The same handle serves a process that the test started and one that runs as PID 1 of a container.
Law: a command returns when the workload has said that it is done; nothing is timed, conditions are awaited.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from driver.gpus import Kind

T = TypeVar("T")
ANSWERS_WITHIN_S = 60.0
"""One that was ended never answers, and some tests ask it: so this is no matter of patience alone."""


class WorkloadError(RuntimeError):
    """A workload refused a command (for instance: out of memory), or went away."""


@dataclass(frozen=True, slots=True)
class Says:
    """What a workload says of its whole tree, in pids of its own namespace.

    `held`: bytes per device uuid; `processes`: bytes per owner, the pid that the driver will name; `members`: the pids
    that are alive; `tids`: the threads of its own process that opened a device. `seq` counts commands since `token`
    started.
    """

    token: str
    seq: int
    ready: bool
    exited: bool
    error: str
    pid: int
    members: tuple[int, ...]
    tids: tuple[int, ...]
    held: Mapping[str, int]
    processes: Mapping[int, int]

    @property
    def total(self) -> int:
        return sum(self.held.values())


def until(condition: Callable[[], T | None], what: str, timeout: float = ANSWERS_WITHIN_S) -> T:
    """Poll until the condition gives something true; TimeoutError names what was waited for."""
    deadline = time.monotonic() + timeout
    while True:
        if value := condition():
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout} s for {what}")
        time.sleep(0.005)


class Workload:
    """A running workload called `name` of the node in `folder`; `process` when it is a child of this process."""

    def __init__(self, folder: Path, name: str, process: subprocess.Popen[str] | None = None) -> None:
        self.name = name
        self.process = process
        self._says = folder / "says" / name
        self._control = folder / "control" / name

    @property
    def pid(self) -> int:
        """The pid of the process that was started, in the test's namespace (children of the test only)."""
        if self.process is None:
            raise WorkloadError(f"{self.name} is not a child of this process")
        return self.process.pid

    def says(self) -> Says:
        """What it last said; WorkloadError when it never spoke."""
        if says := self._read():
            return says
        raise WorkloadError(f"{self.name} has said nothing{self._last_words()}")

    def ready(self) -> Says:
        """Wait until the commands of its command line are done. WorkloadError when one failed."""

        def done() -> Says | None:
            gone = self._gone()  # before its last words are read: it may say them and go in between
            says = self._read()
            if says is not None and (says.ready or says.exited):
                return says
            if gone:
                raise WorkloadError(f"{self.name}: {says.error if says else 'said nothing'}{self._last_words()}")
            return None

        says = until(done, f"{self.name} to be ready")
        if says.error:
            raise WorkloadError(f"{self.name}: {says.error}")
        return says

    def command(self, line: str) -> Says:
        """Send one command and wait until it is done. WorkloadError when it was refused."""
        before = self.says()
        self._send(line)

        def answered() -> Says | None:
            gone = self._gone()
            says = self._read()
            if says is not None and (says.seq != before.seq or says.token != before.token):
                return says
            if gone:
                raise WorkloadError(f"{self.name} went away at {line!r}{self._last_words()}")
            return None

        says = until(answered, f"{self.name} to do {line!r}")
        if says.error:
            raise WorkloadError(f"{self.name}: {says.error}")
        return says

    def alloc(self, device: int | str, size: int, *kinds: Kind, **load: int) -> Says:
        words = " ".join(f"{key}={value}" for key, value in load.items())
        return self.command(f"alloc {device} {size} {'+'.join(kinds or (Kind.COMPUTE,))} {words}")

    def free(self, device: int | str = "") -> Says:
        return self.command(f"free {device}")

    def set(self, **load: int) -> Says:
        return self.command("set " + " ".join(f"{key}={value}" for key, value in load.items()))

    def fork(self, then: str = "stay") -> Says:
        """The child holds the same descriptors. "exit": the child takes the commands, and the owner dies."""
        return self.command(f"fork {then}")

    def thread(self, device: int | str, size: int) -> Says:
        return self.command(f"thread {device} {size}")

    def children(self, count: int, device: int | str, size: int) -> Says:
        return self.command(f"children {count} {device} {size}")

    def ghost(self, device: int | str, size: int, *, reaped: bool = True) -> Says:
        return self.command(f"ghost {device} {size}{'' if reaped else ' unreaped'}")

    def zombie(self) -> Says:
        return self.command("zombie")

    def exec(self) -> Says:
        return self.command("exec")

    def ignore_term(self) -> Says:
        return self.command("ignore-term")

    def exit(self, code: int = 0) -> Says:
        return self.command(f"exit {code}")

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        """The exit status, as subprocess gives it; reaps the process."""
        if self.process is None:
            raise WorkloadError(f"{self.name} is not a child of this process")
        return self.process.wait(ANSWERS_WITHIN_S)

    def close(self) -> None:
        """End the whole tree: a process group of its own, whose number is ours while a member lives."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stderr):
            if stream:
                stream.close()

    def _read(self) -> Says | None:
        try:
            raw = json.loads(self._says.read_text())
        except FileNotFoundError:
            return None
        raw["tids"], raw["members"] = tuple(raw["tids"]), tuple(raw["members"])
        raw["processes"] = {int(pid): size for pid, size in raw["processes"].items()}
        return Says(**raw)

    def _send(self, line: str) -> None:
        def opened() -> int | None:
            try:
                return os.open(self._control, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as error:
                if error.errno not in (errno.ENXIO, errno.ENOENT):
                    raise
            if self._gone():
                raise WorkloadError(f"{self.name} has gone{self._last_words()}")
            return None

        descriptor = until(opened, f"{self.name} to listen")
        try:
            os.write(descriptor, line.encode() + b"\n")
        finally:
            os.close(descriptor)

    def _gone(self) -> bool:
        if self.process is None or self.process.poll() is None:
            return False
        try:  # after "fork exit" the child goes on in the same group
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return True
        return False

    def _last_words(self) -> str:
        if self.process is None or self.process.stderr is None or self.process.poll() is None or not self._gone():
            return ""
        return f" (exit code {self.process.returncode}) {self.process.stderr.read()}".rstrip()
