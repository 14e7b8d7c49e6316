"""
Writes Events on pods.

What comes in: notices. What goes out: Events on the API server, the holders whose warning the server has accepted, log
lines when writing stops and works again, counts.

The rule: no caller waits. Events are best effort; the journal is the record. An Event that cannot be written is kept
while it is of use, the newest of each series, and lost ones are counted. A failed request is repeated after growing
waits. In a namespace that forbids Events it is repeated after 10 s, after 20 s more, and then every five minutes. One
that can never succeed is dropped.

Above 300 lines, because writing, holding back and dropping an Event are one queue.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from random import Random

import msgspec
import structlog

from enforcer.actions.kube_writer import Writer
from enforcer.messages.events import KEPT, MOST_SERIES, Event, Notice, Remembered, cut, plan
from enforcer.policy.holder import HolderKey
from exporter.base.clock import Clock
from exporter.kube.client import segment
from exporter.kube.errors import KubeError, decoded
from exporter.kube.rights import Right
from exporter.kube.watching import PATIENCE, Patience
from exporter.model import ContainerKind

log = structlog.get_logger()

CONTROLLER = "gpusteward.io/gpusteward"
GROUP = "events.k8s.io"
RIGHTS = (
    Right("create", GROUP, "events", "no pod is warned"),
    Right("patch", GROUP, "events", "an excess that lasts is reported once, as if it were over"),
)
"""The rights needed on the API server; deploy/enforcer/rbac.yaml grants them."""
HOLD = 300.0
"""Seconds between two tries in a namespace that forbids Events."""
FIRST_HOLDS = (10.0, 20.0)
"""
The same after the first refusals: an API server that has just started refuses until it has read its roles. A grace
waits 60 s for the server to accept its warning, so three tries fall within that time.
"""
MOST_PENDING = 1024
LONGEST_INSTANCE = 128
_LOGGED = 2  # refusals after which there is a log line: the first may come from a server that has just started
NEVER = frozenset({400, 404, 405, 413, 415, 422})
"""Answers that a repetition cannot change: the namespace does not exist, or the server does not accept the object."""
FORBIDDEN, NOT_FOUND, CONFLICT = 403, 404, 409
_FIELDS: Mapping[ContainerKind, str] = {
    ContainerKind.REGULAR: "containers",
    ContainerKind.INIT: "initContainers",
    ContainerKind.SIDECAR: "initContainers",
    ContainerKind.EPHEMERAL: "ephemeralContainers",
}


class _Times(msgspec.Struct, frozen=True, rename="camel"):
    count: int = 1
    last_observed_time: str | None = None


class _Standing(msgspec.Struct, frozen=True, rename="camel"):
    event_time: str | None = None
    series: _Times | None = None


_STANDING = msgspec.json.Decoder(_Standing)


class _Fate(Enum):
    """What to do with an Event that was not written."""

    LATER = auto()
    FORBIDDEN = auto()
    NEVER = auto()


@dataclass(frozen=True, slots=True)
class _Forbidden:
    """A namespace that refused `times` times in a row, and is not asked again before `until`."""

    times: int
    until: float


class Notifier:
    """
    Writes Events on pods. One task calls `run`; the decider calls `tell`.

    Attributes:
        accepted: called with the holder and the time of each warning that the server has accepted.
        written: Events created or brought up to date.
        failed: attempts that did not succeed.
        dropped: notices that are never written: too many, too old, or in a namespace that is being deleted.
        error: why the server does not take Events now; None while it does.

    """

    def __init__(
        self, writer: Writer, instance: str, *, clock: Clock, random: Random, patience: Patience = PATIENCE
    ) -> None:
        self.accepted: Callable[[HolderKey, float], None] = lambda _holder, _warned_at: None
        self.written = 0
        self.failed = 0
        self.dropped = 0
        self.error: KubeError | None = None
        self._writer = writer
        self._instance = cut(instance, LONGEST_INSTANCE)
        self._clock = clock
        self._random = random
        self._patience = patience
        self._remembered = Remembered()
        self._pending: dict[str, tuple[Event, float]] = {}
        self._forbidden: dict[str, _Forbidden] = {}
        self._dropping: dict[str, float] = {}
        self._joined: dict[str, int] = {}
        self._wake = asyncio.Event()

    @property
    def pending(self) -> int:
        """How many Events wait to be written."""
        return len(self._pending)

    def tell(self, notices: Iterable[Notice] = ()) -> None:
        """
        Take notices to write as Events; returns at once.

        Call it once per round, also without notices: reminders become due, forbidden namespaces are tried again.
        """
        now = self._clock.monotonic()
        filtered = self._remembered.dropped
        self._remembered, events = plan(notices, self._remembered, now)
        self._drop("filtered", self._remembered.dropped - filtered)
        for event in events:
            self._pending[event.name] = event, now
        while len(self._pending) > MOST_PENDING:
            del self._pending[next(iter(self._pending))]
            self._drop("overflow")
        if self._pending:
            self._wake.set()

    async def run(self) -> None:
        """Write what is pending, one after the other, until cancelled."""
        failures = 0
        while True:
            waiting = self._next()
            if waiting is None:
                self._wake.clear()
                await self._wake.wait()
                continue
            event, since = waiting
            try:
                await self._write(event)
            except KubeError as error:
                self.failed += 1
                if _fate(error) is _Fate.LATER:
                    failures += 1
                    self._tell_away(error)
                    self._pending.setdefault(event.name, waiting)
                    await self._clock.sleep(self._patience.wait(failures, self._random, error.retry_after))
                    continue
                self._refused(event, since, error)
            else:
                self.written += 1
                if event.first.holder is not None:
                    self.accepted(event.first.holder, event.first.warned_at)
                self._tell_allowed(event.first.regarding.namespace)
            failures = 0  # the server answers, whatever its answer is
            self._tell_back()

    def _next(self) -> tuple[Event, float] | None:
        """Take the Event that has waited longest and may be written now; drop those too old to be of use."""
        now = self._clock.monotonic()
        for name, (event, since) in list(self._pending.items()):
            if now - since >= KEPT:
                del self._pending[name]
                self._drop("expired")
            elif (held := self._forbidden.get(event.first.regarding.namespace)) is None or now >= held.until:
                return self._pending.pop(name)
        return None

    async def _write(self, event: Event) -> None:
        """
        Write an Event, whatever the server has of it now. Raises KubeError.

        After a lost answer the server reports a conflict, and for an Event that it has forgotten, not found.
        """
        path = f"/apis/{GROUP}/v1/namespaces/{segment(event.first.regarding.namespace)}/events"
        its_own = f"{path}/{segment(event.name)}"
        if event.count > 1:
            try:
                await self._writer.patch(its_own, _series(event, self._joined.get(event.name, 0)))
            except KubeError as error:
                if error.status != NOT_FOUND:
                    raise
            else:
                return
        self._joined.pop(event.name, None)
        try:
            await self._writer.create(path, body(event, self._instance))
        except KubeError as error:
            if error.status != CONFLICT or event.count > 1:
                raise
            await self._join(its_own, event, error)

    async def _join(self, path: str, event: Event, conflict: KubeError) -> None:
        """
        Continue the Event that the server has with the same text, from this daemon or an earlier one. Raises KubeError.

        A patch that changes nothing returns the object, and needs no further right.
        """
        try:
            standing: _Standing = decoded(_STANDING, await self._writer.patch(path, {}))
        except KubeError as error:
            raise conflict if error.status == NOT_FOUND else error from None
        series = standing.series or _Times()
        written = _moment(event.last_at) in (standing.event_time, series.last_observed_time)  # its answer was lost
        if len(self._joined) >= MOST_SERIES:
            del self._joined[next(iter(self._joined))]
        before = self._joined[event.name] = series.count - event.count if written else series.count
        if not written:
            await self._writer.patch(path, _series(event, before))

    def _refused(self, event: Event, since: float, error: KubeError) -> None:
        """Keep an Event that the server refused for later, or drop it."""
        namespace = event.first.regarding.namespace
        if _fate(error) is _Fate.NEVER:
            self._drop("refused", status=error.status, message=error.message, namespace=namespace)
            return
        now = self._clock.monotonic()
        self._forbidden = {name: held for name, held in self._forbidden.items() if now - held.until < KEPT}
        times = self._forbidden[namespace].times + 1 if namespace in self._forbidden else 1
        hold = FIRST_HOLDS[times - 1] if times <= len(FIRST_HOLDS) else HOLD
        self._forbidden[namespace] = _Forbidden(times, now + hold)
        if times == _LOGGED:
            log.warning("notify.forbidden", namespace=namespace, message=error.message, retry_seconds=hold)
        self._pending.setdefault(event.name, (event, since))

    def _tell_allowed(self, namespace: str) -> None:
        held = self._forbidden.pop(namespace, None)
        if held is not None and held.times >= _LOGGED:
            log.info("notify.allowed", namespace=namespace)

    def _tell_away(self, error: KubeError) -> None:
        if self.error is None or str(error) != str(self.error):
            log.warning("notify.away", reason=error.reason, status=error.status, message=error.message)
        self.error = error

    def _tell_back(self) -> None:
        if self.error is not None:
            log.info("notify.back", pending=self.pending)
        self.error = None

    def _drop(self, why: str, count: int = 1, **details: object) -> None:
        """Count notices that are never written; a log line for each cause, at most one in five minutes."""
        if not count:
            return
        self.dropped += count
        now = self._clock.monotonic()
        if now >= self._dropping.get(why, now):
            self._dropping[why] = now + HOLD
            log.warning("notify.dropped", reason=why, count=count, dropped_count=self.dropped, **details)


def body(event: Event, instance: str) -> dict[str, object]:
    """Make the object by the reference of events.k8s.io/v1."""
    first = event.first
    whom = first.regarding
    made: dict[str, object] = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Event",
        "metadata": {"name": event.name, "namespace": whom.namespace},
        "eventTime": _moment(first.at),
        "reportingController": CONTROLLER,
        "reportingInstance": instance,
        "reason": first.reason.value,
        "action": first.action,
        "type": first.type.value,
        "note": first.note,
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": whom.namespace,
            "name": whom.pod,
            "uid": whom.pod_uid,
            **({"fieldPath": f"spec.{_FIELDS[whom.kind]}{{{whom.container}}}"} if whom.container else {}),
        },
    }
    return made if event.count == 1 else made | _series(event)


def _series(event: Event, before: int = 0) -> dict[str, object]:
    return {"series": {"count": before + event.count, "lastObservedTime": _moment(event.last_at)}}


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _fate(error: KubeError) -> _Fate:
    if error.status == FORBIDDEN:
        return _Fate.NEVER if "NamespaceTerminating" in error.causes else _Fate.FORBIDDEN
    return _Fate.NEVER if error.status in NEVER else _Fate.LATER
