"""A node made of files, and its GPUs as the daemon's source reads them."""

from pathlib import Path

import pytest

from sources.kernel import Node


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """An empty node, without GPUs."""
    return Node(tmp_path / "node")
