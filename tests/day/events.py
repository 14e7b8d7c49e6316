"""
The bad moments of a day, each with its end.

What comes in: the parts of the world that can go away, and the daemon's config. What goes out: the same world as
before, once `happens` returns. The rule: an event lasts for rounds of the daemon, not for seconds.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cluster.bed import Bed
from cluster.processes import StartError
from cluster.stage import Stage
from day.machine import heard
from day.script import Event
from day.visitor import Visitor
from driver.node import FakeNode
from kubelet.fake import FakeKubelet

SHORT, LONG = 12, 60
"""Rounds that something is away: a minute of the day, and five."""
LOST = 15
"""NVML_ERROR_GPU_IS_LOST."""
HANGING = "nvmlDeviceGetMemoryInfo"


class Events:
    """What can happen; `config` is the file that the daemon was started with."""

    def __init__(
        self, bed: Bed, stage: Stage, *, driver: FakeNode, kubelet: FakeKubelet, config: Path, visitor: Visitor
    ) -> None:
        self.happened: list[Event] = []
        self._bed, self._stage, self._driver, self._kubelet = bed, stage, driver, kubelet
        self._config, self._visitor = config, visitor
        self._written: dict[str, Any] = json.loads(config.read_text())
        self._stop_file = Path(self._written["policy"]["stop_file"])
        self._kinds: Mapping[Event, Callable[[], Awaitable[None]]] = {
            Event.API_SERVER: self._api_server,
            Event.KUBELET: self._kubelet_restart,
            Event.DRIVER: self._driver_away,
            Event.GPU: self._gpu_lost,
            Event.HANG: self._hang,
            Event.EDIT: self._edit,
            Event.BROKEN: self._broken,
            Event.STOP: self._stop,
            Event.TOKEN: self._token,
            Event.XID: self._xid,
        }
        self._edits: Iterator[dict[str, Any]] = itertools.cycle(
            [
                {"tolerance": {"ratio": 0.03}},
                {"tolerance": {"ratio": 0.02}, "spacing": "2s"},
                {"spacing": "1s", "protect": {"labels": {"keep": "me"}}},
                {},
            ]
        )
        self._cards = itertools.cycle(driver.gpus)

    async def happens(self, event: Event) -> None:
        """Let it happen, and end."""
        await self._kinds[event]()
        self.happened.append(event)

    async def _api_server(self) -> None:
        await asyncio.to_thread(self._bed.control_plane.kill_api_server)
        await self._visitor.after(SHORT)
        while True:
            try:
                return await asyncio.to_thread(self._bed.control_plane.start_api_server)
            except StartError:  # a busy machine takes more than a minute
                continue

    async def _kubelet_restart(self) -> None:
        await self._kubelet.stop()
        await self._visitor.after(SHORT)
        await self._kubelet.start()

    async def _driver_away(self) -> None:
        self._driver.unload_driver()
        await self._visitor.after(LONG)
        self._driver.write(self._driver.gpus)

    async def _gpu_lost(self) -> None:
        gpu = next(self._cards).uuid
        self._driver.fail("*", LOST, gpu=gpu)
        await self._visitor.after(LONG)
        self._driver.clear_switch("fail.*", gpu=gpu)

    async def _hang(self) -> None:
        self._driver.hang(HANGING)
        await self._visitor.after(LONG)
        self._driver.clear_switch(f"hang.{HANGING}")

    async def _edit(self) -> None:
        self._write({**self._written["policy"], **next(self._edits)})

    async def _broken(self) -> None:
        self._write({**self._written["policy"], "laddr": ["notify"]})
        await self._visitor.after(SHORT)
        self._write(self._written["policy"])

    async def _stop(self) -> None:
        self._stop_file.touch()
        await self._visitor.after(SHORT)
        self._stop_file.unlink()

    async def _token(self) -> None:
        await heard(self._stage.rotate)

    async def _xid(self) -> None:
        self._driver.inject_xid(next(self._cards).uuid, 31)

    def _write(self, policy: Mapping[str, Any]) -> None:
        """Write the config as editors and ConfigMaps do: all at once."""
        draft = self._config.with_name("draft")
        draft.write_text(json.dumps({**self._written, "policy": policy}))
        draft.rename(self._config)
