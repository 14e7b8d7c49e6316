"""
The daemon in a pod of its own, installed as its user does it: by helm, or by kubectl from the plain manifests.

In: the cluster's bed, values. Out: what the daemon's pod serves, its journal on the node, all objects of the cluster.
Law: nothing but values or an overlay stands between what deploy/ ships and what runs. The driver's library is lent to
the pod as a node would lend it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from cluster import toolkit
from cluster.bed import NODE_NAME, Bed
from cluster.client import Api, Object, until
from cluster.fixtures import fresh_namespace
from deploy.chart import packed
from enforcer.journal.records import decode
from journals import decided
from patience import PATIENCE
from scraped import series

T = TypeVar("T")

RELEASE = "fleet"
ACCOUNT = f"{RELEASE}-gpusteward"
NVIDIA_HERE = "nvidia.com/gpu.present"
"""Label of a node, by NVIDIA's feature discovery, without which the DaemonSet has no pod there."""
STATE = toolkit.STATE
RUNTIME_CLASS: Object = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "nvidia"},
    "handler": toolkit.HANDLER,
}
"""What NVIDIA's operator makes."""
RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
PASSING = ("events", "leases", "replicasets", "controllerrevisions", "endpointslices", "endpoints")
"""Resources whose objects others make and remove when they like."""
TIMES = {"warn_after": "5s", "grace": "30s", "hold_off": "0s", "spacing": "10s"}


def values(bed: Bed, image: str, policy: Mapping[str, object], **more: object) -> Object:
    """Values with which the chart runs this image on this bed; `policy` adds keys to that section of the config."""
    registry, _, rest = image.partition("/")
    repository, _, tag = rest.rpartition(":")
    return {
        "image": {"registry": registry, "repository": repository, "tag": tag, "pullPolicy": "Never"},
        "nvml": {"access": "hostPath", "hostPath": {"library": str(bed.driver.library()), "privileged": False}},
        "extraEnv": [{"name": "FAKE_NVML_STATE", "value": STATE}],
        "extraVolumes": [{"name": "fake-nvml", "hostPath": {"path": str(bed.driver.folder)}}],
        "extraVolumeMounts": [{"name": "fake-nvml", "mountPath": STATE}],
        "config": {"sampling": {"interval": "2s"}, "policy": {**TIMES, **policy}},
        **more,
    }


