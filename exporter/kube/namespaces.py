"""
Namespaces, whose labels say what may be done in them.

What comes in: names, when somebody asks. What goes out: labels, at most a minute old.

The law: only what is asked for is read, and what cannot be read now is an error, never an old answer: consent may have
been withdrawn.
"""

from collections.abc import Mapping

import msgspec

from exporter.clock import Clock
from exporter.kube.client import Client, segment
from exporter.kube.errors import decoded
from exporter.kube.objects import Described

FRESH = 60.0
"""Seconds for which an answer counts."""

_DECODER = msgspec.json.Decoder(Described)


class Namespaces:
    """Reads and remembers."""

    def __init__(self, client: Client, *, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._remembered: dict[str, tuple[float, Mapping[str, str]]] = {}

    async def labels(self, name: str) -> Mapping[str, str]:
        """Return the labels of a namespace. Raises KubeError (404 when there is no such namespace)."""
        now = self._clock.monotonic()
        self._remembered = {known: entry for known, entry in self._remembered.items() if entry[0] > now}
        if name not in self._remembered:
            answer: Described = decoded(_DECODER, await self._client.get(f"/api/v1/namespaces/{segment(name)}"))
            self._remembered[name] = now + FRESH, answer.metadata.labels or {}
        return self._remembered[name][1]
