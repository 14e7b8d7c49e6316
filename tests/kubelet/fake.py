"""
A kubelet's pod-resources socket for tests that need its bad days; the good ones are tried on a real kubelet.

What comes in: answers, in messages or in bytes. What goes out: a gRPC server on a unix socket that gives them, or
something else that listens there. Law: like the kubelet it makes its socket anew with each start.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Self, TypeAlias

from google.protobuf.message import Message
from grpclib.const import Cardinality, Handler, Status
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError
from grpclib.server import Stream

from kubelet.listening import Listening

Answer: TypeAlias = bytes | Message | GRPCError | None
"""What a call is answered with; None: nothing, ever."""

ALL_CALLS = ("/v1.PodResourcesLister/List", "/v1.PodResourcesLister/GetAllocatableResources")
OLD_CALL = "/v1alpha1.PodResourcesLister/List"


class _Bytes(CodecBase):  # type: ignore[misc]  # grpclib is not typed for us
    """Sends answers as they are."""

    __content_subtype__ = "proto"

    def encode(self, message: bytes, message_type: object) -> bytes:
        return message

    def decode(self, data: bytes, message_type: object) -> bytes:
        return data


class FakeKubelet:
    """`answers`: what each call is answered with, by its path; a call that is missing is unimplemented."""

    def __init__(self, socket: Path, **answers: Answer) -> None:
        self.socket = socket
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        self._server: Listening | None = None
        self.answer(**answers)

    def answer(
        self, listed: Answer | str = "", allocatable: Answer | str = "", listed_v1alpha1: Answer | str = ""
    ) -> None:
        """Change answers; those not given stay."""
        for path, answer in zip((*ALL_CALLS, OLD_CALL), (listed, allocatable, listed_v1alpha1), strict=True):
            if not isinstance(answer, str):
                self.answers[path] = answer

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen, on a new socket."""
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)
        self._server = Listening([self], codec=_Bytes())
        await self._server.start(path=str(self.socket))

    async def stop(self) -> None:
        """End, with all connections; the socket file stays, as the kubelet's does."""
        if self._server is not None:
            await self._server.hang_up()
            self._server = None

    def __mapping__(self) -> dict[str, Handler]:
        """The calls, as grpclib wants them."""
        return {
            path: Handler(self._handler(path), Cardinality.UNARY_UNARY, bytes, bytes) for path in (*ALL_CALLS, OLD_CALL)
        }

    def _handler(self, path: str) -> Callable[[Stream[bytes, bytes]], Awaitable[None]]:
        async def handle(stream: Stream[bytes, bytes]) -> None:
            self.asked.append(path)
            await stream.recv_message()
            if path not in self.answers:
                raise GRPCError(Status.UNIMPLEMENTED, f"unknown method {path}")
            answer = self.answers[path]
            if answer is None:
                await asyncio.get_running_loop().create_future()
            elif isinstance(answer, GRPCError):
                raise answer
            else:
                await stream.send_message(answer if isinstance(answer, bytes) else answer.SerializeToString())

        return handle


class Listener:
    """Something that listens at a kubelet's socket and says `words` to each client; then it waits, or closes."""

    def __init__(self, socket: Path, words: bytes, *, closes: bool = False) -> None:
        self._socket = socket
        self._words = words
        self._closes = closes
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._socket.parent.mkdir(parents=True, exist_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, self._socket)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with suppress(ConnectionError):
            await reader.read(1)
            writer.write(self._words)
            await writer.drain()
            if self._closes:
                writer.close()
