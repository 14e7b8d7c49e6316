"""
A limit in the form of a sharing system: the catalogue of declarations, read backwards.

What comes in: bytes, the present declaration. What goes out: a key and a text that declare at least these bytes.

The rule: a row of the catalogue is used only if a user writes it, and its text is a plain number or quantity. The text
is rounded up to the row's unit. A system that no row can write gets words (`words`), or our own annotation.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from exporter.advise.rivals import beside, request_of
from exporter.advise.words import WHOLE, WHOLE_CLAIM, claimed, fixed, lowers_only, of_claim, quantity
from exporter.advise.writable import stays, writable
from exporter.limits.rows import Catalogue, Per, Row, What
from exporter.model import Mechanism, Scope

OWN = "gpusteward"
"""The system with our annotation, for devices whose sharing declares nothing."""
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Declared:
    """
    A text that declares a limit.

    Attributes:
        row: of the catalogue.
        key: with the container's name, where the row has a place for it.
        text: of the amount.
        bytes: what the text declares on each device.
        note: what the user has to check; empty if nothing.
        request: key of the request that the system has beside this limit; empty without one.
    """

    row: Row
    key: str
    text: str
    bytes: int
    note: str = ""
    request: str = ""


def declared(
    catalogue: Catalogue,
    system: str,
    source: str,
    container: str,
    limit: int,
    *,
    device: float | None,
    devices: int,
    scope: str = "",
    present: float | None = None,
    in_advance: bool = False,
) -> Declared | str | None:
    """
    Write a limit for a container, or say in words why it cannot be written; None if there is nothing to say.

    Args:
        catalogue: of sharing systems.
        system, source, scope: of the present declaration; empty without one.
        container: its name; empty for a sandboxed pod, whose limits can only be those of the whole pod.
        limit: bytes on each device.
        device: memory of the device in bytes; None if unknown.
        devices: how many devices a pod has.
        present: the present limit in bytes; None without one.
        in_advance: the memory was perhaps taken in advance, so the need is unknown.

    """
    systems = {one.name: one for one in catalogue}
    chosen = systems.get(system)
    row = None if chosen is None else writable(chosen, source, scope)
    whole = None if present is None or device is None else present >= device
    if of_claim(chosen, scope):
        words = WHOLE_CLAIM if whole else claimed(limit)
    else:
        words = "" if chosen is None else fixed(chosen, row, scope, limit, whole=whole)
    if words in (WHOLE, WHOLE_CLAIM):
        small = not in_advance and device is not None and limit * 2 <= device
        return words.format(quantity(limit)) if small else None
    if words:
        return words
    if not container:
        whole_pod = f"declare {quantity(limit)} for the whole pod"
        return f"{whole_pod}: metrics name no container of it, as of a sandboxed pod (gVisor, Kata)"
    if row is None and scope == Scope.POD:
        return f"declare {quantity(limit)} for the whole pod: gpusteward's annotation is of one container"
    if system and present is not None and limit > present and stays(chosen, row, source):
        return lowers_only(chosen, system, source, limit, present)
    if chosen is None or row is None:
        chosen, row = systems[OWN], writable(systems[OWN], "annotation", "")
    assert row is not None  # noqa: S101  (the catalogue's own system has it; a test says so)
    if row.what is What.MEMORY_RATIO and (device is None or limit > device):
        return "its share of a device cannot be computed: the size is unknown, or devices differ"
    text, each = _text(row, limit, device or 0.0, devices)
    notes = "; ".join([*_notes(row, devices), *beside(chosen, row, source)])
    key, request = (name.replace("*", container) for name in (row.key, request_of(chosen, row)))
    return Declared(row, key, text, each, notes, request)


def _text(row: Row, limit: int, device: float, devices: int) -> tuple[str, int]:
    """Write an amount, and return with it the bytes that it declares on each device."""
    unit: Fraction = row.units[0] * Fraction(device) if row.what is What.MEMORY_RATIO else row.units[0]
    times = devices if row.per is Per.TOTAL else 1
    if unit == 1 and not row.plain:
        count = ceil(Fraction(limit, MIB)) * times
        return f"{count}Mi", count * MIB // times
    count = ceil(Fraction(limit) / unit) * times
    return str(count), int(count * unit / times)


def _notes(row: Row, devices: int) -> Iterable[str]:
    if len(row.units) > 1:
        yield f"one is {quantity(int(row.units[0]))} here, and another installation may count in another unit"
    if row.scaled:
        yield "divide it by the memory factor of the installation, if it has one"
    elif row.note:
        yield row.note.rstrip(".").replace("; ", ", ")
    if row.scope is Scope.POD:
        yield "it is for all containers of the pod together"
        if row.mechanism is Mechanism.RESOURCE:
            yield "amounts of its containers are added up: remove those of the others"
    if devices > 1 and row.per is Per.TOTAL:
        yield f"it is for {devices} devices together"
