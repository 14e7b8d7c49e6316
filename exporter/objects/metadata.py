"""
The metadata of every Kubernetes object, and the API server's lists and watch events.

What comes in: JSON of the API server, or plain data of a file. What goes out: structs with the API's own names.

The rule: a struct has only the fields that are read. So a server's new fields and 3 kB of managed fields cost nothing.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""An annotation with a second copy of the whole manifest, including its environment."""
Quantity = str | int | float
"""As written: people leave out the quotes."""
Quantities = dict[str, Quantity]


class Part(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """A part of an object. Unknown fields are ignored, wrong types are refused with their path."""


class OwnerReference(Part, frozen=True):
    """An object that owns this one; `controller` marks the one that manages it."""

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
    """The metadata of an object, without the annotation `LAST_APPLIED`."""

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
        """The owner that controls the object; None if there is none."""
        return next((owner for owner in self.owner_references or () if owner.controller), None)


class Described(Part, frozen=True):
    """Any object, read for its metadata only."""

    metadata: Metadata = Metadata()


class ObjectList(Part, frozen=True):
    """A list. Its items are decoded one by one, so that a broken item does not lose the others."""

    metadata: Metadata = Metadata()
    items: list[msgspec.Raw] | None = None


class WatchEvent(Part, frozen=True):
    """A line of a watch. `type` is ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    type: str
    object: msgspec.Raw


def texts(quantities: Mapping[str, Quantity] | None) -> dict[str, str]:
    """Convert quantities to text, whether they were in quotes or not."""
    return {key: str(value) for key, value in (quantities or {}).items()}
