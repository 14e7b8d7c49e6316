"""
`gpusteward check`: say whether the daemon can do on this node what these flags and this config ask for.

What comes in: the flags of the daemon. What goes out: a line for each check on standard output, and the exit code.
"""

import argparse
import asyncio
import json
import os
import sys
from functools import partial

from enforcer.commands import Commands
from exporter.config.arguments import add_flags, chosen


def add(commands: Commands) -> None:
    """Add the sub-command to the program's."""
    parser = commands.add_parser(
        "check",
        help="ask everything that the daemon would lean on, and say what to do about what is not good",
        description="Ask everything that the daemon would lean on: one line each. Takes the flags of the daemon. "
        "Exit code 0 when it can do what is asked, 1 when not, 2 on wrong usage or config.",
        allow_abbrev=False,
    )
    add_flags(parser)
    parser.add_argument("--json", action="store_true", help="print {exit_code, checks: [{check, verdict, message}]}")
    parser.set_defaults(run=run)


def run(namespace: argparse.Namespace) -> int:
    """Check, print, and return the exit code."""
    from enforcer.runtime.policy_config import impossible  # noqa: PLC0415
    from enforcer.runtime.preflight import beyond, mode_rights  # noqa: PLC0415
    from exporter.check.lines import exit_code, render  # noqa: PLC0415  (with the probes come driver, HTTP and more)
    from exporter.check.probe import preflight  # noqa: PLC0415

    arguments = chosen(namespace, os.environ)
    in_a_pod = "KUBERNETES_SERVICE_HOST" in os.environ
    wanted = partial(beyond, in_a_pod=in_a_pod)
    lines = asyncio.run(preflight(arguments, in_a_pod=in_a_pod, also=impossible, more=mode_rights, beyond=wanted))
    code = exit_code(lines)
    if namespace.json:
        checks = [{"check": line.check, "verdict": line.verdict, "message": line.message} for line in lines]
        sys.stdout.write(json.dumps({"exit_code": code, "checks": checks}, indent=2) + "\n")
    else:
        sys.stdout.write(render(lines, colour=sys.stdout.isatty() and "NO_COLOR" not in os.environ))
    sys.stdout.flush()
    return code
