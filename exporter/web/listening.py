"""
The sockets on which the server listens.

What comes in: an address of the config. What goes out: an open socket, or `WebError` with what to do.
"""

import errno
import socket

from exporter.base.problem import Problem
from exporter.config.values import ListenAddress
from exporter.web import bounds

BACKLOG = 128


class WebError(Problem):
    """The server cannot listen; the message says what to do. The daemon ends with exit code 1 at start."""


def listen(address: ListenAddress, key: str = "web.listen_address") -> socket.socket:
    """Open a listening socket; without a host, or with `::`, on IPv6 and IPv4 together. Raises WebError."""
    everywhere = address.host in {"", "::"}
    try:
        if everywhere and socket.has_dualstack_ipv6():
            try:
                return _listening("::", address.port, dual=True)
            except OSError as error:
                if address.host or error.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
                    raise  # else IPv6 is switched off on this node
        return _listening(address.host, address.port)
    except OSError as error:
        raise WebError(
            f"cannot listen on {address}", cause=(error.strerror or str(error)).lower(), fix=_fix(error, key)
        ) from error


def _listening(host: str, port: int, *, dual: bool = False) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.create_server((host, port), family=family, backlog=BACKLOG, dualstack_ipv6=dual)
    # Connections inherit these. Without them the kernel gives each up to 10 MB, which cgroups count as the daemon's.
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, bounds.RECEIVED)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, bounds.SENDING)
    opened.setblocking(False)
    return opened


def _fix(error: OSError, key: str) -> str:
    where = f"set {key} (--{key.replace('_', '-')}) to"
    match error.errno:
        case errno.EADDRINUSE:
            return f"end the process that uses the port (perhaps another gpusteward), or {where} a free port"
        case errno.EACCES:
            return f"{where} a port above 1023, or grant the capability NET_BIND_SERVICE"
        case _:
            return f"{where} an address of this machine, or to :9478 for all addresses"
