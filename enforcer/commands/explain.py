"""
`gpusteward explain`: which memory limits a pod declares, and why each candidate was taken or not.

What comes in: NAMESPACE/POD, which a running daemon explains; or (`-f`) a file of pods and objects that make pods, as
`kubectl get -o yaml` or `-o json` prints them, read without a daemon. What goes out: text or JSON on standard output,
and the exit code. Standard error has a line for each object that cannot be explained, and for each invalid declaration
of a file. The exit code is 0; 1 when the daemon does not explain or a declaration of a file is invalid. It is 2 when
the usage, a file, or an object in it is not what was expected.

The rule: a file can be anything, and so can what answers at a URL. Each is read once, to a bound. The command waits for
standard input, for a daemon for a few seconds, and for nothing else.
"""

import argparse
import asyncio
import codecs
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from enforcer.commands import Commands, add_url, chosen_daemon, put, unwritten, wrong
from exporter.base.printable import printable

if TYPE_CHECKING:
    from exporter.api.client import Daemon

PROGRAM = "gpusteward explain"
ABSENT = 404
_STDIN = "-"
_FILE = "name a file that kubectl get -o yaml or -o json wrote"
_LONGEST = 16 << 20
"""Bytes of a file: the pods and claims of a large node as JSON are a tenth of it."""
_MOST_PROBLEMS = 20
"""Lines on standard error. A file may hold a hundred thousand objects that cannot be explained."""


