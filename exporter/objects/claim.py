"""
What a ResourceClaim and a ResourceSlice look like (DRA: resource.k8s.io v1, v1beta2, v1beta1).

What comes in: their JSON from the API server, or the same data from a file. What goes out: the devices that a claim was
given and how much of them, and the UUIDs of those devices in slices.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from exporter.model import Claim, ClaimConfig, ClaimedDevice
from exporter.objects.metadata import Metadata, Part, Quantities, texts

ClaimedUuids = Mapping[tuple[str, str, str], str]
"""(driver, pool, device) to UUID."""


class Result(Part, frozen=True):
    """An allocated device."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(name="shareID", default=None)
    admin_access: bool | None = None
    consumed_capacity: Quantities | None = None


class Opaque(Part, frozen=True):
    """A driver's own parameters."""

    driver: str = ""
    parameters: dict[str, Any] | None = None


class Config(Part, frozen=True):
    """A configuration that was allocated."""

    requests: list[str] | None = None
    opaque: Opaque | None = None


class Devices(Part, frozen=True):
    """All of an allocation."""

    results: list[Result] | None = None
    config: list[Config] | None = None


class Allocation(Part, frozen=True):
    """What a claim was given."""

    devices: Devices = Devices()


class ClaimStatus(Part, frozen=True):
    """A claim's status."""

    allocation: Allocation | None = None
    reserved_for: list[dict[str, Any]] | None = None


class ClaimObject(Part, frozen=True):
    """A ResourceClaim."""

    metadata: Metadata = Metadata()
    status: ClaimStatus = ClaimStatus()


class Attribute(Part, frozen=True):
    """An attribute of a device; only text matters here."""

    string: str | None = None


class BasicDevice(Part, frozen=True):
    """Where v1beta1 puts what later versions have in the device itself."""

    attributes: dict[str, Attribute] | None = None


class SliceDevice(Part, frozen=True):
    """A device of a ResourceSlice."""

    name: str
    attributes: dict[str, Attribute] | None = None
    basic: BasicDevice | None = None


class Pool(Part, frozen=True):
    """The pool of a ResourceSlice."""

    name: str = ""


class SliceSpec(Part, frozen=True):
    """The devices that a driver offers."""

    driver: str = ""
    pool: Pool = Pool()
    devices: list[SliceDevice] | None = None


class SliceObject(Part, frozen=True):
    """A ResourceSlice."""

    spec: SliceSpec = SliceSpec()


class SliceList(Part, frozen=True):
    """The slices of a node."""

    items: list[SliceObject]


def declared_claim(claim: ClaimObject) -> Claim:
    """
    Take the allocation out of a claim.

    Devices with admin access are left out: they are watched, and nothing of them is given.
    """
    allocation = claim.status.allocation or Allocation()
    return Claim(
        claim.metadata.namespace or "default",
        claim.metadata.name,
        tuple(
            ClaimedDevice(
                entry.request, entry.driver, entry.pool, entry.device, entry.share_id, texts(entry.consumed_capacity)
            )
            for entry in allocation.devices.results or ()
            if not entry.admin_access
        ),
        tuple(
            ClaimConfig(config.opaque.driver, tuple(config.requests or ()), config.opaque.parameters or {})
            for config in allocation.devices.config or ()
            if config.opaque is not None
        ),
        len(claim.status.reserved_for or ()),
    )


def slice_uuids(spec: SliceSpec) -> ClaimedUuids:
    """Name the UUID of each device that has one in its attribute `uuid`; else in one of this name with a domain."""
    uuids = {}
    for device in spec.devices or ():
        attributes = device.attributes or (device.basic and device.basic.attributes) or {}
        for name in sorted(attributes, key=len, reverse=True):  # the plain name comes last, and counts
            if name.rpartition("/")[2] == "uuid" and (uuid := attributes[name].string):
                uuids[spec.driver, spec.pool.name, device.name] = uuid
    return uuids


def with_uuids(claim: Claim, uuids: ClaimedUuids) -> Claim:
    """Give a claim's devices the UUIDs of their slices."""
    devices = tuple(
        replace(entry, uuid=uuids.get((entry.driver, entry.pool, entry.device), entry.uuid)) for entry in claim.devices
    )
    return replace(claim, devices=devices)
