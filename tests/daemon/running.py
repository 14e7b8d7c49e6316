"""
The daemon as a process of its own, seen from outside: its ports, its lines, its end.

In: flags and an environment. Out: what it serves. Law: nothing is timed; conditions are awaited with a deadline.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from patience import PATIENCE

T = TypeVar("T")

COMMAND = Path(sys.executable).with_name("gpusteward-exporter")


class Daemon:
    """
    A running `gpusteward-exporter`, or what `command` says; a context manager that ends it.

    `enter`: words before the command, such as `unshare --cgroup`; `cgroup`: a cgroup folder that it enters first.
    """

    def __init__(
        self,
        *flags: str,
        env: Mapping[str, str] | None = None,
        enter: Sequence[str] = (),
        cgroups: Sequence[Path] = (),
        command: Sequence[str | Path] = (COMMAND,),
    ) -> None:
        join = "".join(f'echo $$ > "{folder}/cgroup.procs" && ' for folder in cgroups)
        self.process = subprocess.Popen(
            [
                *("sh", "-c", f'{join}exec "$@"', "sh", *enter),
                *(*map(str, command), "--web.listen-address", "127.0.0.1:0", *flags),
            ],
            env={**os.environ, "NODE_NAME": "test-node", **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._url = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))

    @property
    def log(self) -> str:
        """All that it wrote so far."""
        return "\n".join(self.lines)

    @property
    def url(self) -> str:
        """Where it listens; waits for the line that says so."""

        def said() -> str | None:
            assert self.process.poll() is None, f"the daemon ended with {self.process.poll()}:\n{self.log}"
            found = re.search(r'"url": "([^"]+)"', self.log)
            return found[1] if found else None

        self._url = self._url or until(said, "the daemon to listen", self)
        return self._url

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Status and body of one request."""
        request = urllib.request.Request(self.url + path, headers=dict(headers or {}))
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def page(self) -> str:
        """A page of /metrics with the figures of a round: 3 intervals later they are withdrawn, here after 0.6 s."""

        def there() -> str | None:
            page = self.get("/metrics")[1]
            return page if "\ngpusteward_gpu_up{" in page else None

        return until(there, "a page with figures", self)

    def snapshot(self) -> dict[str, Any]:
        """The latest snapshot; waits for the first."""

        def there() -> dict[str, Any] | None:
            status, body = self.get("/api/v1/snapshot")
            return json.loads(body) if status == 200 else None

        return until(there, "a first snapshot", self)

    def until(self, condition: Callable[[dict[str, Any]], T | None], what: str) -> T:
        """Poll the snapshot until `condition` gives something true."""
        return until(lambda: condition(self.snapshot()), what, self)

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        """Send a signal; the exit code, and the seconds it took."""
        began = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE)
        took = time.monotonic() - began
        self._reader.join(5)
        return code, took

    def wait(self) -> int:
        """Wait for its own end; the exit code."""
        code = self.process.wait(PATIENCE)
        self._reader.join(5)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        self._reader.join(5)
        assert self.process.stderr is not None
        self.process.stderr.close()
        if error is not None:
            print(self.log)  # pytest shows it beside the failure


def until(condition: Callable[[], T | None], what: str, daemon: Daemon, within: float = PATIENCE) -> T:
    """Poll until the condition gives something true; else fail, with what was awaited and what the daemon wrote."""
    began = time.monotonic()
    while True:
        if found := condition():
            return found
        waited = time.monotonic() - began
        assert waited < within, f"waited {within} s for {what}; the daemon wrote:\n{daemon.log}"
        time.sleep(min(0.02 + waited / 20, 0.1))  # what takes long is looked for less often: two cores are shared
