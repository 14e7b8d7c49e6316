"""The stand-in for NVIDIA's runtime: what it adds to which container. In: specs. Out: mounts, or a refusal."""

from __future__ import annotations

import pytest

from cluster.toolkit import LIBRARY, MONITOR, STATE, RefusedError, injected

SOURCES = {LIBRARY: "/lib", STATE: "/state", MONITOR: "/cap"}
ALL, WATCHES = "NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_MIG_MONITOR_DEVICES=all"


def places(*env: str, capabilities: tuple[str, ...] = ()) -> list[str]:
    """Where a container has something that it had not, by its environment and its capabilities."""
    spec = {"process": {"env": env, "capabilities": {"bounding": capabilities}}, "mounts": [{"destination": "/proc"}]}
    own, *more = injected(spec, SOURCES)["mounts"]
    assert own == {"destination": "/proc"}
    assert all(one["source"] == SOURCES[one["destination"]] for one in more)
    return [one["destination"] for one in more]


def test_each_is_given_what_it_asks_for() -> None:
    """The driver, or one device of a workload, which is the device plugin's business; the monitor's device besides."""
    assert places() == places("NVIDIA_VISIBLE_DEVICES=GPU-1") == places("NVIDIA_MIG_MONITOR_DEVICES=") == []
    assert places(ALL) == [LIBRARY, STATE]
    assert places(ALL, WATCHES, capabilities=("CAP_KILL", "CAP_SYS_ADMIN")) == [LIBRARY, STATE, MONITOR]


def test_who_is_not_privileged_may_not_ask_for_the_monitor() -> None:
    """As the real one: the container does not start."""
    with pytest.raises(RefusedError, match="non privileged"):
        places(ALL, WATCHES, capabilities=("CAP_KILL",))
