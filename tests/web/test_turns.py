"""A promise of exporter/web/app.py: requests are answered one by one, and the rounds go on between two of them."""

import asyncio
import socket

from aiohttp import web

from exporter.web.app import application
from exporter.web.gate import Gate
from exporter.web.listener import Listener

CONNECTIONS = 20
REQUESTS = 16


async def test_a_flood_delays_another_task_by_one_answer() -> None:
    """However many connections have asked however much, at most one answer is made between two steps of a task."""
    answered = most = 0

    async def answer(_request: web.Request) -> web.Response:
        nonlocal answered
        answered += 1
        return web.Response(text="ok\n")

    opened = socket.create_server(("127.0.0.1", 0))
    opened.setblocking(False)
    flood = [socket.create_connection(opened.getsockname()) for _ in range(CONNECTIONS)]
    for connection in flood:
        connection.sendall(b"GET /asked HTTP/1.1\r\nHost: x\r\n\r\n" * REQUESTS)
    async with Listener(application([web.get("/asked", answer)], Gate()), opened), asyncio.timeout(60):
        while answered < CONNECTIONS * REQUESTS:
            before = answered
            await asyncio.sleep(0)
            most = max(most, answered - before)
    for connection in flood:
        connection.close()
    assert most == 1
