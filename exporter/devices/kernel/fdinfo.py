"""
The kernel's text about one open file of a DRM device: `/proc/<pid>/fdinfo/<fd>`.

What comes in: the text. What goes out: a `Client`, or None if no DRM driver wrote it.

The rule: a number counts only in a known unit, and a value that is not printed is unknown. `resident` is the memory
held; `total` is higher than that. `shared` is a part of `total`, not of `resident`, so their difference may be
negative. Format: https://docs.kernel.org/gpu/drm-usage-stats.html; which driver prints what: docs/devices.md.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from exporter.devices.kernel.sums import known_sum

_LOCAL = re.compile(r"vram\d*|(?:stolen-)?local\d+", re.ASCII)
_UNITS = {"": 1, " KiB": 1 << 10, " MiB": 1 << 20}
_BYTES = re.compile(r"(\d{1,19})( KiB| MiB|)", re.ASCII)
_NANOSECONDS = re.compile(r"(\d{1,19}) ns", re.ASCII)
_NUMBER = re.compile(r"\d{1,20}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Engine:
    """
    The time for which one client kept the engines of a class busy, since it was opened.

    Attributes:
        nanoseconds: of work, all engines of the class together.
        cycles: the same in clock cycles; None where not printed.
        total_cycles: the clock cycles that passed meanwhile; None where not printed.
        capacity: number of engines of this class.

    """

    nanoseconds: int | None = None
    cycles: int | None = None
    total_cycles: int | None = None
    capacity: int = 1


@dataclass(frozen=True, slots=True)
class Client:
    """
    One open file of a DRM device, as its driver describes it.

    Attributes:
        id: of the file, the same for all processes with a descriptor of it; None if missing or no number.
        pdev: PCI address; empty for a device that is not on PCI. All partitions of one GPU print the same.
        resident: bytes that are in a region now, by region; None where the number cannot be believed.
        shared: bytes of a region's buffers of which other clients have a handle, resident or not.
        problems: a word for each value that breaks the format.

    """

    driver: str
    id: int | None = None
    pdev: str = ""
    resident: Mapping[str, int | None] = field(default_factory=dict)
    shared: Mapping[str, int | None] = field(default_factory=dict)
    engines: Mapping[str, Engine] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def memory(self) -> int | None:
        """Bytes in the device's own memory; None where none is printed, as on a GPU that uses the host's memory."""
        return known_sum(size for region, size in self.resident.items() if local(region))

    @property
    def memory_sure(self) -> int | None:
        """Bytes of which surely no other client has a handle; 0 with drivers that do not print the shared bytes."""
        if self.memory is None:
            return None
        held = ((size, self.shared.get(region)) for region, size in self.resident.items() if local(region))
        return sum(max(0, size - shared) for size, shared in held if size is not None and shared is not None)


def local(region: str) -> bool:
    """Say whether a region is the device's own memory (`vram`, `vram0`, `local0`, `stolen-local0`), not the host's."""
    return _LOCAL.fullmatch(region) is not None


def parse(text: str) -> Client | None:
    """Read the text of one descriptor; None without `drm-driver`: no DRM client, or one that prints nothing now."""
    lines = list(_lines(text))
    first = dict(reversed(lines))
    if not first.get("drm-driver"):
        return None
    problems: list[str] = []
    resident = {
        **_regions(first, "drm-memory-", problems),  # before 6.13; newer amdgpu prints both, with the same number
        **_regions(first, "drm-resident-", problems),
    }
    number = first.get("drm-client-id")
    if number is None or not _NUMBER.fullmatch(number):
        problems.append("client_id")
        number = None
    return Client(
        driver=first["drm-driver"],
        id=None if number is None else int(number),
        pdev=first.get("drm-pdev", "").lower(),
        resident=resident,
        shared=_regions(first, "drm-shared-", problems),
        engines=_engines(lines, first, problems),
        problems=tuple(dict.fromkeys(problems)),
    )


def _lines(text: str) -> Iterator[tuple[str, str]]:
    # A last line without a line feed was cut short, because the process ended during the read: it may lack digits.
    for line in text.split("\n")[:-1]:
        key, colon, value = line.partition(":")
        if colon:
            yield key.strip(), value.strip()


def _regions(values: Mapping[str, str], prefix: str, problems: list[str]) -> dict[str, int | None]:
    regions: dict[str, int | None] = {}
    for key, value in values.items():
        if key.startswith(prefix):
            match = _BYTES.fullmatch(value)
            if match is None:
                problems.append("unit")
            regions[key.removeprefix(prefix)] = None if match is None else int(match[1]) * _UNITS[match[2]]
    return regions


def _engines(lines: list[tuple[str, str]], first: Mapping[str, str], problems: list[str]) -> dict[str, Engine]:
    # amdgpu gives two engines one name (UVD and VCN are both `dec`): they are one class, and their times add up.
    nanoseconds: dict[str, int] = {}
    for key, value in lines:
        if key.startswith("drm-engine-") and not key.startswith("drm-engine-capacity-"):
            if match := _NANOSECONDS.fullmatch(value):
                name = key.removeprefix("drm-engine-")
                nanoseconds[name] = nanoseconds.get(name, 0) + int(match[1])
            else:
                problems.append("engine")
    cycles = _numbers(first, "drm-cycles-")
    passed = _numbers(first, "drm-total-cycles-")
    capacity = _numbers(first, "drm-engine-capacity-")
    if 0 in capacity.values():
        problems.append("capacity")
    return {
        name: Engine(nanoseconds.get(name), cycles.get(name), passed.get(name), capacity.get(name) or 1)
        for name in {**nanoseconds, **cycles}
    }


def _numbers(values: Mapping[str, str], prefix: str) -> dict[str, int]:
    return {
        key.removeprefix(prefix): int(value)
        for key, value in values.items()
        if key.startswith(prefix) and _NUMBER.fullmatch(value)
    }
