"""
`gpusteward top`: the GPUs of a node and the containers on them, as a table that follows the daemon.

What comes in: the daemon's address. What goes out: on a terminal a table updated in place (with the extra `top`), else
text or JSON, once or repeatedly; and the exit code. It is 0 when shown, or ended by a signal. It is 1 when the daemon
does not answer (`--once`) or standard output cannot be written. It is 2 on wrong usage.

The rule: it only reads. It reports that a daemon does not answer, and waits for it.
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from enforcer.commands import Commands, add_url, chosen_daemon, duration, on_terminal, put, unwritten, wrong

if TYPE_CHECKING:
    from collections.abc import Callable

    from exporter.api.client import Daemon
    from exporter.top.follow import Seen
    from exporter.top.layout import Line

PROGRAM = "gpusteward top"
HINT = "to update the table in place: pip install 'gpusteward[top]'"
ALL = "gpusteward top --once shows all"
BEAT = 1.0
"""Seconds between two updates of the terminal, so that ages and graces count on."""
LEAST = 0.1
"""The shortest interval that a user may ask for, in seconds."""


def add(commands: Commands) -> None:
    """Add the sub-command to the program's."""
    parser = commands.add_parser(
        "top",
        help="show the GPUs of a node and the usage and limit of each container, live",
        description="Show the GPUs of a node, the usage and limit of each container, and the next action of the "
        "policy, until Ctrl-C. On a terminal the table is updated in place; elsewhere a new table is printed each "
        "time. The data comes from the daemon of the node. Exit code: 0, or 1 when the daemon does not answer (with "
        "--once; without it, top waits for the daemon), 2 for wrong usage.",
        epilog="example: kubectl exec -it -n gpusteward ds/gpusteward -- gpusteward top",
        allow_abbrev=False,
    )
    add_url(parser)
    parser.add_argument("--once", action="store_true", help="print the table once, and end")
    parser.add_argument(
        "--json", action="store_true", help="print the snapshot of the daemon as JSON, one line each time"
    )
    parser.add_argument(
        "--interval",
        type=partial(duration, least=LEAST),
        metavar="DURATION",
        help='time between two updates, such as "2s" (default: the interval of the daemon)',
    )
    parser.set_defaults(run=run)


def run(namespace: argparse.Namespace) -> int:
    """Show the table, and return the exit code."""
    try:
        return _run(namespace)
    except OSError as error:
        return unwritten(PROGRAM, error)
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 0


def _run(namespace: argparse.Namespace) -> int:
    from exporter.api.client import AskError, UrlError  # noqa: PLC0415  (HTTP)
    from exporter.base.problem import Problem  # noqa: PLC0415
    from exporter.top.fetch import snapshot  # noqa: PLC0415
    from exporter.top.follow import Seen  # noqa: PLC0415

    if namespace.once and namespace.interval is not None:
        return wrong(PROGRAM, Problem("--interval and --once exclude each other", fix="remove one of them"))
    try:
        daemon = chosen_daemon(namespace)
        if namespace.once:
            body, document = asyncio.run(snapshot(daemon))
            _Printer(as_json=namespace.json)(Seen(body, document, time.monotonic()))
            return 0
    except UrlError as error:
        return wrong(PROGRAM, error)
    except AskError as error:
        return wrong(PROGRAM, error, 1)
    if namespace.json or not _drawable():
        _follow(daemon, _Printer(as_json=namespace.json), namespace.interval, None)
    else:
        _draw(daemon, namespace.interval)
    return 0


class _Printer:
    """Prints each answer below the one before it, and each new problem on standard error."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._trouble = ""
        self._printed = False

    def __call__(self, seen: "Seen") -> None:
        if seen.trouble and seen.trouble != self._trouble:
            wrong(PROGRAM, seen.trouble)
        self._trouble = seen.trouble
        if not seen.trouble and seen.document is not None:
            between = "\n" if self._printed and not self._as_json else ""
            put(between + (_json(seen.body) if self._as_json else _text(seen)))
            self._printed = True


def _draw(daemon: "Daemon", every: float | None) -> None:
    """Draw in place where possible; at the end leave the last table on the terminal."""
    try:
        from exporter.top.drawing import Screen  # noqa: PLC0415  (rich)
    except ModuleNotFoundError:
        wrong(PROGRAM, HINT)
        _follow(daemon, _Printer(as_json=False), every, None)
        return
    from exporter.top.follow import Seen  # noqa: PLC0415
    from exporter.top.layout import cropped  # noqa: PLC0415

    last = Seen()
    try:
        with Screen() as screen:

            def show(seen: Seen) -> None:
                nonlocal last
                last = seen
                screen.show(lambda columns, rows: cropped(_lines(seen, columns), rows, ALL))

            show(last)
            _follow(daemon, show, every, BEAT)
    finally:
        if last.document is not None:
            put(_text(last))


def _follow(daemon: "Daemon", show: "Callable[[Seen], None]", every: float | None, beat: float | None) -> None:
    """Ask and show until a signal."""
    from exporter.top.fetch import snapshot  # noqa: PLC0415  (as above)
    from exporter.top.follow import watch  # noqa: PLC0415

    async def follow() -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  (a coroutine runs in one)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        await watch(lambda: snapshot(daemon), show, every=every, beat=beat)

    asyncio.run(follow())


def _text(seen: "Seen") -> str:
    from exporter.top.layout import text  # noqa: PLC0415  (as above)

    return text(_lines(seen, _columns()))


def _lines(seen: "Seen", columns: int | None) -> "list[Line]":
    from exporter.top.layout import encodable, lines  # noqa: PLC0415  (as above)

    return encodable(lines(seen.table(time.monotonic()), columns), sys.stdout.encoding)


def _drawable() -> bool:
    """Whether a table can be drawn in place."""
    return on_terminal(sys.stdout) and os.environ.get("TERM", "dumb") not in {"dumb", "unknown"}


def _columns() -> int | None:
    """Return the width of the terminal; None without one, because lines in a file need no cut."""
    return shutil.get_terminal_size().columns if on_terminal(sys.stdout) else None


def _json(body: bytes) -> str:
    """Write the document in one line of ASCII, without control characters for the terminal."""
    return json.dumps(json.loads(body, parse_int=_number)) + "\n"


def _number(digits: str) -> int | str:
    """Read a number; one that is too long to be ours stays text, because Python refuses 4,300 digits."""
    return int(digits) if len(digits) <= 40 else digits  # noqa: PLR2004
