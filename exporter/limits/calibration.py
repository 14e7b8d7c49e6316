"""
The unit of a resource, checked against the node: what it advertises must fit the memory that its devices have.

What comes in: a row, the node's capacity, its devices. What goes out: the unit, and how sure it is.

The law: a wrong unit would evict innocent pods (one unit of `aliyun.com/gpu-mem` is a GiB or a MiB, by a flag of the
plugin; half of a GPU is all of it where HAMi hands out twice its memory). So capacity x unit, or what a system
registers, must be within 10 % of the devices' memory; what does not fit is reported and never enforced.
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
"""Found factors must fit better: with a factor of 10 every sum is within 5 % of some multiple."""
LARGEST_FACTOR = 1024
_SMALLEST_DEVICE, _LARGEST_DEVICE = 2**30, 2**40
"""No device that pods share has less than 1 GiB or more than 1 TiB."""
_GPU_COUNTS = ("aliyun.com/gpu-count", "volcano.sh/gpu-number", "nvidia.com/gpu")


class Fit(StrEnum):
    """How sure a unit is."""

    GIVEN = "given"  # the row leaves no choice, and there is nothing to check it against
    FITS = "fits"
    ASSUMED = "assumed"  # there is a choice, and nothing to check it against
    MISFIT = "misfit"


@dataclass(frozen=True, slots=True)
class Calibration:
    """The unit in bytes, how sure it is, and why (for people). `factor`: what the node says that the unit includes."""

    unit: Fraction
    fit: Fit
    why: str = ""
    factor: int = 1


def calibrate(row: Row, node: NodeFacts | None, devices: Iterable[LeafDevice]) -> Calibration:
    """Find the unit of a row of memory."""
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
        return Calibration(usual, unchecked, f"unit assumed: no node shows {row.calibrate}, so it cannot be checked")
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
        f"uncalibrated: the node advertises {_units(capacity, usual)} as {row.calibrate}, "
        f"and its devices have {_size(Fraction(total))}",
    )


def _registered_misfit(row: Row, node: NodeFacts | None, devices: Iterable[LeafDevice]) -> str:
    """Tell how what the system registered of a device differs from it: its memory is scaled (HAMi can), or it errs."""
    said: dict[str, int] = dict(registered(node.annotations.get(row.register, ""))) if node and row.register else {}
    for device in devices:
        if device.key is None or device.mig or device.memory is None:
            continue
        size = said.get(device.key.uuid)
        if size is not None and not _close(Fraction(size), device.memory, TOLERANCE):
            has = f"and the device has {_size(Fraction(device.memory))}"
            return f"uncalibrated: {row.register} says {_size(Fraction(size))} of {device_name(device.key)}, {has}"
    return ""


def _plausible(row: Row, node: NodeFacts, capacity: Fraction, unchecked: Fit) -> Calibration:
    """Choose by what a device can have at all: offline, where the devices' memory is not known."""
    count = next((number for number in (_capacity(node, key) for key in _GPU_COUNTS) if number), Fraction(1))
    possible = [unit for unit in row.units if _SMALLEST_DEVICE <= capacity / count * unit <= _LARGEST_DEVICE]
    if len(possible) == 1 and len(row.units) > 1:
        why = f"unit assumed: of {row.calibrate} only {_units(capacity, possible[0])} is possible"
        return Calibration(possible[0], Fit.ASSUMED, why)
    return Calibration(
        row.units[0], unchecked, f"unit assumed: {row.calibrate} cannot be checked, as the devices' memory is not known"
    )


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
