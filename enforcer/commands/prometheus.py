"""
What the commands that ask a Prometheus share.

What comes in: the arguments of a command line, and a function that asks and writes. What goes out: the client, and an
exit code. It is 0 when printed, 1 when Prometheus gives no answer, 2 on wrong usage, 130 after Ctrl-C.

The rule: standard output has the answer alone. Warnings and, on a terminal, the progress go to standard error.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from enforcer.commands import on_terminal, put, unwritten, wrong

if TYPE_CHECKING:
    from exporter.history.prometheus import History

WIDE = 30
"""Columns of the progress bar."""


def add_prometheus(parser: argparse.ArgumentParser) -> None:
    """Add the flag `--prometheus`."""
    parser.add_argument(
        "--prometheus",
        metavar="URL",
        help="address of the Prometheus, http://NAME:PASSWORD@HOST:PORT if it wants a login (default: the variable "
        "GPUSTEWARD_PROMETHEUS). A bearer token is read from the variable GPUSTEWARD_PROMETHEUS_TOKEN",
    )


def add_window(parser: argparse.ArgumentParser, since: str) -> None:
    """Add the flags `--since`, with its default, and `--until`."""
    parser.add_argument(
        "--since",
        default=since,
        metavar="DURATION",
        help=f'length of the time: "12h", "7d", "4w" (default: {since})',
    )
    parser.add_argument(
        "--until", metavar="TIME", help='end of the time, such as "2026-11-01T00:00:00Z" (default: now)'
    )


def answered(program: str, answer: Callable[[], str]) -> int:
    """Ask and write by `answer`, print its text, and return the exit code."""
    from exporter.base.http_client import AskError, UrlError  # noqa: PLC0415  (HTTP)
    from exporter.base.quantities import QuantityError  # noqa: PLC0415
    from exporter.config.yaml_text import ConfigError  # noqa: PLC0415  (YAML)
    from exporter.history.prometheus import HistoryError  # noqa: PLC0415

    try:
        try:
            text = answer()
        finally:
            _clear()
    except (UrlError, QuantityError, ConfigError) as error:
        return wrong(program, error)
    except (AskError, HistoryError) as error:
        return wrong(program, error, 1)
    except KeyboardInterrupt:
        return 130
    try:
        put(text)
    except OSError as error:
        return unwritten(program, error)
    return 0


def warn(program: str, history: "History") -> None:
    """Print what Prometheus said beside its answers."""
    for warning in history.warnings:
        wrong(program, f"Prometheus warns: {warning}")


def chosen_history(namespace: argparse.Namespace) -> "History":
    """Make the client of the chosen Prometheus; its progress is shown on a terminal. Raises UrlError."""
    from exporter.base.http_client import UrlError  # noqa: PLC0415  (HTTP)
    from exporter.history.prometheus import PROMETHEUS, TOKEN_VARIABLE, URL_VARIABLE, history_at  # noqa: PLC0415

    given = "--prometheus" if namespace.prometheus is not None else URL_VARIABLE
    url = namespace.prometheus if namespace.prometheus is not None else os.environ.get(URL_VARIABLE, "")
    if not url:
        raise UrlError("no Prometheus is named", fix=PROMETHEUS.address)
    try:
        history = history_at(url, _token(TOKEN_VARIABLE))
    except UrlError as error:
        raise UrlError(f"{given}: {error.what}", fix=error.fix) from error
    if on_terminal(sys.stderr):
        history.progress = _draw
    return history


def _token(variable: str) -> str:
    """Read the bearer token, without the newline that ends a file. Raises UrlError."""
    from exporter.base.http_client import UrlError  # noqa: PLC0415

    token = os.environ.get(variable, "").strip()
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise UrlError(
            f"the variable {variable} holds a character that no token has", fix="set it to the token alone, in one line"
        )
    return token


def _clear() -> None:
    """Remove the progress from its line."""
    if on_terminal(sys.stderr):
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def _draw(done: int, of: int) -> None:
    """Draw the progress in one line of standard error, and clear it at the end."""
    if done >= of:
        _clear()
        return
    told = f" {done} of {of} answers"
    room = shutil.get_terminal_size().columns - 1  # in its last column a line may wrap, and could not be removed
    wide = min(WIDE, room - len(told) - len("[]"))
    filled = wide * done // of
    line = f"[{'#' * filled}{'.' * (wide - filled)}]{told}" if wide > 0 else told.strip()
    sys.stderr.write(f"\r\x1b[K{line[:room]}")
    sys.stderr.flush()
