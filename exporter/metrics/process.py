"""
The daemon's process: memory, CPU time, open files, as every Prometheus client exports them.

What comes in: the kernel's files of this process, read by prometheus_client. What goes out: the `process_` families,
without labels of ours. Prometheus adds those of the target: they are the daemon's own, as they should be here.
"""

from collections.abc import Iterator

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

_OF_THIS_PROCESS = ProcessCollector(registry=None)


def collect() -> Iterator[Metric]:
    """Yield what the kernel says about this process."""
    yield from _OF_THIS_PROCESS.collect()
