"""
The page of the JSON documents' shape: docs/reference/api.md.

What comes in: the schema. What goes out: the text of the page.

The rule: fields, types and defaults are those of `exporter.api.schema`; docs/api.md says what they mean.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect

from exporter.api.schema import (
    VERSION,
    Allocation,
    Breaker,
    Container,
    Device,
    Document,
    Explanation,
    Fault,
    Gpu,
    Limit,
    Pod,
    Policy,
    Standing,
    Tally,
    Xid,
)

HEAD = f"""\
# The JSON documents, field by field

Look up the type of a field for a client. [api.md](../api.md) says what each field means, and has an example.
The format is version {VERSION}: within it, fields are only added. `null` means unknown. Names end in the unit:
`_bytes`, `_seconds`, `_ratio` (0 to 1), `_watts`, `_joules`, `_celsius`, `_hertz`; `_at` is in Unix seconds.

| ask | answers with |
|---|---|
| `GET /api/v1/snapshot` | [Document](#document) |
| `GET /api/v1/explain?namespace=NAMESPACE&pod=POD` | [Explanation](#explanation) |
| `GET /api/v1/decisions`, `GET /api/v1/preview` | the head of a Document, and what [api.md](../api.md#policy) lists |
"""
STRUCTS: tuple[type[msgspec.Struct], ...] = (
    Document, Gpu, Xid, Device, Container, Limit, Allocation, Pod, Fault, Tally, Policy, Standing, Breaker, Explanation,
)  # fmt: skip
"""What the page shows, in the order of a document."""


def page() -> str:
    """Write the page."""
    parts = [HEAD]
    for struct in STRUCTS:
        summary = " ".join((struct.__doc__ or "").strip().split("\n\n")[0].split())
        parts.append(f"\n## {struct.__name__}\n\n{summary}\n\n| field | type | if it is absent |\n|---|---|---|\n")
        parts += [f"| `{name}` | {kind} | {absent} |\n" for name, kind, absent in fields(struct)]
    return "".join(parts)


def fields(struct: type[msgspec.Struct]) -> Iterator[tuple[str, str, str]]:
    """Name each field of a struct, its type, and what a client takes where an older daemon does not write it."""
    described = inspect.type_info(struct)
    if not isinstance(described, inspect.StructType):
        raise TypeError(struct)
    for field in described.fields:
        default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory
        absent = "never" if field.required else f"`{_shown(default)}`"
        yield field.encode_name, _type(field.type), absent


def _shown(value: Any) -> str:
    if value is list or value == ():
        return "[]"
    if value is dict:
        return "{}"
    return msgspec.json.encode(value).decode()


def _type(kind: inspect.Type) -> str:
    match kind:
        case inspect.UnionType(types=types):
            return " or ".join(_type(one) for one in types)
        case inspect.StructType(cls=cls):
            return f"[{cls.__name__}](#{cls.__name__.lower()})"
        case inspect.ListType(item_type=item) | inspect.CollectionType(item_type=item):
            return f"list of {_type(item)}"
        case inspect.DictType(key_type=_, value_type=value):
            return f"object of {_type(value)}"
        case inspect.Metadata(type=inner):
            return _type(inner)
    names: dict[type[inspect.Type], str] = {
        inspect.IntType: "integer",
        inspect.FloatType: "number",
        inspect.StrType: "text",
        inspect.BoolType: "true or false",
        inspect.NoneType: "null",
        inspect.AnyType: "any value",
    }
    return names[type(kind)]
