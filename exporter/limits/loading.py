"""
The catalogue's files to rows: read, checked, and put together with the operator's own.

What comes in: YAML of the package (`catalogue/*.yaml`) and, in the same form, what the operator adds. What goes out:
the catalogue, or CatalogueError with the path of the key and what was expected.

The law: a mistake is found here, at the start, and not when a pod is resolved.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from importlib import resources
from typing import Annotated, Any

import msgspec
import yaml
from msgspec import Meta, field

from exporter.base.quantities import QuantityError, parse_quantity
from exporter.limits.decoders import DECODERS
from exporter.limits.rows import (
    Catalogue,
    Confidence,
    Detect,
    Per,
    Row,
    Star,
    System,
    Trust,
    What,
    When,
)
from exporter.model import EnforcedBy, Mechanism, Scope

_Name = Annotated[str, Meta(pattern="^[a-z0-9][a-z0-9-]{0,62}$")]
_Key = Annotated[str, Meta(min_length=1, max_length=317)]  # a prefix of 253, a slash, a name of 63
_Ratios = {What.MEMORY_RATIO, What.COMPUTE}
_TRUST = {
    Mechanism.CLAIM: Trust.CLAIM,
    Mechanism.CLAIM_CONFIG: Trust.CLAIM,
    Mechanism.RESOURCE: Trust.RESOURCE,
    Mechanism.POLICY: Trust.RESOURCE,
    Mechanism.ANNOTATION: Trust.USER,
    Mechanism.LABEL: Trust.USER,
    Mechanism.ENV: Trust.ENV,
}


class CatalogueError(Exception):
    """The catalogue cannot be used; the message names the place and what was expected."""


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of the file, closed for keys that nobody reads."""


class RowEntry(_Part, frozen=True, kw_only=True):
    """
    A row as written. `unit` is a quantity: bytes or devices of one unit; a list where installations differ.

    `trust: scheduler` marks annotations that schedulers write; the others follow from the mechanism.
    """

    mechanism: Mechanism
    key: _Key
    what: What
    unit: str | int | float | list[str] = "1"
    scope: Scope = Scope.CONTAINER
    per: Per = Per.DEVICE
    divide_by: list[_Key] = field(default_factory=list)
    loses_to: list[_Key] = field(default_factory=list)
    decoder: str = "quantity"
    calibrate: str = ""
    register: str = ""
    scaled: bool = False
    plain: bool = False
    kubelet: bool = False
    star: Star = Star.NOTHING
    driver: str = ""
    trust: str | None = None
    enforced_by: EnforcedBy | None = None
    confidence: Confidence = Confidence.SOURCE
    note: str = ""


class WhenEntry(_Part, frozen=True, kw_only=True):
    """A condition under which somebody else enforces; without `value` the key alone tells."""

    at: Annotated[str, Meta(pattern="^(node-label|pod-label|pod-annotation)$")]
    key: _Key
    value: str = ""
    enforced_by: EnforcedBy


class DetectEntry(_Part, frozen=True, kw_only=True):
    """What tells that the system is there; see `rows.Detect`."""

    resources: list[_Key] = field(default_factory=list)
    node_labels: list[_Key] = field(default_factory=list)
    node_annotations: list[_Key] = field(default_factory=list)
    pod_labels: list[_Key] = field(default_factory=list)
    pod_annotations: list[_Key] = field(default_factory=list)
    schedulers: list[str] = field(default_factory=list)
    drivers: list[str] = field(default_factory=list)
    sharing: list[str] = field(default_factory=list)
    always: bool = False


class SystemEntry(_Part, frozen=True, kw_only=True):
    """A system as written. One that is known already gets the rows, and whatever else is written, on top."""

    system: _Name
    title: str | None = None
    vendor: _Name | None = None
    enforced_by: EnforcedBy | None = None
    enforced_when: list[WhenEntry] | None = None
    bypass_env: list[str] | None = None
    detect: DetectEntry | None = None
    yields_to: list[_Name] | None = None
    sources: list[str] | None = None
    note: str | None = None
    rows: list[RowEntry] = field(default_factory=list)


@cache
def builtin() -> Catalogue:
    """Load the package's catalogue, in the order of its files' names."""
    found: Catalogue = ()
    files = sorted(resources.files("exporter.limits").joinpath("catalogue").iterdir(), key=lambda file: file.name)
    for file in files:
        if file.name.endswith(".yaml"):
            found = extend(found, parse(file.read_bytes(), file.name), file.name)
    check(found)
    return found


def with_own(entries: Iterable[SystemEntry], source: str = "limits.catalogue") -> Catalogue:
    """Put the operator's rows on top of the package's. Raises CatalogueError."""
    found = extend(builtin(), tuple(entries), source)
    check(found)
    return found


