"""
What decoders share: the types of their questions and answers, and functions that read numbers and JSON.

What comes in: text that any user may have written. What goes out: amounts in the row's unit, or DeclarationError with
one sentence, which the caller turns into an invalid declaration.

The rule: hostile text costs a bounded time. It raises no exception but DeclarationError.
"""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeVar

from exporter.base.quantities import QuantityError, parse_quantity
from exporter.limits.devices import LeafDevice, Place, device_name
from exporter.limits.rows import Row, System, What
from exporter.model import Claim, ClaimedDevice, DeclaredContainer, DeclaredPod, Mechanism, NodeFacts

LONGEST = 256 * 1024
"""Characters. Kubernetes accepts 256 KiB for all annotations of an object together."""
MOST = 512
"""Devices that one text may name: 32 containers with 16 each. To resolve a thousand takes 0.2 s."""
_SHOWN = 80
"""Characters of a user's text that a message or an answer repeats."""

_Data = TypeVar("_Data")
_PLAIN = re.compile(r"[0-9]{1,19}(?:\.[0-9]{1,9})?", re.ASCII)


class DeclarationError(ValueError):
    """The declaration cannot be used; the message gives its author the reason."""


Counts = dict[str, Fraction] | DeclarationError
"""Numbers of devices by container ("" for the pod), or why they cannot be read."""


@dataclass(frozen=True, slots=True)
class Options:
    """
    The operator's choices.

    Attributes:
        systems: the systems to read; None detects them.
        fair_share: give containers that declare nothing a share of a replicated device.
        mps_container: apply a process's limit (MPS) to the container.

    """

    systems: frozenset[str] | None = None
    fair_share: bool = False
    mps_container: bool = False


NOTHING_CHOSEN = Options()


@dataclass(frozen=True, slots=True)
class Scene:
    """
    A system with the facts that its rows are read from.

    Attributes:
        devices: those of the system's vendor; empty if unknown.
        proven: more than the text of the pod's author shows that the system is present and enforces.

    """

    system: System
    pod: DeclaredPod
    node: NodeFacts | None = None
    devices: tuple[LeafDevice, ...] = ()
    claims: tuple[Claim, ...] = ()
    options: Options = NOTHING_CHOSEN
    proven: bool = True
    counts: dict[tuple[Mechanism, str], Counts] = field(default_factory=dict, compare=False)
    """What rows of counts say, by container ("" for the pod). Each term of each container asks for it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """
    Where a text was found.

    Attributes:
        key: the key as found; `stars` are the texts that match the `*`s of the row's key.
        claim: the claim that contains the text; `claimed` are the devices of the claim that the text applies to.

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
        """Whether the row declares a share of the compute, not memory."""
        return self.row.what is What.COMPUTE


@dataclass(frozen=True, slots=True)
class Where:
    """How a declaration names a device: by one of these fields. `name` may come with `called` or `index`."""

    uuid: str | None = None
    index: int | None = None
    minor: int | None = None
    name: str | None = None
    called: str | None = None

    def __str__(self) -> str:
        """Return the name for people: UUID or name, else index or minor number."""
        if self.uuid is not None or self.name is not None:
            return self.uuid or self.name or ""
        return f"index {self.index}" if self.index is not None else f"minor {self.minor}"


@dataclass(frozen=True, slots=True)
class Amount:
    """
    An amount in the row's unit. `value` None: a device is handed out, and no amount is declared.

    Attributes:
        container: the name of the limit holder, if the text gives it.
        where: the device as the text names it.
        place: the device, if it is already resolved.
        unit: overrides the row's unit (bytes, or devices), for a text with a unit of its own.
        shared: other containers hold the same device, and their memory is not separated.
        note: an explanation for people.

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
    """Cut a user's text for a message, and escape its control characters."""
    return ascii(text[:_SHOWN])[1:-1] + ("..." if len(text) > _SHOWN else "")


def bounded(count: int) -> None:
    """Refuse a text that names more than `MOST` devices."""
    if count > MOST:
        raise DeclarationError(f"more than {MOST} devices")


def number(text: str, what: str = "amount") -> Fraction:
    """Read a plain number as schedulers write it: not negative, without a suffix ("4096", "0.5")."""
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
    """Read a whole number of at most 2^31, such as an index."""
    value = number(text, what)
    if value.denominator != 1 or value > 2**31:
        raise DeclarationError(f"{what} {shown(text)!r} is not a whole number that fits")
    return int(value)


def json_object(text: str) -> dict[str, Any]:
    """Read a JSON object. Raises DeclarationError."""
    return _json(text, dict, "a JSON object")


def json_list(text: str) -> list[Any]:
    """Read a JSON list. Raises DeclarationError."""
    return _json(text, list, "a JSON list")


def json_number(value: object, what: str) -> Fraction:
    """Read a number or a quantity out of JSON (Koordinator writes both)."""
    if isinstance(value, bool) or not isinstance(value, int | str | float):
        raise DeclarationError(f"{what} is not a number")
    # A JSON number with a point is a float here; its shortest form is the written one.
    return quantity(value if isinstance(value, str) else repr(value))


def locate(where: Where, devices: Iterable[LeafDevice]) -> Place:
    """
    Find the device that a declaration names.

    If the devices are unknown (offline, other vendors), the place has only the name. Raises DeclarationError for a
    device that the node does not have: a limit on it would apply to no pod.
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
        return Place(name)  # a GPU with MIG on: one of its instances, but it is unknown which
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
