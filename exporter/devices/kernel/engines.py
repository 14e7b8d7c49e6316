"""
How busy one client kept the engines, between two readings.

What comes in: engine times of now, and what was kept of the reading before. What goes out: a ratio for each class of
engines, and what to keep.

The rule: a first sight has no ratio, and time that stood still has none either (an xe device that sleeps counts no
cycles). A counter that goes back is held where it was: drivers round and restart, work is not undone. amdgpu prints
only engines that ever worked: one that was printed once and is not now has done nothing since; one that never was is
unknown, because ROCm hands its work to the GPU without the kernel.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from exporter.devices.kernel.fdinfo import Engine
from exporter.devices.kernel.sums import known_sum

SHADERS = frozenset({"gfx", "compute", "render", "rcs", "ccs"})
"""Classes whose engines share the compute units: amdgpu gfx and compute, i915 render and compute, xe rcs and ccs."""
ENCODERS = frozenset({"enc", "enc_1"})
DECODERS = frozenset({"dec", "jpeg"})
"""amdgpu's. The video engines of i915 and xe do both, and do not tell which."""
NANOSECONDS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class EngineTimes:
    """What is kept of a class of engines: the most that was read, `passed` in the same unit, and when (seconds)."""

    busy: int
    passed: int | None
    at: float


def advance(before: EngineTimes | None, engine: Engine | None, at: float) -> tuple[float | None, EngineTimes | None]:
    """
    Give the ratio since `before`, 0 to 1, and what to keep; `at` is monotonic seconds.

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
    """Give the ratio of each class that was ever printed, and what to keep of each."""
    ratios: dict[str, float | None] = {}
    kept: dict[str, EngineTimes] = {}
    for name in {**before, **engines}:
        ratios[name], reading = advance(before.get(name), engines.get(name), at)
        if reading is not None:
            kept[name] = reading
    return ratios, kept


def of_class(ratios: Mapping[str, float | None], names: frozenset[str]) -> float | None:
    """Add up the ratios of these classes; None where none was ever printed, or one is unknown."""
    return known_sum(ratio for name, ratio in ratios.items() if name in names)


def _times(engine: Engine, at: float) -> EngineTimes | None:
    if engine.nanoseconds is not None:
        return EngineTimes(engine.nanoseconds, None, at)
    if engine.cycles is not None and engine.total_cycles is not None:
        return EngineTimes(engine.cycles, engine.total_cycles, at)
    return None
