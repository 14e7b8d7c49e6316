"""Fixtures of the fake driver's own tests: a node, and the real pynvml in one process per variant of the library."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from driver.fixtures import driver_build, fake_node
from driver.node import FakeNode, Variant
from driver.probe import Probe

__all__ = ["driver_build", "fake_node"]


class Probes(dict[Variant, Probe]):
    """One probe per variant, started when first asked for."""

    def __init__(self, build: Path) -> None:
        super().__init__()
        self._build = build
        self.stack = ExitStack()

    def __missing__(self, variant: Variant) -> Probe:
        self[variant] = self.stack.enter_context(Probe(self._build, variant))
        return self[variant]


@pytest.fixture(scope="session")
def all_probes(driver_build: Path) -> Iterator[Probes]:
    probes = Probes(driver_build)
    with probes.stack:
        yield probes


@pytest.fixture
def probes(all_probes: Probes, fake_node: FakeNode) -> Probes:
    """All variants, asked about this test's node."""
    for variant in Variant:
        all_probes[variant].state = fake_node.folder
    return all_probes


@pytest.fixture
def nvml(all_probes: Probes, fake_node: FakeNode) -> Probe:
    """The modern variant, asked about this test's node."""
    probe = all_probes[Variant.MODERN]
    probe.state = fake_node.folder
    return probe
