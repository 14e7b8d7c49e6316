"""Promises of exporter/web/connection.py and peers.py: what a client may send and hold, and which one gives way."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from exporter.web import bounds
from exporter.web.app import application
from exporter.web.connection import TOO_LARGE, _abort
from exporter.web.gate import Gate
from exporter.web.listener import Listener
from exporter.web.peers import Known, gives_way, peer_of
from exporter.web.responses import shared
from serving.node import busy, serving

UNCOMPRESSED = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 20


async def answered(url: str, sent: bytes) -> bytes:
    """Send bytes, and read until the server closes the connection; what it did not read, it may answer with a reset."""
    reader, writer = await asyncio.open_connection(*url.removeprefix("http://").split(":"))
    writer.write(sent)
    found = b""
    with suppress(ConnectionResetError):
        async with asyncio.timeout(10):
            while part := await reader.read(1 << 16):
                found += part
    writer.close()
    return found


def request(*headers: str) -> bytes:
    return "\r\n".join(["GET /healthz HTTP/1.1", "Host: x", "Connection: close", *headers, "", ""]).encode()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([f"X-{number}: {'x' * 500}" for number in range(25)], 200),
        (["Cookie: " + "x" * 8000], 200),
        ([f"X-{number}: {'x' * 500}" for number in range(40)], 431),
        (["Cookie: " + "x" * 9000], 400),
        ([f"X-{number}: x" for number in range(70)], 400),
    ],
    ids=["usual", "a long cookie", "too many bytes", "too long", "too many"],
)
async def test_headers_are_bounded(headers: list[str], status: int) -> None:
    """Proxies and browsers with tokens and cookies are served; a request above the bounds is refused and ended."""
    async with serving(busy()) as (server, _):
        found = await answered(server.url, request(*headers))
    refused_unread = status == 431 and not found
    assert refused_unread or found.split()[1] == str(status).encode()


async def test_a_refusal_is_written_between_answers_alone() -> None:
    """A client that asks on while it takes no answer gets no refusal within the answer; an idle one gets it."""
    more = b"GET /metrics HTTP/1.1\r\nHost: x\r\nCookie: " + b"x" * 8160 + b"\r\n\r\n"
    async with serving(busy()) as (server, _):
        refused = await answered(server.url, b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 10 + b"x" * bounds.REQUESTS)
        assert refused == TOO_LARGE
        async with unreading(server.listeners[0], UNCOMPRESSED) as (unread, handler):
            unread.sendall(more * 2)  # all of it is read: bytes left behind would reset the connection
            async with asyncio.timeout(10):
                while handler.transport and not handler.transport.is_closing():
                    await asyncio.sleep(0.01)
            unread.setblocking(False)
            taken = b""
            with suppress(ConnectionResetError):
                while part := await asyncio.get_running_loop().sock_recv(unread, 1 << 16):
                    taken += part
    assert b" 200 " in taken and TOO_LARGE not in taken


@asynccontextmanager
async def unreading(listener: Listener, sent: bytes) -> AsyncIterator[tuple[socket.socket, web.RequestHandler]]:
    """Send requests without reading, and wait until the server waits; give the client and the server's connection."""
    with socket.socket() as unread:
        unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        unread.connect(("127.0.0.1", listener.port))
        unread.sendall(sent)
        async with asyncio.timeout(10):
            while not any(map(_blocked, listener.connections())):
                await asyncio.sleep(0)
        (handler,) = listener.connections()
        yield unread, handler


def _blocked(handler: web.RequestHandler) -> bool:
    return (
        isinstance(handler.transport, asyncio.WriteTransport)
        and handler.transport.get_write_buffer_size() > bounds.UNSENT
    )


async def test_headers_without_an_end_are_ended() -> None:
    """The bytes of a request count before it is whole."""
    async with serving(busy()) as (server, _):
        found = await answered(server.url, request()[:-2] + b"X: y\r\n" * bounds.REQUESTS)
    assert b" 200 " not in found


