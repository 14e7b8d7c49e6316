"""`gpusteward top`: a real daemon on the simulated node is watched on a terminal, in a pipe, and while it is away."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import pytest

from daemon.commands import COMMAND, complaint, gpusteward
from daemon.running import Daemon, until
from daemon.test_explain_running import stranger
from patience import PATIENCE

pytestmark = pytest.mark.daemon

LEFT, ENTERED = "\x1b[?1049l", "\x1b[?1049h"
HOLDER = r"  team-nlp/llama-sft-worker-0/pytorch +\d+\.\dGi +79\.6Gi +\d+% "
NO_RICH = "import sys; sys.modules['rich'] = None; from enforcer.cli import main; sys.exit(main())"


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """Run one daemon on the simulated node, for all tests that change nothing."""
    with Daemon("--devices=simulated", "--sampling.interval=1s", "--log.format=json") as running:
        running.snapshot()
        yield running


def top(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `gpusteward top` to its end."""
    return gpusteward("top", *words, **env)


def failed(ended: subprocess.CompletedProcess[str], code: int = 1) -> str:
    """Check that this ended with one line on standard error; return it."""
    return complaint("top", ended, code)


class Terminal:
    """A program on a terminal of its own, 24 lines of 100 columns; a context manager that ends it."""

    def __init__(self, command: Sequence[str | Path], **env: str) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        plain = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES", "NO_COLOR"}}
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *map(str, command)],
            env={**plain, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **env},
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)
        self.written = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            while part := os.read(self.master, 65536):
                self.written += part
        except OSError:  # what Linux says when the last one has left a terminal
            return

    @property
    def text(self) -> str:
        """All that was written to it so far."""
        return self.written.decode(errors="replace")

    def rounds(self) -> set[str]:
        """Say of which rounds there was a table."""
        return set(re.findall(r"round (\d+)", self.text))

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self.master, keys)

    def end(self) -> int:
        """Wait for the program's end; the exit code."""
        code = self.process.wait(PATIENCE)
        self._reader.join(10)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        self._reader.join(10)
        os.close(self.master)


# --- once -------------------------------------------------------------------------------------------------------------


def test_once(daemon: Daemon) -> None:
    """Each GPU, each container that holds memory of it, with its limit; plain text, and the end."""
    ended = top("--once", "--url", daemon.url)
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert re.match(r"test-node  \w+, \d+s (ago|old)  round \d+  gpusteward-exporter ", lines[0])
    head = next(number for number, line in enumerate(lines) if line.startswith("NAME"))
    assert lines[head].split() == ["NAME", "USED", "LIMIT", "SHARE", "SM", "STATE"]
    assert [line[:5] for line in lines if line.startswith("GPU")] == [f"GPU {index}" for index in range(8)]
    assert re.match(HOLDER, lines[head + 2])
    assert "\x1b" not in ended.stdout
    holders = {line.split()[0] for line in lines if "/" in line}
    snapshot = daemon.snapshot()
    assert {f"{one['namespace']}/{one['pod']}/{one['container']}" for one in snapshot["containers"]} <= holders


def test_once_as_json(daemon: Daemon) -> None:
    """The daemon's document as it is, in one line, wherever the URL stands."""
    ended = top("--once", "--json", GPUSTEWARD_URL=daemon.url)
    assert (ended.returncode, ended.stderr, ended.stdout.count("\n")) == (0, "", 1)
    found = json.loads(ended.stdout)
    assert set(found) == set(daemon.snapshot())
    assert (found["node"], len(found["gpus"])) == ("test-node", 8)


