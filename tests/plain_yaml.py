"""YAML of our own files, read with libyaml where PyYAML was built with it: ten times as fast."""

from collections.abc import Iterator
from typing import Any

import yaml

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load(text: str) -> Any:
    """Read one document."""
    return yaml.load(text, Loader=LOADER)  # noqa: S506  (a SafeLoader)


def load_all(text: str) -> Iterator[Any]:
    """Read several documents."""
    yield from yaml.load_all(text, Loader=LOADER)
