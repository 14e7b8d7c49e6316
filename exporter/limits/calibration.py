"""
The unit of a resource, checked against the node: the advertised amount must fit the memory of its devices.

What comes in: a row, the node's capacity, its devices. What goes out: the unit, and how sure it is.

The rule: capacity x unit, or the memory that a system registers, must be within 10 % of the devices' memory. If it does
not fit, the limit is reported and never enforced, because a wrong unit would evict innocent pods. Two examples: a flag
of the plugin decides whether a unit of `aliyun.com/gpu-mem` is a GiB or a MiB. HAMi can hand out twice the memory of a
GPU; half of that is all the memory the GPU has.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from exporter.limits.decoding import DeclarationError, quantity
from exporter.limits.devices import LeafDevice, device_name
from exporter.limits.node_devices import memory_factor, registered
from exporter.limits.rows import Row
from exporter.model import NodeFacts

TOLERANCE = Fraction(1, 10)
EXACT = Fraction(1, 50)
"""A factor that is found by division must fit better: from a factor of 10 on, any sum is within 5 % of a multiple."""
LARGEST_FACTOR = 1024
_SMALLEST_DEVICE, _LARGEST_DEVICE = 2**30, 2**40
"""No device that pods share has less than 1 GiB or more than 1 TiB."""
SET_UNIT = "an operator can set the unit in limits.rows"
"""What to do about a unit that nothing proves; docs/configuration.md says how such a row is written."""
_GPU_COUNTS = ("aliyun.com/gpu-count", "volcano.sh/gpu-number", "nvidia.com/gpu")


class Fit(StrEnum):
    """How sure a unit is."""

    GIVEN = "given"  # the row has one unit, and nothing to check it against
    FITS = "fits"
    ASSUMED = "assumed"  # the row has several units, and nothing to check them against
    MISFIT = "misfit"


@dataclass(frozen=True, slots=True)
class Calibration:
    """The unit in bytes, how sure it is, and why (for people). `factor`: the node's factor, included in the unit."""

    unit: Fraction
    fit: Fit
    why: str = ""
    factor: int = 1


def calibrate(row: Row, node: NodeFacts | None, devices: Iterable[LeafDevice]) -> Calibration:
    """Find the unit of a memory row in bytes."""
    usual = row.units[0]
    if why := _registered_misfit(row, node, devices := tuple(devices)):
        return Calibration(usual, Fit.MISFIT, why)
    if row.factor and node and (factor := memory_factor(node.annotations.get(row.factor, ""))):
        return Calibration(usual * factor, Fit.FITS, f"{row.factor}: factor {factor}", factor)
    choice = len(row.units) > 1 or (row.scaled and bool(row.calibrate))
    unchecked = Fit.ASSUMED if choice else Fit.GIVEN
    if not row.calibrate:
        return Calibration(usual, unchecked)
    capacity = _capacity(node, row.calibrate)
    if node is None or not capacity:
        unknown = "the node is unknown" if node is None else f"the node does not advertise {row.calibrate}"
        return Calibration(usual, unchecked, f"unit assumed, because {unknown}; {SET_UNIT}")
    memories = [device.memory for device in devices]
    if not memories or None in memories:
        return _plausible(row, node, capacity, unchecked)
    total = sum(memory for memory in memories if memory is not None)
    for unit in row.units:
        if _close(capacity * unit, total, TOLERANCE):
            return Calibration(unit, Fit.FITS, f"{row.calibrate}: {_units(capacity, unit)} fits the devices")
    if row.scaled:
        factor = round(total / (capacity * usual))
        if 1 < factor <= LARGEST_FACTOR and _close(capacity * usual * factor, total, EXACT):
            unit = usual * factor
            return Calibration(unit, Fit.FITS, f"{row.calibrate}: {_units(capacity, unit)} fits (factor {factor})")
    return Calibration(
        usual,
        Fit.MISFIT,
        f"the unit does not fit: the node advertises {_units(capacity, usual)} as {row.calibrate}, "
        f"but its devices have {_size(Fraction(total))}; {SET_UNIT}",
    )


def _registered_misfit(row: Row, node: NodeFacts | None, devices: Iterable[LeafDevice]) -> str:
    """Describe a device whose registered memory differs from its real one: scaled (as HAMi can) or wrong."""
    said: dict[str, int] = dict(registered(node.annotations.get(row.register, ""))) if node and row.register else {}
    for device in devices:
        if device.key is None or device.mig or device.memory is None:
            continue
        size = said.get(device.key.uuid)
        if size is not None and not _close(Fraction(size), device.memory, TOLERANCE):
            has = f"but the device has {_size(Fraction(device.memory))}"
            wrong = f"{row.register} registers {_size(Fraction(size))} for {device_name(device.key)}, {has}"
            return f"the unit does not fit: {wrong}; no amount counts until the two agree"
    return ""


def _plausible(row: Row, node: NodeFacts, capacity: Fraction, unchecked: Fit) -> Calibration:
    """Choose the unit by the memory that a device can have at all; for offline use, without the devices' memory."""
    count = next((number for number in (_capacity(node, key) for key in _GPU_COUNTS) if number), Fraction(1))
    possible = [unit for unit in row.units if _SMALLEST_DEVICE <= capacity / count * unit <= _LARGEST_DEVICE]
    if len(possible) == 1 and len(row.units) > 1:
        why = f"unit assumed: {row.calibrate} can only mean {_units(capacity, possible[0])}; {SET_UNIT}"
        return Calibration(possible[0], Fit.ASSUMED, why)
    why = f"unit assumed: {row.calibrate} cannot be checked, because the memory of the devices is unknown; {SET_UNIT}"
    return Calibration(row.units[0], unchecked, why)


def _capacity(node: NodeFacts | None, key: str) -> Fraction:
    text = node.advertised().get(key) if node else None
    try:
        return quantity(text) if text is not None else Fraction(0)
    except DeclarationError:
        return Fraction(0)


def _close(amount: Fraction, expected: int, tolerance: Fraction) -> bool:
    return abs(amount - expected) <= tolerance * expected


def _units(capacity: Fraction, unit: Fraction) -> str:
    return f"{float(capacity):g} x {_size(unit)}"


def _size(amount: Fraction) -> str:
    for power, name in ((30, "GiB"), (20, "MiB")):
        if amount >= 2**power:
            return f"{float(amount / 2**power):.4g} {name}"
    return f"{float(amount):g} B"
