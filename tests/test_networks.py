"""Test beds that begin at the same time have addresses of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cluster.networks import Network, claim
from cluster.processes import StartError

ONE = range(256, 257)
"""A number that no bed takes, so that one which runs here is not in the way."""


def test_a_network_has_one_bed() -> None:
    """Claimed, it is refused to any other, also to another process; given back, it is free."""
    mine = claim(ONE)
    try:
        assert mine.network == Network(256)
        with pytest.raises(StartError):
            claim(ONE)
        elsewhere = [sys.executable, "-c", "from cluster.networks import claim; claim(range(256, 257))"]
        refused = subprocess.run(elsewhere, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
        assert refused.returncode == 1 and "StartError: no free network" in refused.stderr
    finally:
        mine.release()
    claim(ONE).release()
