"""
The factor of an installation (HAMi's `memoryFactor`, vgpu-manager's `deviceMemoryFactor`), which no pod shows.

What comes in: the candidates of one limit holder on one device. What goes out: the same candidates; those whose factor
was open are in bytes now, or reported only, or excluded.

The rule: the scheduler writes what it granted in MiB, after it multiplied. So an annotation that is a whole multiple of
the resource says the factor, and is right. Without it nothing says the factor: the resource is never enforced, and an
amount in which no program could run is no amount at all.

Sources: Project-HAMi/HAMi v2.10.0 pkg/device/{nvidia,hygon,ascend}/device.go (GenerateResourceRequests multiplies by
memoryFactor, 1 in the chart); coldzerofear/vgpu-manager 3d7f66d pkg/device/allocator/allocator.go
(resolveContainerNeeds), pkg/device/types.go (NodeConfigInfo).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from exporter.limits.answers import Candidate
from exporter.limits.calibration import LARGEST_FACTOR
from exporter.limits.rows import Trust, What

SMALLEST_LIKELY = 256 * 2**20
"""Bytes. A CUDA context alone takes 200 to 500 MiB: who writes less in MiB does not count in MiB."""


def settled(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Find the factor of each candidate whose factor is open, or say that it stays open."""
    written = [c for c in candidates if c.trust is Trust.SCHEDULER and c.what is not What.COMPUTE and c.valid]
    granted = sorted((c for c in written if c.factor is not None), key=lambda c: c.bytes or 0)
    return [
        _settled(candidate, (c.bytes or 0 for c in granted if c.system == candidate.system))
        if candidate.factor is None and candidate.valid
        else candidate
        for candidate in candidates
    ]


def _settled(candidate: Candidate, granted: Iterable[int]) -> Candidate:
    amount = candidate.bytes or 0
    for grant in granted:
        factor, rest = divmod(grant, amount)
        if not rest and 1 <= factor <= LARGEST_FACTOR:
            return replace(candidate, bytes=grant, factor=factor)
    if amount < SMALLEST_LIKELY:
        why = f"{candidate.key} counts in units of this installation, which nothing here says"
        return replace(candidate, excluded=why, problems=(*candidate.problems, why))
    if candidate.row is not None and candidate.row.calibrate:
        return candidate  # the unit is in doubt already
    why = f"this installation may count {candidate.key} in larger units, and no annotation of its scheduler says so"
    return replace(candidate, doubts=(*candidate.doubts, why))
