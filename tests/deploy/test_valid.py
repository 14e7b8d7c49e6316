"""
What the chart renders is valid by the schemas of its readers: Kubernetes, and the Prometheus operator.

In: all variants. Out: nothing. Law: strict; an unknown field is an error. The schemas are upstream's: those of
Kubernetes come from the wheel kubernetes-validate, those of the operator from its Go module, pinned by checksum.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import cache
from typing import Any

import pytest
import yaml

from deploy.chart import EVICTS_FROM, NEWEST, NOT_ON_OLD_ONES, OLDEST, PLATFORMS, VARIANTS, Object, rendered
from deploy.operators import KINDS, definition
from deploy.schemas import RefusedError, known_to_kubernetes, validate

pytestmark = [pytest.mark.charts, pytest.mark.usefixtures("helm")]

GROUP = "monitoring.coreos.com/v1"
OTHERS = {"monitoring.googleapis.com/v1", "grafana.integreatly.org/v1beta1"}
"""Of Google and grafana-operator: schemas are in no Go module that can be had. test_chart.py looks at the fields."""


def everything(kubernetes: str, *, but: Collection[str] = ()) -> list[Object]:
    """All objects of all variants and platforms, each once, with those of `helm test`."""
    names = [name for name in (*VARIANTS, *PLATFORMS) if name not in but]
    made = [one for name in names for one in rendered(name, kubernetes, tests=True).objects]
    return list({json.dumps(one, sort_keys=True): one for one in made}.values())


@cache
def definitions() -> dict[str, Any]:
    """The operator's schemas by kind, with unknown fields forbidden."""
    found = {}
    for kind in KINDS:
        spec = yaml.safe_load(definition(kind).read_text())["spec"]
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


POLICIES = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}


@pytest.mark.parametrize("version", [OLDEST, EVICTS_FROM, NEWEST])
def test_kubernetes_knows_every_field(version: str) -> None:
    """The oldest that the chart supports, the oldest on which it evicts, and the newest."""
    kinds = set()
    for one in everything(version, but=NOT_ON_OLD_ONES if version == OLDEST else ()):
        if one["apiVersion"] not in {GROUP, *OTHERS}:
            assert known_to_kubernetes(one, version)
            kinds.add(one["kind"])
    assert kinds | POLICIES == {
        "ClusterRole", "ClusterRoleBinding", "ConfigMap", "DaemonSet", "NetworkPolicy", "Pod", "ResourceQuota", "Role",
        "RoleBinding", "Service", "ServiceAccount", *POLICIES,
    }  # fmt: skip
    assert bool(kinds & POLICIES) is (version != OLDEST)


def test_a_typing_error_would_be_found() -> None:
    """The validators do find what is wrong: a field that there is not, a duration that is none."""
    daemon = json.loads(json.dumps(rendered("observe").only("DaemonSet")))
    daemon["spec"]["template"]["spec"]["tolerationz"] = []
    with pytest.raises(RefusedError, match="tolerationz"):
        known_to_kubernetes(daemon, NEWEST)
    monitor = json.loads(json.dumps(rendered("monitored").only("PodMonitor")))
    monitor["spec"]["podMetricsEndpoints"][0]["honourLabels"] = True
    with pytest.raises(RefusedError, match="honourLabels"):
        validate(monitor, definitions()["PodMonitor"])
    monitor = json.loads(json.dumps(rendered("service-monitor").only("ServiceMonitor")))
    monitor["spec"]["endpoints"][0]["interval"] = "15 sec"
    with pytest.raises(RefusedError, match="15 sec"):
        validate(monitor, definitions()["ServiceMonitor"])


def test_the_operator_knows_every_field() -> None:
    """Monitors and rules, as its own definitions have them."""
    kinds = set()
    for one in everything(NEWEST):
        if one["apiVersion"] == GROUP:
            validate(one, definitions()[one["kind"]])
            kinds.add(one["kind"])
    assert kinds == set(KINDS)
