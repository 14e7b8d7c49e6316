"""
`gpusteward`: one program with a sub-command for each task.

What comes in: a command line. What goes out: an exit code: 0 done, 1 the node cannot do what was asked, 2 wrong
usage or config.

The rule: a sub-command is one module, listed only in `COMMANDS`. Its function `add` declares its name, its flags and
the function to run. A module imports what costs time or memory only when it runs.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version

from enforcer.commands import advise, check, close, completion, explain, preview, record, replay, report, run, top
from exporter.config.arguments import Parser

PROGRAM = "gpusteward"

COMMANDS = (run, top, preview, check, explain, close, record, replay, report, advise, completion)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one sub-command; return the exit code. Ends the process as argparse does: 0 after --help, 2 on bad usage."""
    namespace = parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = namespace.run
    return run(namespace)


def parser() -> argparse.ArgumentParser:
    """Make the parser of the program, with all of its commands."""
    whole = Parser(
        prog=PROGRAM,
        description="Per-container GPU memory and SM usage on shared GPUs, with limits that hold.",
        epilog="example: kubectl exec -n gpusteward ds/gpusteward -- gpusteward check",
        allow_abbrev=False,
    )
    whole.add_argument("--version", action="version", version=f"%(prog)s {version('gpusteward')}")
    whole.set_defaults(program=whole)
    commands = whole.add_subparsers(metavar="COMMAND", required=True)
    for module in COMMANDS:
        module.add(commands)
    return whole


if __name__ == "__main__":
    sys.exit(main())
