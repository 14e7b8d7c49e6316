"""pytest fixtures of the fake driver: `pytest_plugins = ["driver.fixtures"]` in a conftest, or import them by name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from driver.build import build
from driver.node import FakeNode


@pytest.fixture(scope="session")
def driver_build() -> Path:
    """The compiled library and workload, cached by the hash of their sources across runs."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return build(Path(cache) / "gpusteward")


@pytest.fixture
def fake_node(tmp_path: Path, driver_build: Path) -> Iterator[FakeNode]:
    """An empty node in a folder of its own; its workloads end with the test."""
    with FakeNode(tmp_path / "fake-nvml", driver_build) as node:
        yield node
