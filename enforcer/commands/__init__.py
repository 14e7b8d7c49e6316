"""
The commands of `gpusteward`, one file each; this file holds their shared code.

What comes in: the arguments of a command line, and text. What goes out: the daemon's address, counts, durations, and
text on the standard streams.

The rule: foreign text reaches a terminal as printable characters only. An output that was closed early (`| head`) is no
error.
"""

import argparse
import io
import os
import sys
from typing import TYPE_CHECKING, TextIO, TypeAlias

if TYPE_CHECKING:
    from exporter.api.client import Daemon

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001  (argparse names it nowhere)
"""The argument of a command's `add`, which adds a parser whose default `run` maps a Namespace to an exit code."""

VARIABLE = "GPUSTEWARD_URL"
DEFAULT_URL = "http://127.0.0.1:9478"
"""The address of a daemon in its own pod, and behind a port-forward."""
DIGITS = 9
"""Of a count."""


def add_url(parser: argparse.ArgumentParser) -> None:
    """Add the flag `--url`."""
    parser.add_argument(
        "--url",
        help="address of the daemon: http://HOST:PORT or https://NAME:PASSWORD@HOST:PORT "
        f"(default: the variable {VARIABLE}, else {DEFAULT_URL})",
    )


def chosen_daemon(namespace: argparse.Namespace) -> "Daemon":
    """Read the flag, or else the variable. Raises UrlError, whose message begins with the name of the one read."""
    from exporter.api.client import UrlError, daemon_at  # noqa: PLC0415  (HTTP)

    given = "--url" if namespace.url is not None else VARIABLE
    try:
        return daemon_at(namespace.url if namespace.url is not None else os.environ.get(given) or DEFAULT_URL)
    except UrlError as error:
        raise UrlError(f"{given}: {error.what}", fix=error.fix) from error


def count(text: str) -> int:
    """Read a count of at least 1, as a type of arguments."""
    if not text.isdecimal() or not text.isascii() or len(text) > DIGITS or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!a}")
    return int(text)


def duration(text: str, least: float) -> float:
    """Read a duration of at least so many seconds, as a type of arguments."""
    from exporter.base.quantities import parse_duration  # noqa: PLC0415

    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if seconds < least:
        raise argparse.ArgumentTypeError(f"expected at least {least * 1000:.0f}ms, got {text!a}")
    return seconds


def wrong(program: str, problem: Exception | str, code: int = 2) -> int:
    """Print a problem on standard error; return the exit code."""
    from exporter.base.problem import lines  # noqa: PLC0415

    sys.stderr.write("".join(f"{line}\n" for line in lines(program, problem)))
    sys.stderr.flush()
    return code


def on_terminal(stream: TextIO | None) -> bool:
    """Whether a standard stream is a terminal; Python has None for one that was closed at the start."""
    return stream is not None and stream.isatty()


def put(text: str) -> None:
    """Print a text that may be long. Raises OSError if it cannot be written, BrokenPipeError if the reader is gone."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names may hold characters that the terminal's set lacks
    try:
        print(text, end="", flush=True)  # noqa: T201  (unlike write, it accepts a missing standard output)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
        raise


def unwritten(program: str, error: OSError) -> int:
    """Report that standard output cannot be written, unless its reader is gone; return the exit code."""
    if isinstance(error, BrokenPipeError):
        return 0
    from exporter.base.problem import Problem  # noqa: PLC0415

    fix = "check the file or the program that standard output goes to, and its disk"
    return wrong(program, Problem("standard output cannot be written", cause=error.strerror or str(error), fix=fix), 1)
