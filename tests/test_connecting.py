"""Clients and proxies of a test bed leave no socket behind, however slow the other side is."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cluster.certificates import Authority
from cluster.client import Api, Credentials
from cluster.proxy import proxied
from patience import PATIENCE

WATCH = (
    b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n{"type":"ADDED","object":{}}\n'
)


@contextmanager
def silent(authority: Authority) -> Iterator[int]:
    """A TLS server that answers one request with the beginning of a watch, and reads nothing more; yields its port."""
    pair = authority.issue("server", "server", hosts=["127.0.0.1"])
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pair.certificate, pair.key)
    done = threading.Event()

    def serve() -> None:
        with listener.accept()[0] as plain, tls.wrap_socket(plain, server_side=True) as connection:
            connection.recv(65536)
            connection.sendall(WATCH)
            done.wait()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve)
        server.start()
        try:
            yield listener.getsockname()[1]
        finally:
            done.set()
            server.join()


def connected() -> Iterator[tuple[int, int]]:
    """List this process's connections: the port on this side, and that on the other one."""
    for one in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if one.readlink().name.startswith("socket:"):
                with socket.socket(fileno=os.dup(int(one.name))) as copy:
                    if copy.family == socket.AF_INET:
                        yield copy.getsockname()[1], copy.getpeername()[1]


def connections(port: int) -> int:
    """Count this process's sockets that are connected to a port."""
    return sum(there == port for _, there in connected())


async def test_a_watch_that_is_left_in_its_midst_leaves_no_socket(tmp_path: Path) -> None:
    """When the client is closed its socket is too, though the server does not answer TLS's farewell."""
    authority = Authority(tmp_path / "pki")
    with silent(authority) as port:
        server = Credentials(f"https://127.0.0.1:{port}", authority.certificate)
        async with Api(server) as api, api.watch("/api/v1/pods") as events:
            assert await anext(events) == ("ADDED", {})
            assert connections(port) == 1
        assert connections(port) == 0


def accepted(port: int) -> int:
    """Count this process's connections on a port that it listens on."""
    return sum(here == port for here, _ in connected())


async def test_a_proxy_that_stops_hangs_up(tmp_path: Path) -> None:
    """Also on a client that has not shaken hands: the loop may end before it does."""
    authority = Authority(tmp_path / "pki")
    server = Credentials("https://127.0.0.1:1", authority.certificate)
    async with proxied(server, authority) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port)) as client:
            async with asyncio.timeout(PATIENCE):
                while not accepted(proxy.port):
                    await asyncio.sleep(0)
            await proxy.stop()
            assert accepted(proxy.port) == 0
            assert client.recv(1) == b""
