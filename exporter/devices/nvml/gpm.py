"""
The share of busy SMs, by the GPU's own counters (GPM: Hopper and later, R525), for a GPU or a MIG GPU instance.

What comes in: a device, round after round. What goes out: the ratio between the last round and this one. It is None in
the first round, and on a GPU without GPM, which is no fault.

The rule: a figure is the difference of two samples. So one buffer of each device is kept for the next round, and each
buffer that is dropped is freed. The ids of MIG instances are reused at once, so their buffers are keyed by UUIDs, too.
Counters of NVML: https://docs.nvidia.com/deploy/nvml-api/group__nvmlGpmFunctions.html
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

from exporter.devices.errors import UnsupportedError
from exporter.devices.nvml.errors import refusal
from exporter.devices.nvml.inventory import FoundDevice, FoundGpu
from exporter.devices.nvml.library import GpmSample, Library
from exporter.model import DeviceKey, GpuUuid

APART = 0.1
"""Seconds between two samples, at least, as NVML demands; sooner the last figure is kept."""
LONGEST = 600.0
"""Seconds after which a sample is too old for a comparison: the figure would not describe the present."""
FULL = 100.0

_DeviceId = tuple[DeviceKey, tuple[str, ...]]


@dataclass(slots=True)
class _Kept:
    """The sample of the last round, a buffer for the next one, and the last ratio."""

    last: GpmSample
    spare: GpmSample
    at: float | None = None
    ratio: float | None = None


class Gpm:
    """The samples of all devices. On the driver thread only; `monotonic` returns seconds."""

    def __init__(self, library: Library, monotonic: Callable[[], float]) -> None:
        self._library = library
        self._monotonic = monotonic
        self._supported: dict[GpuUuid, bool] = {}
        self._kept: dict[_DeviceId, _Kept] = {}

    def sm(self, gpu: FoundGpu, device: FoundDevice) -> float | None:
        """Return the ratio of SMs that were busy since the last round. Raises CallError and DeviceLostError."""
        if not self._supports(gpu):
            return None
        key = (device.key, device.mig_uuids)
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = self._allocated()
        now = self._monotonic()
        if kept.at is not None and now - kept.at < APART:
            return kept.ratio
        before, kept.ratio = kept.at, None
        # If a call fails from here on, the next round still compares with a complete sample.
        self._library.gpm_read(gpu.handle, device.key.gpu_instance, kept.spare)
        kept.last, kept.spare, kept.at = kept.spare, kept.last, now
        if before is not None and now - before <= LONGEST:
            kept.ratio = _ratio(self._library.gpm_sm(kept.spare, kept.last))
        return kept.ratio

    def keep(self, devices: Collection[FoundDevice], of: GpuUuid) -> None:
        """Free the samples of a GPU's devices that no longer exist."""
        there = {(device.key, device.mig_uuids) for device in devices}
        for key in [key for key in self._kept if key[0].uuid == of and key not in there]:
            self._free(self._kept.pop(key))

    def keep_gpus(self, there: Collection[GpuUuid]) -> None:
        """Free the samples of all other GPUs: a GPU that was lost may come back with new counters."""
        for key in [key for key in self._kept if key[0].uuid not in there]:
            self._free(self._kept.pop(key))
        self._supported = {uuid: known for uuid, known in self._supported.items() if uuid in there}

    def close(self) -> None:
        """Free everything, and forget which GPUs have GPM; before the library is shut down."""
        while self._kept:
            self._free(self._kept.popitem()[1])
        self._supported.clear()

    def _supports(self, gpu: FoundGpu) -> bool:
        known = self._supported.get(gpu.uuid)
        if known is None:
            try:
                known = self._library.gpm_supported(gpu.handle)
            except UnsupportedError:
                known = False
            self._supported[gpu.uuid] = known
        return known

    def _allocated(self) -> _Kept:
        first = self._library.gpm_alloc()
        try:
            return _Kept(first, self._library.gpm_alloc())
        except BaseException:
            self._library.gpm_free(first)
            raise

    def _free(self, kept: _Kept) -> None:
        self._library.gpm_free(kept.last)
        self._library.gpm_free(kept.spare)


def _ratio(percent: float) -> float:
    """Convert a percentage to a ratio; an impossible value counts as no answer."""
    if not math.isfinite(percent) or not 0 <= percent <= FULL + 1:
        raise refusal("nvmlGpmMetricsGet", 0, f"an impossible answer: {percent:g} % of the SMs")
    return min(1.0, percent / FULL)
