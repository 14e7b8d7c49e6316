"""
How much of a test's examples are played: all of them in `make test`, a part in `make check`.

What comes in: the profile of Hypothesis that the command line names. What goes out: all examples, or every n-th.

The rule: a part is evenly spread over the whole, and has the first example. CI plays all.
"""

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings

Example = TypeVar("Example")


def quick() -> bool:
    """Return whether this is `make check`."""
    return settings.get_current_profile_name() == "check"


def spread(examples: Sequence[Example], every: int) -> Sequence[Example]:
    """Return every n-th example in `make check`, else all."""
    return examples[::every] if quick() else examples
