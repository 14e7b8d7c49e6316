"""
The real Prometheus operator before the bed's API server, and what it makes of monitors and rules.

In: the bed, and what the Prometheus object says besides. Out: the config and the rule files that the operator writes.
Law: definitions, rights and program are those of one pinned module, and the operator acts with the rights of its own
ServiceAccount. In the end all of it is gone.

The StatefulSet that it makes has no pod: Debian's Prometheus is built without Kubernetes's discovery, and refuses a
config that names it. `discovered` stands in for that discovery, and for nothing else.
"""

from __future__ import annotations

import base64
import gzip
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import yaml

from cluster.bed import Bed
from cluster.build import program
from cluster.client import Api, Object, until
from cluster.fixtures import fresh_namespace
from cluster.processes import free_port, listens
from deploy.operators import module
from prometheus import scraping

ACCOUNT = "system:serviceaccount:default:prometheus-operator"
"""The operator's account and its namespace, as its own files have them."""
SELECTED = {"matchLabels": {"release": "kube-prometheus-stack"}}
"""What the Prometheus of kube-prometheus-stack selects, in all namespaces, where that is the release's name."""
NAME = "made"


@dataclass(frozen=True, slots=True)
class Made:
    """What an operator has made of a Prometheus object."""

    bed: Bed
    api: Api
    namespace: str

    async def config(self, job: str, **settings: object) -> Object:
        """The config, once it has this job with these settings, and no other job; its variables are filled in."""
        variables = await self._variables()

        async def written() -> Object | None:
            data = (await self._get("secrets", f"prometheus-{NAME}")).get("data", {})
            text = gzip.decompress(base64.b64decode(data["prometheus.yaml.gz"])).decode()
            for name, value in variables.items():
                text = text.replace(f"$({name})", value)
            found: Object = yaml.safe_load(text)
            jobs = found.get("scrape_configs") or []
            good = [one["job_name"] for one in jobs] == [job] and settings.items() <= jobs[0].items()
            return found if good else None

        try:
            return await until(written, f"the config with the job {job} alone")
        except TimeoutError as error:
            error.add_note((self.bed.folder / "logs" / "operator.log").read_text()[-3000:])
            raise

    async def rules(self) -> dict[str, str]:
        """The rule files, once there is one."""

        async def written() -> dict[str, str]:
            return dict((await self._get("configmaps", f"prometheus-{NAME}-rulefiles-0")).get("data") or {})

        return await until(written, "the rule files")

    async def _variables(self) -> dict[str, str]:
        """What the reloader of the StatefulSet's first pod would fill in."""
        made = await self.api.get(f"/apis/apps/v1/namespaces/{self.namespace}/statefulsets/prometheus-{NAME}")
        (reloader,) = (
            one for one in made["spec"]["template"]["spec"]["containers"] if one["name"] == "config-reloader"
        )
        given = {one["name"]: one.get("value", f"prometheus-{NAME}-0") for one in reloader["env"]}
        assert given.keys() >= {"SHARD", "POD_NAME"}
        return given

    async def _get(self, kind: str, name: str) -> Object:
        return await self.api.get(f"/api/v1/namespaces/{self.namespace}/{kind}/{name}")


@asynccontextmanager
async def operating(bed: Bed, api: Api, **spec: object) -> AsyncIterator[Made]:
    """Run the operator before a Prometheus object without pods; `spec` adds to that object."""
    kinds = f"-f={module() / 'example/prometheus-operator-crd'}"
    folder, parts = module() / "example/rbac/prometheus-operator", ("service-account", "cluster-role")
    rights = [f"-f={folder}/prometheus-operator-{one}.yaml" for one in (*parts, "cluster-role-binding")]
    bed.kubectl("create", kinds)
    try:
        bed.kubectl("create", *rights)
        bed.kubectl("wait", "--for=condition=Established", kinds)
        _start(bed)
        async with fresh_namespace(api, "monitoring") as namespace:
            bed.kubectl("create", "-f=-", stdin=yaml.safe_dump(_prometheus(namespace, spec)))
            try:
                path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets/prometheus-{NAME}"

                async def there() -> bool:
                    return not await api.missing(path)

                await until(there, "the StatefulSet")
                yield Made(bed, api, namespace)
            finally:
                await api.delete(f"/api/v1/namespaces/{namespace}")
    finally:
        bed.node.end("operator")
        bed.kubectl("delete", *rights, "--ignore-not-found")
        bed.kubectl("delete", kinds, "--ignore-not-found", "--wait")


def discovered(pods: list[Object]) -> Iterator[Object]:
    """Each port of each container, as Prometheus's discovery with the role `pod` documents its labels."""
    for one in pods:
        meta, prefix = one["metadata"], "__meta_kubernetes_pod"
        shared = {
            "__meta_kubernetes_namespace": meta["namespace"],
            f"{prefix}_name": meta["name"],
            f"{prefix}_ip": one["status"]["podIP"],
            f"{prefix}_phase": one["status"]["phase"],
            f"{prefix}_node_name": one["spec"]["nodeName"],
        }
        for key, value in meta["labels"].items():
            name = re.sub(r"\W", "_", key)
            shared |= {f"{prefix}_label_{name}": value, f"{prefix}_labelpresent_{name}": "true"}
        for container in one["spec"]["containers"]:
            for port in container.get("ports", ()):
                labels = {f"{prefix}_container_name": container["name"], f"{prefix}_container_port_name": port["name"]}
                address = f"{one['status']['podIP']}:{port['containerPort']}"
                yield {"targets": [address], "labels": {**shared, **labels}}


def _start(bed: Bed) -> None:
    credentials, port = bed.control_plane.admin, free_port()
    assert credentials.certificate is not None
    command = [
        program("operator"),
        f"--apiserver={credentials.server}",
        f"--ca-file={credentials.authority}",
        f"--cert-file={credentials.certificate.certificate}",
        f"--key-file={credentials.certificate.key}",
        f"--as={ACCOUNT}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    bed.node.run("operator", command, lambda: listens(port))


def _prometheus(namespace: str, spec: Object) -> Object:
    said = subprocess.run([scraping.program("prometheus"), "--version"], capture_output=True, text=True, check=True)
    (version,) = re.findall(r"^prometheus, version ([\d.]+)", said.stdout)
    selectors = {f"{one}Selector": SELECTED for one in ("podMonitor", "serviceMonitor", "rule")}
    anywhere: Object = {f"{one}NamespaceSelector": {} for one in ("podMonitor", "serviceMonitor", "rule")}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "Prometheus",
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": {"version": f"v{version}", "replicas": 0, "evaluationInterval": "1s", **selectors, **anywhere, **spec},
    }
