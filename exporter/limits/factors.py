"""
The factor of an installation (HAMi's `memoryFactor`, vgpu-manager's `deviceMemoryFactor`), which no pod shows.

What comes in: the candidates of one limit holder on one device. What goes out: the same candidates. Those with an
unknown factor are now in bytes, or reported only, or excluded.

The rule: the scheduler multiplies, then writes the granted amount in MiB. So an annotation that is a whole multiple of
the resource's amount gives the factor. Without one the factor stays unknown, and the resource is never enforced. An
amount too small for any program is excluded then.

Sources: Project-HAMi/HAMi v2.10.0 pkg/device/{nvidia,hygon,ascend}/device.go (GenerateResourceRequests multiplies by
memoryFactor, 1 in the chart); coldzerofear/vgpu-manager 3d7f66d pkg/device/allocator/allocator.go
(resolveContainerNeeds), pkg/device/types.go (NodeConfigInfo).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from exporter.limits.answers import Candidate
from exporter.limits.calibration import LARGEST_FACTOR, SET_UNIT
from exporter.limits.rows import Trust, What

SMALLEST_LIKELY = 256 * 2**20
"""Bytes. A CUDA context alone takes 200 to 500 MiB, so a smaller number of MiB must be in another unit."""


def settled(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Find each unknown factor; where none is found, note that the candidate is excluded or must not be enforced."""
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
        why = f"the unit of {candidate.key} is unknown, because each installation chooses it; {SET_UNIT}"
        return replace(candidate, excluded=why, problems=(*candidate.problems, why))
    if candidate.row is not None and candidate.row.calibrate:
        return candidate  # the unit is in doubt already
    why = f"the unit of {candidate.key} may be larger on this installation, and no annotation shows it; {SET_UNIT}"
    return replace(candidate, doubts=(*candidate.doubts, why))
