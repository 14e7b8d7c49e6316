"""YAML of our own files, read with libyaml where PyYAML was built with it: ten times as fast."""

from collections.abc import Iterator
from typing import Any

import yaml

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Strict(LOADER):  # type: ignore[misc, valid-type]
    """Refuses a map with a key twice, as Flux and yaml.v3 of Go do."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """Make a map of a node."""
        keys = [key.value for key, _ in node.value]
        if len(keys) != len(set(keys)):
            raise yaml.constructor.ConstructorError(None, None, f"a key twice: {keys}", node.start_mark)
        return super().construct_mapping(node, deep)


def load(text: str) -> Any:
    """Read one document."""
    return yaml.load(text, Loader=LOADER)  # noqa: S506  (a SafeLoader)


def load_all(text: str) -> Iterator[Any]:
    """Read several documents, none of which has a key twice in a map."""
    yield from yaml.load_all(text, Loader=Strict)
