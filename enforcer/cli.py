"""
`gpusteward`: one program with a sub-command for each task.

What comes in: a command line. What goes out: an exit code: 0 done, 1 the node cannot do what was asked, 2 wrong
usage or config.

The rule: a sub-command is one module, listed only in `COMMANDS`. Its function `add` declares its name, its flags and
the function to run. A module imports what costs time or memory only when it runs. A command line that begins with a
command imports no other command: `run` would hold them all for as long as the node is up.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType

from exporter.base.version import VERSION
from exporter.config.arguments import Parser

PROGRAM = "gpusteward"

COMMANDS = ("run", "top", "preview", "check", "explain", "close", "record", "replay", "report", "advise", "completion")
"""Names of modules in `enforcer.commands`, which are also the words of the command line; in the order of `--help`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one sub-command; return the exit code. Ends the process as argparse does: 0 after --help, 2 on bad usage."""
    words = sys.argv[1:] if argv is None else argv
    namespace = parser([word for word in words[:1] if word in COMMANDS] or COMMANDS).parse_args(words)
    run: Callable[[argparse.Namespace], int] = namespace.run
    return run(namespace)


def command(name: str) -> ModuleType:
    """Import a command."""
    return import_module(f"enforcer.commands.{name}")


def parser(names: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """Make the parser of the program with these of its commands."""
    whole = Parser(
        prog=PROGRAM,
        description="Per-container GPU memory and SM usage on shared GPUs, with limits that hold.",
        epilog="example: kubectl exec -n gpusteward ds/gpusteward -- gpusteward check",
        allow_abbrev=False,
    )
    whole.add_argument("--version", action="version", version=f"%(prog)s {VERSION}")
    whole.set_defaults(program=parser)
    commands = whole.add_subparsers(metavar="COMMAND", required=True)
    for name in names:
        command(name).add(commands)
    return whole


if __name__ == "__main__":
    sys.exit(main())
