"""By how much a use may exceed its limit: 2 %, or 256 MiB capped at a tenth of the limit, the larger."""

from __future__ import annotations

import pytest

from exporter.config.policy import Policy, tolerance_of
from exporter.model import Tolerance

MIB = 2**20
DEFAULT = tolerance_of(Policy())


@pytest.mark.parametrize(
    ("limit", "allowed"),
    [
        (0, 0),
        (512, 51.2),
        (1024, 102.4),
        (2560, 256),
        (8192, 256),
        (12800, 256),
        (102400, 2048),
    ],
)
def test_the_default_in_mebibytes(limit: int, allowed: float) -> None:
    """A tenth of a small limit, 256 MiB from 2.5 GiB to 12.5 GiB, 2 % beyond."""
    assert DEFAULT.above(limit * MIB) == limit * MIB + int(allowed * MIB)


def test_a_small_share_is_not_exceeded_by_half_for_free() -> None:
    """A pod with 512 MiB is over its limit at 600 MiB: the fixed bytes are a tenth of the limit at most."""
    assert DEFAULT.above(512 * MIB) < 600 * MIB


def test_a_ratio_above_a_tenth_is_not_capped() -> None:
    """The operator's ratio counts as written; the cap concerns the fixed bytes alone."""
    assert Tolerance(0.25, 256 * MIB, 0).above(1024 * MIB) == 1280 * MIB


def test_a_larger_limit_never_has_a_lower_ceiling() -> None:
    """Raising a declaration by one byte never puts its pod over the limit."""
    limits = [*range(5000), *(edge * MIB + offset for edge in (2560, 12800) for offset in range(-3, 4)), 2**62]
    ceilings = [DEFAULT.above(limit) for limit in sorted(limits)]
    assert ceilings == sorted(ceilings)
