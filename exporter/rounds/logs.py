"""
Logs: structlog, JSON unless on a terminal, on standard error.

What comes in: the level and the format, and the snapshots. What goes out: log lines. Event names are dotted words, data
is in keys.

The rule:
- A fault is logged when it begins and when it ends, and an invalid declaration once; not in every round.
- XID errors are logged as they come.
- Users can write any number of declarations, and a broken GPU can report very many XID errors. So each round logs only
  a limited number of both.
- A log line never ends the daemon, whatever it contains, and also if standard error is closed.
- No log line shows local variables or secrets, also not where a library wrote the message.
"""

import contextlib
import io
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from enum import Enum
from typing import Any

import structlog

from exporter.base.secrets import hidden
from exporter.devices.xids import XIDS
from exporter.model import Fault, GpuUuid, Snapshot
from exporter.rounds.latest import Latest
from exporter.rounds.limit_facts import Invalid

Known = Mapping[tuple[str, str, str], Fault]
Heard = Mapping[tuple[GpuUuid, int], int]
"""Number of XID errors that were logged, by GPU and XID number."""

XIDS_TOLD = 20
"""Log lines on XID errors per round, each for one number on one GPU; the others follow in the next rounds."""
INVALID = 20
"""Invalid declarations logged per round; the others follow in the next rounds, and the pods take turns."""


def configure(level: str, style: str) -> None:
    """Set up structlog for the process. `style` is auto, json or console. May be called again after a reload."""
    on_terminal = style == "console" or (style == "auto" and sys.stderr is not None and sys.stderr.isatty())
    renderer: Any = (
        structlog.dev.ConsoleRenderer(exception_formatter=_traceback)  # rich shows the variables
        if on_terminal
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *(() if on_terminal else (structlog.processors.format_exc_info,)),
            printable,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=_Lines,
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(level=logging.WARNING, handlers=[_Libraries()])


def write(line: str) -> None:
    """
    Write a line to standard error; a line that cannot be written is lost.

    It writes to the descriptor, because a failed write to `sys.stderr` stays in its buffer and ends Python with code
    120.
    """
    if sys.stderr is not None:  # None if descriptor 2 was closed at the start; it may be another file by now
        with contextlib.suppress(OSError):
            os.write(2, f"{line}\n".encode(errors="backslashreplace"))


class _Lines:
    """The last part of structlog's chain; structlog calls methods of these names."""

    def __init__(self, *_arguments: object) -> None:
        self.debug = self.info = self.warning = self.error = self.critical = write


class _Libraries(logging.Handler):
    """Writes warnings of libraries in the same format as gpusteward's own lines."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            structlog.get_logger().log(
                record.levelno,
                "library.said",
                logger=record.name,
                message=record.getMessage(),
                exc_info=record.exc_info,
            )
        except Exception:  # noqa: BLE001  (as all handlers do: logging must not raise into its caller)
            self.handleError(record)


def _traceback(stream: Any, error: Any) -> None:
    written = io.StringIO()
    structlog.dev.plain_traceback(written, error)
    stream.write(hidden(written.getvalue()))


async def tell(latest: Latest, invalid: Callable[[], Collection[Invalid]] = tuple) -> None:
    """Log faults, XID errors and invalid declarations as they change between snapshots, until cancelled."""
    log = structlog.get_logger()
    known: Known = {}
    reported: frozenset[Invalid] = frozenset()
    heard: Heard = {}
    async for snapshot in latest.rounds():
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
    """Log new XID errors; return all that were logged. A count that fell (a recording starts again) counts from 0."""
    now = {(uuid, code): xids for uuid, errors in snapshot.xid_errors.items() for code, xids in errors.items()}
    if all(heard.get(key) == xids.count for key, xids in now.items()):
        return heard
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
    """Log new invalid declarations; return those that were logged and are still there."""
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


def printable(_logger: Any, _name: str, event: Any) -> Any:
    """
    Write values as people read them, without secrets.

    An enum becomes its value. Undecodable bytes (paths, cgroup names) are escaped, so that a log line never fails.
    """
    return {key: value if key == "exc_info" else _plain(value) for key, value in event.items()}


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str):
        return hidden(value.encode("utf-8", "backslashreplace").decode())
    if isinstance(value, Mapping):
        return {_plain(key): _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple | set | frozenset) else value
