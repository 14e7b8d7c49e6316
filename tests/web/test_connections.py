"""Promises of exporter/web/connections.py: strangers hold no files for long, and never keep a probe out."""

import asyncio
import base64
import os
import resource
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import bcrypt
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from exporter.web.server import Server
from serving.certificates import Authority
from serving.node import busy, serving

MOST = 4
REQUEST = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    for bound in ("CONNECTIONS", "TLS_CONNECTIONS"):
        monkeypatch.setattr(f"exporter.web.bounds.{bound}", MOST)
    monkeypatch.setattr("exporter.web.bounds.OF_A_PEER", 1.0)


def port(server: Server) -> int:
    return int(server.url.rpartition(":")[2])


@asynccontextmanager
async def connected(server: Server) -> AsyncIterator[Streams]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port(server))
    try:
        yield reader, writer
    finally:
        writer.close()


async def ended(reader: asyncio.StreamReader) -> None:
    """Wait until the other side has closed."""
    async with asyncio.timeout(10):
        try:
            while await reader.read(1 << 16):
                pass
        except ConnectionResetError:
            return


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


def handlers(server: Server) -> list[web.RequestHandler]:
    return server.listeners[0].connections()


def unsent(handler: web.RequestHandler) -> bool:
    return isinstance(handler.transport, asyncio.WriteTransport) and handler.transport.get_write_buffer_size() > 0


@pytest.mark.parametrize("sent", [b"", REQUEST[:20], REQUEST], ids=["nothing", "half a request", "one request"])
async def test_who_waits_is_let_go(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    """A connection without a whole request is closed after a while: before the first request, and between two."""
    monkeypatch.setattr("exporter.web.bounds.IDLE", 0.1)
    async with serving(busy()) as (server, _), connected(server) as (reader, writer):
        writer.write(sent)
        await ended(reader)


async def test_the_oldest_goes_when_there_are_too_many() -> None:
    """Silent connections, and more than are let in: a probe is answered, the oldest is closed, younger ones stay."""
    async with serving(busy()) as (server, _):
        silent = [await asyncio.open_connection("127.0.0.1", port(server)) for _ in range(MOST + 2)]
        async with aiohttp.ClientSession() as session, session.get(f"{server.url}/healthz") as answer:
            assert answer.status == 200
        for reader, _ in silent[:3]:
            await ended(reader)
        for reader, writer in silent[3:]:
            writer.write(REQUEST)
            async with asyncio.timeout(10):
                assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        for _, writer in silent:
            writer.close()


async def asked(streams: Streams, login: str = "") -> bytes:
    """Ask for the metrics on a connection that is kept; the status line."""
    reader, writer = streams
    header = f"Authorization: Basic {base64.b64encode(login.encode()).decode()}\r\n" if login else ""
    writer.write(f"GET /metrics HTTP/1.1\r\nHost: x\r\n{header}\r\n".encode())
    async with asyncio.timeout(10):
        status = await reader.readline()
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split()[1]) for line in head.splitlines() if line.lower().startswith(b"content-length"))
        await reader.readexactly(length)
    return status


async def from_many(server: Server, number: int) -> list[Streams]:
    """Connect from so many addresses."""
    return [
        await asyncio.open_connection("127.0.0.1", port(server), local_addr=(f"127.0.1.{place}", 0))
        for place in range(1, number + 1)
    ]


@pytest.mark.parametrize("login", ["", "anna:secret"], ids=["open", "login"])
async def test_a_scraper_keeps_its_connection_among_strangers(tmp_path: Path, login: str) -> None:
    """Strangers with one address for each connection cannot close that of a scraper, which was answered before."""
    file = tmp_path / "web.yaml"
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    file.write_text(f"basic_auth_users: {{anna: {hashed}}}" if login else "{}")
    async with serving(busy(), config_file=file) as (server, _), connected(server) as scraper:
        assert b" 200 " in await asked(scraper, login)
        strangers = await from_many(server, 3 * MOST)
        await ended(strangers[0][0])
        assert b" 200 " in await asked(scraper, login)
        for _, writer in strangers:
            writer.close()


