"""
What a cluster's monitoring scrapes beside gpusteward: kube-state-metrics, node_exporter, prometheus-adapter.

In: a bed, a daemon's address, and what docs/recipes.md says of their configuration. Out: a Prometheus with all of it.
Law: the programs are real. Each target is scraped as two clusters, so that a join without `cluster` is ambiguous.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from cluster import build
from cluster.bed import NODE_NAME, Bed
from cluster.client import Object
from cluster.processes import Processes, free_port, listens
from patience import PATIENCE
from prometheus.scraping import Prometheus, program, running

CLUSTERS = ("east", "west")
ADAPTER = "prometheus-adapter"
CUSTOM = "v1beta1.custom.metrics.k8s.io"


@contextmanager
def monitored(
    bed: Bed, folder: Path, daemon: str, *, labels: Sequence[str], node_label: str, rules: Sequence[Object]
) -> Iterator[Prometheus]:
    """
    A Prometheus that scrapes the daemon, kube-state-metrics and node_exporter each second.

    labels: what kube-state-metrics exports of the pods' labels; node_label: what names node_exporter's node.
    """
    states, own, node = free_port(), free_port(), free_port()
    processes = Processes(folder, uuid4().hex)
    try:
        processes.start(
            "kube-state-metrics",
            [
                build.program("kube-state-metrics"),
                f"--kubeconfig={bed.kubeconfig}",
                "--host=127.0.0.1",
                f"--port={states}",
                "--telemetry-host=127.0.0.1",
                f"--telemetry-port={own}",
                "--resources=pods,replicasets",
                f"--metric-labels-allowlist={','.join(labels)}",
            ],
            lambda: listens(states),
        )
        processes.start(
            "node-exporter",
            [program("prometheus-node-exporter"), f"--web.listen-address=127.0.0.1:{node}"],
            lambda: listens(node),
        )
        (folder / "rules.json").write_text(json.dumps({"groups": [{"name": "others", "rules": rules}]}))
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(folder / "rules.json")],
            "scrape_configs": [
                _job("gpusteward", daemon, {"namespace": "gpusteward", "pod": "gpusteward-x7k2p"}),
                _job("kube-state-metrics", f"127.0.0.1:{states}", {}),
                _job("node-exporter", f"127.0.0.1:{node}", {node_label: NODE_NAME}),
            ],
        }
        with running(json.dumps(config), folder, folder / "data") as prometheus:
            yield prometheus
    finally:
        processes.stop()


@contextmanager
def adapted(bed: Bed, folder: Path, prometheus: Prometheus, config: str) -> Iterator[None]:
    """Run prometheus-adapter with this config, as what the API server asks for custom metrics."""
    port = free_port()
    (folder / "adapter.yaml").write_text(config)
    processes = Processes(folder, uuid4().hex)
    access = ("lister", "authentication", "authorization")
    try:
        processes.start(
            ADAPTER,
            [
                build.program("adapter"),
                *(f"--{one}-kubeconfig={bed.kubeconfig}" for one in access),
                f"--prometheus-url={prometheus.url}",
                f"--config={folder / 'adapter.yaml'}",
                "--bind-address=127.0.0.1",
                f"--secure-port={port}",
                f"--cert-dir={folder / 'adapter'}",
                "--metrics-relist-interval=2s",  # by default a new metric is seen after ten minutes
            ],
            lambda: listens(port),
        )
        for thing in _service(port):
            bed.kubectl("apply", "-f", "-", stdin=json.dumps(thing))
        bed.kubectl("wait", "--for=condition=Available", f"apiservice/{CUSTOM}", f"--timeout={PATIENCE:.0f}s")
        yield
    finally:
        bed.kubectl("delete", "apiservice", CUSTOM, "--ignore-not-found")
        bed.kubectl("-n", "default", "delete", "service", ADAPTER, "--ignore-not-found")
        processes.stop()


def _job(name: str, address: str, labels: Mapping[str, str]) -> dict[str, Any]:
    targets = [{"targets": [address], "labels": {**labels, "cluster": cluster}} for cluster in CLUSTERS]
    return {"job_name": name, "honor_labels": True, "static_configs": targets}


def _service(port: int) -> list[Object]:
    """The adapter is a process of this machine, which a Service reaches by a name."""
    spec = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": ADAPTER, "namespace": "default"}, "spec": spec},
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": CUSTOM},
            "spec": {
                "group": "custom.metrics.k8s.io",
                "version": "v1beta1",
                "service": {"name": ADAPTER, "namespace": "default", "port": port},
                "insecureSkipTLSVerify": True,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
            },
        },
    ]
