"""
A gRPC server of a test that ends with all its connections.

What comes in: services. What goes out: `Server` of grpclib, whose `hang_up` leaves no socket open. Law: grpclib's own
`close` ends the calls, and leaves each connection to its client: one that has not hung up yet outlives the loop.
"""

import asyncio
from typing import Any

from grpclib.protocol import H2Protocol
from grpclib.server import Server


class Listening(Server):  # type: ignore[misc]  # grpclib has no types
    """A server that remembers who called."""

    def __init__(self, services: list[Any], **more: Any) -> None:
        super().__init__(services, **more)
        self._calls: list[H2Protocol] = []

    def _protocol_factory(self) -> H2Protocol:
        self._calls.append(super()._protocol_factory())
        return self._calls[-1]

    async def hang_up(self) -> None:
        """Stop listening, end all calls, close all connections; returns when that is done."""
        self.close()
        await self.wait_closed()
        await asyncio.sleep(0)  # a client that was let in just now has a connection by then
        for call in self._calls:
            if hasattr(call, "connection"):
                call.connection.close()
        await asyncio.sleep(0)  # the sockets are closed by then
