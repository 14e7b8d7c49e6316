"""
Logs: structlog, JSON unless on a terminal, on standard error.

What comes in: the level and the format, and the snapshots. What goes out: lines. Event names are dotted words, data
goes into keys.

The rule: a fault is logged when it comes and when it goes, a declaration that cannot be used when it is made; neither
in every round in between. XIDs are logged as they come. Users make declarations, and a broken GPU makes a storm of
XIDs, so the lines of a round about both are limited. A line never ends the daemon, whatever is in it and also when the
reader is gone. It never shows what was in local variables.
"""

import contextlib
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from typing import Any

import structlog

from exporter.devices.xids import XIDS
from exporter.model import Fault, GpuUuid, Snapshot
from exporter.rounds.latest import Latest
from exporter.rounds.limit_facts import Invalid

Known = Mapping[tuple[str, str, str], Fault]
Heard = Mapping[tuple[GpuUuid, int], int]
"""XIDs that were logged, by GPU and number."""

XIDS_TOLD = 20
"""Lines on XIDs in one round, each of one number on one GPU; the others follow in the next ones."""
INVALID = 20
"""Declarations that are logged in one round; the others follow in the next ones, the pods taking turns."""


def configure(level: str, style: str) -> None:
    """Set up structlog for the process; `style` is auto, json or console. May be called again after a reload."""
    on_terminal = style == "console" or (style == "auto" and sys.stderr is not None and sys.stderr.isatty())
    renderer: Any = (
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)  # rich shows the variables
        if on_terminal
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *(() if on_terminal else (structlog.processors.format_exc_info,)),
            _printable,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=_Lines,
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(level=logging.WARNING, handlers=[_Libraries()])


def write(line: str) -> None:
    """
    Write a line to standard error; what cannot be written is lost.

    The descriptor itself is used: what fails stays in the buffer of `sys.stderr`, and ends Python with code 120.
    """
    if sys.stderr is not None:  # it is None where there was no descriptor 2 at the start: by now that is another file
        with contextlib.suppress(OSError):
            os.write(2, f"{line}\n".encode(errors="backslashreplace"))


class _Lines:
    """The end of structlog's chain; the names are those that it calls."""

    def __init__(self, *_arguments: object) -> None:
        self.debug = self.info = self.warning = self.error = self.critical = write


class _Libraries(logging.Handler):
    """What libraries warn of, in our form and not in theirs."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            structlog.get_logger().log(
                record.levelno,
                "library.said",
                logger=record.name,
                message=record.getMessage(),
                exc_info=record.exc_info,
            )
        except Exception:  # noqa: BLE001  (as all handlers do: logging never hurts its caller)
            self.handleError(record)


async def tell(latest: Latest, invalid: Callable[[], Collection[Invalid]] = tuple) -> None:
    """Log what changes from snapshot to snapshot, and what is declared in vain, until cancelled."""
    log = structlog.get_logger()
    known: Known = {}
    reported: frozenset[Invalid] = frozenset()
    heard: Heard = {}
    seen = 0
    while True:
        snapshot = await latest.newer_than(seen)
        seen = snapshot.round
        known = _tell_faults(log, known, snapshot)
        heard = _tell_xids(log, heard, snapshot)
        reported = _tell_invalid(log, reported, frozenset(invalid()))
        log.debug(
            "sampling.round",
            round=snapshot.round,
            complete=snapshot.complete,
            duration_seconds=round(snapshot.duration, 6),
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


def _tell_xids(log: Any, heard: Heard, snapshot: Snapshot) -> Heard:
    """Log what came since; return what was logged by now. A count that fell (a recording begins anew) begins anew."""
    now = {(uuid, code): xids for uuid, errors in snapshot.xid_errors.items() for code, xids in errors.items()}
    before = {key: count if (count := heard.get(key, 0)) <= xids.count else 0 for key, xids in now.items()}
    came = [key for key in sorted(now) if now[key].count > before[key]][:XIDS_TOLD]
    for uuid, code in came:
        xids, row = now[uuid, code], XIDS.get(code)
        log.warning(
            "devices.xid",
            gpu=snapshot.gpus_present.get(uuid),
            uuid=uuid,
            gpu_instance=xids.gpu_instance,
            xid=code,
            new_count=xids.count - before[uuid, code],
            count=xids.count,
            last_at=xids.last_at,
            cause=row.cause if row else None,
            meaning=row.meaning if row else None,
            remedy=row.remedy if row else None,
        )
    return {**heard, **before, **{key: now[key].count for key in came}}


def _tell_invalid(log: Any, reported: frozenset[Invalid], now: frozenset[Invalid]) -> frozenset[Invalid]:
    """Log what is new; return what was logged and still stands."""
    turns: Counter[str] = Counter()
    waiting: list[tuple[int, Invalid]] = []
    for declaration in sorted(now - reported):
        waiting.append((turns[declaration.pod_uid], declaration))
        turns[declaration.pod_uid] += 1
    chosen = [declaration for _, declaration in sorted(waiting)[:INVALID]]
    for declaration in chosen:
        values = asdict(declaration)
        del values["pod_uid"]
        log.warning("limits.invalid", **values)
    return (reported & now) | frozenset(chosen)


def _printable(_logger: Any, _name: str, event: Any) -> Any:
    """Make undecodable bytes (paths, cgroup names) printable: a log line must never fail."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = value.encode("utf-8", "backslashreplace").decode()
    return event
