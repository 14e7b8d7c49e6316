"""Pass TCP connections on: the bed's stand-in for kube-proxy, for the one Service that pods need, the API server's.

python -m cluster.forward ADDRESS PORT TO_ADDRESS TO_PORT
"""

from __future__ import annotations

import asyncio
import contextlib
import sys


async def forward(address: str, port: int, to_address: str, to_port: int) -> None:
    """Listen until cancelled."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(to_address, to_port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))

    server = await asyncio.start_server(connected, address, port)
    await server.serve_forever()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    # The end of either direction ends both: HTTP clients never half-close.
    writer.close()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(forward(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
