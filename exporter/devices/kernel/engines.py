"""
The share of time for which one client kept the engines busy, between two readings.

What comes in: the engine times of now, and those kept of the reading before. What goes out: a ratio for each class of
engines, and the times to keep.

The rule: the first reading of a client has no ratio. A reading without passed time has none either: an xe device that
sleeps counts no cycles. A counter that falls is held at its highest value: drivers round and restart, and work is never
undone. amdgpu prints only engines that ever worked. An engine that was printed once, and is not now, has done nothing
since. One that was never printed is unknown, because ROCm submits its work to the GPU without the kernel.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from exporter.devices.kernel.fdinfo import Engine
from exporter.devices.kernel.sums import known_sum

SHADERS = frozenset({"gfx", "compute", "render", "rcs", "ccs"})
"""Classes whose engines share the compute units: amdgpu gfx and compute, i915 render and compute, xe rcs and ccs."""
ENCODERS = frozenset({"enc", "enc_1"})
DECODERS = frozenset({"dec", "jpeg"})
"""amdgpu's. The video engines of i915 and xe do both, and do not report which."""
NANOSECONDS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class EngineTimes:
    """The times kept of a class of engines: the highest `busy`, `passed` in the same unit, and when (seconds)."""

    busy: int
    passed: int | None
    at: float


def advance(before: EngineTimes | None, engine: Engine | None, at: float) -> tuple[float | None, EngineTimes | None]:
    """
    Return the ratio since `before`, 0 to 1, and the times to keep; `at` is monotonic seconds.

    `engine` is None where it is not printed now.
    """
    if engine is None:
        if before is None or before.passed is not None:
            return None, before
        return (0.0 if at > before.at else None), EngineTimes(before.busy, None, at)
    now = _times(engine, at)
    if now is None:
        return None, before
    if before is None or (before.passed is None) is not (now.passed is None):
        return None, now
    kept = EngineTimes(max(before.busy, now.busy), now.passed, at)
    if now.passed is None or before.passed is None:
        time = (at - before.at) * NANOSECONDS
    else:
        time = float(now.passed - before.passed)
    if time <= 0:
        return None, kept
    return min(1.0, (kept.busy - before.busy) / (time * engine.capacity)), kept


def advance_all(
    before: Mapping[str, EngineTimes], engines: Mapping[str, Engine], at: float
) -> tuple[dict[str, float | None], dict[str, EngineTimes]]:
    """Return the ratio of each class that was ever printed, and the times to keep of each."""
    ratios: dict[str, float | None] = {}
    kept: dict[str, EngineTimes] = {}
    for name in {**before, **engines}:
        ratios[name], reading = advance(before.get(name), engines.get(name), at)
        if reading is not None:
            kept[name] = reading
    return ratios, kept


def of_class(ratios: Mapping[str, float | None], names: frozenset[str]) -> float | None:
    """Add up the ratios of these classes; None if none was ever printed, or one is unknown."""
    return known_sum(ratio for name, ratio in ratios.items() if name in names)


def _times(engine: Engine, at: float) -> EngineTimes | None:
    if engine.nanoseconds is not None:
        return EngineTimes(engine.nanoseconds, None, at)
    if engine.cycles is not None and engine.total_cycles is not None:
        return EngineTimes(engine.cycles, engine.total_cycles, at)
    return None
