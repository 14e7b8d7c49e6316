"""
Pods over their limit that change in the moment between the decision and the call.

In: the stage. Out: `races()`, each with its change and how its action has to end. Law: nothing is raced by chance:
a request of the last look passes once the change is made, and not before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from cluster.client import ApiError, Object, until
from cluster.manifests import controller, job
from cluster.stage import SHARED, Stage, spec
from cluster.test_decide import EXEMPT, declaring, label
from cluster.test_enforce import written
from journals import decided

LATE = "failed look_failed"
NO, EVACUATES = "not while it trains", "Eviction triggered evacuation of the machine"


@dataclass
class Race:
    """
    One pod over its limit, a bystander with its labels, a daemon that may act on them, and the change of the first.

    at_call:  it happens when the eviction was asked for; else when the last look begins.
    expected: words of the end of the action, of which one has to be there.
    """

    name: str
    happens: Callable[[Race], Awaitable[object]]
    expected: tuple[str, ...]
    at_call: bool = False
    kind: str = "Deployment"
    ladder: str = "evict"
    stage: Stage = field(init=False)
    namespace: str = field(init=False)
    victim: Object = field(init=False)
    bystander: Object = field(init=False)
    happened: bool = False
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def consent(self) -> str:
        """The label by which its namespace consents to its daemon alone."""
        return f"test.gpusteward.io/{self.name}"

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    @property
    def pod(self) -> str:
        return f"{self.pods}/{self.victim['metadata']['name']}"

    @property
    def uid(self) -> str:
        return str(self.victim["metadata"]["uid"])

    def victims(self) -> Object:
        """What controls the one that is over."""
        if self.kind == "Job":
            return declaring(job("greedy", spec("alloc visible 2GiB", resource=SHARED, restart="Never")), "1Gi")
        made = spec("alloc visible 2GiB", resource=SHARED)
        more = {"serviceName": "greedy"} if self.kind == "StatefulSet" else {}
        return declaring(controller(self.kind, "greedy", made, **more), "1Gi")

    def records(self) -> list[dict[str, Any]]:
        """Its daemon's journal; empty while there is none."""
        there = (self.stage.folder / self.name / "journal").exists()
        return written(self.stage, self.name) if there else []

    async def before(self, path: str) -> None:
        """Let a request pass once it has happened, if it is time."""
        async with self._one:
            if self.happened:
                return
            if path.endswith("/eviction") if self.at_call else self.records():
                await self.happens(self)
                self.happened = True

    def end(self) -> str:
        """How its first action ended; empty while it has not."""
        records = self.records()
        if self.at_call or self.happens is nothing:  # on a busy machine a look may fail before, and is repeated
            records = decided(records)
        ended = [one for one in records if one["record"] == "ended"]
        return f"{ended[0]['result']} {ended[0]['detail']}".strip() if ended else ""


async def nothing(_: Race) -> None:
    """All is as it was."""


async def made_anew(race: Race) -> None:
    """A user removes the pod; its StatefulSet makes another one of that name."""
    await race.stage.api.delete(race.pod, gracePeriodSeconds=0)

    async def another() -> bool:
        return not await race.stage.api.missing(race.pod) and await uid_now(race) != race.uid

    await until(another, "another pod of that name")


async def consent_withdrawn(race: Race) -> None:
    await label(race.stage, race.namespace, {race.consent: None})


async def exempted(race: Race) -> None:
    await race.stage.api.patch(race.pod, {"metadata": {"annotations": EXEMPT}})


async def freed(race: Race) -> None:
    race.stage.bed.driver.workload(race.uid).free()


async def finished(race: Race) -> None:
    """It has done its work."""
    race.stage.bed.driver.workload(race.uid).exit(0)

    async def succeeded() -> bool:
        return bool((await race.stage.api.get(race.pod))["status"]["phase"] == "Succeeded")

    await until(succeeded, "the pod to have finished")


async def restarted(race: Race) -> None:
    """Its container ends and comes back: same pod, another container."""
    race.stage.bed.driver.workload(race.uid).exit(0)

    async def anew() -> bool:
        (main,) = (await race.stage.api.get(race.pod))["status"]["containerStatuses"]
        return bool(main["restartCount"] and "running" in main["state"])

    await until(anew, "the container to be back")


async def namespace_goes(race: Race) -> None:
    """A user deletes the whole namespace; nothing can be made in it any more."""
    await race.stage.api.delete(f"/api/v1/namespaces/{race.namespace}")

    async def closed() -> bool:
        try:
            path = f"/api/v1/namespaces/{race.namespace}/configmaps?dryRun=All"
            await race.stage.api.create(path, {"metadata": {"generateName": "x"}})
        except ApiError as error:
            return error.status == 403
        return False

    await until(closed, "the namespace to take nothing any more")


async def uid_now(race: Race) -> str:
    return str((await race.stage.api.get(race.pod))["metadata"]["uid"])


def races() -> list[Race]:
    """All of them."""
    return [
        Race("nothing", nothing, ("verified",)),
        Race("anew-before", made_anew, ("abandoned other_pod",), kind="StatefulSet"),
        Race("anew-after", made_anew, ("in the precondition (",), at_call=True, kind="StatefulSet"),
        Race("consent", consent_withdrawn, ("abandoned no_consent",)),
        # Whether the watch is faster than the look decides which of the two it is.
        Race("exempt", exempted, ("abandoned exempt", "abandoned declaration_changed")),
        Race("freed", freed, ("abandoned not_over_now",)),
        # A look that is held for more than 10 s fails: a busy kubelet may need longer for these two.
        Race("finished", finished, ("abandoned not_running", "abandoned subject_gone", LATE), kind="Job"),
        Race("namespace", namespace_goes, ("because it is being terminated",), at_call=True),
        Race("restarted", restarted, ("abandoned other_container", LATE), ladder="kill"),
        Race("refused", nothing, (f'blocked admission webhook "refused.hooks.test" denied the request: {NO}',)),
        Race("evacuated", nothing, ("verified",)),
    ]
