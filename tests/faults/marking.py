"""
Marks examples of a test that show a fault.

What comes in: the examples, and which of them show which. What goes out: parameters for `pytest.mark.parametrize`.

The law: an example that does not exist is an error.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

import pytest
from _pytest.mark import ParameterSet

T = TypeVar("T", bound=Hashable)


def showing(examples: Iterable[T], faults: Mapping[T, tuple[int, ...]]) -> list[ParameterSet]:
    """Mark those examples that show a fault; `faults` has their numbers."""
    found = list(examples)
    assert faults.keys() <= set(found), "there is no such example"
    return [pytest.param(one, marks=pytest.mark.fault(*faults[one]) if one in faults else ()) for one in found]
