"""
What the kernel's dmem controller says: device memory of a cgroup, each buffer counted once.

What comes in: the text of `dmem.capacity`, `dmem.current`, `dmem.peak` or `dmem.max`. What goes out: bytes by PCI
address.

The law: a device's own memory is what is named `vram`, `vram<n>` (a tile each) or `vidmem`; other regions stand apart.
`max` is no number, and a file that is not there says nothing. Linux 6.14 and later:
https://docs.kernel.org/admin-guide/cgroup-v2.html#dmem
"""

import re
from collections.abc import Mapping
from functools import lru_cache

_REGION = re.compile(
    r"[a-z]+/(?P<pci>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])/(?P<region>[^\s/]+)", re.ASCII | re.IGNORECASE
)
_OWN = re.compile(r"vram\d*|vidmem", re.ASCII)


def parse(text: str) -> Mapping[tuple[str, str], int | None]:
    """Read a file: (PCI address, region) to bytes, None for `max`. Lines of another form are left out."""
    found: dict[tuple[str, str], int | None] = {}
    for line in text.splitlines():
        name, _, value = line.strip().rpartition(" ")
        match = _REGION.fullmatch(name)
        if match is not None and (value == "max" or value.isdecimal()):
            found[match["pci"].lower(), match["region"]] = None if value == "max" else int(value)
    return found


@lru_cache(maxsize=256)  # of most containers all regions are 0, or `max`: the same text a hundred times a round
def own(text: str | None) -> Mapping[str, int]:
    """Add up the regions of each device's own memory, by PCI address; without one of which some is `max`."""
    found: dict[str, list[int | None]] = {}
    for (pci, region), size in parse(text or "").items():
        if _OWN.fullmatch(region):
            found.setdefault(pci, []).append(size)
    return {
        pci: sum(known)
        for pci, sizes in found.items()
        if len(known := [s for s in sizes if s is not None]) == len(sizes)
    }
