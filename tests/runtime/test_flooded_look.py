"""The last look keeps its deadline while strangers flood the port: its steps wait for one answer each."""

import asyncio
import socket
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from aiohttp import web

from enforcer.policy.last_look import FRESH
from exporter.model import GpuUuid, Snapshot
from exporter.web.app import application
from exporter.web.gate import Gate
from exporter.web.listener import Listener
from policy.scenes import GIB, Actor
from policy.stage import INTERVAL, Stage

CONNECTIONS = 60
ANSWER = 0.023
"""Seconds of the clock that an answer takes: the preview of 250 pods."""
STEPS = 20
"""Times that a round of eight GPUs lets others have their turn."""


class BusyStage(Stage):
    """A node whose rounds have as many steps as real ones."""

    async def fresh(self, only: Collection[GpuUuid]) -> Snapshot | None:
        for _ in range(STEPS):
            await asyncio.sleep(0)
        return await super().fresh(only)

    async def play_until_acted(self) -> None:
        """Make rounds until an action is due; from then on only the answers of the port take time."""
        running = asyncio.create_task(self.executor.run())
        while not self.acted:
            if not self.script:
                self.look()
                self.monotonic_ += INTERVAL
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@asynccontextmanager
async def flooded(stage: Stage) -> AsyncIterator[list[float]]:
    """Serve strangers that never stop asking, and let each answer take its time; the times of all answers."""
    answers: list[float] = []

    async def answer(_request: web.Request) -> web.Response:
        stage.monotonic_ += ANSWER
        answers.append(stage.monotonic_)
        return web.Response(text="ok\n")

    async def stranger(address: tuple[str, int], number: int) -> None:
        reader, writer = await asyncio.open_connection(*address, local_addr=(f"127.0.0.{2 + number % 4}", 0))
        try:
            while True:
                writer.write(b"GET /asked HTTP/1.1\r\nHost: x\r\n\r\n")
                await reader.readuntil(b"ok\n")
        finally:
            writer.transport.abort()

    opened = socket.create_server(("127.0.0.1", 0))
    opened.setblocking(False)
    async with Listener(application([web.get("/asked", answer)], Gate()), opened):
        flood = [asyncio.create_task(stranger(opened.getsockname(), number)) for number in range(CONNECTIONS)]
        try:
            async with asyncio.timeout(60):
                while len(answers) < CONNECTIONS:
                    await asyncio.sleep(0)
            yield answers
            assert not any(task.done() for task in flood), "the flood ended"
        finally:
            for task in flood:
                task.cancel()
            await asyncio.gather(*flood, return_exceptions=True)


async def test_the_last_look_keeps_its_deadline_under_a_flood() -> None:
    """One look is enough, none is repeated because it came too late, and answers were made while it went on."""
    stage = BusyStage(Actor("hog-1", used=60 * GIB, limit=40 * GIB), Actor("poor-1", used=10 * GIB, limit=40 * GIB))
    times: dict[str, float] = {}
    stage.at = {line: lambda line=line: times.update({line: stage.monotonic_}) for line in ("asked", "acted")}  # type: ignore[misc]
    async with flooded(stage) as answers, asyncio.timeout(60):
        await stage.play_until_acted()
    assert stage.script[:4] == ["intended", "asked", "looked", "acted"]
    assert any(times["asked"] < at < times["acted"] for at in answers), "no stranger was answered meanwhile"
    assert times["acted"] - times["asked"] < FRESH
