"""
What every Kubernetes object has, and the envelopes in which the API server sends objects.

What comes in: JSON of the API server, or plain data of a file. What goes out: structs with the API's own names.

The law: a struct has the needed fields only, so that a server's new fields and 3 kB of managed fields cost nothing.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""A second copy of the whole manifest, with the whole environment in it."""
Quantity = str | int | float
"""As written: people leave the quotes away."""
Quantities = dict[str, Quantity]


class Part(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """A part of an object; unknown fields are passed over, wrong types are refused with their path."""


class OwnerReference(Part, frozen=True):
    """The object that made this one, or that looks after it (`controller`)."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None

    @property
    def group(self) -> str:
        """The API group, empty for the core."""
        return self.api_version.rpartition("/")[0]


class Metadata(Part, frozen=True):
    """What every object has."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None

    def __post_init__(self) -> None:
        if self.annotations is not None:
            self.annotations.pop(LAST_APPLIED, None)

    @property
    def controller(self) -> OwnerReference | None:
        """The one owner that controls the object, if any."""
        return next((owner for owner in self.owner_references or () if owner.controller), None)


class Described(Part, frozen=True):
    """Any object, of which only the metadata matter."""

    metadata: Metadata = Metadata()


class ObjectList(Part, frozen=True):
    """A list, whose items are decoded one by one: a broken one must not lose the others."""

    metadata: Metadata = Metadata()
    items: list[msgspec.Raw] | None = None


class WatchEvent(Part, frozen=True):
    """A line of a watch. `type` is ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    type: str
    object: msgspec.Raw


def texts(quantities: Mapping[str, Quantity] | None) -> dict[str, str]:
    """Write quantities as text, whether they stood in quotes or not."""
    return {key: str(value) for key, value in (quantities or {}).items()}
