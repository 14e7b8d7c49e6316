"""
What is applied is what the API server then has: `kubectl diff` is silent, so Argo CD and Flux find nothing to repair.

In: each variant and platform of the chart, rendered, and an API server. Out: nothing. Law: no field that the chart
writes is dropped or changed by the server; of the admission policies the chart also writes each default.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import build
from cluster.bed import Bed
from deploy import chart
from deploy.operators import KINDS, definition
from exporter.base.quantities import QuantityError, parse_quantity

pytestmark = [pytest.mark.cluster, pytest.mark.versions]

NAMESPACES = ("gpusteward", "team-a", "team-b")
COMPLETE = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
"""Kinds of which the chart writes all that the server would add: tools that compare lists take defaults for a drift."""
OTHERS = (
    ("monitoring.googleapis.com", "v1", "PodMonitoring", "Namespaced"),
    ("monitoring.googleapis.com", "v1", "ClusterPodMonitoring", "Cluster"),
    ("grafana.integreatly.org", "v1beta1", "GrafanaDashboard", "Namespaced"),
)
"""Group, version, kind and scope. Their definitions are in no Go module that can be had; any content is taken."""


@pytest.fixture(scope="module")
def server(api_server: Bed) -> Iterator[Bed]:
    """The API server with the namespaces of the variants, and the kinds that operators bring."""
    things = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": one}} for one in NAMESPACES]
    kinds = [yaml.safe_load(definition(kind).read_text()) for kind in KINDS] + [_open(*one) for one in OTHERS]
    names = [one["metadata"]["name"] for one in kinds]
    api_server.kubectl("create", "-f", "-", stdin=yaml.safe_dump_all([*things, *kinds]))
    api_server.kubectl("wait", "--for=condition=Established", "crd", *names)
    yield api_server
    api_server.kubectl("delete", "crd", *names)
    api_server.kubectl("delete", "namespace", *NAMESPACES, "--wait=false")


@pytest.mark.parametrize("name", [*chart.VARIANTS, *chart.PLATFORMS])
def test_nothing_differs_after_it_was_applied(server: Bed, name: str, tmp_path: Path) -> None:
    """`kubectl diff` ends with 0, and each field is there as it was written."""
    version = build.kubernetes_version(server.control_plane.version)
    rendering = chart.text(chart.variant(name), kubernetes=version.removeprefix("v"))
    file = tmp_path / "rendered.yaml"
    file.write_text(rendering)
    server.kubectl("apply", "-f", str(file))
    try:
        assert server.kubectl("diff", "-f", str(file)) == ""
        for one in chart.objects(rendering):
            got = json.loads(server.kubectl("get", "-f", "-", "-o", "json", stdin=yaml.safe_dump(one)))
            (there,) = got["items"] if got["kind"] == "List" else [got]
            assert [*changed(one, there)] == [], one["metadata"]["name"]
            if one["kind"] in COMPLETE:
                assert there["spec"] == one["spec"]
    finally:
        server.kubectl("delete", "-f", str(file), "--wait=false", "--ignore-not-found")


def test_a_difference_would_be_found(server: Bed, tmp_path: Path) -> None:
    """Of a changed object kubectl says what differs, with exit code 1; of a dropped field the walk says where."""
    (one,) = chart.rendered("monitored").of("NetworkPolicy")
    file = tmp_path / "rendered.yaml"
    file.write_text(yaml.safe_dump(one))
    server.kubectl("apply", "-f", str(file))
    try:
        one["spec"]["policyTypes"] = ["Ingress", "Egress"]
        file.write_text(yaml.safe_dump(one))
        with pytest.raises(Exception, match="returned non-zero exit status 1"):
            server.kubectl("diff", "-f", str(file))
    finally:
        server.kubectl("delete", "-f", str(file))
    assert [*changed({"a": [{"b": 1, "c": {}}]}, {"a": [{"b": 1}]})] == [".a[0].c"]
    assert [*changed({"a": "5000", "b": "x"}, {"a": "5k", "b": "y"})] == [".b"]


def changed(written: Any, there: Any, path: str = "") -> Iterator[str]:
    """Where the server has something else than what was written, or nothing; what it adds does not count."""
    if isinstance(written, dict) and isinstance(there, dict):
        for key, value in written.items():
            if key in there:
                yield from changed(value, there[key], f"{path}.{key}")
            else:
                yield f"{path}.{key}"
    elif isinstance(written, list) and isinstance(there, list) and len(written) == len(there):
        for i, (before, after) in enumerate(zip(written, there, strict=True)):
            yield from changed(before, after, f"{path}[{i}]")
    elif written != there and not same_quantity(written, there):
        yield path


def same_quantity(written: Any, there: Any) -> bool:
    """Whether both are one number, which the API server writes its own way: 5000 and 5k."""
    try:
        return isinstance(written, str) and isinstance(there, str) and parse_quantity(written) == parse_quantity(there)
    except QuantityError:
        return False


def _open(group: str, version: str, kind: str, scope: str) -> dict[str, Any]:
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "names": {"plural": plural, "kind": kind}, "scope": scope, "versions": [served]},
    }
