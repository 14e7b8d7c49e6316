"""
What an attacker does who reaches the port and wants the daemon to end: each attack endless, in its own process.

What comes in: an address, and names of attacks. What goes out: connections from several addresses of this machine, so
that no bound of one peer alone stops them. The line `begun` follows after as many attempts as there are attackers.
Law: a connection that the daemon closes is made again, at once. The attackers give way to the daemon on the processor,
because real attackers have machines of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import itertools
import logging
import os
import ssl
from collections.abc import Awaitable, Callable

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]
Attack = Callable[[Connect], Awaitable[None]]

PEERS = [f"127.0.0.{number}" for number in range(10, 18)]
LONG = b"x" * 8000
HEADERS = b"".join(b"X-%d: %b\r\n" % (number, LONG) for number in range(126))
"""What aiohttp takes by default: 126 headers of 8 kB, one MB."""
AGAIN = 0.01
"""Seconds between two connections of one attacker: thousands a second in all."""


def get(path: bytes, *headers: bytes) -> bytes:
    """Write a whole request."""
    return b"GET %b HTTP/1.1\r\nHost: x\r\n%b\r\n" % (path, b"".join(header + b"\r\n" for header in headers))


async def sent(streams: Streams, *parts: bytes) -> Streams:
    """Send all parts, as far as the daemon takes them; wait until it closes the connection."""
    reader, writer = streams
    for part in parts:
        writer.write(part)
        await writer.drain()
    while await reader.read(1 << 16):
        pass
    return streams


async def drained(writer: asyncio.StreamWriter) -> None:
    """Wait until the daemon takes more, one turn at least: an ended TLS connection swallows all, and never waits."""
    await asyncio.sleep(0)
    await writer.drain()


async def unfinished(connect: Connect) -> None:
    """Send headers of one MB, and never their end."""
    await sent(await connect(), b"GET /metrics HTTP/1.1\r\nHost: x\r\n", HEADERS)


async def unread(connect: Connect) -> None:
    """Queue requests with headers of one MB, and take no answer."""
    _, writer = await connect()
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    while not writer.is_closing():
        writer.write(get(b"/metrics") + b"GET /api/v1/snapshot HTTP/1.1\r\nHost: x\r\n" + HEADERS + b"\r\n")
        await drained(writer)


async def answers(connect: Connect) -> None:
    """Ask for the longest answers, one after the other, and take none."""
    _, writer = await connect()
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    for path in itertools.cycle((b"/api/v1/snapshot", b"/metrics", b"/api/v1/preview", b"/")):
        writer.write(get(path))
        await writer.drain()
        await asyncio.sleep(0.2)


_guesses = itertools.count()


async def logins(connect: Connect) -> None:
    """Guess a password, with large headers, and go as soon as it was sent."""
    guess = base64.b64encode(b"anna:%d" % next(_guesses))
    reader, writer = await connect()
    writer.write(get(b"/metrics", b"Authorization: Basic " + guess, b"X-Large: " + LONG[:6000]))
    await writer.drain()
    await asyncio.wait_for(reader.read(1), 5)
    writer.close()


async def bodies(connect: Connect) -> None:
    """Send a body without an end."""
    _, writer = await connect()
    writer.write(b"POST /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    while not writer.is_closing():
        writer.write(b"1f40\r\n" + LONG + b"\r\n")
        await drained(writer)


async def questions(connect: Connect) -> None:
    """Ask what costs most to answer, as often as the daemon answers: the preview, and names that are near to none."""
    reader, writer = await connect()
    for number in itertools.count():
        writer.write(get(b"/api/v1/preview") + get(b"/api/v1/explain?namespace=n&pod=trainer-%d" % number + b"x" * 200))
        await writer.drain()
        if not await reader.read(1 << 16):
            return


async def silent(connect: Connect) -> None:
    """Connect, and say nothing: with TLS, as one that never begins the handshake."""
    await sent(await connect())


HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""How a TLS handshake begins."""


async def hasty(connect: Connect) -> None:
    """Begin a handshake and go, as often as the machine can: what a connection leaves behind has to go as fast."""
    _, writer = await connect()
    writer.write(HELLO)
    await writer.drain()
    await asyncio.sleep(0.01)
    writer.transport.abort()


ATTACKS: dict[str, tuple[Attack, int]] = {
    "unfinished": (unfinished, 99),
    "unread": (unread, 12),
    "answers": (answers, 99),
    "logins": (logins, 300),
    "bodies": (bodies, 50),
    "questions": (questions, 50),
    "silent": (silent, 300),
    "hasty": (hasty, 50),
}
"""By name: the attack, and by how many at once."""


async def again(attack: Attack, connect: Connect) -> None:
    """Attack for ever."""
    while True:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            await attack(connect)
        await asyncio.sleep(AGAIN)


async def run(port: int, tls: ssl.SSLContext | None, names: list[str]) -> None:
    """Begin all attacks, and say so when all have begun."""
    peers = itertools.cycle(PEERS)
    missing = sum(ATTACKS[name][1] for name in names)

    async def connect(name: str) -> Streams:
        nonlocal missing
        secured = None if name in {"silent", "hasty"} else tls
        try:
            return await asyncio.open_connection("127.0.0.1", port, ssl=secured, local_addr=(next(peers), 0))
        finally:
            missing -= 1
            if missing == 0:
                print("begun", flush=True)

    async with asyncio.TaskGroup() as attackers:
        for name in names:
            attack, number = ATTACKS[name]
            for _ in range(number):
                attackers.create_task(again(attack, lambda name=name: connect(name)))  # type: ignore[misc]


def main() -> None:
    """Attack until killed."""
    os.nice(19)
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("names", nargs="+", choices=ATTACKS)
    parser.add_argument("--tls", action="store_true")
    arguments = parser.parse_args()
    tls = None
    if arguments.tls:
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of each write to a connection that was closed
    asyncio.run(run(arguments.port, tls, arguments.names))


if __name__ == "__main__":
    main()