async def test_bytes_count_from_answer_to_answer() -> None:
    """A connection that is kept for many requests, as a scraper keeps it, may send more than the bound in all."""
    long = b"GET /healthz HTTP/1.1\r\nHost: x\r\nCookie: " + b"x" * 8000 + b"\r\n\r\n"
    async with serving(busy()) as (server, _):
        reader, writer = await asyncio.open_connection(*server.url.removeprefix("http://").split(":"))
        for _ in range(2 * bounds.REQUESTS // len(long) + 1):
            writer.write(long)
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
            await reader.readuntil(b"ok\n")
        writer.close()


async def test_an_answer_is_taken_in_time_or_never(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that reads nothing loses its connection, and the answers behind it."""
    monkeypatch.setattr("exporter.web.bounds.TAKE", 0.1)
    async with serving(busy()) as (server, _):
        with socket.socket() as unread:
            unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            unread.connect(("127.0.0.1", server.listeners[0].port))
            unread.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 400)
            async with asyncio.timeout(10):
                while not server.listeners[0].connections():
                    await asyncio.sleep(0.01)
                while server.listeners[0].connections():
                    await asyncio.sleep(0.01)


async def test_an_answer_is_taken_in_time_after_a_refusal_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that reads nothing and sends too much loses its connection in time, and nothing waits for it."""
    monkeypatch.setattr("exporter.web.bounds.TAKE", 1)
    async with serving(busy()) as (server, _):
        resting = len(asyncio.all_tasks())
        async with unreading(server.listeners[0], UNCOMPRESSED) as (unread, handler), asyncio.timeout(10):
            connection = handler.transport.get_extra_info("socket") if handler.transport else None
            assert connection is not None
            unread.sendall(b"GET / HTTP/1.1\r\nCookie: " + b"x" * bounds.REQUESTS)
            while handler.transport is not None:
                await asyncio.sleep(0.01)
            while connection.fileno() >= 0 or len(asyncio.all_tasks()) > resting:
                await asyncio.sleep(0.01)


async def test_a_client_that_takes_its_last_bytes_when_its_time_is_over_is_no_error() -> None:
    """The connection is closed by then: there is nothing to end, and asyncio reports no exception."""
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    async with serving(busy()) as (server, _), unreading(server.listeners[0], UNCOMPRESSED) as (unread, handler):
        transport = handler.transport
        assert transport is not None
        transport.close()
        unread.setblocking(False)
        async with asyncio.timeout(10):
            while transport.get_extra_info("socket").fileno() >= 0:
                with suppress(BlockingIOError):
                    unread.recv(1 << 20)
                await asyncio.sleep(0)
        _abort(transport)
        await asyncio.sleep(0.01)
    assert reported == []


async def test_short_answers_wait_for_their_client_like_long_ones() -> None:
    """Of many short answers that a client does not take, one more than `UNSENT` is copied."""
    short = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n"
    async with serving(busy()) as (server, _):
        one = await answered(server.url, short + b"Connection: close\r\n\r\n")
        assert len(one.partition(b"\r\n\r\n")[2]) <= bounds.PART
        async with unreading(server.listeners[0], (short + b"\r\n") * 100) as (_, handler):
            for _ in range(20):
                await asyncio.sleep(0)
                assert isinstance(handler.transport, asyncio.WriteTransport)
                assert handler.transport.get_write_buffer_size() <= bounds.UNSENT + len(one)


async def test_a_long_answer_that_is_not_taken_is_not_copied() -> None:
    """Of an answer in one piece, however long, at most `UNSENT` and a part are copied for a connection."""
    page, asked = b"x" * (1 << 20), b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n"

    async def answer(_request: web.Request) -> web.Response:
        return shared(page)

    opened = socket.create_server(("127.0.0.1", 0))
    opened.setblocking(False)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, bounds.SENDING)
    app = application([web.get("/long", answer)], Gate())
    async with Listener(app, opened) as listener, unreading(listener, asked) as (_, handler):
        assert isinstance(handler.transport, asyncio.WriteTransport)
        assert handler.transport.get_write_buffer_size() <= bounds.UNSENT + bounds.PART


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("pieces", [(bounds.PART,), (bounds.PART + 1,), (5, bounds.PART)], ids=["short", "long", "two"])
async def test_an_answer_has_one_form_in_any_length(method: str, pieces: tuple[int, ...]) -> None:
    """Sent at once or in parts, an answer has its type, its length and all of its bytes."""
    sent = tuple(b"x" * size for size in pieces)

    async def answer(_request: web.BaseRequest) -> web.Response:
        return shared(*sent, headers={"Content-Type": "text/html"})

    server = TestServer(web.Application())
    server.app.router.add_get("/", answer)
    async with TestClient(server) as client, client.request(method, "/") as response:
        assert response.headers["Content-Type"] == "text/html"
        assert response.headers["Content-Length"] == str(sum(pieces))
        assert await response.read() == (b"".join(sent) if method == "GET" else b"")


@pytest.mark.parametrize(
    ("host", "peer"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:2", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_a_peer_is_an_address_or_a_network(host: str, peer: str) -> None:
    """An IPv4 address is the same on both kinds of sockets; a network of IPv6 has one owner."""
    assert peer_of(host) == peer


@pytest.mark.parametrize(
    ("peers", "newcomer", "goes"),
    [
        ("", "a", None),
        ("abc", "d", None),
        ("abbc", "d", 1),
        ("abcd", "e", 0),
        ("taaa", "a", 1),
        ("taa", "a", None),
        ("kabc", "d", 1),
        ("kkab", "d", 2),
        ("kkka", "d", 0),
        ("kkkd", "k", 0),
        ("kkkK", "d", 0),
    ],
)
def test_the_peer_with_the_most_gives_way(peers: str, newcomer: str, goes: int | None) -> None:
    """Of four in all and three of one peer: a peer with one connection keeps it while another peer has more, and the
    known k and K keep two among strangers.
    """
    assert gives_way(dict(enumerate(peers)), newcomer, most=4, of_a_peer=3, known="kK") == goes


def test_who_came_first_is_not_displaced() -> None:
    """A known peer has its place as long as it is answered; one that stays away leaves it to another."""
    known = Known()
    for number in range(bounds.KNOWN):
        known.answered(f"scraper {number}", 0.0)
    known.answered("scraper 0", bounds.FORGOTTEN - 1)
    known.answered("stranger", bounds.FORGOTTEN - 1)
    assert "scraper 1" in known and "stranger" not in known
    known.answered("stranger", bounds.FORGOTTEN)
    assert "scraper 0" in known and "stranger" in known and "scraper 1" not in known
