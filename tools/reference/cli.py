"""
The page of commands: docs/reference/cli.md.

What comes in: the parsers of `gpusteward` and `gpusteward-exporter`. What goes out: the text of the page.

The rule: flags, defaults and descriptions are those of the parsers. The table of environment variables is in this
module.
"""

import argparse
from collections.abc import Iterator

from enforcer.cli import COMMANDS, command
from enforcer.commands import VARIABLE
from exporter.config.arguments import CONFIG_FILE, FLAGS, NODE_NAME, add_flags

HEAD = """\
# Commands and flags

Look up a command, a flag, its default, or an environment variable. `COMMAND --help` prints the same.
A flag wins over the environment, the environment over the [config file](config.md), and the file over the default.
"""
EXIT_CODES = """\
| exit code | means |
|---|---|
| 0 | done; a daemon: ended by a signal |
| 1 | the node, the daemon or the output cannot do what was asked |
| 2 | wrong usage, file or config |
"""
VARIABLES = {
    NODE_NAME: "name of this node in Kubernetes; the chart sets it",
    CONFIG_FILE: "config file where no `--config` names one; the chart sets it",
    VARIABLE: "where the daemon listens, for the commands that ask one (`--url`)",
    "POD_NAME": "name of the daemon's own pod; the chart sets it",
    "POD_NAMESPACE": "namespace of the daemon's own pod, which is always protected; the chart sets it",
    "POD_UID": "UID of the daemon's own pod, which is never acted on; the chart sets it",
    "KUBERNETES_SERVICE_HOST": "set by Kubernetes in a pod; `names.source: auto` then takes Kubernetes",
    "NO_COLOR": "no colours in the output of `check`",
    "TERM": "`top` draws only on a terminal that it names",
    "SUDO_USER": "the name that `close` writes to the journal without `--by`",
    "USER": "the same, where `SUDO_USER` is not set",
}
"""Variable -> what it does."""


def page() -> str:
    """Write the page."""
    parsers = argparse.ArgumentParser(prog="gpusteward").add_subparsers()
    for name in COMMANDS:
        command(name).add(parsers)
    names = "".join(
        f"| [`gpusteward {name}`](#gpusteward-{name}) | {_help(parsers, name)} |\n" for name in parsers.choices
    )
    exporter = (
        "| `gpusteward-exporter` | the read-only daemon; takes the [flags of the daemon](#flags-of-the-daemon) |\n"
    )
    parts = [HEAD, "\n| command | does |\n|---|---|\n", names, exporter, f"\n{EXIT_CODES}"]
    shared = argparse.ArgumentParser()
    add_flags(shared)
    parts += ["\n## Flags of the daemon\n\n", *_table(_described(shared, set()))]
    for name, parser in parsers.choices.items():
        parts.append(f"\n## gpusteward {name}\n\n{parser.description}\n")
        inherited = _shared(parser)
        if inherited == {flag for flag, *_ in FLAGS}:
            parts.append("\nTakes the [flags of the daemon](#flags-of-the-daemon), too.\n")
        else:
            inherited = set()
        if rows := list(_described(parser, inherited | {"--config"} if inherited else set())):
            parts += ["\n", *_table(rows)]
        if parser.epilog:
            parts.append(f"\n{_example(parser.epilog)}\n")
    parts.append("\n## Environment variables\n\n| variable | does |\n|---|---|\n")
    parts += [f"| `{name}` | {text} |\n" for name, text in VARIABLES.items()]
    return "".join(parts)


def _help(parsers: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str) -> str:
    return next(str(one.help) for one in parsers._choices_actions if one.dest == name)  # noqa: SLF001  (no other way)


def _shared(parser: argparse.ArgumentParser) -> set[str]:
    known = {flag for flag, *_ in FLAGS}
    return {flag for action in parser._actions for flag in action.option_strings if flag in known}  # noqa: SLF001


def _described(parser: argparse.ArgumentParser, without: set[str]) -> Iterator[tuple[str, str]]:
    """Name each argument of a parser, with its help."""
    for action in parser._actions:  # noqa: SLF001  (argparse lists them nowhere else)
        if isinstance(action, argparse._HelpAction) or without & set(action.option_strings):  # noqa: SLF001
            continue
        value = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
        takes = "" if action.nargs == 0 else f" {value}"
        names = ", ".join(f"`{flag}{takes}`" for flag in action.option_strings) or f"`{value}`"
        text = (action.help or "") % {**vars(action), "prog": parser.prog}
        yield names, text


def _table(rows: object) -> Iterator[str]:
    yield "| flag | means |\n|---|---|\n"
    for names, text in rows:  # type: ignore[attr-defined]
        yield f"| {names} | {_cell(text)} |\n"


def _example(text: str) -> str:
    """Write the commands of an epilog as code."""
    word, _, commands = text.partition(": ")
    return f"{word.capitalize()}: " + ", ".join(f"`{command.strip()}`" for command in commands.split("; "))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
