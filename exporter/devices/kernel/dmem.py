"""
The text of the kernel's dmem controller: device memory of a cgroup, each buffer counted once.

What comes in: the text of `dmem.capacity`, `dmem.current`, `dmem.peak` or `dmem.max`. What goes out: bytes by PCI
address.

The rule: the regions of a device's own memory are `vram` (amdgpu), `vram<n>` (xe, one per tile) and `vidmem` (NVIDIA).
Other regions do not count. `max` is no number, and a missing file means that nothing is known. Linux 6.14 and later:
https://docs.kernel.org/admin-guide/cgroup-v2.html#dmem. NVIDIA's R615 writes `nvidia/00000000:02:00.0/vidmem`:
https://docs.nvidia.com/dynamo/dev/many-model-serving/per-gpu-compute-and-memory-limits-with-mps
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from exporter.devices.kernel.sums import known_sum

_PCI = r"(?P<domain>[0-9a-f]{4,8}):(?P<bus>[0-9a-f]{2}):(?P<device>[0-9a-f]{2})(?:\.(?P<function>[0-7]))?"
_ADDRESS = re.compile(_PCI, re.ASCII | re.IGNORECASE)
_REGION = re.compile(rf"[a-z]+/(?P<pci>{_PCI})/(?P<region>[^\s/]+)", re.ASCII | re.IGNORECASE)
_OWN = re.compile(r"vram\d*|vidmem", re.ASCII)


def address(text: str) -> str:
    """
    Write a PCI address as the kernel does, `0000:02:00.0`; empty if the text is none.

    NVIDIA's driver and library write the domain in eight digits. Slurm expects names without the function (its
    `gres_shard.c` reads either).
    """
    match = _ADDRESS.fullmatch(text)
    if match is None:
        return ""
    function = match["function"] or "0"
    return f"{int(match['domain'], 16):04x}:{match['bus']}:{match['device']}.{function}".lower()


def parse(text: str) -> Mapping[tuple[str, str], int | None]:
    """Read a file: (PCI address, region) to bytes, None for `max`. Lines of another form are left out."""
    regions: dict[tuple[str, str], int | None] = {}
    for line in text.splitlines():
        name, _, value = line.strip().rpartition(" ")
        match = _REGION.fullmatch(name)
        if match is not None and (value == "max" or value.isdecimal()):
            regions[address(match["pci"]), match["region"]] = None if value == "max" else int(value)
    return regions


@lru_cache(maxsize=256)  # most containers have 0 or `max` in all regions: the same text a hundred times per round
def own(text: str | None) -> Mapping[str, int]:
    """Add up the regions of each device's own memory, by PCI address. A device with a region at `max` is left out."""
    regions: dict[str, list[int | None]] = {}
    for (pci, region), size in parse(text or "").items():
        if _OWN.fullmatch(region):
            regions.setdefault(pci, []).append(size)
    return {pci: total for pci, sizes in regions.items() if (total := known_sum(sizes)) is not None}
