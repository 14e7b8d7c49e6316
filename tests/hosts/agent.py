"""
Programs and files of a guest, by QEMU's guest agent: no network, no password.

In: the socket of the agent's serial port. Out: what a command printed; files written and read.

The rule: each conversation begins with `guest-sync`, because an answer to a client that has gone is still in the port.
https://www.qemu.org/docs/master/interop/qemu-ga-ref.html
"""

from __future__ import annotations

import base64
import json
import secrets
import shlex
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patience import PATIENCE

PART = 48_000
"""Bytes of a file in one message: as Base64 it stays below the agent's limit."""
ANSWERS_WITHIN_S = 60.0
LOOKS_S = (0.05, 1.0)
"""Between two looks for the end of a command, at first and at most: each costs the guest some of its time."""


class GuestError(Exception):
    """The guest does not answer, or a command of it failed; the message has what it printed."""


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended: its exit status, standard output and standard error."""

    status: int
    output: str
    errors: str


class Agent:
    """A client of the agent behind a socket."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def answers(self) -> bool:
        """Tell whether the agent runs."""
        try:
            self._ask("guest-ping", within=1.0)
        except GuestError:
            return False
        return True

    def try_run(self, *command: object) -> Done:
        """Run a program of the guest to its end. Raises GuestError where that takes too long."""
        words = [str(word) for word in command]
        pid = self._ask("guest-exec", {"path": words[0], "arg": words[1:], "capture-output": True})["pid"]
        deadline, pause = time.monotonic() + PATIENCE, LOOKS_S[0]
        while time.monotonic() < deadline:
            state = self._ask("guest-exec-status", {"pid": pid})
            if state["exited"]:
                return Done(state.get("exitcode", -1), _text(state, "out-data"), _text(state, "err-data"))
            time.sleep(pause)
            pause = min(2 * pause, LOOKS_S[1])
        raise GuestError(f"{shlex.join(words)} has not ended after {PATIENCE:.0f} s")

    def run(self, *command: object) -> str:
        """Run a program of the guest, and return what it printed. Raises GuestError where it fails."""
        done = self.try_run(*command)
        if done.status:
            raise GuestError(f"{shlex.join(map(str, command))} ended with {done.status}: {done.output}{done.errors}")
        return done.output

    def shell(self, script: str) -> str:
        """Run lines of a shell, and return what they printed. Raises GuestError where one fails."""
        return self.run("/bin/sh", "-euc", script)

    def write(self, path: str, content: bytes) -> None:
        """Put a file into the guest; its folder has to be there."""
        handle = self._ask("guest-file-open", {"path": path, "mode": "w"})
        for begin in range(0, len(content), PART):
            part = base64.b64encode(content[begin : begin + PART]).decode()
            self._ask("guest-file-write", {"handle": handle, "buf-b64": part})
        self._ask("guest-file-close", {"handle": handle})

    def _ask(self, command: str, arguments: dict[str, object] | None = None, within: float = ANSWERS_WITHIN_S) -> Any:
        with socket.socket(socket.AF_UNIX) as port:
            port.settimeout(within)
            try:
                port.connect(str(self._path))
                lines = port.makefile(encoding="utf-8", errors="replace")
                self._synchronize(port, lines)
                port.sendall(_message(command, arguments or {}))
                answer = json.loads(lines.readline())
            except (OSError, ValueError) as error:
                raise GuestError(f"{command}: the guest does not answer: {error}") from error
        if "error" in answer:
            raise GuestError(f"{command}: {answer['error']['desc']}")
        return answer["return"]

    @staticmethod
    def _synchronize(port: socket.socket, lines: Sequence[str] | Any) -> None:
        """Skip answers to those who asked before."""
        number = secrets.randbelow(2**30)
        port.sendall(_message("guest-sync", {"id": number}))
        for line in lines:
            try:
                if json.loads(line).get("return") == number:
                    return
            except ValueError:
                continue  # the rest of a line that began before
        raise ValueError("the port is closed")


def _message(command: str, arguments: dict[str, object]) -> bytes:
    return json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n"


def _text(state: dict[str, Any], key: str) -> str:
    return base64.b64decode(state.get(key, "")).decode(errors="replace")


__all__ = ["Agent", "Done", "GuestError"]
