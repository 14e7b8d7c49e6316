"""Figures and names for a terminal."""

from __future__ import annotations

import re

import pytest

from builders import GIB, MIB
from exporter.top.figures import UNKNOWN, clean, middle, path, percent, share, size, span


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (None, UNKNOWN),
        (0, "0"),
        (1, "1Mi"),
        (MIB, "1Mi"),
        (GIB - 1, "1024Mi"),
        (GIB, "1.0Gi"),
        (80 * GIB, "80.0Gi"),
        (-3 * GIB, "-3.0Gi"),
    ],
)
def test_sizes(amount: int | None, text: str) -> None:
    """As Kubernetes writes them; something is never written as nothing."""
    assert size(amount) == text


def test_ratios_and_spans() -> None:
    """Whole percents; one unit, from two of it on; a clock that went back makes no negative age."""
    assert (percent(None), percent(0.0), percent(0.925), share(3, 4), share(None, 4)) == (
        UNKNOWN,
        "0%",
        "92%",
        "75%",
        UNKNOWN,
    )
    assert [span(seconds) for seconds in (-5, 0.4, 119, 120, 7199, 7200, 2 * 86400)] == [
        "0s",
        "0s",
        "119s",
        "2m",
        "119m",
        "2h",
        "2d",
    ]


def test_names_lose_their_middle() -> None:
    """Of a path each part loses its own, the longest the most; where there is no room for parts, it is cut as one."""
    assert middle("trainer-0", 9) == "trainer-0"
    assert [middle("trainer-0", width) for width in (8, 5, 2, 1, 0)] == ["trai…r-0", "tr…-0", "t…", "…", ""]
    name = "team-vision/traffic-cam-6d5f9b84-h2v9q/tracker"
    assert path(name, 80) == name
    assert path(name, 40) == "team-vision/traffic-ca…b84-h2v9q/tracker"
    for width in range(len(name)):
        assert len(path(name, width)) == width
    assert path(name, 10) == "team-…cker"


@pytest.mark.parametrize(
    "foreign", ["\x1b[2J", "\x9b31m", "\x7f", "\r\n\t", "\u202e", "名前", "\u200b", "e\u0301", "\ud800"]
)
def test_foreign_text_has_no_power(foreign: str) -> None:
    """Escape sequences, line breaks, what turns the writing direction, has no width or two: each becomes its number."""
    found = clean(f"a{foreign}b")
    assert re.fullmatch(r"a[ -~]+b", found) and "\\" in found
    assert len(clean("x" * 10_000)) < 1_000
