"""
`gpusteward completion SHELL`: print the completion script of a shell.

What comes in: the name of the shell. What goes out: a script on standard output, and the exit code.

The rule: the script is made from the parser itself, so that it knows each command and each listed flag.
"""

import argparse
from collections.abc import Iterator

from enforcer.commands import Commands, put, unwritten

PROGRAM = "gpusteward completion"
SHELLS = ("bash", "zsh", "fish")


def add(commands: Commands) -> None:
    """Add the sub-command to the program's."""
    parser = commands.add_parser(
        "completion",
        help="print the completion script for bash, zsh or fish",
        description="Print the completion script for a shell. Exit code: 0, or 2 for wrong usage.",
        epilog='example: eval "$(gpusteward completion bash)"',
        allow_abbrev=False,
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"one of {', '.join(SHELLS)}")
    parser.set_defaults(run=run)


def run(namespace: argparse.Namespace) -> int:
    """Print the script; return the exit code."""
    import shtab  # noqa: PLC0415  (this command alone needs it)

    from exporter.config.schema import Config  # noqa: PLC0415  (msgspec)
    from exporter.config.yaml_text import words_of  # noqa: PLC0415

    program: argparse.ArgumentParser = namespace.program()
    kinds = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY}
    for action in _actions(program):
        if isinstance(action.metavar, str) and action.metavar in kinds:
            action.complete = kinds[action.metavar]  # type: ignore[attr-defined]
        elif action.choices is None and action.nargs is None:
            action.choices = words_of(Config, _key(action))
    try:
        put(shtab.complete(program, namespace.shell))
    except OSError as error:
        return unwritten(PROGRAM, error)
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # noqa: SLF001  (argparse has no public list)
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for command in action.choices.values():
                yield from _actions(command)
        else:
            yield action


def _key(action: argparse.Action) -> str:
    return "policy.mode" if action.dest == "mode" else action.dest
