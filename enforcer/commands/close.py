"""
`gpusteward close BREAKER`: close a breaker that waits for a person.

What comes in: the breaker, the name of the person, the flags of the daemon. What goes out: a request beside the
daemon's journal, and the exit code: 0 when the daemon took it, 1 when it has not yet, 2 on wrong usage or config.

The rule: the daemon alone writes its journal. This command asks, and reports the result.
"""

import argparse
import os
import sys
import time
from pathlib import Path

from enforcer.commands import Commands, wrong
from exporter.base.problem import Problem
from exporter.config.arguments import add_flags, chosen

PROGRAM = "gpusteward close"
PATIENCE = 15.0
"""Seconds to wait for the daemon, which looks once a second."""
LOOK = 0.2


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
        "It writes a request next to the journal, and the daemon takes it within seconds. Every flag of "
        "`gpusteward run` is accepted. Exit code: 0 when the daemon took the request, 1 when it did not, "
        "2 for wrong usage or configuration.",
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
    from enforcer.policy.vocabulary import Breaker  # noqa: PLC0415
    from enforcer.runtime.policy_config import impossible  # noqa: PLC0415
    from exporter.config import ConfigError, load  # noqa: PLC0415

    try:
        config = load(chosen(namespace, os.environ), impossible)
    except ConfigError as error:
        return wrong(PROGRAM, error)
    journal = config.policy.journal or DEFAULT
    try:
        asked = ask(journal, Breaker(namespace.breaker), namespace.by or _user())
    except OSError as error:
        what = f"{error.filename or journal.parent}: {error.strerror or error}"
        return wrong(PROGRAM, Problem(what, fix="run this command in the daemon's pod, or as the daemon's user"), 1)
    return _await(asked)


def _await(asked: Path) -> int:
    until = time.monotonic() + PATIENCE
    while asked.exists():
        if time.monotonic() > until:
            what = f"no daemon took the request within {PATIENCE:.0f} s"
            cause = "no daemon on this node is armed; one that arms later takes the request"
            return wrong(PROGRAM, Problem(what, cause=cause, fix=f"start the daemon, or withdraw with rm {asked}"), 1)
        time.sleep(LOOK)
    sys.stdout.write(f"{asked.name}: the daemon took the request, and logs enforcer.breaker_closing\n")
    return 0


def _user() -> str:
    return os.environ.get("SUDO_USER") or os.environ.get("USER") or f"uid {os.getuid()}"
