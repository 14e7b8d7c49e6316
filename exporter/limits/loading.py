"""
The catalogue's files: read, checked, and merged with the operator's own systems.

What comes in: YAML of the package (`catalogue/*.yaml`), and the operator's additions in the same form. What goes out:
the catalogue, or CatalogueError with the path of the key and the expected value.

The rule: a mistake is found here, at the start, and not when a pod is resolved.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from exporter.base.quantities import parse_quantity
from exporter.limits.decoders import DECODERS
from exporter.limits.rows import Catalogue, Per, Row, System, Trust, Units, What

_RATIOS = {What.MEMORY_RATIO, What.COMPUTE}


class CatalogueError(Exception):
    """The catalogue is wrong; the message names the place and the expected value."""


@cache
def builtin() -> Catalogue:
    """Load the package's catalogue, in the order of its files' names."""
    catalogue: Catalogue = ()
    for file in sorted((Path(__file__).parent / "catalogue").iterdir()):
        if file.suffix == ".yaml":
            catalogue = extend(catalogue, parse(file.read_bytes(), file.name), file.name)
    check(catalogue)
    return catalogue


def with_own(entries: list[Any], source: str = "limits.catalogue") -> Catalogue:
    """Merge the operator's systems and rows into the package's. Raises CatalogueError."""
    catalogue = extend(builtin(), entries, source)
    check(catalogue)
    return catalogue


def parse(text: bytes, source: str) -> list[Any]:
    """Read a list of systems as plain data. Raises CatalogueError."""
    try:
        return msgspec.convert(yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)), list)  # noqa: S506
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise CatalogueError(f"{source}: {error}") from error


def extend(catalogue: Catalogue, entries: list[Any], source: str) -> Catalogue:
    """
    Add systems, or change those that exist. Raises CatalogueError.

    The fields that are written replace those of an existing system, and its rows are added. A row replaces one of the
    same mechanism, key and kind.
    """
    entries = [_without_nulls(entry) for entry in entries]
    try:
        additions = msgspec.convert(entries, list[System], dec_hook=_units)
    except msgspec.ValidationError as error:
        raise CatalogueError(f"{source}: {error}") from error
    systems = {system.name: system for system in catalogue}
    for position, (addition, written) in enumerate(zip(additions, entries, strict=True)):
        path = f"{source}: $[{position}]"
        if addition.name not in systems and "title" not in written:
            raise CatalogueError(f"{path}.title: a new system ({addition.name}) needs a title")
        for number, row in enumerate(addition.rows):
            _check_row(row, f"{path}.rows[{number}]")
        before = systems.get(addition.name) or System(name=addition.name, title=addition.name)
        systems[addition.name] = _merged(before, addition, written)
    return tuple(systems.values())


def check(catalogue: Catalogue) -> None:
    """Refuse references to systems or rows that do not exist. Raises CatalogueError."""
    names = {system.name for system in catalogue}
    for system in catalogue:
        for name in system.yields_to:
            if name not in names:
                raise CatalogueError(f"{system.name}.yields_to: no system is called {name}")
        counts = {row.key for row in system.rows if row.what is What.COUNT}
        keys = {row.key for row in system.rows}
        sized = {row.calibrate for row in system.rows if row.what is What.MEMORY}
        for row in system.rows:
            place = f"{system.name} {row.mechanism} {row.key}"
            for key in row.divide_by:
                if key not in counts:
                    raise CatalogueError(f"{place}: divide_by: {key} is no count row of {system.name}")
            for key in row.loses_to:
                if key not in keys:
                    raise CatalogueError(f"{place}: loses_to: {key} is no row of {system.name}")
            if row.what is What.MEMORY_RATIO and row.calibrate and row.calibrate not in sized:
                raise CatalogueError(f"{place}: calibrate: no memory row of {system.name} is calibrated by it")
            if row.per is Per.TOTAL and not row.divide_by:
                raise CatalogueError(f"{place}: per: total needs divide_by")


def _without_nulls(entry: Any) -> Any:
    """Drop keys without a value, such as `vendor:` alone. Only `system` and `rows` without a value are a mistake."""
    if not isinstance(entry, dict):
        return entry
    return {key: value for key, value in entry.items() if value is not None or key in {"system", "rows"}}


def _units(_kind: type, written: Any) -> Units:
    texts = written if isinstance(written, list) else [str(written) if type(written) in (int, float) else written]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ValueError("expected a quantity such as 1Mi, or a list of them")
    return Units(map(parse_quantity, texts))


def _merged(before: System, addition: System, written: Mapping[str, Any]) -> System:
    rows = {(row.mechanism, row.key, row.what): row for row in (*before.rows, *addition.rows)}
    given = {name: value for name in written.keys() - {"system"} if (value := getattr(addition, name))}
    return msgspec.structs.replace(before, **{**given, "rows": tuple(rows.values())})


def _check_row(row: Row, path: str) -> None:
    if row.decoder not in DECODERS:
        raise CatalogueError(f"{path}.decoder: {row.decoder!r} is none of {', '.join(sorted(DECODERS))}")
    if row.written_by is not None and row.written_by.upper() not in Trust.__members__:
        raise CatalogueError(f"{path}.trust: {row.written_by!r} is none of {', '.join(t.name.lower() for t in Trust)}")
    for unit in row.units:
        if unit <= 0 or (row.what in _RATIOS and unit > 1) or (row.what is What.MEMORY and unit != int(unit)):
            expected = ": expected whole bytes such as 1Mi" if row.what is What.MEMORY else ""
            shown = unit if unit == int(unit) else float(unit)
            raise CatalogueError(f"{path}.unit: {shown} is no unit of {row.what}{expected}")
