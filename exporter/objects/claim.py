"""
ResourceClaim and ResourceSlice (DRA: resource.k8s.io v1, v1beta2, v1beta1).

What comes in: their JSON from the API server, or the same data from a file. What goes out: the devices that a claim was
allocated, with the amounts; and the UUIDs of those devices in slices.
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
    """An allocated device, from `status.allocation.devices.results`."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(name="shareID", default=None)
    admin_access: bool | None = None
    consumed_capacity: Quantities | None = None


class Opaque(Part, frozen=True):
    """A driver's own parameters, not defined by Kubernetes."""

    driver: str = ""
    parameters: dict[str, Any] | None = None


class Config(Part, frozen=True):
    """A configuration of the allocation, for some of its requests or for all."""

    requests: list[str] | None = None
    opaque: Opaque | None = None


class Devices(Part, frozen=True):
    """The devices and configurations of an allocation."""

    results: list[Result] | None = None
    config: list[Config] | None = None


class Allocation(Part, frozen=True):
    """The allocation of a claim."""

    devices: Devices = Devices()


class ClaimStatus(Part, frozen=True):
    """A claim's status, by its allocation alone."""

    allocation: Allocation | None = None


class ClaimObject(Part, frozen=True):
    """A ResourceClaim, without its spec."""

    metadata: Metadata = Metadata()
    status: ClaimStatus = ClaimStatus()


class Attribute(Part, frozen=True):
    """An attribute of a device; only text values are read."""

    string: str | None = None


class BasicDevice(Part, frozen=True):
    """The part `basic` of a v1beta1 device; later versions have its fields in the device itself."""

    attributes: dict[str, Attribute] | None = None


class SliceDevice(Part, frozen=True):
    """A device of a ResourceSlice."""

    name: str
    attributes: dict[str, Attribute] | None = None
    basic: BasicDevice | None = None


class Pool(Part, frozen=True):
    """The pool of a ResourceSlice, by name."""

    name: str = ""


class SliceSpec(Part, frozen=True):
    """The devices that a driver offers."""

    driver: str = ""
    pool: Pool = Pool()
    devices: list[SliceDevice] | None = None


class SliceObject(Part, frozen=True):
    """A ResourceSlice, by its spec alone."""

    spec: SliceSpec = SliceSpec()


class SliceList(Part, frozen=True):
    """A list of ResourceSlices."""

    items: list[SliceObject]


def declared_claim(claim: ClaimObject) -> Claim:
    """Convert a claim's allocation."""
    allocation = claim.status.allocation or Allocation()
    devices: dict[bool, list[ClaimedDevice]] = {False: [], True: []}
    for entry in allocation.devices.results or ():
        devices[bool(entry.admin_access)].append(
            ClaimedDevice(
                entry.request, entry.driver, entry.pool, entry.device, entry.share_id, texts(entry.consumed_capacity)
            )
        )
    return Claim(
        claim.metadata.namespace or "default",
        claim.metadata.name,
        tuple(devices[False]),
        tuple(
            ClaimConfig(config.opaque.driver, tuple(config.requests or ()), config.opaque.parameters or {})
            for config in allocation.devices.config or ()
            if config.opaque is not None
        ),
        watched=tuple(devices[True]),
    )


def slice_uuids(spec: SliceSpec) -> ClaimedUuids:
    """Map devices to UUIDs, from the attribute `uuid`, else from one of this name with a domain."""
    uuids = {}
    for device in spec.devices or ():
        attributes = device.attributes or (device.basic and device.basic.attributes) or {}
        for name in sorted(attributes, key=len, reverse=True):  # the plain name comes last, so it takes precedence
            if name.rpartition("/")[2] == "uuid" and (uuid := attributes[name].string):
                uuids[spec.driver, spec.pool.name, device.name] = uuid
    return uuids


def with_uuids(claim: Claim, uuids: ClaimedUuids) -> Claim:
    """Add the UUIDs of their slices to a claim's devices."""
    devices = tuple(
        replace(entry, uuid=uuids.get((entry.driver, entry.pool, entry.device), entry.uuid)) for entry in claim.devices
    )
    return replace(claim, devices=devices)
