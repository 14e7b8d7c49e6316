"""Programs of the bed: started one after the other, each waited for until it is ready, ended in reverse order.

In: commands and what "ready" means. Out: running processes, with a log file each.
Law: a process is ended by its own handle. Each one carries the bed's token in its environment. What a killed bed
leaves is found by that mark and by nothing else (see leftovers).
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from patience import PATIENCE

MARK = "GPUSTEWARD_BED"
ENDS_WITHIN_S = (
    2.0  # an API server waits up to a minute for clients that keep their connections; nothing here is worth it
)
LOG_TAIL = 3000  # characters

# Below the kernel's ephemeral range (32768 and up), so that no outgoing connection takes the port between our look at
# it and the program's bind. Below the NodePorts too (30000 and up).
PORTS = range(20000, 30000)

_HELD: list[socket.socket] = []
"""Bound to each port that was given out, for as long as this process lives: no port is given out twice."""


class StartError(Exception):
    """A part of the bed did not start; the message says which, why, and has the end of its log."""


class Processes:
    """The programs of one bed. `folder` takes their logs, `token` is the bed's mark."""

    def __init__(self, folder: Path, token: str) -> None:
        self._folder = folder
        self._token = token
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._again: dict[str, Callable[[], subprocess.Popen[bytes]]] = {}

    def start(
        self,
        name: str,
        command: Sequence[object],
        ready: Callable[[], bool],
        *,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a program and wait until `ready()`; its output goes to `<folder>/<name>.log`.

        Raises StartError when it ends first, or is not ready within the tests' patience.
        """
        self._again[name] = lambda: self.start(name, command, ready, environment=environment)
        self._folder.mkdir(parents=True, exist_ok=True)
        log = self._folder / f"{name}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # the terminal's Ctrl-C is for us; we then end the parts in order
                env={**os.environ, **(environment or {}), MARK: self._token},
            )
        self._running.append((name, process))
        deadline = time.monotonic() + PATIENCE
        while not ready():
            if process.poll() is not None:
                raise StartError(f"{name} ended with {process.returncode}:\n{_tail(log)}")
            if time.monotonic() > deadline:
                raise StartError(f"{name} is not ready after {PATIENCE:.0f} s:\n{_tail(log)}")
            time.sleep(0.05)
        return process

    def kill(self, name: str) -> None:
        """End one program at once (SIGKILL), as a crash does; one that has ended already is only forgotten."""
        for entry in [entry for entry in self._running if entry[0] == name]:
            entry[1].kill()
            entry[1].wait()
            self._running.remove(entry)

    def start_again(self, name: str) -> None:
        """Start a program of this bed as it was started before; returns when it is ready. Raises StartError."""
        self.kill(name)
        self._again[name]()

    def stop(self, *, down_to: str | None = None) -> None:
        """End all, the last first: SIGTERM, and SIGKILL for one that does not heed it. Safe to call twice.

        `down_to`: only those that were started after the program of this name (none when there is no such program).
        """
        names = [name for name, _ in self._running]
        keep = 0 if down_to is None else names.index(down_to) + 1 if down_to in names else len(names)
        while len(self._running) > keep:
            _, process = self._running.pop()
            process.terminate()
            try:
                process.wait(ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_port() -> int:
    """
    A port of 127.0.0.1 that no program has, and that stays so: it is held until this process ends.

    The holder does not listen. A server that shares addresses (SO_REUSEADDR, as Go's and asyncio's do) may listen
    there, and again after a restart. A program that looks for a free port asks without it, and is refused.
    """
    for port in random.sample(PORTS, len(PORTS)):
        holder = socket.socket()
        try:
            holder.bind(("127.0.0.1", port))
        except OSError:
            holder.close()
            continue
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _HELD.append(holder)
        return port
    raise StartError(f"no free port between {PORTS.start} and {PORTS.stop}")


def require_free(port: int, what: str) -> int:
    """The port itself. Raises StartError when a program listens on it."""
    if not _bindable(port):
        raise StartError(f"port 127.0.0.1:{port}, wanted for the {what}, is taken by another program (ss -ltnp)")
    return port


def listens(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a connection is taken."""
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


def answers(path: Path) -> bool:
    """Whether a connection to this Unix socket is taken."""
    with socket.socket(socket.AF_UNIX) as trial:
        return trial.connect_ex(str(path)) == 0


def _bindable(port: int) -> bool:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-LOG_TAIL:]
