"""
`gpusteward explain -f FILE`: which memory limits a pod declares, and why each candidate was taken or not; offline.

What comes in: files as `kubectl get -o yaml` or `-o json` prints them. What goes out: text or JSON on standard output,
or one line on standard error; and the exit code: 0, or 2 when a file is not what was expected.

The law: a file can be anything. It is read once, to a bound, without waiting for anybody but standard input.
"""

import argparse
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from enforcer.cli import Commands

_STDIN = "-"
_LONGEST = 16 << 20
"""Bytes of a file: the pods and claims of a large node as JSON are a tenth of it."""


def add(commands: "Commands") -> None:
    """Add the sub-command to the program's."""
    parser = commands.add_parser(
        "explain",
        help="say which limits a pod declares, and why",
        description="Say which limits the pods of a file declare, and of each candidate why it was taken or not. Reads "
        "what kubectl prints, asks no cluster and no driver. Exit code 0, or 2 when a file is not what was expected.",
        epilog="example: kubectl get pods -n team-a -o yaml | gpusteward explain -f - --node node.yaml",
        allow_abbrev=False,
    )
    parser.add_argument(
        "-f",
        dest="pods",
        required=True,
        metavar="FILE",
        help="Pods, and the ResourceClaims and ResourceSlices that they use, as kubectl get -o yaml or -o json prints "
        "them; - for standard input",
    )
    parser.add_argument(
        "--node",
        metavar="FILE",
        help="the Node that the pods run on, to check units against its devices; - for standard input. "
        "It may also stand in the first file",
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="the daemon's config: what its section limits chooses, and its own rows, count here too",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print a list of {container, device, limit_bytes, system, source, scope, enforced_by, candidates, "
        "problems}",
    )
    parser.set_defaults(run=run)


def run(namespace: argparse.Namespace) -> int:
    """Explain, print, and return the exit code."""
    from exporter.config import Arguments, ConfigError, catalogue_of, load  # noqa: PLC0415  (msgspec, YAML)
    from exporter.limits import Options  # noqa: PLC0415
    from exporter.limits.manifest import ManifestError  # noqa: PLC0415
    from exporter.limits.offline import explain  # noqa: PLC0415

    pods, node = namespace.pods, namespace.node
    if pods == node == _STDIN:
        return _wrong("-f and --node: only one of them can be standard input")
    try:
        limits = load(Arguments(namespace.config)).limits
        text = explain(
            _text(pods),
            None if node is None else _text(node),
            catalogue_of(limits),
            Options(limits.systems.names, limits.fair_share, mps_container=limits.mps_scope == "container"),
            as_json=namespace.json,
            source=_name(pods),
            node_source=_name(node or ""),
        )
    except (_FileError, ConfigError, ManifestError) as error:
        return _wrong(str(error))
    return _print(text)


class _FileError(Exception):
    """A file cannot be read; the message names it."""


def _text(name: str) -> str:
    from exporter.reading import UnreadableError, read  # noqa: PLC0415  (as above)

    try:
        content = _standard_input() if name == _STDIN else read(Path(name), _LONGEST)
    except UnreadableError as error:
        raise _FileError(f"{_name(name)}: {error}") from error
    except (OSError, ValueError) as error:  # a ValueError for a name with a null byte
        raise _FileError(f"{_name(name)}: cannot be read: {error}") from error
    try:
        return content.decode("utf-8-sig")  # Windows' editors put a mark in front
    except UnicodeDecodeError as error:
        raise _FileError(f"{_name(name)}: expected UTF-8 text, found something else at byte {error.start}") from error


def _standard_input() -> bytes:
    from exporter.reading import UnreadableError  # noqa: PLC0415  (as above)

    content = sys.stdin.buffer.read(_LONGEST + 1) if sys.stdin else b""
    if len(content) > _LONGEST:
        raise UnreadableError(f"cannot be read: larger than {_LONGEST} bytes")
    return content


def _name(name: str) -> str:
    return "standard input" if name == _STDIN else name


def _wrong(problem: str) -> int:
    shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in problem)
    sys.stderr.write(f"gpusteward explain: {shown}\n")
    return 2


def _print(text: str) -> int:
    """Print what may be long into what may be closed early (`| head`), which is no error."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names may hold what the terminal's character set does not
    try:
        print(text, end="", flush=True)  # noqa: T201  (unlike write, at ease where there is no standard output)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
        if not isinstance(error, BrokenPipeError):
            _wrong(f"standard output: cannot be written: {error.strerror}")
            return 1
    return 0
