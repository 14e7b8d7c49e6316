"""A client of a test bed leaves no socket behind, however slow its server is."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cluster.certificates import Authority
from cluster.client import Api, Credentials

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


def connections(port: int) -> int:
    """Count this process's sockets that are connected to a port."""
    found = 0
    for one in Path("/proc/self/fd").iterdir():
        with suppress(OSError), socket.socket(fileno=os.dup(int(one.name))) as copy:
            found += copy.getpeername()[1:] == (port,)
    return found


async def test_a_watch_that_is_left_in_its_midst_leaves_no_socket(tmp_path: Path) -> None:
    """When the client is closed its socket is too, though the server does not answer TLS's farewell."""
    authority = Authority(tmp_path / "pki")
    with silent(authority) as port:
        server = Credentials(f"https://127.0.0.1:{port}", authority.certificate)
        async with Api(server) as api, api.watch("/api/v1/pods") as events:
            assert await anext(events) == ("ADDED", {})
            assert connections(port) == 1
        assert connections(port) == 0
