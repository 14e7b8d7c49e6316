"""
The daemon in its own pod of the guest, installed by helm with what the chart ships.

In: a bed whose node has the daemon's image, values. Out: its page, its log, its journal.

The rule: the guest's network is behind QEMU, so that the page is asked for inside the guest, at the pod's address.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any, TypeVar

from cluster.client import Api, Object, until
from cluster.fixtures import fresh_namespace
from cluster.image import NAME as IMAGE
from cluster.installed import ACCOUNT, NVIDIA_HERE, RELEASE, TIMES
from deploy.chart import packed
from hosts.agent import GuestError
from hosts.bed import GuestBed
from hosts.contents import LIBRARY, NODE, STATE
from journals import decided
from patience import PATIENCE
from scraped import series

T = TypeVar("T")
Steps = tuple[str, ...]
"""An action, and what became of it."""
ASK = f"import urllib.request as u, sys; sys.stdout.write(u.urlopen(sys.argv[1], timeout={PATIENCE}).read().decode())"
JOURNAL = "/var/lib/gpusteward/journal"


def values(policy: Mapping[str, object], **more: object) -> Object:
    """
    Values with which the chart runs the image in the guest; `policy` adds keys to that section of the config.

    Rounds of 2 s take a quarter of the emulated processor, so only a daemon that acts has them: a last look needs three
    readings since SIGTERM.
    """
    registry, _, rest = IMAGE.partition("/")
    repository, _, tag = rest.rpartition(":")
    return {
        "image": {"registry": registry, "repository": repository, "tag": tag, "pullPolicy": "Never"},
        "nvml": {"access": "hostPath", "hostPath": {"library": LIBRARY, "privileged": False}},
        "extraVolumes": [{"name": "fake-nvml", "hostPath": {"path": STATE}}],
        "extraVolumeMounts": [{"name": "fake-nvml", "mountPath": STATE}],
        "config": {"sampling": {"interval": "2s" if policy else "5s"}, "policy": {**TIMES, **policy}},
        **more,
    }


@dataclass
class GuestRelease:
    """A release of the chart on the guest's node."""

    bed: GuestBed
    api: Api
    namespace: str
    folder: Path

    def helm(self, verb: str, *words: str, values: Mapping[str, object] | None = None) -> str:
        """Install, upgrade or uninstall."""
        chart = (str(packed()),) if verb in ("install", "upgrade") else ()
        if values is not None:
            file = self.folder / "values.json"
            file.write_text(json.dumps(values))
            words = (*words, f"--values={file}")
        return self.bed.helm(verb, RELEASE, *chart, f"--namespace={self.namespace}", *words)

    async def pod(self) -> Object:
        """Return the daemon's pod once it is ready."""

        async def there() -> Object | None:
            query = {"labelSelector": "app.kubernetes.io/name=gpusteward"}
            for one in (await self.api.get(f"/api/v1/namespaces/{self.namespace}/pods", **query))["items"]:
                conditions = {c["type"]: c["status"] for c in one["status"].get("conditions", [])}
                if conditions.get("Ready") == "True" and "deletionTimestamp" not in one["metadata"]:
                    return dict(one)
            return None

        return await until(there, "the daemon's pod to be ready")

    async def page(self) -> str:
        """Return what it exports."""
        address = (await self.pod())["status"]["podIP"]
        ask = ("python3", "-c", ASK, f"http://{address}:9478/metrics")
        return await asyncio.to_thread(self.bed.guest.run, *ask)

    async def shows(self, condition: Callable[[str], T | None], what: str) -> T:
        """Wait until the page says so."""
        page = ""

        async def there() -> T | None:
            nonlocal page
            try:
                page = await self.page()
            except GuestError:  # the pod goes, or does not listen yet
                return None
            return condition(page)

        try:
            return await until(there, what)
        except TimeoutError as error:
            error.add_note(page[-6000:])
            error.add_note(self.log())
            raise

    async def mode(self, wanted: str) -> None:
        """Wait until this is the node's mode."""
        await self.shows(lambda page: series(page, "enforcement_mode", "mode") == {(wanted,): 1} or None, wanted)

    async def check(self) -> str:
        """Return what `gpusteward check` says in its container once it passes: a busy machine may answer it late."""
        refused: list[str] = []

        async def passed() -> str | None:
            try:
                return self.bed.kubectl("-n", self.namespace, "exec", f"ds/{ACCOUNT}", "--", "gpusteward", "check")
            except CalledProcessError as error:
                refused.append(f"{error.stdout}{error.stderr}")
                return None

        try:
            return await until(passed, "gpusteward check to pass")
        except TimeoutError as error:
            error.add_note(refused[-1] if refused else "")
            raise

    async def close(self, breaker: str) -> None:
        """Close a breaker, as a person does, once it is open."""
        await self.shows(
            lambda page: series(page, "breaker_open", "breaker").get((breaker,)) or None, f"{breaker} to open"
        )
        close = ("exec", f"ds/{ACCOUNT}", "--", "gpusteward", "close", breaker, "--by=ann@example.com")
        self.bed.kubectl("-n", self.namespace, *close)

    def log(self) -> str:
        """Return what its pod wrote."""
        return self.bed.kubectl(
            "-n", self.namespace, "logs", "--selector=app.kubernetes.io/name=gpusteward", "--tail=80"
        )

    def journal(self) -> list[dict[str, Any]]:
        """Return the records of its journal."""
        text = self.bed.guest.shell(f"cat {JOURNAL} 2>/dev/null || true")
        return [json.loads(line) for line in text.splitlines()]

    def told(self, uid: str) -> list[Steps]:
        """Return what its journal says of a pod: the action of each decision that was asked for, and how that went."""
        decisions: dict[str, list[dict[str, Any]]] = {}
        for one in decided(self.journal()):
            decisions.setdefault(one["decision"], []).append(one)
        ours = [steps for steps in decisions.values() if steps[0].get("action", {}).get("pod_uid") == uid]
        return [(steps[0]["action"]["rung"], *map(_word, steps[1:])) for steps in ours]

    async def tells(self, uid: str, *wanted: Steps) -> None:
        """Wait until the journal says this of a pod."""
        await self._until(uid, lambda told: told[: len(wanted)] == [*wanted], f"{wanted} in the journal")

    async def ends(self, uid: str, action: str, *results: str) -> None:
        """Wait until an action on a pod ended in one of these. An emulated node may need several actions."""
        wanted = {(action, result) for result in results}
        await self._until(uid, lambda told: any((one[0], one[-1]) in wanted for one in told), f"one of {wanted}")

    async def _until(self, uid: str, condition: Callable[[list[Steps]], bool], what: str) -> None:
        async def written() -> bool:
            return condition(self.told(uid))

        try:
            await until(written, what, 2 * PATIENCE)  # a grace and its refusals, emulated
        except TimeoutError as error:
            error.add_note(f"{self.told(uid)}\n{self.log()}")
            raise

    def asked_to_evict(self, namespace: str) -> dict[str, list[int]]:
        """Return the answers to evictions there that were asked for with its token, by pod, from the audit log."""
        found: dict[str, list[int]] = {}
        for one in self._requests():
            where = one["objectRef"]
            if where.get("subresource") == "eviction" and where["namespace"] == namespace:
                found.setdefault(where["name"], []).append(int(one["responseStatus"]["code"]))
        return found

    def refused(self) -> list[Object]:
        """Return all that its token was refused, but for the canary that has to be."""
        answers = [one for one in self._requests() if one.get("responseStatus", {}).get("code") == 403]
        return [one for one in answers if one["objectRef"].get("namespace") != self.namespace]

    def _requests(self) -> Iterator[Object]:
        user = f"system:serviceaccount:{self.namespace}:{ACCOUNT}"
        return (one for one in self.bed.control_plane.audit() if one["user"].get("username") == user)


def _word(record: Mapping[str, Any]) -> str:
    return str((record.get("answer") or {}).get("heard") or record.get("result") or record["record"])


@asynccontextmanager
async def released(bed: GuestBed, api: Api, folder: Path) -> AsyncIterator[GuestRelease]:
    """Give a namespace for a release, and remove what was installed there in the end."""
    await api.patch(f"/api/v1/nodes/{NODE}", {"metadata": {"labels": {NVIDIA_HERE: "true"}}})
    bed.guest.shell("rm -rf /var/lib/gpusteward")
    async with fresh_namespace(api) as namespace:
        release = GuestRelease(bed, api, namespace, folder)
        try:
            yield release
        finally:
            release.helm("uninstall", "--ignore-not-found")
            await api.delete(f"/api/v1/namespaces/{namespace}")


__all__ = ["ACCOUNT", "GuestRelease", "released", "values"]