def test_nobody_is_there() -> None:
    """With `--once`, one line says that the connection was refused, and so does the exit code."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    said = failed(top("--once", "--url", f"http://127.0.0.1:{port}"))
    assert f"http://127.0.0.1:{port}: connection refused" in said


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (200, b"<html>hello", "answers something else than a snapshot"),
        (200, b'{"version": 2, "node": "n"}', "answers version 2 of the document"),
        (503, b'{"error": "no round has ended yet"}', "no round has ended yet"),
        (404, b'{"error": "not found"}', "shows nothing cause: web.api is false there"),
        (401, b'{"error": "who are you?"}', "needs a name and a password"),
    ],
)
def test_what_is_no_snapshot(status: int, body: bytes, told: str) -> None:
    """Whatever answers there instead is named in one line."""
    with stranger(status, body) as (url, _):
        assert told in failed(top("--once", "--url", url))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--url", "node-1:9478"), "--url: this is no URL of a daemon"),
        (("--once", "--interval", "2s"), "--interval and --once"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], told: str) -> None:
    """Exit code 2, before any request is sent."""
    assert told in failed(top(*words), 2)


@pytest.mark.parametrize("interval", ["5", "0", "99ms", "soon"])
def test_an_interval_is_a_duration(interval: str) -> None:
    """With its unit, and long enough."""
    ended = top("--interval", interval)
    assert ended.returncode == 2 and "--interval" in ended.stderr


# --- live -------------------------------------------------------------------------------------------------------------


def test_on_a_terminal() -> None:
    """
    The table stays in place, round after round; a daemon that goes away is said to be away, and its table to be stale.

    Ctrl-C gives the terminal back, leaves the whole last table on it, and is no failure.
    """
    with Daemon("--devices=simulated", "--sampling.interval=200ms", "--log.format=json") as running:
        running.snapshot()
        with Terminal([COMMAND, "top", "--interval", "200ms"], GPUSTEWARD_URL=running.url) as terminal:
            until(lambda: len(terminal.rounds()) > 1, "two rounds on the terminal", running)
            running.stop()
            until(lambda: "connection refused" in terminal.text, "the daemon to be missed", running)
            assert terminal.process.poll() is None
            terminal.type(b"\x03")
            code = terminal.end()
    assert code == 0, terminal.text
    assert terminal.text.startswith(ENTERED) and terminal.text.count(ENTERED) == terminal.text.count(LEFT) == 1
    before, _, after = terminal.text.partition(LEFT)
    assert "more lines: gpusteward top --once shows all" in before, "24 lines do not hold the table"
    assert "\x1b[?25h" in after or "\x1b[?25h" in before[before.rindex("\x1b[?25l") :], "the cursor is seen again"
    left = [line.rstrip("\r") for line in after[after.index("test-node") :].splitlines()]
    assert re.match(r"test-node  STALE, \d+s old  round \d+", left[0])
    assert left[1].startswith("daemon: http://127.0.0.1:")
    assert [line[:5] for line in left if line.startswith("GPU")] == [f"GPU {index}" for index in range(8)]
    assert max(map(len, left)) <= 100 and "Traceback" not in terminal.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_whoever_ends_it_gets_the_terminal_back(daemon: Daemon, number: signal.Signals) -> None:
    """Not Ctrl-C alone: a closed connection and a kill leave no terminal without a cursor."""
    with Terminal([COMMAND, "top", "--url", daemon.url]) as terminal:
        until(terminal.rounds, "a table on the terminal", daemon)
        terminal.process.send_signal(number)
        assert terminal.end() == 0, terminal.text
    assert LEFT in terminal.text and terminal.text.rindex("\x1b[?25h") > terminal.text.rindex("\x1b[?25l")


def test_on_a_terminal_without_rich(daemon: Daemon) -> None:
    """Plain text, one table below the other, and one line on how to have it better."""
    command = [sys.executable, "-c", NO_RICH, "top", "--interval", "200ms", "--url", daemon.url]
    with Terminal(command) as terminal:
        until(lambda: len(terminal.rounds()) > 1, "two rounds on the terminal", daemon)
        terminal.type(b"\x03")
        assert terminal.end() == 0, terminal.text
    assert terminal.text.count("pip install 'gpusteward[top]'") == 1
    assert "\x1b" not in terminal.text and "Traceback" not in terminal.text


def test_in_a_pipe() -> None:
    """One document below the other, until a signal. Standard error reports a daemon that is away, once."""
    with Daemon("--devices=simulated", "--sampling.interval=200ms", "--log.format=json") as running:
        running.snapshot()
        command = [str(COMMAND), "top", "--json", "--interval", "100ms", "--url", running.url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as piped:
            assert piped.stdout is not None and piped.stderr is not None
            first, second = (json.loads(piped.stdout.readline()) for _ in range(2))
            assert (first["version"], second["node"]) == (1, "test-node") and first["round"] <= second["round"]
            running.stop()
            assert "connection refused" in piped.stderr.readline()
            assert piped.poll() is None, "it waits for the daemon"
            piped.send_signal(signal.SIGINT)
            assert piped.wait(60) == 0
            assert piped.stderr.read() == "", "it is told once, and quietly ended"


def test_until_nobody_reads(daemon: Daemon) -> None:
    """`gpusteward top | head` ends with what it reads, without a word."""
    command = [str(COMMAND), "top", "--interval", "100ms", "--url", daemon.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as piped:
        assert piped.stdout is not None and piped.stderr is not None
        assert piped.stdout.readline().startswith("test-node  ")
        piped.stdout.close()
        assert (piped.wait(60), piped.stderr.read()) == (0, "")


def test_the_terminal_is_left_alone(daemon: Daemon) -> None:
    """Names that others chose do not reach the terminal as anything but text; nor do they in JSON."""
    raw = json.loads(daemon.get("/api/v1/snapshot")[1])
    raw["node"] = raw["containers"][0]["pod"] = "\x1b[2J\u009b31m\u202e名"
    with stranger(200, json.dumps(raw, ensure_ascii=False).encode()) as (url, _):
        for words in (("--once",), ("--once", "--json")):
            ended = top(*words, "--url", url)
            assert ended.returncode == 0
            assert re.fullmatch("[ -~\n–…]*", ended.stdout), words  # noqa: RUF001


# --- what it costs the others -----------------------------------------------------------------------------------------


def test_nobody_else_pays_for_it() -> None:
    """The other commands load neither rich nor an HTTP client for it."""
    asked = "import sys, enforcer.cli; print({'rich', 'aiohttp', 'exporter.top'} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert ended.stdout == "set()\n"