@dataclass
class Installed:
    """The daemon of one namespace, on the only node."""

    bed: Bed
    api: Api
    namespace: str
    account: str = ACCOUNT

    async def pod(self, *, besides: str = "", ready: bool = True) -> Object:
        """Its pod, once that is ready, or else runs; not the one with the UID `besides`."""

        async def there() -> Object | None:
            query = {"labelSelector": "app.kubernetes.io/name=gpusteward"}
            found = (await self.api.get(f"/api/v1/namespaces/{self.namespace}/pods", **query))["items"]
            for one in found:
                conditions = {c["type"]: c["status"] for c in one["status"].get("conditions", [])}
                leaving = "deletionTimestamp" in one["metadata"] or one["metadata"]["uid"] == besides
                good = conditions.get("Ready") == "True" if ready else one["status"]["phase"] == "Running"
                if good and not leaving:
                    return dict(one)
            return None

        try:
            return await until(there, f"the daemon's pod to {'be ready' if ready else 'run'}")
        except TimeoutError as error:
            self.explain(error)
            raise

    async def pods(self) -> list[Object]:
        """All pods of its namespace."""
        return list((await self.api.get(f"/api/v1/namespaces/{self.namespace}/pods"))["items"])

    async def gone(self) -> bool:
        """Whether no pod of its namespace is left."""
        return not await self.pods()

    async def page(self, *, ready: bool = True) -> str:
        """What it exports, asked for where Prometheus would ask, which does so before it is ready, too."""
        address = (await self.pod(ready=ready))["status"]["podIP"]
        async with aiohttp.ClientSession() as session, session.get(f"http://{address}:9478/metrics") as answer:
            assert answer.status == 200
            return await answer.text()

    async def shows(self, condition: Callable[[str], T | None], what: str, *, ready: bool = True) -> T:
        """Wait until the page says so."""

        async def there() -> T | None:
            with suppress(aiohttp.ClientConnectionError):  # one pod goes, the other comes
                return condition(await self.page(ready=ready))
            return None

        try:
            return await until(there, what)
        except TimeoutError as error:
            error.add_note(self.log())
            raise

    async def mode(self, wanted: str) -> None:
        """Wait until this is the node's mode."""
        await self.shows(lambda page: series(page, "enforcement_mode", "mode") == {(wanted,): 1} or None, wanted)

    def explain(self, error: Exception) -> None:
        """Add to a failure what kubelet and daemon say of the pod."""
        error.add_note(self.bed.kubectl("-n", self.namespace, "describe", "pods"))
        error.add_note(self.log())

    def log(self) -> str:
        """What its present pod wrote, for a failed test to show."""
        selector = "--selector=app.kubernetes.io/name=gpusteward"
        try:
            return self.bed.kubectl("-n", self.namespace, "logs", selector, "--tail=-1")
        except subprocess.CalledProcessError as error:
            return str(error.stderr)

    def journal(self) -> list[dict[str, Any]]:
        """The records of its journal, as they are on the node; each line is whole."""
        file = self.bed.folder / "gpusteward" / "journal"
        lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
        assert all(map(decode, lines))
        return [*map(json.loads, lines)]

    async def told(self, uid: str, *steps: str) -> None:
        """Wait until the journal has exactly these steps about a pod."""

        def found() -> tuple[str, ...]:
            records = decided(self.journal())
            ours = {one["decision"] for one in records if one.get("action", {}).get("pod_uid") == uid}
            return tuple(_step(one) for one in records if one.get("decision") in ours)

        async def written() -> bool:
            return found() == steps

        try:
            await until(written, f"{steps} in the journal")
        except TimeoutError as error:
            error.add_note(f"{found()}\n{self.log()}")
            raise

    def inside(self, script: str) -> str:
        """What a Python script says in its container."""
        return self.bed.kubectl("-n", self.namespace, "exec", f"ds/{self.account}", "--", "python3", "-c", script)

    def capabilities(self) -> int:
        """The set of capabilities that a process in its container has at most, as the kernel says."""
        say = "print(next(l for l in open('/proc/self/status') if l.startswith('CapBnd')).split()[1])"
        return int(self.inside(say), 16)

    def asked_to_evict(self, namespace: str) -> list[tuple[str, int]]:
        """Path and answer of each eviction there that was asked for with its token, from the audit log."""
        user = f"system:serviceaccount:{self.namespace}:{self.account}"
        return [
            (one["requestURI"], int(one["responseStatus"]["code"]))
            for one in self.bed.control_plane.audit()
            if one["user"].get("username") == user
            and one["objectRef"].get("subresource") == "eviction"
            and one["objectRef"].get("namespace") == namespace
        ]

    async def refused(self) -> list[Object]:
        """All that its token was refused, but for the canary that has to be."""
        user = f"system:serviceaccount:{self.namespace}:{self.account}"
        return [
            one
            for one in self.bed.control_plane.audit()
            if one["user"].get("username") == user
            and one.get("responseStatus", {}).get("code") == 403
            and one["objectRef"].get("namespace") != self.namespace
        ]


def _step(record: Mapping[str, Any]) -> str:
    heard = (record.get("answer") or {}).get("heard")
    return " ".join(filter(None, [record["record"], record.get("result"), heard]))


