"""pytest fixtures: start the daemon on the fake driver; it ends with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from daemon.running import Daemon
from driver.node import FakeNode, Variant

StartDaemon = Callable[..., Daemon]


@pytest.fixture
def start_daemon(fake_node: FakeNode) -> Iterator[StartDaemon]:
    """Start daemons on this test's fake node: rounds of 200 ms, JSON log, whatever flags and cgroup are asked for."""
    with ExitStack() as stack:

        def start(
            *flags: str,
            variant: Variant | None = None,
            enter: Sequence[str] = (),
            cgroups: Sequence[Path] = (),
            interval: str = "200ms",
        ) -> Daemon:
            return stack.enter_context(
                Daemon(
                    "--devices=nvml",
                    f"--sampling.interval={interval}",
                    "--sampling.fast-interval=100ms",
                    "--log.format=json",
                    *flags,
                    env=fake_node.environment(variant),
                    enter=enter,
                    cgroups=cgroups,
                )
            )

        yield start
