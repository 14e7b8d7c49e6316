"""
SM ratios against a known duty: what NVML says of the device and of the process, and what GPM says.

What comes in: a lab. What goes out: rows. How NVML counts half of the SMs is asked, not expected.
"""

from __future__ import annotations

import asyncio

from exporter.model import ProcessUtilization
from gpu.lab import Lab, Tenant
from gpu.protocol import Do
from gpu.table import Row, not_here, within

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
NEAR, COARSE = 0.1, 0.2
"""How near GPM and the driver's statistics of processes are expected to be to the share that was reached."""


async def ratios(lab: Lab) -> list[Row]:
    """SM ratios against a known duty, on all SMs and on half of them."""
    async with lab.tenant() as one:
        rows = []
        for share in SHARES:
            rows += await _ratio(lab, one, share, "all SMs")
        return rows + await _ratio(lab, one, 1.0, "half of the SMs", half=True)


async def _ratio(lab: Lab, one: Tenant, share: float, where: str, *, half: bool = False) -> list[Row]:
    seconds = lab.place.seconds
    blocks = lab.hello.blocks // 2 if half else 0
    one.tell(Do.BUSY, share=share, seconds=2 * seconds, blocks=blocks)
    await asyncio.sleep(seconds / 2)
    await lab.sample()
    await asyncio.sleep(seconds)
    seen = await lab.sample()
    device = lab.utilization(seen)
    reached = (await one.heard(2 * seconds + 30)).share or 0.0
    what = f"duty {share:g} on {where}"
    expected = reached / 2 if half else reached
    rows = [Row(f"{what}: some kernel ran (NVML)", f"{reached:.2f}", _ratio_text(device.busy))]
    if (sm := device.sm) is None:
        rows.append(not_here(f"{what}: SMs busy (GPM)", "no GPM: before Hopper, or a vGPU"))
    else:
        rows.append(within(f"{what}: SMs busy (GPM)", expected, sm, NEAR))
    if seen.utilization is None:
        rows.append(not_here(f"{what}: SMs of the process (NVML)", "the driver does not tell"))
    elif half:
        rows.append(
            Row(f"{what}: SMs of the process (NVML)", "0.50 or 1.00", _ratio_text(_sm(seen.utilization, one.pid)))
        )
    else:
        rows.append(within(f"{what}: SMs of the process (NVML)", reached, _sm(seen.utilization, one.pid), COARSE))
    return rows


def _sm(found: tuple[ProcessUtilization, ...], pid: int) -> float:
    """A process that is not among the busy ones was idle."""
    return next((one.sm or 0.0 for one in found if one.pid == pid), 0.0)


def _ratio_text(ratio: float | None) -> str:
    return "none" if ratio is None else f"{ratio:.2f}"
