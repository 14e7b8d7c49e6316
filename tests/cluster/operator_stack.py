"""
The Prometheus operator before the bed's API server, and the Prometheus that it makes as a pod of the node.

In: the bed, and what the Prometheus object says besides. Out: that Prometheus, ready. Law: definitions, rights and
programs are those of one pinned module, and the operator acts with the rights of its own ServiceAccount. Nothing that
it writes is changed. Prometheus is Debian's, in an image of ours. In the end all of it is gone.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from cluster.bed import Bed
from cluster.build import program
from cluster.client import Api, Object, until
from cluster.fixtures import fresh_namespace
from cluster.processes import free_port, listens
from containers.images import build_image
from deploy.operators import module
from prometheus import scraping

RELOADER = "gpusteward.test/prometheus-config-reloader:1"
PROMETHEUS = "gpusteward.test/prometheus:1"
ACCOUNT = "system:serviceaccount:default:prometheus-operator"
"""The operator's account and its namespace, as its own files have them."""
SELECTED = {"matchLabels": {"release": "kube-prometheus-stack"}}
"""What the Prometheus of kube-prometheus-stack selects, in all namespaces, where that is the release's name."""
PATIENT = 180.0


@asynccontextmanager
async def operating(bed: Bed, api: Api, **spec: object) -> AsyncIterator[scraping.Prometheus]:
    """Run the operator, and let it make a Prometheus; `spec` adds to that object."""
    _give_images(bed)
    kinds = f"-f={module() / 'example/prometheus-operator-crd'}"
    roles = _files(module() / "example/rbac/prometheus-operator")
    bed.kubectl("create", kinds)
    try:
        bed.kubectl("create", *roles)
        bed.kubectl("wait", "--for=condition=Established", kinds)
        _start(bed)
        async with fresh_namespace(api, "monitoring") as namespace:
            made = [*_rights(namespace), _prometheus(namespace, spec)]
            bed.kubectl("create", "-f=-", stdin=yaml.safe_dump_all(made))
            try:
                yield await _ready(bed, api, namespace)
            finally:
                bed.kubectl("delete", "-f=-", "--wait", stdin=yaml.safe_dump_all(made))
                await api.delete(f"/api/v1/namespaces/{namespace}")
    finally:
        bed.node.end("operator")
        bed.kubectl("delete", *roles, "--ignore-not-found")
        bed.kubectl("delete", kinds, "--ignore-not-found", "--wait")


def _files(folder: Path) -> list[str]:
    """The operator's account and rights; its Deployment is a process of ours."""
    parts = ("service-account", "cluster-role", "cluster-role-binding")
    return [f"-f={folder / f'prometheus-operator-{one}.yaml'}" for one in parts]


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
        f"--prometheus-config-reloader={RELOADER}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    bed.node.run("operator", command, lambda: listens(port))


def _give_images(bed: Bed) -> None:
    """An image of each program, with the libraries that it names."""
    for name, file in (
        (RELOADER, program("prometheus-config-reloader")),
        (PROMETHEUS, Path(scraping.program("prometheus"))),
    ):
        linked = subprocess.run(["ldd", file], capture_output=True, text=True, check=False).stdout
        libraries = {one.strip("/"): Path(one) for one in re.findall(r"(/\S+) \(0x", linked)}
        tar = bed.folder / f"{file.name}.tar"
        entry = f"bin/{file.name}"
        bed.node.import_image(
            build_image(tar, name=name, files={entry: file, **libraries}, entrypoint=[f"/{entry}"]), name
        )
        tar.unlink()


def _rights(namespace: str) -> list[Object]:
    """The account of Prometheus, bound to the role of the operator's example."""
    folder = module() / "example/rbac/prometheus"
    parts = ("service-account", "cluster-role", "cluster-role-binding")
    account, role, binding = (yaml.safe_load((folder / f"prometheus-{one}.yaml").read_text()) for one in parts)
    account["metadata"]["namespace"] = binding["subjects"][0]["namespace"] = namespace
    return [account, role, binding]


def _prometheus(namespace: str, spec: Object) -> Object:
    said = subprocess.run([scraping.program("prometheus"), "--version"], capture_output=True, text=True, check=True)
    (version,) = re.findall(r"^prometheus, version ([\d.]+)", said.stdout)
    selectors = {f"{one}Selector": SELECTED for one in ("podMonitor", "serviceMonitor", "rule")}
    anywhere = {f"{one}NamespaceSelector": {} for one in ("podMonitor", "serviceMonitor", "rule")}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "Prometheus",
        "metadata": {"name": "made", "namespace": namespace},
        "spec": {
            "image": PROMETHEUS,
            "version": f"v{version}",
            "serviceAccountName": "prometheus",
            "evaluationInterval": "1s",
            "resources": {"requests": {"memory": "64Mi"}},
            **selectors,
            **anywhere,
            **spec,
        },
    }


async def _ready(bed: Bed, api: Api, namespace: str) -> scraping.Prometheus:
    """The pod of its StatefulSet, asked at its address."""

    async def answers() -> scraping.Prometheus | None:
        query = {"labelSelector": "app.kubernetes.io/name=prometheus"}
        for one in (await api.get(f"/api/v1/namespaces/{namespace}/pods", **query))["items"]:
            if address := one["status"].get("podIP"):
                found = scraping.Prometheus(f"http://{address}:9090")
                return found if found.ready() else None
        return None

    try:
        return await until(answers, "the operator's Prometheus", PATIENT)
    except TimeoutError as error:
        error.add_note(bed.kubectl("-n", namespace, "describe", "prometheuses,statefulsets,pods"))
        raise
