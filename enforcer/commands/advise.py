"""
`gpusteward advise`: how much GPU memory each workload needs, and the limit to declare.

What comes in: the address of a Prometheus, perhaps a namespace and a workload. What goes out: a table, reasons, and
patches in the form of the sharing system; and the exit code. It is 0 when advised, 1 when Prometheus gives no answer, 2
on wrong usage.

The rule: it only asks. No object is changed, and no patch is applied.
"""

import argparse
import asyncio
import re
import time

from enforcer.commands import Commands, count, wrong
from enforcer.commands.prometheus import add_prometheus, add_window, answered, chosen_history, warn

PROGRAM = "gpusteward advise"
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""Of objects in Kubernetes."""
KIND = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
"""Of objects in Kubernetes."""
FORMS = "[CLUSTER/]NAMESPACE[/[KIND/]WORKLOAD[/CONTAINER]]"


def add(commands: Commands) -> None:
    """Add the sub-command to the program's."""
    parser = commands.add_parser(
        "advise",
        help="show the GPU memory that each workload needed, and the limit to declare",
        description="Ask a Prometheus for the peak of each workload's containers, and advise a limit: the peak and a "
        "headroom. Patches in the form of the node's sharing system are printed, and not applied. Exit code: 0, 1 when "
        "Prometheus gives no answer, 2 for wrong usage.",
        epilog="example: gpusteward advise --prometheus http://localhost:9090 team-a/llm",
        allow_abbrev=False,
    )
    parser.add_argument(
        "scope",
        nargs="?",
        metavar=FORMS,
        help="only these, in the words of the table (default: all)",
    )
    add_prometheus(parser)
    add_window(parser, "14d")
    parser.add_argument(
        "--headroom",
        type=_share,
        default=0.1,
        metavar="PERCENT",
        help="added to the peak, such as 20%% (default: 10%%)",
    )
    parser.add_argument(
        "--min-days", type=count, default=3, metavar="N", help='fewer days of readings give "unknown" (default: 3)'
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(namespace: argparse.Namespace) -> int:
    """Advise, print, and return the exit code."""
    from exporter.base.problem import Problem  # noqa: PLC0415

    scopes = _scopes(namespace.scope)
    if not scopes:
        what = f"{namespace.scope!a} is not {FORMS}"
        return wrong(
            PROGRAM, Problem(what, fix="write a name such as team-a, team-a/llm or team-a/Deployment/llm/main")
        )
    return answered(PROGRAM, lambda: _advice(namespace, scopes))


Scope = tuple[str | None, ...]
"""Cluster, namespace, kind, workload and container, as far as given; None: any."""


def _scopes(text: str | None) -> list[Scope]:
    """Return what a name may mean; nothing if it is none of the forms. Clusters have names of any form."""
    if text is None:
        return [()]
    cluster, _, rest = text.partition("/")
    found = [(None, *scope) for scope in _scope(text)]
    return found + [(cluster, *scope) for scope in _scope(rest)]


def _scope(text: str) -> list[Scope]:
    """Read namespace, kind, workload and container."""
    namespace, *rest = text.split("/")
    kind = rest.pop(0) if len(rest) > 1 and KIND.fullmatch(rest[0]) else None
    if len(rest) > 2 or not all(NAME.fullmatch(part) for part in (namespace, *rest)):  # noqa: PLR2004  (as in FORMS)
        return []
    return [(namespace, kind, *rest)]


def _advice(namespace: argparse.Namespace, scopes: list[Scope]) -> str:
    from exporter.advise.advice import Kind, advise  # noqa: PLC0415  (with the catalogue)
    from exporter.advise.declaring import declared  # noqa: PLC0415
    from exporter.advise.grouping import Wanted  # noqa: PLC0415
    from exporter.advise.reading import read  # noqa: PLC0415
    from exporter.advise.rendering import Line, as_json, as_text  # noqa: PLC0415
    from exporter.history.windows import window_of  # noqa: PLC0415
    from exporter.limits.loading import builtin  # noqa: PLC0415

    window = window_of(namespace.since, namespace.until, time.time())
    history = chosen_history(namespace)
    found = asyncio.run(read(history, window, [Wanted(*scope) for scope in scopes]))
    warn(PROGRAM, history)
    lines = []
    for seen in found:
        use = seen.use
        advice = advise(use, namespace.headroom, namespace.min_days, len(list(window.parts())))
        text = None
        if advice.limit is not None:
            text = declared(
                builtin(), use.system, use.source, seen.container, advice.limit, device=use.device_bytes,
                devices=seen.devices, scope=use.scope, present=use.limit, in_advance=advice.kind is Kind.FRACTION,
            )  # fmt: skip
        lines.append(Line(seen, advice, text))
    return as_json(lines) if namespace.json else as_text(lines)


def _share(text: str) -> float:
    match = re.fullmatch(r"([0-9]{1,4}(?:\.[0-9]+)?)(%?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!a} is not a percentage: expected one such as 10%")
    percent = float(match[1])
    if 0 < percent < 1 and not match[2]:
        raise argparse.ArgumentTypeError(f"{text!a} is less than 1%: write {percent:.0%} for a share, or {text}%")
    return percent / 100
