"""
Logs: structlog, JSON unless on a terminal, on standard error.

What comes in: the level and the format, and the snapshots. What goes out: lines. Event names are dotted words, data
goes into keys.

The law: a fault is told when it comes and when it goes, not in every round in between.
"""

import logging
import sys
from collections.abc import Mapping
from typing import Any

import structlog

from exporter.latest import Latest
from exporter.model import Fault, Snapshot

Known = Mapping[tuple[str, str, str], Fault]


def configure(level: str, style: str) -> None:
    """Set up structlog for the process; `style` is auto, json or console. May be called again after a reload."""
    on_terminal = sys.stderr.isatty() if style == "auto" else style == "console"
    renderer: Any = structlog.dev.ConsoleRenderer() if on_terminal else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info if not on_terminal else _unchanged,
            _printable,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


async def tell(latest: Latest) -> None:
    """Tell what changes from snapshot to snapshot, until cancelled."""
    log = structlog.get_logger()
    known: Known = {}
    seen = 0
    while True:
        snapshot = await latest.newer_than(seen)
        seen = snapshot.round
        known = _tell_faults(log, known, snapshot)
        log.debug(
            "sampling.round",
            round=snapshot.round,
            complete=snapshot.complete,
            seconds=round(snapshot.duration, 6),
            gpus=len(snapshot.gpus),
            usages=len(snapshot.usages),
        )


def _tell_faults(log: Any, known: Known, snapshot: Snapshot) -> Known:
    now = {(fault.source, fault.reason, fault.subject): fault for fault in snapshot.faults}
    for key, fault in now.items():
        if key not in known:
            log.warning(
                "sampling.fault",
                source=fault.source,
                reason=fault.reason,
                subject=fault.subject,
                message=fault.message,
                incomplete=fault.incomplete,
            )
    for key, fault in known.items():
        if key not in now:
            log.info("sampling.fault_cleared", source=fault.source, reason=fault.reason, subject=fault.subject)
    return now


def _unchanged(_logger: Any, _name: str, event: Any) -> Any:
    return event


def _printable(_logger: Any, _name: str, event: Any) -> Any:
    """Make undecodable bytes (paths, cgroup names) printable: a log line must never fail."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = value.encode("utf-8", "backslashreplace").decode()
    return event
