"""
Pods with names like one that does not exist.

What comes in: the names of the pods that use a GPU, and the one asked for. What goes out: at most three of them. Pure.

The rule: a request cannot make this expensive. Names are compared by the sets of their three-letter parts, which are
made once a round: 250 pods take less than a millisecond, however long the name is. difflib takes 23 to 215.
"""

from collections.abc import Collection
from dataclasses import dataclass

NEAR = 3
"""Names that are suggested."""
LONGEST = 63 + 1 + 253
"""Characters of a namespace, a slash and a pod's name."""
ALIKE = 0.6
"""Share of equal parts from which on two names are alike."""


@dataclass(frozen=True, slots=True)
class Names:
    """Names as NAMESPACE/POD, with their parts."""

    parts: dict[str, frozenset[str]]

    @classmethod
    def of(cls, names: Collection[str]) -> "Names":
        """Take names apart."""
        return cls({name: _parts(name) for name in sorted(names)})

    def near(self, wanted: str) -> tuple[str, ...]:
        """Return names like this one: those of the same pod in other namespaces first, then the most alike."""
        pod = wanted.partition("/")[2]
        namesakes = [name for name in self.parts if name.partition("/")[2] == pod]
        if len(wanted) > LONGEST:
            return tuple(namesakes[:NEAR])
        mine = _parts(wanted)
        likeness = {name: 2 * len(mine & parts) / (len(mine) + len(parts)) for name, parts in self.parts.items()}
        alike = sorted((name for name in likeness if likeness[name] >= ALIKE), key=lambda name: -likeness[name])
        return tuple(dict.fromkeys([*namesakes, *alike]))[:NEAR]


def _parts(name: str) -> frozenset[str]:
    padded = f"  {name} "
    return frozenset(padded[first : first + 3] for first in range(len(padded) - 2))
