"""
What decoders share: what they are asked with, what they answer, and how they refuse.

What comes in: text that any user may have written. What goes out: amounts in the row's unit, or DeclarationError with
one sentence, which the caller turns into an invalid declaration.

The law: hostile text costs a bounded time and an answer, never an exception that is not a DeclarationError.
"""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

from exporter.base.quantities import QuantityError, parse_quantity
from exporter.limits.devices import LeafDevice, Place, device_name
from exporter.limits.rows import Row, System, What
from exporter.model import Claim, ClaimedDevice, DeclaredContainer, DeclaredPod, NodeFacts

LONGEST = 256 * 1024
"""Characters. Kubernetes takes 256 KiB for all annotations of an object together."""
MOST = 512
"""Devices that one text may name, over all containers: 32 containers with 16 each. A thousand cost 0.2 s to resolve."""
_SHOWN = 80
"""Characters of a foreign text that a message or an answer repeats."""

_Data = TypeVar("_Data")
_PLAIN = re.compile(r"[0-9]{1,19}(?:\.[0-9]{1,9})?", re.ASCII)


class DeclarationError(ValueError):
    """The declaration cannot be used; the message says why, in words for its author."""


@dataclass(frozen=True, slots=True)
class Options:
    """
    What the operator chose.

    Attributes:
        systems: the systems to read; None detects them.
        fair_share: give containers that declare nothing a share of a replicated device.
        mps_container: take a process's limit (MPS) for the container's.

    """

    systems: frozenset[str] | None = None
    fair_share: bool = False
    mps_container: bool = False


NOTHING_CHOSEN = Options()


@dataclass(frozen=True, slots=True)
class Scene:
    """
    All that surrounds a system's rows.

    Attributes:
        devices: those of the system's vendor, empty where they are not known.
        proven: more than what the pod's author wrote tells that the system is there, and that it enforces anything.

    """

    system: System
    pod: DeclaredPod
    node: NodeFacts | None = None
    devices: tuple[LeafDevice, ...] = ()
    claims: tuple[Claim, ...] = ()
    options: Options = NOTHING_CHOSEN
    proven: bool = True


@dataclass(frozen=True, slots=True)
class Asked:
    """
    The surroundings of a text.

    Attributes:
        key: the key as found; `stars` is what the `*`s of the row's key stand for.
        claim: the claim that it is in, and `claimed` the devices of it that it is about.

    """

    scene: Scene
    row: Row
    key: str
    container: DeclaredContainer | None = None
    stars: tuple[str, ...] = ()
    claim: Claim | None = None
    claimed: tuple[ClaimedDevice, ...] = ()

    @property
    def compute(self) -> bool:
        """Whether the row is about a share of the compute, not about memory."""
        return self.row.what is What.COMPUTE


@dataclass(frozen=True, slots=True)
class Where:
    """How a declaration names a device: one of these. With a name may come what the node calls it, or its index."""

    uuid: str | None = None
    index: int | None = None
    minor: int | None = None
    name: str | None = None
    called: str | None = None

    def __str__(self) -> str:
        """Name it for people."""
        if self.uuid is not None or self.name is not None:
            return self.uuid or self.name or ""
        return f"index {self.index}" if self.index is not None else f"minor {self.minor}"


@dataclass(frozen=True, slots=True)
class Amount:
    """
    So many of the row's units. `value` None: a device is handed out, and no amount is declared.

    Attributes:
        container: whose, where the text says so.
        where: of which device.
        place: the same, where it is already known which.
        unit: overrides the row's unit (bytes, or devices): some texts carry their own.
        shared: others hold the same device, and nothing keeps them apart.
        note: what people should know.

    """

    value: Fraction | None
    container: str | None = None
    where: Where | None = None
    place: Place | None = None
    unit: Fraction | None = None
    shared: bool = False
    note: str = ""


Decoder = Callable[[str, Asked], Iterable[Amount]]


def shown(text: str) -> str:
    """Cut a foreign text for a message, without control characters."""
    return ascii(text[:_SHOWN])[1:-1] + ("..." if len(text) > _SHOWN else "")


def bounded(count: int) -> None:
    """Refuse a text that names too many devices."""
    if count > MOST:
        raise DeclarationError(f"more than {MOST} devices")


def number(text: str, what: str = "amount") -> Fraction:
    """Read a plain number, not negative and without suffix ("4096", "0.5"), as schedulers write it."""
    if not _PLAIN.fullmatch(text):
        raise DeclarationError(f"{what} {shown(text)!r} is not a plain number")
    return Fraction(text)


def quantity(text: str) -> Fraction:
    """Read a Kubernetes quantity that is not negative."""
    try:
        value = parse_quantity(text)
    except QuantityError as error:
        raise DeclarationError(str(error)) from error
    if value < 0:
        raise DeclarationError(f"{shown(text)!r} is negative")
    return value


def whole(text: str, what: str) -> int:
    """Read a whole number such as an index."""
    value = number(text, what)
    if value.denominator != 1 or value > 2**31:
        raise DeclarationError(f"{what} {shown(text)!r} is not a whole number that fits")
    return int(value)


def json_object(text: str) -> dict[str, Any]:
    """Read a JSON object."""
    return _json(text, dict, "a JSON object")


def json_list(text: str) -> list[Any]:
    """Read a JSON list."""
    return _json(text, list, "a JSON list")


def json_number(value: object, what: str) -> Fraction:
    """Read a number or a quantity out of JSON (Koordinator writes both)."""
    if isinstance(value, bool) or not isinstance(value, int | str | float):
        raise DeclarationError(f"{what} is not a number")
    # A float was written with a point; its shortest form is what was written.
    return quantity(value if isinstance(value, str) else repr(value))


def locate(where: Where, devices: Iterable[LeafDevice]) -> Place:
    """
    Find the device that a declaration names.

    Where devices are not known (offline, other vendors) the name alone stays. Raises DeclarationError for a device
    that is not there: it would entitle no pod.
    """
    name = shown(str(where))
    known = [device for device in devices if device.key is not None]
    if (
        not known
        or (where.name is not None and where.called is None and where.index is None)
        or (where.minor is not None and all(device.minor is None for device in known))
    ):
        return Place(name)
    matches = [device for device in known if _meant(where, device)]
    if not matches:
        raise DeclarationError(f"names the device {name}, which this node does not have")
    key = matches[0].key
    if len(matches) > 1 or key is None:
        return Place(name)  # a GPU with MIG on: one of its instances, and it is not known which
    return Place(device_name(key), key)


def _meant(where: Where, device: LeafDevice) -> bool:
    called = where.called if where.uuid is None else where.uuid
    if called is not None:
        return device.key is not None and called in (device.key.uuid, *device.mig_uuids)
    return device.index == where.index if where.index is not None else device.minor == where.minor


def _json(text: str, kind: type[_Data], called: str) -> _Data:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError also for numbers of more than 4300 digits
        raise DeclarationError("not JSON") from error
    if not isinstance(data, kind):
        raise DeclarationError(f"not {called}")
    return data
