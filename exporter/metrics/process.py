"""
The daemon's process: memory, CPU time, open files, as every Prometheus client exports them.

What comes in: the kernel's files of this process, read by prometheus_client. What goes out: the `process_` families,
without labels of ours. Prometheus adds those of the target: they are the daemon's own, as they should be here.
"""

from collections.abc import Callable, Iterator

from prometheus_client import ProcessCollector
from prometheus_client.core import Metric

from exporter.metrics.family import Family, Kind

FAMILIES = (
    Family("process_virtual_memory_bytes", Kind.GAUGE, (), "Virtual memory size in bytes."),
    Family("process_resident_memory_bytes", Kind.GAUGE, (), "Resident memory size in bytes."),
    Family("process_start_time_seconds", Kind.GAUGE, (), "Start time of the process since unix epoch in seconds."),
    Family("process_cpu_seconds_total", Kind.COUNTER, (), "Total user and system CPU time spent in seconds."),
    Family("process_max_fds", Kind.GAUGE, (), "Maximum number of open file descriptors."),
    Family("process_open_fds", Kind.GAUGE, (), "Number of open file descriptors."),
)

KEPT = 4.0
"""Seconds for which an answer counts. To read the five files takes 0.3 ms, a tenth of a page of 8 GPUs."""


class Process:
    """This process; `monotonic` returns seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._collector = ProcessCollector(registry=None)
        self._families: tuple[Metric, ...] = ()
        self._until = 0.0

    def collect(self) -> Iterator[Metric]:
        """Yield what the kernel says about this process, or said a moment ago."""
        now = self._monotonic()
        if not self._families or now >= self._until:
            self._families, self._until = tuple(self._collector.collect()), now + KEPT
        yield from self._families
