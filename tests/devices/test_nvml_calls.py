"""How often a round asks the driver: each call takes the lock that the applications need, too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from driver.node import FakeNode, FakeProcess, MiB, gpus
from sources.nvml import Open

EACH = 22
"""Calls for one GPU: 3 to find it, 5 for its memory and processes, 14 for its figures."""


@pytest.mark.parametrize("count", [1, 8])
@pytest.mark.parametrize("processes", [0, 100])
async def test_a_round_asks_each_gpu_as_often_as_the_page_says(
    fake_node: FakeNode, nvml: Open, count: int, processes: int
) -> None:
    """However many processes there are: each list is read once, and in one attempt. One call counts the GPUs."""
    held = tuple(FakeProcess(1_000_000 + number, MiB) for number in range(processes))
    fake_node.write([replace(gpu, processes=held) for gpu in gpus(count)])
    source = await nvml()
    for _ in range(2):  # what lasts is read once, and the room for the lists grows
        await source.sample()
    fake_node.reset_calls()
    assert len((await source.sample()).samples) == count
    asked = {name: number for name, number in fake_node.all_calls().items() if "(" not in name}
    assert sum(asked.values()) == EACH * count + 1, asked
