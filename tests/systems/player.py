"""
Plays a scene: the program's own parsers, accounts, limits and policy, round after round.

A scene comes in. How each device is shared, each limit, and what the policy did about each pod go out.

The rule: only time and the node's borders are made up (`systems.world`). The policy runs with the defaults of the
config and `mode: enforce`; in `make check` alone, rounds are 15 s apart. Nothing is read in a thread of its own. Each
namespace consents unless the scene says otherwise. The daemon has watched this node for long, and its last change of
version, rules or drivers is settled. Second 0 is when the processes of the scene begin.
"""

import asyncio
import json
import tempfile
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from enforcer.policy.decide import decide
from enforcer.policy.history import Moment, Result, Standing, Verdict
from enforcer.policy.outcomes import conclude
from enforcer.policy.rules import Rules
from enforcer.policy.vocabulary import State
from enforcer.runtime.policy_config import rules_of
from exporter.config import Arguments, Config
from exporter.config.loading import combine
from exporter.daemon import limiting_of
from exporter.model import Device, Limit, Snapshot
from exporter.rounds.sampler import Beat, Sampler
from pace import quick
from policy.scenes import settled
from systems.book import SceneRow
from systems.world import NODE, World, inventory_of
from threadless import at_once

INTERVAL = "15s" if quick() else "5s"
"""
Between rounds; 5 s is the default. Rounds are most of what a scene costs.

15 s is as long as `warn_after`, and a part of `grace`: both end in the very round in which they do at 5 s.
"""
LONGEST = 900.0
"""Seconds of a scene after which the last verdict counts."""
QUIET = 20.0
"""Seconds in which nothing changes and nothing is pending, after which nothing will: four rounds of the default."""
PENDING = frozenset({State.OVER, State.GRACE, State.DUE, State.ACTING})

Key = tuple[str, str]
"""Pod and container; the container is empty where the limit is the whole pod's."""


@dataclass(frozen=True, slots=True)
class Acted:
    """An action that began so many seconds after the processes of the scene."""

    action: str
    after: float


@dataclass(slots=True)
class Played:
    """
    What came of a scene.

    Attributes:
        snapshot: the last one before any action.
        states: of each limit holder, at the end; of several devices the one that is worst.
        acted: the first action on each limit holder.
        seconds: how long the scene was.

    """

    snapshot: Snapshot
    states: dict[Key, Standing] = field(default_factory=dict)
    acted: dict[Key, Acted] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def devices(self) -> dict[tuple[int, int | None], Device]:
        """The devices, by the index of their GPU and their MIG instance."""
        return {(device.gpu.index, device.key.gpu_instance): device for device in self.snapshot.devices}

    @property
    def limits(self) -> dict[tuple[str, str, int, int | None, str], Limit]:
        """The limits by pod, container, GPU, MIG instance and claim."""
        index = {gpu.uuid: gpu.index for gpu in self.snapshot.gpus}
        return {
            (
                self.snapshot.pods[limit.pod_uid].name,
                limit.container,
                index[limit.device.uuid],
                limit.device.gpu_instance,
                limit.claim,
            ): limit
            for limit in self.snapshot.limits
        }


@cache
def rules_and_config(text: str) -> tuple[Rules, Config]:
    """Read a config in which the policy's mode is `enforce`, and all else is the default or `text`."""
    config = combine(Arguments(), text.encode(), NODE)
    return rules_of(config), config


def play(scene: SceneRow, interval: str = INTERVAL) -> Played:
    """Play a scene to its end."""
    with (
        tempfile.TemporaryDirectory() as folder,
        at_once(),
        closing(asyncio.new_event_loop()) as loop,  # `asyncio.run` cares for Ctrl-C, too: 1 ms
    ):
        return loop.run_until_complete(_play(scene, interval, Path(folder)))


async def _play(scene: SceneRow, interval: str, folder: Path) -> Played:
    rules, config = rules_and_config(_config(scene, interval))
    world = World(scene, folder / "proc")
    with inventory_of(world, folder) as inventory:
        running = asyncio.ensure_future(inventory.run())
        try:
            sampler = Sampler(
                node=NODE,
                devices=world,
                host=world.host,
                inventory=inventory,
                beat=Beat(),
                clock=world.clock,
                limiting=limiting_of(config),
            )
            return await _rounds(world, sampler, rules, await _settled(world, sampler))
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def _settled(world: World, sampler: Sampler) -> Snapshot:
    """Let the sources read the node before the first process begins, and return the round in which they have."""
    for _ in range(5):
        await world.clock.step(1.0)
    snapshot = await sampler.round()
    if faults := [fault for fault in snapshot.faults if fault.incomplete]:
        raise ValueError(f"the node of the scene cannot be read: {faults[0]}")
    return snapshot


async def _rounds(world: World, sampler: Sampler, rules: Rules, empty: Snapshot) -> Played:
    history, _ = decide(empty, rules, settled(rules), _moment(world))
    await world.clock.step(rules.interval)
    world.seconds = 0.0
    changes_end = max((row.last_change for row in world.scene.processes), default=0.0)
    snapshot = await sampler.round()
    quiet, before, played = 0.0, None, Played(snapshot)
    while True:
        history, verdict = decide(snapshot, rules, history, _moment(world))
        if not played.acted:
            played.snapshot = snapshot
        played.states = _worst(verdict)
        played.seconds = world.seconds
        if (action := verdict.action) is not None:
            played.acted.setdefault((action.pod, action.container), Acted(str(action.rung), world.seconds))
            history = conclude(history, Result.ACCEPTED, _moment(world))
            world.ended.add(action.pod)
        now = {key: (standing.state, standing.reason) for key, standing in played.states.items()}
        quiet = quiet + rules.interval if now == before and not _pending(played.states) else 0.0
        before = now
        if (quiet >= QUIET and world.seconds >= changes_end + QUIET) or world.seconds >= LONGEST:
            return played
        world.seconds += rules.interval
        await world.clock.step(rules.interval)
        snapshot = await sampler.round()


def _pending(states: dict[Key, Standing]) -> bool:
    return any(
        standing.state in PENDING or (standing.reason is not None and standing.reason.kind == "waiting")
        for standing in states.values()
    )


def _worst(verdict: Verdict) -> dict[Key, Standing]:
    """Keep of each limit holder the device on which it stands worst: held before all, then what is not judged."""
    order = (State.OK, State.EXEMPT, State.UNJUDGED, State.OVER, State.GRACE, State.DUE, State.ACTING, State.HELD)
    worst: dict[Key, Standing] = {}
    for standing in verdict.standings:
        key = (standing.pod, standing.key.container)
        if key not in worst or order.index(standing.state) > order.index(worst[key].state):
            worst[key] = standing
    return worst


def _config(scene: SceneRow, interval: str) -> str:
    policy = {**scene.config.get("policy", {}), "mode": "enforce"}
    return json.dumps({"sampling": {"interval": interval}, **scene.config, "policy": policy})


def _moment(world: World) -> Moment:
    return Moment(world.clock.now, world.clock.now)
