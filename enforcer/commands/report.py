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

from enforcer.commands import Commands
from enforcer.commands.prometheus import add_prometheus, add_window, answered, chosen_history, warn

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
    parser.add_argument("--top", type=int, default=20, metavar="N", help="idle allocations in the table (default: 20)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="print the rows as CSV")
    form.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.set_defaults(run=run)


def run(namespace: argparse.Namespace) -> int:
    """Report, print, and return the exit code."""
    return answered(PROGRAM, lambda: _report(namespace))


def _report(namespace: argparse.Namespace) -> str:
    from exporter.config.yaml_text import ConfigError  # noqa: PLC0415  (as above)
    from exporter.history.windows import window_of  # noqa: PLC0415
    from exporter.report import prices, reading  # noqa: PLC0415
    from exporter.report.rendering import as_csv, as_json, as_text  # noqa: PLC0415
    from exporter.report.summary import By, summarize  # noqa: PLC0415

    priced = None if namespace.prices is None else prices.load(namespace.prices)
    window = window_of(namespace.since, namespace.until, time.time())
    history = chosen_history(namespace)
    ledger = asyncio.run(reading.read(history, window))
    warn(PROGRAM, history)
    try:
        report = summarize(ledger, By(namespace.by), priced, window.end)
    except KeyError as error:
        what = f"{namespace.prices}: gpu_hour has no price for the model {error.args[0]}, and no default"
        raise ConfigError(what, fix="add the model, or `default`") from error
    if namespace.csv:
        return as_csv(report)
    return as_json(report, window) if namespace.json else as_text(report, window, max(0, namespace.top))
