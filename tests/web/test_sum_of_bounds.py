"""The memory that strangers can take: what docs/threat-model.md says of it follows from the bounds, and fits."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from aiohttp import web_protocol

from exporter.web import bounds

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/threat-model.md").read_text()
KIB, MIB = 1 << 10, 1 << 20
DAEMON = 60 * MIB
"""What the daemon has without strangers; docs/performance.md."""
DOCUMENTS = 8 * MIB
"""The shared answers of three rounds of a node with 250 pods."""

PARSED = 9
"""Times the text of a request, as Python's objects."""
QUEUED = 3 * KIB
"""A queued request without its text."""
TLS = 850 * KIB
"""A connection with TLS whose requests are queued: buffers of asyncio and of OpenSSL."""
ENDED = 1_500 * 10 * KIB
"""Connections that ended, until Python looks for cycles."""


def of_a_connection(*, tls: bool) -> dict[str, int]:
    return {
        "text of requests": 2 * PARSED * bounds.REQUESTS,
        "queued requests": web_protocol.MAX_MSG_QUEUE_SIZE * QUEUED,
        "answers": bounds.UNSENT + bounds.PART,
        "kernel buffers": 2 * (bounds.RECEIVED + bounds.SENDING),
        **({"TLS": TLS} if tls else {}),
    }


def in_all(*, tls: bool) -> dict[str, int]:
    number = bounds.TLS_CONNECTIONS if tls else bounds.CONNECTIONS
    return {
        **{what: number * size for what, size in of_a_connection(tls=tls).items()},
        "`web.probe_address`": bounds.PROBE_CONNECTIONS * sum(of_a_connection(tls=False).values()),
        "connections that ended": ENDED,
    }


def stated(column: int) -> Mapping[str, str]:
    """Read the table of the page: the amounts of one column by the first cell of their row."""
    rows = (re.split(r"\s*\|\s*", line.strip("| ")) for line in PAGE.splitlines() if line.startswith("|"))
    return {row[0].strip("*"): row[column].strip("*") for row in rows if len(row) > column and "MiB" in row[column]}


def shown(size: int) -> str:
    return f"{size / MIB:.1f}".removesuffix(".0") + " MiB"


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_the_sum_of_all_bounds_fits(tls: bool) -> None:
    """Daemon, documents and all that strangers can take stay below 128 MiB, and below the chart's limit."""
    taken = DAEMON + DOCUMENTS + sum(in_all(tls=tls).values())
    chart = yaml.safe_load((ROOT / "deploy/charts/gpusteward/values.yaml").read_text())
    assert taken < 128 * MIB < int(chart["resources"]["limits"]["memory"].removesuffix("Mi")) * MIB


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_the_page_states_each_of_them(tls: bool) -> None:
    """Each row has the amount that follows from the bounds, and the last row their sum."""
    amounts, page = in_all(tls=tls), stated(3 if tls else 2)
    assert {what: page[what] for what in amounts} == {what: shown(size) for what, size in amounts.items()}
    assert page["sum"] == f"{sum(amounts.values()) / MIB:.0f} MiB"
