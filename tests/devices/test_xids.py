"""The table of XIDs: well-formed, and the same everywhere it is shown."""

import re
from pathlib import Path

import pytest

from exporter.devices.xids import CATALOGUE, COMMON, ROWS, UNKNOWN, XIDS, Cause, Xid

DEVICES = Path(__file__).parents[2] / "docs" / "devices.md"
IGNORED = {13, 31, 43, 45, 68, 109}
"""What NVIDIA's device plugin (v0.20.0, internal/rm/health.go) takes for an application's fault."""


def test_each_number_has_one_row() -> None:
    """A number that stood twice would have the meaning of the later row."""
    assert len(XIDS) == len(ROWS)
    assert UNKNOWN not in XIDS, "the driver's word for a number that it does not tell"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.code))
def test_a_row_can_be_put_into_a_sentence(row: Xid) -> None:
    """Lower case, no full stop at the end, short enough for a node page: `XID 79: <meaning>. To do: <remedy>.`"""
    for text in (row.meaning, row.remedy):
        assert text and text == text.strip() and not text.endswith(".") and len(text) < 110
    assert row.meaning[0].islower()


def test_what_the_device_plugin_ignores_is_an_applications_doing() -> None:
    """No alert on hardware comes from what a program did."""
    assert {XIDS[code].cause for code in IGNORED} == {Cause.APPLICATION}


def test_the_page_names_the_common_ones() -> None:
    """The author of a query finds there which counters begin at 0, and where the meanings come from."""
    text = DEVICES.read_text()
    told = re.search(r"common numbers \(([\d,\s]+)\)", text)
    assert told is not None
    assert tuple(map(int, told[1].split(","))) == COMMON
    assert CATALOGUE in text
