"""
A reader's terminal: pasted commands, one after the other.

In: commands. Out: exit code and what was printed. Law: variables stay from one command to the next, until `close`; what
runs until Ctrl-C, or in the background, is ended by `interrupt` and by `close`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from patience import PATIENCE

PAUSE = 1.0
"""Seconds between two looks of a reader who waits."""


@dataclass(frozen=True, slots=True)
class Done:
    """The exit code of a command (None while it runs), and what it printed so far."""

    code: int | None
    printed: str


class Terminal:
    """A shell in a folder, with variables of the environment."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self._environment = {**os.environ, **environment}
        self._kept = folder / ".variables"
        self._started: list[subprocess.Popen[bytes]] = []
        self._count = 0
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, command: str, good: Callable[[Done], bool], *, again: bool) -> Done:
        """
        Run a command until it is good, and return the last look. `again`: one that ended and is not is run anew.

        When the time is over, the last run that ended is returned: it says more than one that has just begun.
        """
        deadline = time.monotonic() + PATIENCE
        ended: Done | None = None
        while True:
            process, output = self._start(command)
            while True:
                done = Done(process.poll(), output.read_text(errors="replace"))
                late = time.monotonic() > deadline
                if good(done) or late or done.code is not None:
                    break
                time.sleep(PAUSE / 10)
            if done.code is not None:
                ended = done
                if "&" not in command:  # nothing of it is left
                    self._started.remove(process)
            if good(done) or not again:
                return done
            if late:
                return ended or done
            time.sleep(PAUSE)

    def interrupt(self) -> None:
        """End what still runs, with its children."""
        for process in self._started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in self._started:
            process.wait(PATIENCE)
        self._started.clear()

    def close(self) -> None:
        """Do so, and forget the variables."""
        self.interrupt()
        self._kept.write_text("")

    def _start(self, command: str) -> tuple[subprocess.Popen[bytes], Path]:
        self._count += 1
        output = self.folder / f".output-{self._count}"  # what runs in the background goes on writing in its own
        script = f"set -ao pipefail; . '{self._kept}'\n{command}\ncode=$?; export -p > '{self._kept}'; exit $code"
        with output.open("wb") as file:
            process = subprocess.Popen(
                ["stdbuf", "-oL", "bash", "-c", script],  # a terminal shows each line at once
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(process)
        return process, output
