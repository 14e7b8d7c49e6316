"""The daemon's own process on its page: the families that every exporter has, as the kernel counts them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from prometheus_client import ProcessCollector

from daemon.fixtures import StartDaemon
from driver.node import FakeNode, gpus
from exporter.metrics import STANDARD, process
from scraped import families, series


def test_the_families_are_those_of_every_exporter() -> None:
    """Names, types and help are those that Prometheus's own client writes, so that common boards read them."""
    theirs = {(one.name, one.type, one.documentation) for one in ProcessCollector(registry=None).collect()}
    ours = {(one.name.removesuffix("_total"), str(one.kind), one.help) for one in process.FAMILIES}
    assert ours == theirs and STANDARD["The daemon's process"] == process.FAMILIES


def test_the_figures_are_read_again_when_they_are_four_seconds_old() -> None:
    """A page a second later has the same figures, and takes no file to write."""
    now = 100.0
    mine = process.Process(lambda: now)
    first = [*mine.collect()]
    now += 3.9
    assert [*mine.collect()] == first and all(one is other for one, other in zip(mine.collect(), first, strict=True))
    now += 0.2
    assert all(one is not other for one, other in zip(mine.collect(), first, strict=True))


@pytest.mark.daemon
def test_the_daemon_shows_its_process(fake_node: FakeNode, start_daemon: StartDaemon) -> None:
    """Memory, CPU time, start and descriptors are the daemon's, without a label; its build has a revision."""
    fake_node.write(gpus(1))
    daemon = start_daemon()
    daemon.snapshot()
    text = daemon.get("/metrics")[1]
    page = {sample.name: sample for family in families(text) for sample in family.samples}
    shown = {name: sample.value for name, sample in page.items() if name.startswith("process_")}
    assert shown.keys() == {one.name for one in process.FAMILIES}
    assert all(page[name].labels == {} for name in shown)
    assert 10e6 < shown["process_resident_memory_bytes"] < shown["process_virtual_memory_bytes"]
    assert 0 < shown["process_cpu_seconds_total"] < 600
    assert abs(shown["process_start_time_seconds"] - time.time()) < 600
    assert 0 < shown["process_open_fds"] <= shown["process_max_fds"]
    assert abs(shown["process_open_fds"] - len([*Path(f"/proc/{daemon.process.pid}/fd").iterdir()])) < 10
    assert [revision for (revision,) in series(text, "build_info", "revision")] == ["unknown"], "an editable install"
