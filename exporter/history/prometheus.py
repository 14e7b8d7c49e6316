"""
The client of Prometheus' HTTP API, also of Thanos, Mimir and others that answer alike.

What comes in: an address, and PromQL. What goes out: rows of labels and a value, or one error with its cause and fix.

The rule: a question is sent once, and its answer is whole or refused. A query that is too large for the server is asked
about halves of its window. https://prometheus.io/docs/prometheus/latest/querying/api/
"""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from exporter.base.http_client import AskError, Server, asked, server_at
from exporter.history.refusals import (
    LOGIN,
    PROMETHEUS,
    TOKEN_VARIABLE,
    URL_VARIABLE,
    HistoryError,
    TooMuchError,
    of_answer,
    of_page,
)
from exporter.history.windows import Window

GARBLED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

Progress = Callable[[int, int], None]
"""Called with the number of answers so far, and the number of questions as far as known."""


@dataclass(frozen=True, slots=True)
class Row:
    """One series of an instant answer."""

    labels: Mapping[str, str]
    value: float


class _Series(msgspec.Struct, frozen=True):
    metric: dict[str, str]
    value: tuple[float, str]


class _Vector(msgspec.Struct, frozen=True, rename="camel"):
    result_type: Literal["vector"]
    result: list[_Series]


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    status: Literal["success", "error"]
    data: _Vector | None = None
    error: str = ""
    error_type: str = ""
    warnings: list[str] = []


def history_at(url: str, token: str = "") -> "History":
    """Read the address, and perhaps a bearer token for it. Raises UrlError."""
    server = server_at(url, PROMETHEUS)
    return History(replace(server, login=f"Bearer {token}") if token else server)


class History:
    """A Prometheus that is asked about the past. `warnings`: what it said beside its answers, each once."""

    def __init__(self, server: Server, progress: Progress = lambda _done, _of: None) -> None:
        self._server = server
        self.progress = progress
        self.warnings: list[str] = []
        self._done = self._of = 0

    async def at(self, query: str, time: float) -> list[Row]:
        """Ask an instant query at a Unix time. Raises HistoryError, AskError."""
        asking = {"query": query, "time": f"{time:.3f}"}
        status, body = await asked(self._server, PROMETHEUS, "/api/v1/query", asking)
        answer = self._read(status, body)
        self.warnings += [warning for warning in answer.warnings if warning not in self.warnings]
        found = answer.data.result if answer.data is not None else []
        return [Row(series.metric, float(series.value[1])) for series in found]

    def expect(self, questions: int) -> None:
        """Say how many questions more will follow."""
        self._of += questions
        self.progress(self._done, self._of)

    async def over(self, query: str, window: Window) -> AsyncIterator[tuple[Window, list[Row]]]:
        """
        Ask a query about a window; in it, RANGE stands for the length of the window, as in `increase(x[RANGE])`.

        Yields the answer with its window: the one given, or halves of it where the server can answer no larger ones.
        Raises HistoryError, AskError.
        """
        try:
            rows = await self.at(query.replace("RANGE", window.range), window.end)
        except TooMuchError:
            halves = window.halves()
            if halves is None:
                raise
            self.expect(1)
            for half in halves:
                async for part in self.over(query, half):
                    yield part
            return
        self._done += 1
        self.progress(self._done, self._of)
        yield window, rows

    def _read(self, status: int, body: bytes) -> _Answer:
        url = self._server.url
        try:
            answer = msgspec.json.decode(body, type=_Answer)
        except GARBLED as error:
            raise of_page(url, status) from error
        if answer.status == "success" and answer.data is not None:
            return answer
        if status in LOGIN:
            raise of_page(url, status)
        raise of_answer(url, status, answer.error, answer.error_type)


__all__ = [
    "PROMETHEUS",
    "TOKEN_VARIABLE",
    "URL_VARIABLE",
    "AskError",
    "History",
    "HistoryError",
    "Progress",
    "Row",
    "history_at",
]
