"""What pods and nodes of the API declare is taken as it is written, and nothing else of them."""

import json
from typing import Any

import msgspec
import pytest

from exporter.kube.pods import Pods, apply, parse_event, parse_list
from exporter.model import ClaimUse, DeclaredPod, NodeFacts, PodUid
from exporter.objects.manifest import read
from exporter.objects.node import NodeObject, node_facts
from exporter.objects.pod import PodObject, declared_pod
from sources.kube_api import event, listing, pod

UID = PodUid("2c48913c-b29f-11e7-9350-020968147796")
SPEC = {
    "schedulerName": "volcano",
    "nodeName": "n1",
    "resourceClaims": [
        {"name": "own", "resourceClaimName": "shared"},
        {"name": "made", "resourceClaimTemplateName": "t"},
    ],
    "initContainers": [
        {"name": "sidecar", "restartPolicy": "Always", "resources": {"limits": {"nvidia.com/gpu": 1}}},
        {"name": "setup"},
    ],
    "containers": [
        {
            "name": "main",
            "resources": {
                "limits": {"nvidia.com/gpumem": "3000", "example.com/half": 0.5},
                "requests": {"cpu": "100m"},
                "claims": [{"name": "made", "request": "gpu"}, {"name": "own"}],
            },
            "env": [
                {"name": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "value": "0=2G"},
                {"name": "NVIDIA_API_KEY", "value": "secret"},
                {"name": "PASSWORD", "value": "secret"},
            ],
        }
    ],
}
STATUS = {
    "phase": "Running",
    "resourceClaimStatuses": [{"name": "made", "resourceClaimName": "p-made-x7k2"}],
    "extendedResourceClaimStatus": {
        "resourceClaimName": "p-extended-abc",
        "requestMappings": [
            {"containerName": "sidecar", "resourceName": "nvidia.com/gpu", "requestName": "container-0-request-0"}
        ],
    },
}


def object_of(**more: Any) -> dict[str, Any]:
    metadata = {"name": "p", "namespace": "team", "uid": UID, "labels": {"a": "b"}, "annotations": {"c": "d"}}
    return {"kind": "Pod", "metadata": metadata, "spec": SPEC, "status": STATUS, **more}


def declared(found: dict[str, Any]) -> DeclaredPod:
    return declared_pod(msgspec.json.decode(json.dumps(found), type=PodObject))


def test_a_pod_is_taken_as_it_is_written() -> None:
    """Quantities stay text, containers keep their order and kind, claims are found by the pod's own names."""
    found = declared(object_of())
    assert (found.uid, found.namespace, found.name, found.scheduler) == (UID, "team", "p", "volcano")
    assert (found.labels, found.annotations) == ({"a": "b"}, {"c": "d"})
    assert found.claims == {"own": "shared", "made": "p-made-x7k2", "": "p-extended-abc"}
    assert [(one.name, one.init, one.stays) for one in found.containers] == [
        ("sidecar", True, True),
        ("setup", True, False),
        ("main", False, True),
    ]
    main = found.containers[2]
    assert main.limits == {"nvidia.com/gpumem": "3000", "example.com/half": "0.5"}
    assert main.claims == (ClaimUse("made", "gpu"), ClaimUse("own"))
    assert found.containers[0].claims == (ClaimUse("", "container-0-request-0"),), "only the status tells"


def test_nobodys_secrets_are_kept() -> None:
    """Of an environment only the variables about devices stay."""
    assert declared(object_of()).containers[2].env == {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=2G"}


def test_the_daemon_and_explain_read_the_same() -> None:
    """What the daemon takes from the API server is what `explain -f` takes from `kubectl get`."""
    assert read(json.dumps(object_of())).pods == (declared(object_of()),)


def test_a_node_is_taken_as_it_is_written() -> None:
    """Capacity, allocatable, labels and annotations; a node that says nothing is empty."""
    written = {
        "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
        "status": {"capacity": {"aliyun.com/gpu-mem": "30"}, "allocatable": {"aliyun.com/gpu-mem": 15}},
    }
    node = msgspec.json.decode(json.dumps(written), type=NodeObject)
    facts = NodeFacts({"aliyun.com/gpu-mem": "30"}, {"aliyun.com/gpu-mem": "15"}, {"a": "b"}, {"c": "d"})
    assert node_facts(node) == facts
    assert node_facts(NodeObject()) == NodeFacts()


@pytest.mark.parametrize(("phase", "declares"), [("Pending", True), ("Running", True), ("Succeeded", False)])
def test_a_pod_that_came_to_its_end_declares_nothing(phase: str, *, declares: bool) -> None:
    """A finished Job's annotations declare nothing any more. A pod deleted while it ran may still hold memory."""
    body = listing(pod("p", UID, status={"phase": phase}))
    after = apply(parse_list(body), Pods(), node="n1", now=0.0)
    assert (after.known[UID].declared is not None) is declares
    gone = apply(parse_event(event("DELETED", pod("p", UID, status={"phase": phase}))), after, node="n1", now=1.0)
    assert (gone.departed[UID].known.declared is not None) is declares