def add(commands: Commands) -> None:
    """Add the sub-command to the program's."""
    parser = commands.add_parser(
        "explain",
        help="show the limits that a pod declares, and why each of them counts or does not",
        description="Show the limits that a pod declares, and why each declaration counts or does not. "
        "NAMESPACE/POD asks the daemon on the pod's node, and shows the current usage as well. -f reads pods and pod "
        "templates from a file, without a daemon or cluster. Exit code 1: the daemon gives no explanation, or a "
        "declaration of the file is invalid or names a container that its pod does not have. Exit code 2: wrong usage "
        "or files, or an object of the file cannot be explained. Else 0.",
        epilog="examples: kubectl -n gpusteward exec DAEMON -- gpusteward explain team-a/llm-0; "
        "kubectl get pods -n team-a -o yaml | gpusteward explain -f - --node node.yaml",
        allow_abbrev=False,
    )
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("pod", nargs="?", metavar="NAMESPACE/POD", help="a pod on the node of the daemon")
    asked.add_argument(
        "-f",
        dest="pods",
        metavar="FILE",
        help="file with Pods, objects with pod templates (Deployment, CronJob, PyTorchJob, ...), ResourceClaims and "
        "ResourceSlices, from kubectl get -o yaml or -o json; - for standard input",
    )
    add_url(parser)
    parser.add_argument(
        "--node",
        metavar="FILE",
        help="file with the Node of the pods, for the sizes of its devices: shares, MIG instances and fair shares need "
        "them; - for standard input. The Node may also be in the file of -f",
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="config file of the daemon, of which the section `limits` is used",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print JSON: with -f a list of {object, namespace, pod, container, device, limit_bytes, system, source, "
        "scope, enforced_by, candidates, problems}. A daemon's document has this list as `limits`",
    )
    parser.set_defaults(run=run)


def run(namespace: argparse.Namespace) -> int:
    """Explain, print, and return the exit code."""
    problems: tuple[str, ...] = ()
    mistakes: tuple[str, ...] = ()
    try:
        if namespace.pod is not None:
            text = _of_daemon(namespace)
        else:
            text, problems, mistakes = _of_files(namespace)
    except _RefusedError as error:
        return _refuse(error.problems, error.code)
    try:
        put(text)
    except OSError as error:
        return unwritten(PROGRAM, error)
    if mistakes:
        _list(mistakes)
        sys.stderr.write("fix: correct these declarations\n")
    return _refuse(problems) if problems else int(bool(mistakes))


def _list(problems: Sequence[Exception | str]) -> None:
    for problem in problems[:_MOST_PROBLEMS]:
        wrong(PROGRAM, problem)
    if (more := len(problems) - _MOST_PROBLEMS) > 0:
        wrong(PROGRAM, f"and {more} more")


def _refuse(problems: Sequence[Exception | str], code: int = 2) -> int:
    _list(problems)
    if any(isinstance(problem, str) for problem in problems):
        sys.stderr.write(f"fix: {_FILE}\n")
    return code


class _RefusedError(Exception):
    """Nothing is explained; each problem says why."""

    def __init__(self, *problems: Exception | str, code: int = 2) -> None:
        super().__init__(*problems)
        self.problems = problems
        self.code = code


def _wrong_usage(what: str, fix: str) -> _RefusedError:
    from exporter.base.problem import Problem  # noqa: PLC0415

    return _RefusedError(Problem(what, fix=fix))


def _of_daemon(namespace: argparse.Namespace) -> str:
    from exporter.api.client import AskError, UrlError  # noqa: PLC0415  (HTTP)

    if namespace.node is not None or namespace.config is not None:
        raise _wrong_usage("--node and --config need -f", "remove them: a daemon knows its own node and config")
    where, slash, name = namespace.pod.partition("/")
    if not where or not slash or not name or "/" in name:
        raise _wrong_usage(f"{namespace.pod} is not NAMESPACE/POD", "write both, such as team-a/llm-0")
    try:
        text, document = asyncio.run(_explained(chosen_daemon(namespace), where, name))
    except UrlError as error:
        raise _RefusedError(error) from error
    except AskError as error:
        raise _RefusedError(error, code=1) from error
    if namespace.json:
        return json.dumps(document, indent=2) + "\n"
    return "".join(f"{printable(line)}\n" for line in text.splitlines())


class _Explained(msgspec.Struct, frozen=True):
    """What each document of an explanation has; the rest is passed on as it is."""

    version: int
    program: str
    text: str


class _NotHere(msgspec.Struct, frozen=True):
    """The answer about a pod that is not on the node; `near` comes with no other error."""

    error: str
    near: list[str]
    actions: list[dict[str, Any]] = []


async def _explained(daemon: "Daemon", namespace: str, pod: str) -> tuple[str, dict[str, Any]]:
    """Ask for the explanation of a pod: the text for people, and the document without it. Raises AskError."""
    from exporter.api.client import GARBLED, OK, AskError, asked, refused, stranger  # noqa: PLC0415  (HTTP)

    status, body = await asked(daemon, "/api/v1/explain", {"namespace": namespace, "pod": pod})
    if status == OK:
        try:
            text = msgspec.json.decode(body, type=_Explained).text
            document: dict[str, Any] = msgspec.json.decode(body)
        except GARBLED as error:
            raise stranger(daemon, "answers something else than an explanation") from error
        del document["text"]
        return text, document
    with suppress(*GARBLED):
        if status == ABSENT and (answer := msgspec.json.decode(body, type=_NotHere)).error:
            if answer.actions:
                events = f"kubectl -n {namespace} get events --field-selector involvedObject.name={pod}"
                raise AskError(answer.error, fix=f"read the Events of the pod ({events}), and /api/v1/decisions")
            raise AskError(
                answer.error,
                cause=f"the daemon at {daemon.url} knows only the pods of its own node",
                fix="find the node with kubectl get pod -o wide, and ask the daemon on it",
            )
    raise refused(daemon, status, body, "explains nothing")


def _of_files(namespace: argparse.Namespace) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Explain a file: the answer, the problems of objects that are not in it, and the mistakes in declarations."""
    from exporter.config import Arguments, ConfigError, catalogue_of, load, options_of  # noqa: PLC0415  (YAML)
    from exporter.limits.offline import explain  # noqa: PLC0415
    from exporter.objects.manifest import ManifestError  # noqa: PLC0415

    pods, node = namespace.pods, namespace.node
    if namespace.url is not None:
        raise _wrong_usage("--url and -f exclude each other", "remove --url: a file is explained without a daemon")
    if pods == node == _STDIN:
        raise _wrong_usage("-f and --node are both standard input", "name a file for one of them")
    try:
        limits = load(Arguments(namespace.config)).limits
        explained = explain(
            _text(pods),
            None if node is None else _text(node),
            catalogue_of(limits),
            options_of(limits),
            as_json=namespace.json,
            source=_name(pods),
            node_source=_name(node or ""),
        )
    except ManifestError as error:
        raise _RefusedError(*error.problems) from error
    except ConfigError as error:
        raise _RefusedError(error) from error
    return explained.text, explained.problems, explained.mistakes


def _text(name: str) -> str:
    from exporter.base.text_files import UnreadableError, read  # noqa: PLC0415

    try:
        content = _standard_input() if name == _STDIN else read(Path(name), _LONGEST)
    except UnreadableError as error:
        raise _wrong_usage(f"{_name(name)}: {error}", _FILE) from error
    except (OSError, ValueError) as error:  # a ValueError for a name with a null byte
        raise _wrong_usage(f"{_name(name)}: cannot be read: {error}", _FILE) from error
    # Windows' editors put a mark in front of UTF-8, and PowerShell's `>` writes UTF-16.
    utf_16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return content.decode("utf-16" if utf_16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        expected = f"expected {'UTF-16' if utf_16 else 'UTF-8'} text"
        raise _wrong_usage(f"{_name(name)}: {expected}, found something else at byte {error.start}", _FILE) from error


def _standard_input() -> bytes:
    from exporter.base.text_files import UnreadableError  # noqa: PLC0415

    content = sys.stdin.buffer.read(_LONGEST + 1) if sys.stdin else b""
    if len(content) > _LONGEST:
        raise UnreadableError(f"larger than {_LONGEST} bytes")
    return content


def _name(name: str) -> str:
    return "standard input" if name == _STDIN else name
