"""
Field values: many figures of a GPU in one call.

What comes in: the fields to ask for. What goes out: for each of them a number, or the error of its own return code.

The rule: **no value is read before the return code of its entry.** The call succeeds even if the GPU has none of the
fields. DCGM did not look at the codes, and reported memory of 0 degrees (https://github.com/NVIDIA/DCGM/pull/311). Each
entry starts as "unknown error", so an entry that the driver did not write is no zero either.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pynvml

from exporter.devices.errors import LibraryError
from exporter.devices.nvml.errors import meaning, refusal

FUNCTION = "nvmlDeviceGetFieldValues"
ALL_LINKS = 2**32 - 1
"""The scope that adds up all links, for the counters of NVLink 5 (`NvmlFieldRequiresNvLinkAggregate` in DCGM)."""

_WHOLE = {
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "usVal",
    # No field that we ask for is a fraction. R545 calls its memory temperature a double, and writes an integer
    # (DCGM reads it so, and names NVIDIA's bug 4300930).
    pynvml.NVML_VALUE_TYPE_DOUBLE: "uiVal",
}


class Field(NamedTuple):
    """A field by its number in nvml.h; `scope` is what its comment there asks for, mostly nothing."""

    id: int
    scope: int = 0


def read_fields(
    beat: Callable[[str], None], library: object, handle: Any, asked: Sequence[Field]
) -> list[int | LibraryError]:
    """Read whole numbers, in the order of `asked`. Raises the error of the call as a whole."""
    symbol = getattr(library, FUNCTION, None)
    if symbol is None:
        raise meaning(FUNCTION, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    entries = (pynvml.c_nvmlFieldValue_t * len(asked))()
    for entry, field in zip(entries, asked, strict=True):
        entry.fieldId, entry.scopeId = field
        entry.nvmlReturn = pynvml.NVML_ERROR_UNKNOWN
    beat(FUNCTION)
    if (code := symbol(handle, ctypes.c_int(len(asked)), entries)) != pynvml.NVML_SUCCESS:
        raise meaning(FUNCTION, code)
    return list(map(_value, entries))


def _value(entry: Any) -> int | LibraryError:
    name = f"{FUNCTION}({entry.fieldId})"
    if entry.nvmlReturn != pynvml.NVML_SUCCESS:
        error = meaning(name, entry.nvmlReturn)
        if not isinstance(error, LibraryError):  # the library does not match the driver: not an answer about a field
            raise error
        return error
    if (member := _WHOLE.get(entry.valueType)) is None:
        return refusal(name, pynvml.NVML_SUCCESS, f"a value of the unknown type {entry.valueType}")
    return int(getattr(entry.value, member))
