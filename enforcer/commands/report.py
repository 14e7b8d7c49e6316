"""
`gpusteward report`: what the GPUs of a time were used for, what that cost, and what stood idle.

What comes in: the address of a Prometheus, a time, prices. What goes out: a table, CSV or JSON on standard output, and
the exit code. It is 0 when reported, 1 when Prometheus gives no answer, 2 on wrong usage or prices. On a terminal,
standard error shows the progress.

The rule: it only asks. The time is cut into days, because Prometheus bounds the size of a query.
"""

import argparse
import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

from enforcer.commands import Commands, count
from enforcer.commands.prometheus import add_prometheus, add_window, answered, chosen_history, warn

if TYPE_CHECKING:
    from exporter.history.prometheus import History
    from exporter.history.windows import Window
    from exporter.report.ledger import Ledger
    from exporter.report.summary import Prices

PROGRAM = "gpusteward report"


def add(commands: Commands) -> None:
    """Add the sub-command to the program's."""
    parser = commands.add_parser(
        "report",
        help="show what GPUs were used for over days or weeks, what stood idle, and what it cost",
        description="Ask a Prometheus what the GPUs of all nodes were used for. Their memory adds up to 100 %: "
        "containers, free, reserved, dead and host processes, unattributed, unknown. The allocated GPU-hours of each "
        "namespace, workload, node or model were used, idle, or not measured. Exit code: 0, 1 when Prometheus gives no "
        "answer, 2 for wrong usage or prices.",
        epilog="example: gpusteward report --prometheus http://localhost:9090 --since 7d --by workload",
        allow_abbrev=False,
    )
    add_prometheus(parser)
    add_window(parser, "7d")
    parser.add_argument(
        "--by",
        default="namespace",
        choices=["namespace", "workload", "node", "model"],
        help="the rows (default: namespace)",
    )
    parser.add_argument(
        "--prices", type=Path, metavar="FILE", help="YAML file with the price of a GPU-hour by model (docs/report.md)"
    )
    parser.add_argument(
        "--top", type=count, default=20, metavar="N", help="idle allocations in the table (default: 20)"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="print the rows as CSV")
    form.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.set_defaults(run=run)


def run(namespace: argparse.Namespace) -> int:
    """Report, print, and return the exit code."""
    return answered(PROGRAM, lambda: _report(namespace))


def _report(namespace: argparse.Namespace) -> str:
    from exporter.history.windows import window_of  # noqa: PLC0415
    from exporter.report import prices  # noqa: PLC0415
    from exporter.report.documents import as_csv, as_json  # noqa: PLC0415
    from exporter.report.notes import notes_of  # noqa: PLC0415
    from exporter.report.rendering import as_text  # noqa: PLC0415
    from exporter.report.summary import By, summarize  # noqa: PLC0415

    priced = None if namespace.prices is None else prices.load(namespace.prices)
    window = window_of(namespace.since, namespace.until, time.time())
    history = chosen_history(namespace)
    ledger = asyncio.run(_read(history, window, namespace.prices, priced))
    warn(PROGRAM, history)
    try:
        report = summarize(
            ledger, By(namespace.by), priced, notes_of(ledger, priced.of_model if priced else (), window)
        )
    except KeyError as error:
        raise prices.lacking(namespace.prices, [error.args[0]]) from error
    if namespace.csv:
        return as_csv(report)
    return as_json(report, window) if namespace.json else as_text(report, window, namespace.top)


async def _read(history: "History", window: "Window", file: Path, priced: "Prices | None") -> "Ledger":
    """Ask everything; first for the models, if some may have no price."""
    from exporter.report import prices, reading  # noqa: PLC0415

    parts = await reading.parts_of(history, window)
    if priced is not None and priced.default is None:
        found = await reading.models_of(history, parts)
        if unpriced := sorted(found - priced.of_model.keys()):
            raise prices.lacking(file, unpriced)
    return await reading.read(history, parts)
