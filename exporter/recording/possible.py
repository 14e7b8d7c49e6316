"""
Facts that no source reports.

What comes in: a line of a recording. What goes out: what is wrong with it, or nothing. Pure.

The rule: a recording may come from a stranger, and its bytes are counted like those of a driver. So no size in it is
negative.
"""

from collections.abc import Iterator

from exporter.recording.lines import Line, ProcessesPart, RoundGpu, RoundLine


def impossible(line: Line) -> str:
    """Say which fact no source reports; empty if all are possible."""
    return next((f"{name} of {size} bytes" for name, size in _sizes(line) if size is not None and size < 0), "")


def _sizes(line: Line) -> Iterator[tuple[str, int | None]]:
    if isinstance(line, ProcessesPart):
        for process in line.value:
            yield "a process", process.memory
            yield "a process", process.memory_sure
    elif isinstance(line, RoundLine):
        for sample in line.samples:
            yield from _of_gpu(sample)


def _of_gpu(sample: RoundGpu) -> Iterator[tuple[str, int | None]]:
    for memory in (sample.gpu.memory, *(instance.memory for instance in sample.gpu.instances)):
        if memory is not None:
            yield "a memory", memory.total
            yield "a free memory", memory.free
            yield "a reserved memory", memory.reserved
    for cgroup in sample.cgroups:
        yield "a cgroup", cgroup.used
        yield "a cgroup's limit", cgroup.limit
        yield "a cgroup's peak", cgroup.peak
