"""What the tests of the chart want: Helm, built once with Go."""

from __future__ import annotations

import pytest

from cluster import build
from cluster.fixtures import require


@pytest.fixture(scope="session")
def helm() -> None:
    """Helm is here, or can be built."""
    require([problem] if not build.assets("helm") and (problem := build.go_problem()) else [])