@dataclass
class Release(Installed):
    """The same, under helm's hand."""

    folder: Path = Path()
    chart: tuple[str, ...] = ()
    """What is installed: a folder, or a name in a registry and flags; empty: this checkout's packed chart."""

    def helm(self, verb: str, *words: str, values: Mapping[str, object] | None = None, wait: bool = True) -> str:
        """Install, upgrade, roll back or uninstall; wait for all of it to be ready, or gone."""
        chart = (self.chart or (str(packed()),)) if verb in ("install", "upgrade") else ()
        if values is not None:
            file = self.folder / "values.json"
            file.write_text(json.dumps(values))
            words = (*words, f"--values={file}")
        waiting = ["--wait", f"--timeout={PATIENCE:.0f}s"] if wait else []
        try:
            return self.bed.helm(verb, RELEASE, *chart, f"--namespace={self.namespace}", *waiting, *words)
        except subprocess.CalledProcessError as error:
            self.explain(error)
            raise


@asynccontextmanager
async def gpu_node(bed: Bed, api: Api) -> AsyncIterator[None]:
    """Label the node as one with GPUs; on its disk is nothing of an earlier daemon."""
    path = f"/api/v1/nodes/{NODE_NAME}"
    for file in (bed.folder / "gpusteward").iterdir():
        file.unlink()
    await api.patch(path, {"metadata": {"labels": {NVIDIA_HERE: "true"}}})
    try:
        yield
    finally:
        await api.patch(path, {"metadata": {"labels": {NVIDIA_HERE: None}}})


@asynccontextmanager
async def nvidia_class(api: Api) -> AsyncIterator[None]:
    """Let pods ask for NVIDIA's runtime."""
    await api.create(RUNTIME_CLASSES, RUNTIME_CLASS)
    try:
        yield
    finally:
        await api.delete(f"{RUNTIME_CLASSES}/nvidia")


@contextmanager
def mig_guarded(bed: Bed) -> Iterator[None]:
    """Let the driver tell what MIG instances hold to those alone who can open mig/monitor, as the real one does."""
    bed.driver.set_switch("mig_monitor", toolkit.MONITOR.rpartition("cap")[2])
    try:
        yield
    finally:
        bed.driver.clear_switch("mig_monitor")


async def furnished(api: Api, namespace: str) -> bool:
    """Whether a namespace has what controllers put into each."""
    return not await api.missing(f"/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt")


@asynccontextmanager
async def released(bed: Bed, api: Api, folder: Path) -> AsyncIterator[Release]:
    """A namespace for a release, and whatever was installed there is gone in the end."""
    async with fresh_namespace(api) as namespace, gpu_node(bed, api):
        release = Release(bed, api, namespace, folder=folder)
        await until(lambda: furnished(api, namespace), "what each namespace is given")
        try:
            yield release
        finally:
            release.helm("uninstall", "--ignore-not-found")
            await api.delete(f"/api/v1/namespaces/{namespace}")
            # A pod that is only now starting would write its journal beside the next test's.
            await until(release.gone, "the pods of the release to be gone")


async def objects(api: Api, *, but: str = "") -> set[str]:
    """
    Path of each object of the cluster, once no namespace is on its way out; without those that come and go.

    `but`: a namespace whose pods do not count.
    """

    async def settled() -> bool:
        namespaces = (await api.get("/api/v1/namespaces"))["items"]
        return not [one for one in namespaces if "deletionTimestamp" in one["metadata"]]

    await until(settled, "the namespaces of earlier tests to be gone")
    groups = (await api.get("/apis"))["groups"]
    found = set()
    for base in ("/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)):
        for resource in (await api.get(base))["resources"]:
            name = resource["name"]
            if "list" not in resource["verbs"] or "/" in name or name in PASSING:
                continue
            for item in (await api.get(f"{base}/{name}"))["items"]:
                meta = item["metadata"]
                if not (name == "pods" and meta["namespace"] == but):
                    found.add(f"{base}/{name}/{meta.get('namespace', '')}/{meta['name']}")
    return found


async def same_objects(api: Api, before: set[str], *, but: str = "") -> None:
    """Wait until nothing has been left behind or taken away."""

    async def same() -> bool:
        now.clear()
        now.update(await objects(api, but=but))
        return now == before

    now: set[str] = set()
    try:
        await until(same, "all objects to be as before")
    except TimeoutError as error:
        error.add_note(f"left behind: {sorted(now - before)}; taken away: {sorted(before - now)}")
        raise
