"""
Fences a container: the driver refuses it more memory of one GPU (experimental).

What comes in: an action; once per round, which fences are to be removed. What goes out: hard limits in the driver, and
an `Answer`.

The rule: **the journal has a fence before the driver does.** A fence is on disk before it is set. It is ours only while
the driver keeps exactly this value. A limit that another program has set is left alone, and reported. No container is
fenced below its usage: the limit is read back, and raised if the usage has grown meanwhile.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

import structlog
from msgspec.structs import replace

from enforcer.actions.fence.cgroup_paths import Leaves
from enforcer.actions.fence.driver import CgroupLimits, LimitsDeniedError, LimitsError, LimitsHungError, MemoryLimits
from enforcer.actions.fence.fences import Fence, NoCgroup, height, lowered, ours
from enforcer.actions.interface import Answer, Heard
from enforcer.policy.history import Action
from enforcer.policy.holder import CaseKey
from enforcer.policy.vocabulary import Rung
from exporter.limits.explaining import size
from exporter.model import GpuUuid

log = structlog.get_logger()

CGROUP_GONE = "its cgroup is gone"
TRIES = 3
"""How often a fence is set at once: the usage can grow only until the fence is in force."""


class Register(Protocol):
    """The fences in force, as the journal knows them."""

    @property
    def fences(self) -> Mapping[CaseKey, Fence]:
        """Each that is in force or may be."""

    async def fence(self, fence: Fence) -> None:
        """Note that a fence is about to be set. Raises OSError: it must not be set."""

    async def unfence(self, key: CaseKey, detail: str) -> None:
        """Note that a fence is no longer in force; a failed write is not an error."""


def unfit(action: Action) -> Answer | None:
    """Say why no driver could fence this; None: only the driver knows."""
    if action.container_id is None or action.device.gpu_instance is not None:
        return Answer(Heard.IMPOSSIBLE, "a fence takes one container, and a GPU that is not in MIG mode")
    return None


class Fencing:
    """The step `fence`, and the upkeep of its fences."""

    rung = Rung.FENCE
    insists = False
    frees = False  # a fence takes no memory away

    def __init__(self, limits: MemoryLimits, leaves: Leaves, register: Register) -> None:
        self._limits = limits
        self._leaves = leaves
        self._register = register
        self._turn = asyncio.Lock()
        self._told: dict[CaseKey, str] = {}

    def preflight(self, action: Action) -> Answer | None:
        """Say why the container cannot be fenced, as `unfit` does."""
        return unfit(action)

    async def act(self, action: Action, _decision: str) -> Answer:
        """Fence the container at its limit, or at its usage where that is more."""
        if (doubt := self.preflight(action)) is not None or action.container_id is None:
            return doubt or Answer(Heard.FAILED)
        victim = action.pod_uid, action.container_id
        async with self._turn:
            cgroup = await asyncio.to_thread(self._leaves.find, victim)
            if isinstance(cgroup, NoCgroup):
                return Answer(Heard.GONE if cgroup is NoCgroup.NOT_FOUND else Heard.IMPOSSIBLE, cgroup.value)
            known = self._register.fences.get(action.key)
            if known is not None and known.cgroup != cgroup:
                why = f"another container of its pod ({known.fenced}) is fenced for the same limit"
                return Answer(Heard.IMPOSSIBLE, why)
            try:
                limits = await self._limits.read(action.device.uuid, self._leaves.path(cgroup))
            except LimitsError as error:
                return Answer(Heard.FAILED, str(error))
            if known is not None and ours(known, limits):
                return Answer(Heard.ACCEPTED, f"it is fenced at {_size(limits.hard)} already")
            if not limits.unset:
                kept = f"hard {_size(limits.hard)}, soft {size(limits.soft)}"
                return Answer(
                    Heard.TAKEN, f"another program has set a limit of its cgroup ({kept}), which is left alone"
                )
            limit, used = action.limit.memory or 0, max(action.used, limits.used or 0)
            name = action.largest.container if action.largest and not action.key.container else ""
            return await self._put(Fence(action.key, cgroup, height(limit, used), None, limit, name))

    async def confirmed(self, action: Action) -> bool | None:
        """Look whether the fence is in force; None when the driver does not tell."""
        return await self.ended(action)

    async def insist(self, _action: Action, _decision: str) -> Answer | None:
        """Do nothing: the step has no second part."""
        return None

    async def ended(self, action: Action) -> bool | None:
        """Look whether the fence is in force; None when the driver does not tell."""
        fence = self._register.fences.get(action.key)
        if fence is None:
            return False
        try:
            limits = await self._read(fence)
        except LimitsError:
            return None
        return ours(fence, limits) and limits.hard == fence.hard

    async def keep(
        self, fallen: Callable[[Fence], str | None], seen: Callable[[CaseKey], int | None]
    ) -> Mapping[CaseKey, bool]:
        """
        Look at all fences, once per round: remove those for which `fallen` has a reason, and lower the others.

        `seen`: the container's usage by the process lists. Returns the key of each fence that is no longer in force,
        whichever program removed it, and whether its container still runs.
        """
        async with self._turn:
            fences = dict(self._register.fences)
            self._told = {key: why for key, why in self._told.items() if key in fences}
            ends = [(key, await self._end(fence, fallen(fence), seen(key))) for key, fence in fences.items()]
            for key, why in ends:
                if why is not None:
                    log.info("enforcer.unfenced", pod_uid=key.pod_uid, container=fences[key].fenced, reason=why)
                    await self._register.unfence(key, why)
        return {key: why is not CGROUP_GONE for key, why in ends if why is not None}

    async def _end(self, fence: Fence, fallen: str | None, seen: int | None) -> str | None:
        """Look at one fence; return why it is no longer in force, or None where it is."""
        if not await asyncio.to_thread(self._leaves.there, fence.cgroup):
            return CGROUP_GONE
        try:
            limits = await self._read(fence)
            if not ours(fence, limits):
                if not await asyncio.to_thread(self._leaves.there, fence.cgroup):
                    return CGROUP_GONE  # between the two looks
                what = "removed it" if limits.unset else f"has set {_size(limits.hard)}"
                return f"another program {what}"
            if fallen is not None:
                await self._limits.limit(GpuUuid(fence.key.uuid), self._leaves.path(fence.cgroup), None)
                return fallen if (await self._read(fence)).unset else None
            if (hard := lowered(fence, limits.used, seen)) is not None:
                await self._set(replace(fence, hard=hard, before=limits.hard))
        except (LimitsError, OSError) as error:
            if self._told.get(fence.key) != str(error):
                log.warning("fence.not_kept", pod_uid=fence.key.pod_uid, container=fence.fenced, reason=str(error))
            self._told[fence.key] = str(error)
        return None

    async def _put(self, fence: Fence) -> Answer:
        """Set a new fence. One that is certainly not in force leaves the journal."""
        try:
            fence, limits = await self._set(fence)
        except LimitsHungError as error:
            return Answer(Heard.AMBIGUOUS, str(error))
        except LimitsError as error:
            await self._register.unfence(fence.key, str(error))
            return Answer(Heard.IMPOSSIBLE if isinstance(error, LimitsDeniedError) else Heard.FAILED, str(error))
        except OSError as error:
            return Answer(Heard.FAILED, f"the journal cannot be written: {error}")
        if limits is None:
            return Answer(Heard.AMBIGUOUS, "it was set, and could not be read back")
        if limits.hard == fence.hard and limits.soft == 0:
            return Answer(Heard.ACCEPTED, f"fenced at {_size(fence.hard)}")
        why = f"set was {_size(fence.hard)}, and the driver tells {_size(limits.hard)}"
        await self._undo(fence, why)
        return Answer(Heard.FAILED, why)

    async def _set(self, fence: Fence) -> tuple[Fence, CgroupLimits | None]:
        """
        Note a fence, set it and read it back; set it higher where the usage is more than was known.

        Raises OSError (not noted, so not set) and LimitsError, both of the first try alone. A later try that fails
        leaves the fence that is in force.
        """
        await self._register.fence(fence)
        await self._limits.limit(GpuUuid(fence.key.uuid), self._leaves.path(fence.cgroup), fence.hard)
        limits: CgroupLimits | None = None
        for _ in range(TRIES):
            try:
                limits = await self._read(fence)
                if limits.hard != fence.hard or (limits.used or 0) <= fence.hard:
                    break
                higher = replace(fence, hard=height(fence.limit, limits.used or 0), before=fence.hard)
                await self._register.fence(higher)
                fence = higher
                await self._limits.limit(GpuUuid(fence.key.uuid), self._leaves.path(fence.cgroup), fence.hard)
            except (LimitsError, OSError):
                return fence, None
        return fence, limits

    async def _undo(self, fence: Fence, why: str) -> None:
        """Remove a fence that has another value than we set: later it could not be recognised as ours."""
        try:
            await self._limits.limit(GpuUuid(fence.key.uuid), self._leaves.path(fence.cgroup), None)
        except LimitsError as error:
            log.warning("fence.not_undone", cgroup=fence.cgroup, reason=str(error))
        await self._register.unfence(fence.key, why)

    async def _read(self, fence: Fence) -> CgroupLimits:
        return await self._limits.read(GpuUuid(fence.key.uuid), self._leaves.path(fence.cgroup))


def _size(hard: int | None) -> str:
    return "none" if hard is None else size(hard)
