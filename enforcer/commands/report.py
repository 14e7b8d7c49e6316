"""
`gpusteward report`: what the GPUs of a time were used for, what that cost, and what stood idle.

What comes in: the address of a Prometheus, a time, prices. What goes out: a table, CSV or JSON on standard output, and
the exit code. It is 0 when reported, 1 when Prometheus gives no answer, 2 on wrong usage or prices. On a terminal,
standard error shows the progress.

The rule: it only asks. The time is cut into days, because Prometheus bounds the size of a query.
"""

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from enforcer.commands import Commands, put, unwritten, wrong

if TYPE_CHECKING:
    from exporter.history.prometheus import History

PROGRAM = "gpusteward report"
WIDE = 30
"""Columns of the progress bar."""


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
    parser.add_argument(
        "--since", default="7d", metavar="DURATION", help='length of the time: "12h", "7d", "4w" (default: 7d)'
    )
    parser.add_argument(
        "--until", metavar="TIME", help='end of the time, such as "2026-11-01T00:00:00Z" (default: now)'
    )
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


def add_prometheus(parser: argparse.ArgumentParser) -> None:
    """Add the flag `--prometheus`."""
    parser.add_argument(
        "--prometheus",
        metavar="URL",
        help="address of the Prometheus, http://NAME:PASSWORD@HOST:PORT if it wants a login (default: the variable "
        "GPUSTEWARD_PROMETHEUS). A bearer token is read from the variable GPUSTEWARD_PROMETHEUS_TOKEN",
    )


def run(namespace: argparse.Namespace) -> int:
    """Report, print, and return the exit code."""
    from exporter.base.http_client import AskError, UrlError  # noqa: PLC0415  (HTTP)
    from exporter.base.quantities import QuantityError  # noqa: PLC0415
    from exporter.config.yaml_text import ConfigError  # noqa: PLC0415  (YAML)
    from exporter.history.prometheus import HistoryError  # noqa: PLC0415

    try:
        text = _report(namespace)
    except (UrlError, QuantityError, ConfigError) as error:
        return wrong(PROGRAM, error)
    except (AskError, HistoryError) as error:
        return wrong(PROGRAM, error, 1)
    except KeyboardInterrupt:
        return 130
    try:
        put(text)
    except OSError as error:
        return unwritten(PROGRAM, error)
    return 0


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
    for warning in history.warnings:
        wrong(PROGRAM, f"Prometheus warns: {warning}")
    try:
        report = summarize(ledger, By(namespace.by), priced, window.end)
    except KeyError as error:
        what = f"{namespace.prices}: gpu_hour has no price for the model {error.args[0]}, and no default"
        raise ConfigError(what, fix="add the model, or `default`") from error
    if namespace.csv:
        return as_csv(report)
    return as_json(report, window) if namespace.json else as_text(report, window, max(0, namespace.top))


def chosen_history(namespace: argparse.Namespace) -> "History":
    """Make the client of the chosen Prometheus; its progress is shown on a terminal. Raises UrlError."""
    from exporter.base.http_client import UrlError  # noqa: PLC0415  (HTTP)
    from exporter.history.prometheus import PROMETHEUS, TOKEN_VARIABLE, URL_VARIABLE, history_at  # noqa: PLC0415

    given = "--prometheus" if namespace.prometheus is not None else URL_VARIABLE
    url = namespace.prometheus if namespace.prometheus is not None else os.environ.get(URL_VARIABLE, "")
    if not url:
        raise UrlError("no Prometheus is named", fix=PROMETHEUS.address)
    try:
        history = history_at(url, os.environ.get(TOKEN_VARIABLE, ""))
    except UrlError as error:
        raise UrlError(f"{given}: {error.what}", fix=error.fix) from error
    if sys.stderr is not None and sys.stderr.isatty():
        history.progress = _draw
    return history


def _draw(done: int, of: int) -> None:
    """Draw the progress in one line of standard error, and clear it at the end."""
    filled = WIDE * done // of if of else 0
    line = "" if done == of else f"[{'#' * filled}{'.' * (WIDE - filled)}] {done} of {of} answers"
    sys.stderr.write(f"\r\x1b[K{line}")
    sys.stderr.flush()
