"""
Power, heat and clocks of a simulated GPU.

What comes in: a GPU's index and the time. What goes out: its `Health`, and its `Hardware`, which never changes.

The rule: all figures follow from the energy, which is the area below the load. Power is its slope over the last second,
as real GPUs average it. Temperature follows the last 45 seconds. So energy never falls, and the figures agree at any
time without state.
"""

from dataclasses import replace
from functools import cache

from exporter.model import Hardware, Health
from exporter.simulated.curves import Curve, curve
from exporter.simulated.scene import HOUR, scene

MHZ = 1e6
SLICES = 7
"""Compute slices of a GPU with MIG."""
WARMING = 45.0
"""Seconds in which the heat sink follows the power."""
PER_FULL_POWER = 54.0
"""Degrees Celsius above the air's temperature at full power."""
POWER_CAP = 0.97
"""Share of the highest power at which the driver lowers the clocks."""
TOO_HOT = 85.0
HBM_ABOVE_DIE = 8
"""Degrees Celsius by which the memory is hotter than the die."""


def health(index: int, time: float) -> Health:
    """Return the health of GPU `index` at `time`."""
    row = scene().gpus[index]
    model = row.model
    watts = joules(index, time) - joules(index, time - 1)
    heat = (joules(index, time) - joules(index, time - WARMING)) / WARMING
    degrees = row.inlet + PER_FULL_POWER * heat / model.max_watts
    capped = watts >= POWER_CAP * model.max_watts
    hot = degrees >= TOO_HOT
    idle = watts < model.idle_watts + 1
    slower = 0.06 * (watts / model.max_watts) + 0.05 * capped + 0.08 * hot
    sm = model.idle_mhz if idle else 15 * round(model.boost_mhz * (1 - slower) / 15)  # in steps of 15 MHz
    return Health(
        power_watts=round(watts, 3),
        energy_joules=round(scene().uptime_hours * HOUR * model.idle_watts * 3 + joules(index, time), 3),
        temperature_celsius=round(degrees),
        clocks_hertz={
            "graphics": sm * MHZ,
            "sm": sm * MHZ,
            "memory": model.memory_mhz * MHZ,
            "video": round(sm * 0.9) * MHZ,
        },
        throttled=dict.fromkeys(scene().throttles, False) | {"sw_power_cap": capped, "sw_thermal_slowdown": hot},
        ecc_errors={"corrected": row.ecc_corrected, "uncorrected": 0},
        memory_temperature_celsius=round(degrees + HBM_ABOVE_DIE),
    )


def hardware(index: int) -> Hardware:
    """Return the condition of GPU `index`: nothing is broken. With MIG the driver does not report remapped rows."""
    row = scene().gpus[index]
    model = row.model
    condition = Hardware(
        vbios_version=model.vbios,
        power_limit_watts=model.max_watts,
        power_default_limit_watts=model.max_watts,
        temperature_thresholds_celsius=model.thresholds,
        recovery_action="none",
        pcie_replays=0,
    )
    if row.instances:
        return condition
    return replace(
        condition,
        remapped_rows={"correctable": 0, "uncorrectable": 0},
        row_remap_pending=False,
        row_remap_failure=False,
        row_remap_banks={"max": model.banks, "high": 0, "partial": 0, "low": 0, "none": 0},
    )


def joules(index: int, time: float) -> float:
    """Return the energy of GPU `index` from the start of the simulation to `time`; negative before the start."""
    model = scene().gpus[index].model
    worked = sum(share * load.integral(time - offset) for share, load, offset in _loads(index))
    return model.idle_watts * time + (model.max_watts - model.idle_watts) * worked


@cache
def _loads(index: int) -> tuple[tuple[float, Curve, float], ...]:
    """Return the loads on a GPU: weight, curve, and the time at which the curve begins."""
    slices = {instance.id: instance.slices for instance in scene().gpus[index].instances}
    loads = []
    for pod in scene().pods:
        for process in (process for container in pod.containers for process in container.processes):
            if process.device.gpu != index:
                continue
            weight = 1.0 if process.device.instance is None else slices[process.device.instance] / SLICES
            load, offset = curve(process.load), 0.0
            if pod.life is not None:
                # Generations follow one another, and the load of each ends before the next begins.
                load, offset = Curve(load.points, pod.life.period), pod.life.first
            loads.append((weight, load, offset))
    return tuple(loads)
