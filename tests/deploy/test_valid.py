"""
What the chart renders is valid by the schemas of its readers: Kubernetes, and the Prometheus operator.

In: all variants. Out: nothing. Law: strict; an unknown field is an error. The schemas are upstream's: those of
Kubernetes come from the wheel kubernetes-validate, those of the operator from its Go module, pinned by checksum.
"""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from deploy.chart import NEWEST, OLDEST, VARIANTS, Object, rendered

pytestmark = [pytest.mark.charts, pytest.mark.usefixtures("helm")]

OPERATOR = "github.com/prometheus-operator/prometheus-operator"
GROUP = "monitoring.coreos.com/v1"
KINDS = ("PodMonitor", "PrometheusRule", "ServiceMonitor")


def everything(*, operators: bool) -> list[Object]:
    """All objects of all variants, each once."""
    found = {json.dumps(one, sort_keys=True): one for name in VARIANTS for one in rendered(name).objects}
    return [one for one in found.values() if (one["apiVersion"] == GROUP) is operators]


@cache
def definitions() -> dict[str, Any]:
    """The operator's schemas by kind, with unknown fields forbidden."""
    module = Path(__file__).parent / "tools" / "prometheus-operator"
    done = subprocess.run(
        ["go", "mod", "download", "-json", OPERATOR], cwd=module, capture_output=True, text=True, check=True,
        env={**os.environ, "GOFLAGS": "-mod=readonly"},
    )  # fmt: skip
    folder = Path(json.loads(done.stdout)["Dir"]) / "example" / "prometheus-operator-crd"
    found = {}
    for kind in KINDS:
        spec = yaml.safe_load((folder / f"monitoring.coreos.com_{kind.lower()}s.yaml").read_text())["spec"]
        (version,) = (one for one in spec["versions"] if f"{spec['group']}/{one['name']}" == GROUP)
        found[kind] = strict(version["schema"]["openAPIV3Schema"])
    return found


def strict(schema: Any) -> Any:
    """Forbid what the schema does not name, as the API server does with `--validate=strict`."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(one) for key, one in schema.items()}
    if isinstance(pattern := schema.get("pattern"), str) and "(?i)" in pattern:  # Go takes it anywhere
        made["pattern"] = f"(?i){pattern.replace('(?i)', '')}"
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        # What a server fills in itself is not spelled out in a definition.
        made.setdefault("additionalProperties", False)
        if "kind" in schema["properties"] and "spec" in schema["properties"]:
            made["properties"]["metadata"] = {"type": "object"}
    return made


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_kubernetes_knows_every_field(version: str) -> None:
    """The oldest and the newest that the chart supports."""
    kinds = set()
    for one in everything(operators=False):
        assert kubernetes_validate.validate(one, version, strict=True) == version.rpartition(".")[0]
        kinds.add(one["kind"])
    assert kinds == {
        "ClusterRole", "ClusterRoleBinding", "ConfigMap", "DaemonSet", "NetworkPolicy", "ResourceQuota", "RoleBinding",
        "Service", "ServiceAccount", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
    }  # fmt: skip


def test_a_typing_error_would_be_found() -> None:
    """The validators do find what is wrong: a field that there is not, a duration that is none."""
    daemon = json.loads(json.dumps(rendered("observe").only("DaemonSet")))
    daemon["spec"]["template"]["spec"]["tolerationz"] = []
    with pytest.raises(kubernetes_validate.ValidationError, match="tolerationz"):
        kubernetes_validate.validate(daemon, NEWEST, strict=True)
    monitor = json.loads(json.dumps(rendered("monitored").only("PodMonitor")))
    monitor["spec"]["podMetricsEndpoints"][0]["honourLabels"] = True
    with pytest.raises(jsonschema.ValidationError, match="honourLabels"):
        jsonschema.validate(monitor, definitions()["PodMonitor"])
    monitor = json.loads(json.dumps(rendered("monitored").only("ServiceMonitor")))
    monitor["spec"]["endpoints"][0]["interval"] = "15 sec"
    with pytest.raises(jsonschema.ValidationError, match="15 sec"):
        jsonschema.validate(monitor, definitions()["ServiceMonitor"])


def test_the_operator_knows_every_field() -> None:
    """Monitors and rules, as its own definitions have them."""
    kinds = set()
    for one in everything(operators=True):
        jsonschema.validate(one, definitions()[one["kind"]])
        kinds.add(one["kind"])
    assert kinds == set(KINDS)
