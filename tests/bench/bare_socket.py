"""
The floor of a scrape, for `make bench-peers`: what the client, the kernel and the machine take by themselves.

In: the size of a compressed page in bytes. Out: the port on standard output; that page on one connection after the
other, until it is ended. Law: it reads no request, renders nothing and compresses nothing.
"""

import os
import socket
import sys


def main(size: int) -> None:
    """Answer whatever is asked."""
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {size}\r\n\r\n"
    answer = head.encode() + os.urandom(size)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        while True:
            connection, _ = listening.accept()
            with connection:
                while connection.recv(65536):
                    connection.sendall(answer)


if __name__ == "__main__":
    main(int(sys.argv[1]))