def parse(text: bytes, source: str) -> tuple[SystemEntry, ...]:
    """Read a list of systems. Raises CatalogueError."""
    try:
        data = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
        return tuple(msgspec.convert(data, list[SystemEntry]))
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise CatalogueError(f"{source}: {error}") from error


def extend(catalogue: Catalogue, entries: Iterable[SystemEntry], source: str) -> Catalogue:
    """Add systems; rows of the same mechanism, key and kind replace the ones before. Raises CatalogueError."""
    systems = {system.name: system for system in catalogue}
    for position, entry in enumerate(entries):
        path = f"{source}: $[{position}]"
        before = systems.get(entry.system)
        if before is None and entry.title is None:
            raise CatalogueError(f"{path}.title: a new system ({entry.system}) needs a title")
        after = _described(before or System(entry.system, entry.title or entry.system), entry)
        rows = {(row.mechanism, row.key, row.what): row for row in after.rows}
        for number, row_entry in enumerate(entry.rows):
            row = _row(entry.system, row_entry, f"{path}.rows[{number}]")
            rows[row.mechanism, row.key, row.what] = row
        systems[entry.system] = replace(after, rows=tuple(rows.values()))
    return tuple(systems.values())


def check(catalogue: Catalogue) -> None:
    """Refuse references that lead nowhere. Raises CatalogueError."""
    names = {system.name for system in catalogue}
    for system in catalogue:
        for name in system.yields_to:
            if name not in names:
                raise CatalogueError(f"{system.name}.yields_to: no system is called {name}")
        counts = {row.key for row in system.rows if row.what is What.COUNT}
        keys = {row.key for row in system.rows}
        sized = {row.calibrate for row in system.rows if row.what is What.MEMORY}
        for row in system.rows:
            for key in row.divide_by:
                if key not in counts:
                    raise CatalogueError(f"{row.name}: divide_by: {key} is no count row of {system.name}")
            for key in row.loses_to:
                if key not in keys:
                    raise CatalogueError(f"{row.name}: loses_to: {key} is no row of {system.name}")
            if row.what is What.MEMORY_RATIO and row.calibrate and row.calibrate not in sized:
                raise CatalogueError(f"{row.name}: calibrate: no memory row of {system.name} is calibrated by it")
            if row.per is Per.TOTAL and not row.divide_by:
                raise CatalogueError(f"{row.name}: per: total needs divide_by")


def _described(system: System, entry: SystemEntry) -> System:
    when = None
    if entry.enforced_when is not None:
        when = tuple(When(each.at, each.key, each.value, each.enforced_by) for each in entry.enforced_when)
    detect = None
    if entry.detect is not None:
        signs: dict[str, Any] = {}
        for name in entry.detect.__struct_fields__:
            value = getattr(entry.detect, name)
            signs[name] = tuple(value) if isinstance(value, list) else value
        detect = Detect(**signs)
    given: dict[str, Any] = {
        "title": entry.title,
        "vendor": entry.vendor,
        "enforced_by": entry.enforced_by,
        "enforced_when": when,
        "bypass_env": entry.bypass_env and tuple(entry.bypass_env),
        "detect": detect,
        "yields_to": entry.yields_to and tuple(entry.yields_to),
        "sources": entry.sources and tuple(entry.sources),
        "note": entry.note,
    }
    return replace(system, **{name: value for name, value in given.items() if value})


def _row(system: str, entry: RowEntry, path: str) -> Row:
    if entry.decoder not in DECODERS:
        raise CatalogueError(f"{path}.decoder: {entry.decoder!r} is none of {', '.join(sorted(DECODERS))}")
    units = tuple(_units(entry, f"{path}.unit"))
    trust = _TRUST[entry.mechanism]
    if entry.trust is not None:
        if entry.trust.upper() not in Trust.__members__:
            raise CatalogueError(f"{path}.trust: {entry.trust!r} is none of {', '.join(t.name.lower() for t in Trust)}")
        trust = Trust[entry.trust.upper()]
    given = {name: getattr(entry, name) for name in entry.__struct_fields__ if name not in {"unit", "trust"}}
    lists = {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
    return Row(system=system, units=units, trust=trust, **{**given, **lists})


def _units(entry: RowEntry, path: str) -> Iterator[Fraction]:
    for text in entry.unit if isinstance(entry.unit, list) else [entry.unit]:
        try:
            unit = parse_quantity(str(text))
        except QuantityError as error:
            raise CatalogueError(f"{path}: {error}") from error
        if unit <= 0 or (entry.what in _Ratios and unit > 1):
            raise CatalogueError(f"{path}: {text} is no unit of {entry.what}")
        yield unit
