"""
The commands of `gpusteward`, one file each; here is what they share.

What comes in: a command line's words, and text. What goes out: where the daemon is, and text on the standard streams.

The rule: foreign text reaches a terminal as printable characters only, and an output that was closed early (`| head`)
is no error.
"""

import argparse
import io
import os
import sys
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from exporter.api.client import Daemon

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001  (argparse names it nowhere)
"""What `add` of a command gets. It adds a parser whose default `run` is a function from Namespace to exit code."""

VARIABLE = "GPUSTEWARD_URL"
DEFAULT_URL = "http://127.0.0.1:9478"
"""Where a daemon listens on its own node, as its pod and a port-forward see it."""


def add_url(parser: argparse.ArgumentParser) -> None:
    """Add the flag `--url`."""
    parser.add_argument(
        "--url",
        help="address of the daemon: http://HOST:PORT or https://NAME:PASSWORD@HOST:PORT "
        f"(default: the variable {VARIABLE}, else {DEFAULT_URL})",
    )


def chosen_daemon(namespace: argparse.Namespace) -> "Daemon":
    """Read the flag, or else the variable. Raises UrlError, whose message begins with the one that was read."""
    from exporter.api.client import UrlError, daemon_at  # noqa: PLC0415  (HTTP)

    given = "--url" if namespace.url is not None else VARIABLE
    try:
        return daemon_at(namespace.url if namespace.url is not None else os.environ.get(given) or DEFAULT_URL)
    except UrlError as error:
        raise UrlError(f"{given}: {error.what}", fix=error.fix) from error


def wrong(program: str, problem: Exception | str, code: int = 2) -> int:
    """Say on standard error what is wrong; return the exit code."""
    from exporter.base.problem import lines  # noqa: PLC0415

    sys.stderr.write("".join(f"{line}\n" for line in lines(program, problem)))
    sys.stderr.flush()
    return code


def put(text: str) -> None:
    """Print what may be long. Raises OSError where it cannot be written, BrokenPipeError where nobody reads on."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names may hold what the terminal's character set does not
    try:
        print(text, end="", flush=True)  # noqa: T201  (unlike write, at ease where there is no standard output)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
        raise


def unwritten(program: str, error: OSError) -> int:
    """Say that standard output cannot be written, unless nobody reads it; return the exit code."""
    if isinstance(error, BrokenPipeError):
        return 0
    return wrong(program, f"standard output cannot be written: {error.strerror}", 1)
