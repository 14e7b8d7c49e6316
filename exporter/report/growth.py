"""
By how much counters grew in a part of the window, in PromQL.

What comes in: the name of a counter. What goes out: an expression in which RANGE stands for the length of the part.

The rule: a counter grew by its last value less the one before the part. A counter that began in the part was 0 before,
so pods that live for a few scrapes lose nothing, as they do with `increase()`. But all counters of a device may be new
to Prometheus only: it was down, or did not scrape this node. Their first values are of another time, and do not count,
but for those of containers that began just before.
Where a counter fell, the daemon was started anew, and `increase()` is used.
"""

BEFORE = 300
"""Seconds before a part in which a counter has a value; and what a first sample of a counter of seconds may have."""
_ALLOCATED = "gpusteward_container_allocated_seconds_total"
_OBSERVED = "gpusteward_device_observed_seconds_total"
_DEVICE = "cluster, node, uuid, gpu_instance"


def grown(name: str) -> str:
    """Return the growth of each series of a counter."""
    first, last = f"min_over_time({name}[RANGE])", f"last_over_time({name}[RANGE])"
    before = _before(name)
    past = f"{first} and on ({_DEVICE}) {_found()} unless {before}"
    if name.startswith("gpusteward_container_"):
        past += f" unless ignoring (resource) (min_over_time({_ALLOCATED}[RANGE]) <= {BEFORE})"
    old = f"({before} <= {first} or ({past}))"
    fell = f"(increase({name}[RANGE]) and resets({name}[RANGE]) > 0)"
    return f"({fell} or {last} - {old} or {last})"


def _found() -> str:
    """Return the devices that are new to this Prometheus, and not to their daemon."""
    return f"((min_over_time({_OBSERVED}[RANGE]) > {BEFORE}) unless {_before(_OBSERVED)})"


def _before(name: str) -> str:
    return f"last_over_time({name}[{BEFORE}s] offset RANGE)"
