"""
`gpusteward close BREAKER`: close a breaker that waits for a person.

What comes in: the breaker, the name of the person, the flags of the daemon. What goes out: a request beside the
daemon's journal, and the exit code: 0 when the daemon took it, 1 when it did not, 2 on wrong usage or config.

The rule: the daemon alone writes its journal. This command asks, and reports the result. It leaves no request behind:
one that no daemon took is withdrawn, also when the command is interrupted.
"""

import argparse
import errno
import os
import signal
import time
from typing import TYPE_CHECKING

from enforcer.commands import Commands, put, unwritten, wrong
from exporter.base.problem import Problem
from exporter.config.arguments import add_flags, chosen

if TYPE_CHECKING:
    from enforcer.journal.close_requests import Request

PROGRAM = "gpusteward close"
PATIENCE = 15.0
"""Seconds to wait for the daemon, which looks once a second."""
LOOK = 0.2
INTERRUPTED = 128 + signal.SIGINT
WITHOUT = "without mode enforce the daemon has no journal: delete its pod when the cause is gone"
"""The fix in other modes: the breakers are in the daemon's memory alone."""


def add(commands: Commands) -> None:
    """Add the sub-command to the program's."""
    from enforcer.policy.vocabulary import Breaker  # noqa: PLC0415

    breakers = sorted(breaker.value for breaker in Breaker)
    parser = commands.add_parser(
        "close",
        help="close an open breaker, so that the daemon on this node acts again",
        usage="%(prog)s [--by NAME] [--config FILE] BREAKER",
        description="Close an open breaker, so that the daemon on this node acts again. First fix the cause: while it "
        "lasts, the breaker opens again. Run this command in the daemon's pod, or on its node as the daemon's user. "
        "It writes a request next to the journal, and the daemon takes it within seconds. A request that no daemon "
        "takes is withdrawn. Every flag of `gpusteward run` is accepted. Exit code: 0 when the daemon took the "
        "request, 1 when it did not, 2 for wrong usage or configuration.",
        epilog="example: kubectl -n gpusteward exec DAEMON -- gpusteward close blast_radius --by ann@example.com",
        allow_abbrev=False,
    )
    parser.add_argument("breaker", choices=breakers, metavar="BREAKER", help=f"one of {', '.join(breakers)}")
    parser.add_argument("--by", metavar="NAME", default="", help="your name, for the journal (default: the user)")
    add_flags(parser, used=())
    parser.set_defaults(run=run)


def run(namespace: argparse.Namespace) -> int:
    """Ask, wait, and return the exit code."""
    from enforcer.journal.close_requests import ask  # noqa: PLC0415
    from enforcer.journal.file import DEFAULT  # noqa: PLC0415
    from enforcer.journal.trusted_files import UntrustedError  # noqa: PLC0415
    from enforcer.policy.vocabulary import Breaker  # noqa: PLC0415
    from enforcer.runtime.policy_config import impossible  # noqa: PLC0415
    from exporter.config import ConfigError, load  # noqa: PLC0415

    try:
        config = load(chosen(namespace, os.environ), impossible)
    except ConfigError as error:
        return wrong(PROGRAM, error)
    journal = config.policy.journal or DEFAULT
    for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C, because a closed terminal sends one of these
        signal.signal(number, signal.default_int_handler)
    try:
        asked = ask(journal, Breaker(namespace.breaker), namespace.by or _user())
    except UntrustedError as error:
        what = f"a request beside {journal} would not be safe"
        return wrong(PROGRAM, Problem(what, cause=error.cause, fix=error.fix), 1)
    except OSError as error:
        what = f"{error.filename or journal.parent}: {error.strerror or error}"
        fix = "run this command in the daemon's pod, or as the daemon's user"
        if error.errno == errno.EROFS and config.policy.mode != "enforce":  # in which the chart mounts the folder
            fix = WITHOUT
        return wrong(PROGRAM, Problem(what, fix=fix), 1)
    return _await(asked, config.policy.mode)


def _await(asked: "Request", mode: str) -> int:
    until, code = time.monotonic() + PATIENCE, 1
    what = f"no daemon took the request within {PATIENCE:.0f} s"
    try:
        while asked.waits and time.monotonic() < until:
            time.sleep(LOOK)
    except KeyboardInterrupt:
        code, what = INTERRUPTED, "interrupted before a daemon took the request"
    try:
        withdrawn = asked.withdraw()
    except OSError as error:
        fix = f"rm {asked.path}, or wait a minute: then it is ignored"
        problem = Problem(f"{what}, and it was not withdrawn", cause=error.strerror or str(error), fix=fix)
        return wrong(PROGRAM, problem, code)
    if withdrawn or asked.waits:
        left = "it is withdrawn" if withdrawn else "a later request for the same breaker still waits"
        cause = "" if code == INTERRUPTED else "no daemon on this node is armed"
        fix = "look why with gpusteward check, and run this command again when the daemon is armed"
        fix = fix if mode == "enforce" else WITHOUT
        return wrong(PROGRAM, Problem(f"{what}; {left}", cause=cause, fix=fix), code)
    try:
        put(f"{asked.path.name}: the daemon took the request, and logs enforcer.breaker_closing\n")
    except OSError as error:
        unwritten(PROGRAM, error)  # the exit code says what became of the request
    return 0


def _user() -> str:
    return os.environ.get("SUDO_USER") or os.environ.get("USER") or f"uid {os.getuid()}"
