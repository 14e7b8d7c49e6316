"""
`gpusteward run`: the node daemon.

What comes in: the flags and the config of the daemon. What goes out: 0 ended by a signal, 1 the node cannot do what was
asked, 2 wrong usage or config.

The rule: signals are handled before anything else is loaded: see `exporter.__main__`.
"""

import argparse
import asyncio
import os

from enforcer.commands import Commands
from exporter.__main__ import leave_on_signals
from exporter.config.arguments import add_flags, chosen

PROGRAM = "gpusteward run"


def add(commands: Commands) -> None:
    """Add the sub-command to the program's."""
    parser = commands.add_parser(
        "run",
        help="run the node daemon: export GPU usage, and enforce limits as far as --mode allows",
        usage="%(prog)s [FLAGS]",
        description="Run the node daemon. It exports the GPU usage of each container, compares it with the declared "
        "limit, and warns or acts as far as --mode allows. It runs until SIGTERM. Exit code: 0 after a signal, 1 when "
        "this node cannot be observed, 2 for wrong usage or configuration.",
        epilog="example: gpusteward run --config /etc/gpusteward/config.yaml --mode dry-run",
        allow_abbrev=False,
    )
    add_flags(parser)
    parser.set_defaults(run=run)


def run(namespace: argparse.Namespace) -> int:
    """Run the daemon; return the exit code."""
    leave_on_signals()
    from enforcer.runtime.daemon import daemon  # noqa: PLC0415  (with the daemon come driver, HTTP and more)
    from enforcer.runtime.policy_config import impossible  # noqa: PLC0415
    from exporter.config import start  # noqa: PLC0415
    from exporter.devices import DeviceError  # noqa: PLC0415
    from exporter.rounds import logs  # noqa: PLC0415
    from exporter.running import exit_code, until_signalled  # noqa: PLC0415
    from exporter.web.listening import WebError  # noqa: PLC0415

    arguments = chosen(namespace, os.environ)

    def work() -> None:
        config, refused = start(arguments, impossible)
        logs.configure(config.log.level, config.log.format)
        asyncio.run(until_signalled(daemon(arguments, config, os.environ, program=PROGRAM, refused=refused)))

    return exit_code(PROGRAM, work, DeviceError, WebError)
