"""
Fuzz target: bytes that an unknown client sends to the web server.

In: whether the client takes its answers, whether the web config has users, how the bytes are cut into parts, then the
bytes. They go into a real connection, with all routes behind it; only the socket is missing. The promise:
- Each answer is a whole HTTP response with a known status, never 500, and nothing is reported as a fault of ours.
- Each answer of ours has the security headers. No header of it comes from the request.
- Without the right name and password no page is served but the probes.
- Few bytes wait for a client that takes none, and nothing of a closed connection stays.
"""

import asyncio
import base64
import binascii
import logging
import re
import socket
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

import bcrypt
from aiohttp.http import HttpProcessingError

from exporter.base.clock import SystemClock
from exporter.metrics.exposition import Exposition
from exporter.rounds.latest import Latest, Tally
from exporter.web import bounds
from exporter.web.app import HEADERS, Answers, application
from exporter.web.config import Security
from exporter.web.gate import Gate
from exporter.web.listener import Listener
from fuzz import scratch
from fuzz.drawing import Draw
from serving.node import busy

NAME, PASSWORD = "anna", b"correct horse"
SECRET = b'"llama-0"'
"""The name of a pod, as metrics and JSON write it. An error may repeat what the client sent, so without the quotes."""
STATUSES = {100, 200, 400, 401, 404, 405, 408, 413, 417, 431, 503}
OURS = (200, 401, 404, 405)
_START = re.compile(rb"HTTP/[0-9]\.[0-9] ([0-9]{3}) [^\r\n]*\r\n")
_TOKEN = re.compile(rb"[A-Za-z0-9+/=]{8,}")
_INTERVAL = 1e6
"""Seconds between two rounds. After three of them the pods are withdrawn, and with them what a page must not tell."""
_TURNS = 400
"""Turns of the loop that an answer may take: a page of some hundred kB goes out in parts of 16 kB."""


class _AtOnce(Executor):
    """Hashes in place, so that a run is the same each time."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class _Client(asyncio.Transport):
    """Stands for the socket: takes what is written, or nothing."""

    def __init__(self, *, takes: bool) -> None:
        super().__init__({"peername": ("192.0.2.7", 50000), "sockname": ("192.0.2.1", 9478)})
        self.written = bytearray()
        self.most = 0
        self.closed = False
        self.protocol: Any = None
        self._takes, self._high = takes, bounds.UNSENT

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high or 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.closed:
            return
        self.written += data
        self.most = max(self.most, len(self.written))
        if not self._takes and len(self.written) > self._high:
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def is_closing(self) -> bool:
        return self.closed

    def is_reading(self) -> bool:
        return not self.closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0 if self._takes else len(self.written)

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


class _Faults(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError):
            self.found.append(f"{record.getMessage()}: {error!r}")


class _World:
    """A served node without a socket, open and with a user."""

    def __init__(self) -> None:
        self.loop = scratch.loop()
        self.faults = _Faults()
        self.listeners = self.loop.run_until_complete(self._set_up())

    async def _set_up(self) -> tuple[Listener, ...]:
        clock, latest = SystemClock(), Latest()
        latest.publish(replace(busy(), taken_at=clock.time(), monotonic=clock.monotonic()), Tally(rounds=1))
        answers = Answers(
            latest,
            Exposition(latest, node="n", version="1"),
            lambda: _INTERVAL,
            clock,
            "gpusteward 1",
            clock.monotonic(),
        )
        guarded = Gate()
        guarded.exchange(Security(users={NAME: bcrypt.hashpw(PASSWORD, b"$2b$04$7Gjb3QyJG2Rk8BCJlkm5ze")}))
        guarded.auth._hashing = _AtOnce()  # type: ignore[assignment]
        return tuple([await self._listener(answers, gate) for gate in (Gate(), guarded)])

    async def _listener(self, answers: Answers, gate: Gate) -> Listener:
        with socket.socket() as unused:
            listener = Listener(application(answers.routes(), gate), unused)
        await listener._runner.setup()
        logger = listener._connection_settings["logger"]
        logger.handlers = [self.faults]
        return listener

    async def serve(self, listener: Listener, client: _Client, parts: list[bytes]) -> None:
        connection = client.protocol = listener._connection()
        connection.connection_made(client)
        for part in parts:
            if client.closed:
                break
            connection.data_received(part)
            await asyncio.sleep(0)
        await self._settled(client)
        connection.connection_lost(None)
        for _ in range(8):
            await asyncio.sleep(0)

    async def _settled(self, client: _Client) -> None:
        still, before = 0, -1
        for _ in range(_TURNS):
            still = still + 1 if len(client.written) == before else 0
            if still > 12 or client.closed:
                return
            before = len(client.written)
            await asyncio.sleep(0)


_worlds: list[_World] = []


def check(data: bytes) -> None:
    """Send the bytes, and look at the answers."""
    if not _worlds:
        _worlds.append(_World())
    world = _worlds[0]
    draw = Draw(data)
    guarded, takes, cut = draw.below(2), draw.below(4) > 0, draw.below(256)
    sent = draw.rest()
    parts = [sent[at : at + cut] for at in range(0, len(sent), cut)] if 8 <= cut < 128 else [sent]
    client, listener = _Client(takes=takes), world.listeners[guarded]
    world.loop.run_until_complete(world.serve(listener, client, parts))
    assert not world.faults.found, world.faults.found.pop()
    assert not listener.connections(), "a closed connection is kept"
    answer = bytes(client.written)
    assert takes or len(answer) <= bounds.UNSENT + bounds.PART + 4096, f"{len(answer)} bytes wait for the client"
    if takes:
        _check_answers(answer, sent)
    if guarded and not _knows_password(sent):
        assert SECRET not in answer or SECRET in sent, "a page without a password"
        assert b"\r\nContent-Type: text/html" not in answer, "the node page without a password"


def _check_answers(answer: bytes, sent: bytes) -> None:
    strict = b"HEAD" not in sent
    while answer:
        start = _START.match(answer)
        assert start is not None, f"no response: {answer[:200]!r}"
        status = int(start[1])
        assert status in STATUSES, answer[:300]
        if status == 100:
            answer = answer[start.end() :].removeprefix(b"\r\n")
            continue
        head, ended, rest = answer[start.end() :].partition(b"\r\n\r\n")
        assert ended, f"a torn head: {answer[:200]!r}"
        headers = _headers(head)
        if status in OURS:
            for name, value in HEADERS.items():
                assert name == "Content-Security-Policy" or headers[name.lower()] == value, (status, name)
            assert headers["server"] == "gpusteward"
        # An error may repeat what the client sent.
        assert status == 200 or "text/html" not in headers.get("content-type", ""), headers
        if not strict:
            return
        length = int(headers.get("content-length", "0"))
        assert "content-length" in headers, headers
        assert len(rest) >= length, "a torn body"
        answer = rest[length:]


def _headers(head: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in head.split(b"\r\n"):
        name, colon, value = line.partition(b": ")
        assert colon and b"\r" not in line and b"\n" not in line, f"no header: {line!r}"
        assert name.lower().decode() not in found, f"a header twice: {line!r}"
        found[name.lower().decode()] = value.decode("latin-1")
    return found


def _knows_password(sent: bytes) -> bool:
    for token in _TOKEN.findall(sent):
        try:
            if base64.b64decode(token) == NAME.encode() + b":" + PASSWORD:
                return True
        except binascii.Error:
            continue
    return False
