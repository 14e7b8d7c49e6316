"""
The labels of the namespaces in which this node has pods: they give or deny consent.

What comes in: a client, the pods. What goes out: labels by namespace, a minute and a half old at most.

The rule: labels that cannot be read now are unknown, even if they were known before: consent may have been withdrawn.
Unknown is not the same as no labels.
"""

from collections.abc import Callable, Iterable, Mapping
from random import Random

import msgspec

from exporter.base.clock import Clock
from exporter.kube.client import METADATA_ONLY, Client, segment
from exporter.kube.errors import decoded
from exporter.kube.kept import Kept
from exporter.model import Fault
from exporter.objects.metadata import Described

LASTS = 90.0
"""Seconds for which an answer counts; the labels are read about once a minute."""

_DECODER = msgspec.json.Decoder(Described)


class Namespaces(Kept[str, Mapping[str, str]]):
    """Reads and keeps labels; `names` lists the namespaces of the pods that are here now."""

    def __init__(self, client: Client, names: Callable[[], Iterable[str]], *, clock: Clock, random: Random) -> None:
        async def read(name: str) -> Mapping[str, str]:
            answer = await client.get(f"/api/v1/namespaces/{segment(name)}", accept=METADATA_ONLY)
            described: Described = decoded(_DECODER, answer)
            return described.metadata.labels or {}

        super().__init__("namespaces", lambda: dict.fromkeys(names()), read, clock=clock, random=random, lasts=LASTS)

    @property
    def labels(self) -> Mapping[str, Mapping[str, str]]:
        """Labels by namespace; one that could not be read is missing."""
        return self.values

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Report a missing right to read them: without their labels no namespace consents to anything."""
        return self.forbidden(
            "namespaces_forbidden",
            "a right is missing: get namespaces (ClusterRole); without their labels no namespace has agreed to "
            "anything",
        )
