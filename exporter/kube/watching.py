"""
List once, then watch: keeps the pods of a node up to date.

What comes in: a client, the name of the node. What goes out: the pods as last known, and whether that is live.

The rule: the next watch begins at the server's last version. All pods are listed again in three cases only. The server
has forgotten that version (410). It never reached it: an etcd restored from a backup sends nothing to such a watch. Or
the watch brings an error, or a line that cannot be read, in place of an event.
Waits grow with each failure, are bounded, and are random: a thousand daemons must not return in the same second.
"""

import asyncio
from dataclasses import dataclass
from random import Random

import structlog

from exporter.base.clock import Clock
from exporter.kube.client import Client
from exporter.kube.errors import INVALID, SILENT, UNREACHABLE, KubeError
from exporter.kube.kept import SETTLES
from exporter.kube.pods import Event, Pods, apply, parse_event, parse_list

log = structlog.get_logger()

PATH = "/api/v1/pods"
FORBIDDEN = 403
GONE = 410
ANY_VERSION = "0"
"""
Answered from the server's memory, where pods are indexed by node.

The newest version may be read from etcd, as a whole.
"""
NEWEST_VERSION = ""
PROVEN = 5.0
"""Seconds after which an open watch counts as working, and failures are counted from one again."""


@dataclass(frozen=True, slots=True)
class Patience:
    """
    Waits and deadlines, in seconds.

    Attributes:
        first: bound of the wait after the first failure, and after a watch that ended normally.
        most: bound of all waits; a server's Retry-After adds up to twice as much.
        watch: bounds of the requested duration of a watch.
        idle: silence after which the pods are listed anew. Bookmarks come about once a minute, but only where a pod of
            the cluster changed, or etcd reports progress: its `--watch-progress-notify-interval` is 10 min by default.

    """

    first: float = 1.0
    most: float = 30.0
    watch: tuple[int, int] = (300, 600)
    idle: float = 150.0

    def wait(self, failures: int, random: Random, retry_after: float | None = None) -> float:
        """Draw the wait after so many failures in a row."""
        bound = min(self.most, self.first * 2.0 ** min(max(failures - 1, 0), 16))
        return min(retry_after or 0.0, 2 * self.most) + random.uniform(0.0, bound)


PATIENCE = Patience()


class PodWatch:
    """
    The pods of one node.

    Attributes:
        pods: as last known; empty with `known` False before the first answer.
        error: why the server does not answer now; None without an error, or before the first request.
        changed: set whenever `pods` or `error` changed; the task that waits for it clears it.

    """

    def __init__(
        self, client: Client, node: str, *, clock: Clock, random: Random, patience: Patience = PATIENCE
    ) -> None:
        self.pods = Pods()
        self.known = False
        self.error: KubeError | None = None
        self.changed = asyncio.Event()
        self._client = client
        self._node = node
        self._clock = clock
        self._random = random
        self._patience = patience
        self._interrupted = False  # the server did not answer since the last success
        self._forbidden_since: float | None = None  # it answers again, and refuses

    @property
    def settling(self) -> bool:
        """Whether a server that has just come back refuses: it answers before it has read its roles."""
        return self._forbidden_since is not None and self._clock.monotonic() - self._forbidden_since < SETTLES

    @property
    def live(self) -> bool:
        """Whether `pods` is the server's present list, or will be within a moment."""
        return self.known and self.error is None

    async def run(self) -> None:
        """List and watch until cancelled."""
        selection = {"fieldSelector": f"spec.nodeName={self._node}"}
        failures = 0
        begin: str | None = ANY_VERSION  # the version to list from; None: go on watching
        while True:
            opened: float | None = None
            retry_after: float | None = None
            try:
                if begin is not None:
                    self._hear(parse_list(await self._client.get(PATH, {**selection, "resourceVersion": begin})))
                    begin = None
                seconds = self._random.randint(*self._patience.watch)
                query = {**selection, "resourceVersion": self.pods.version}
                async with self._client.watch(PATH, query, seconds=seconds, idle=self._patience.idle) as lines:
                    opened = self._clock.monotonic()
                    self._interrupted, self._forbidden_since = False, None
                    self._tell(None)
                    async for line in lines:
                        self._hear(parse_event(line))
            except KubeError as error:
                retry_after = error.retry_after
                if error.status != FORBIDDEN:
                    self._interrupted, self._forbidden_since = True, None
                elif self._interrupted and self._forbidden_since is None:
                    self._forbidden_since = self._clock.monotonic()
                # A watch that brings an error would bring it again from the same version: an object that the server
                # cannot send hides all that come after it.
                stuck = opened is not None and (error.status != UNREACHABLE or error.reason == INVALID)
                listing, begin = begin, self.pods.version if stuck else _list_from(error, begin, self.pods.version)
                if error.status == GONE:
                    # The server answers, but has forgotten our version: its pods are unknown until they are listed.
                    # That does not wait for the long pause that the outage before it led to.
                    failures = 0
                # After a watch that broke off or fell silent, the next request shows whether the server is away.
                if stuck or error.status == GONE or (opened is None and (listing is not None or begin is None)):
                    self._tell(error)
            proven = opened is not None and self._clock.monotonic() - opened >= PROVEN
            failures = 1 if proven else failures + 1
            await self._clock.sleep(self._patience.wait(failures, self._random, retry_after))

    def _hear(self, event: Event) -> None:
        self.pods = apply(event, self.pods, node=self._node, now=self._clock.monotonic())
        self.known = True
        self._tell(None)

    def _tell(self, error: KubeError | None) -> None:
        if error is not None and (self.error is None or str(error) != str(self.error)):
            log.warning("kube.away", reason=error.reason, status=error.status, message=error.message)
        elif error is None and self.error is not None:
            log.info("kube.back", pods=len(self.pods.known))
        self.error = error
        self.changed.set()


def _list_from(error: KubeError, begin: str | None, version: str) -> str | None:
    """Return the version to list from after `error`, if at all; `begin` is the version of the failed list."""
    if "ResourceVersionTooLarge" in error.causes:
        return NEWEST_VERSION
    if error.status == GONE:
        return version if begin is None else NEWEST_VERSION
    if error.reason == SILENT:
        return version
    return begin
