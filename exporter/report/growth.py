"""
By how much counters grew in a part of the window, in PromQL.

What comes in: the name of a counter. What goes out: an expression in which RANGE stands for the length of the part.

The rule: a counter grew by its last value less the one before the part. Without a value before the part it grew from 0.
This holds if its first value is no more than it can have gained since the scrape before. So a pod that begins loses
nothing, as it does with `increase()`. A larger first value is of another time: Prometheus was down, did not scrape this
node, or knew the series by other labels. It does not count.

Only a gap between two scrapes of a device can hide more. `late` asks for such first values, if a node had a gap.

Where a counter fell, the daemon was started anew, and `increase()` is used.
"""

BEFORE = 300
"""Seconds before a part in which a counter has a value, as Prometheus looks for one."""
YOUNG = 600
"""Seconds that a counter of a container may have at its first sample, where no gap is known: it missed some scrapes."""
_ALLOCATED = "gpusteward_container_allocated_seconds_total"
_MEMORY = "gpusteward_container_memory_byte_seconds_total"
_OBSERVED = "gpusteward_device_observed_seconds_total"
_SIZE = "gpusteward_device_memory_total_bytes"
_DEVICE = "cluster, node, uuid, gpu_instance"


def grown(name: str) -> str:
    """Return the growth of each series of a counter."""
    before, last = _before(name), f"last_over_time({name}[RANGE])"
    old = f"({before} <= {_first(name)} or {_past(name)})"
    return f"({_fell(name)} or {last} - {old} or {last})"


def late(name: str) -> str:
    """Return the first values of a container's counter that `grown` leaves out, of devices that were scraped before."""
    return f"({_past(name)} unless on ({_DEVICE}) {_found()} unless {_fell(name)})"


def _past(name: str) -> str:
    """Return the first values that were not gained in the part."""
    first = _first(name)
    if not name.startswith("gpusteward_container_"):
        return f"({first} and on ({_DEVICE}) {_found()} unless {_before(name)})"
    aged = f"{first} and ignoring (resource) (min_over_time({_ALLOCATED}[RANGE]) > {YOUNG})"
    if name == _MEMORY:
        size = f"max by ({_DEVICE}) (last_over_time({_SIZE}[RANGE]))"
        aged = f"({aged} or {first} > on ({_DEVICE}) group_left () ({YOUNG} * {size}))"
    return f"({aged} unless {_before(name)})"


def _found() -> str:
    """Return the devices that are new to this Prometheus, and not to their daemon."""
    return f"((min_over_time({_OBSERVED}[RANGE]) > {BEFORE}) unless {_before(_OBSERVED)})"


def _first(name: str) -> str:
    return f"min_over_time({name}[RANGE])"


def _before(name: str) -> str:
    return f"last_over_time({name}[{BEFORE}s] offset RANGE)"


def _fell(name: str) -> str:
    return f"(increase({name}[RANGE]) and resets({name}[RANGE]) > 0)"