async def test_a_stranger_without_the_password_is_spared_by_no_probe(tmp_path: Path) -> None:
    """Where a password is needed, answers to probes and refusals do not make a client a known one."""
    file = tmp_path / "web.yaml"
    file.write_text(f"basic_auth_users: {{anna: {bcrypt.hashpw(b'secret', bcrypt.gensalt(4)).decode()}}}")
    async with serving(busy(), config_file=file) as (server, _), connected(server) as stranger:
        stranger[1].write(REQUEST)
        async with asyncio.timeout(10):
            assert await stranger[0].readline() == b"HTTP/1.1 200 OK\r\n"
            await stranger[0].readuntil(b"ok\n")
        assert b" 401 " in await asked(stranger, "anna:guess")
        others = await from_many(server, MOST)
        await ended(stranger[0])
        for _, writer in others:
            writer.close()


async def test_who_takes_no_answer_goes_too() -> None:
    """A client that asks and never reads cannot hold its connection by the answers that are still to be sent."""
    async with serving(busy()) as (server, _), connected(server) as (_, writer):
        transport = writer.transport
        assert isinstance(transport, asyncio.ReadTransport)
        transport.pause_reading()
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 400)
        await until(lambda: any(map(unsent, handlers(server))))
        (unread,) = handlers(server)
        others = [await asyncio.open_connection("127.0.0.1", port(server)) for _ in range(MOST)]
        await until(lambda: unread not in handlers(server))
        for _, other in others:
            other.close()


async def test_unfinished_handshakes_count(tmp_path: Path) -> None:
    """A client that never ends its TLS handshake holds a file like any other: it is counted, and the oldest goes."""
    authority = Authority(tmp_path)
    file = tmp_path / "web.yaml"
    file.write_text("tls_server_config: {cert_file: server.pem, key_file: server.key}")
    async with serving(busy(), config_file=file) as (server, _):
        silent = [await asyncio.open_connection("127.0.0.1", port(server)) for _ in range(MOST)]
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{server.url}/healthz", ssl=authority.client()) as answer,
        ):
            assert answer.status == 200
        await ended(silent[0][0])
        for _, writer in silent:
            writer.close()


async def test_without_files_nobody_is_let_in_and_it_is_told_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The log has one line with the remedy and no traceback. A waiting client is answered once files are free again."""
    monkeypatch.setattr("exporter.web.connections.PAUSE", 0.02)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with capture_logs() as logs:
        async with serving(busy()) as (server, _):
            with socket.create_connection(("127.0.0.1", port(server))) as waiting:
                waiting.sendall(REQUEST)
                free = os.dup(0)
                os.close(free)
                resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
                try:
                    await until(lambda: bool(logs))
                    await asyncio.sleep(0.1)  # more attempts, which are not logged
                finally:
                    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
                waiting.setblocking(False)
                async with asyncio.timeout(10):
                    assert (await asyncio.get_running_loop().sock_recv(waiting, 100)).startswith(b"HTTP/1.1 200 OK")
    assert [(line["event"], line["reason"]) for line in logs] == [("web.accept_failed", "too many open files")]
    assert capfd.readouterr().err == ""


async def test_the_end_waits_for_nobody() -> None:
    """Closing the server closes every connection; what a client did not take is dropped, with the file it held."""
    async with serving(busy()) as (server, _):
        unread = await asyncio.open_connection("127.0.0.1", port(server))
        transport = unread[1].transport
        assert isinstance(transport, asyncio.ReadTransport)
        transport.pause_reading()
        unread[1].write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 400)
        await until(lambda: any(map(unsent, handlers(server))))
        (blocked,) = (handler.transport for handler in handlers(server))
        others = [await asyncio.open_connection("127.0.0.1", port(server)) for _ in range(2)]
        others[0][1].write(b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n.")
        others[1][1].write(REQUEST[:10])
    assert isinstance(blocked, asyncio.WriteTransport) and blocked.get_write_buffer_size() == 0
    for reader, writer in others:
        await ended(reader)
        writer.close()
    unread[1].close()
