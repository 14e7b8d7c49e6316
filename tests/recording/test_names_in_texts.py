"""Promises of recording/anonymizing.py about labels, annotations and faults: no names, and policies decide the same."""

import pytest

from builders import gpu
from enforcer.policy.rules import ALLOW_EXEMPTION, CONSENT, EXEMPT, GRACE
from enforcer.policy.vocabulary import Mode
from exporter.kube.pods import QUEUES
from exporter.limits.loading import builtin
from exporter.model import (
    Allocation,
    Claim,
    ClaimedDevice,
    ClaimUse,
    Container,
    ContainerId,
    DeclaredContainer,
    DeclaredPod,
    DeviceKey,
    Fault,
    HostSample,
    Inventory,
    NodeFacts,
    Pod,
    PodUid,
)
from exporter.recording import HostRead
from exporter.recording.anonymizing import NODE_LABELS, Pseudonyms
from exporter.recording.keeping import Keeping

KEEPING = Keeping.of(builtin())
UID, ID = PodUid("0f6f4d1c-8a77-4c5e-9f2b-3d5a1c2b4e6f"), ContainerId("ab" * 32)


def texts(name: str) -> dict[str, str]:
    """Write each label and annotation that is kept, with this name in its key and as its value; and others."""
    amounts = {key for key in KEEPING.amounts if key not in KEEPING.of_containers}
    patterns = {*KEEPING.pod_annotations, *KEEPING.pod_labels, *KEEPING.node_labels, *QUEUES, "nvidia.com/*", "team"}
    return {key.replace("*", "0" if key in amounts else name): name for key in patterns} | dict.fromkeys(
        NODE_LABELS, name
    )


@pytest.mark.parametrize("before", ["", "kube-", "gpu-operator.", "system-node-critical-"])
def test_no_tenant_and_no_operator_is_named(before: str) -> None:
    """A pod's own names in texts, and whatever name a fault has, also one like a system's, are not in the file."""
    pod, workload, queue, priority, own, claim, pool, *written = (f"{before}acme-{number}" for number in range(12))
    whole = Inventory(
        pods={
            UID: Pod(
                UID, "acme", pod, "Job", workload, queue, priority, labels=texts(queue), annotations=texts(workload)
            )
        },
        containers=(Container(UID, own, ID),),
        allocations=(Allocation("acme", pod, own, "nvidia.com/gpu", DeviceKey(gpu(0).uuid)),),
        declared={
            UID: DeclaredPod(
                UID, "acme", pod, texts(pod), texts(own),
                (DeclaredContainer(own, claims=(ClaimUse(claim),)),),
                {claim: claim},
            )
        },
        node=NodeFacts(labels=texts(written[0])),
        claims=(Claim("acme", claim, (ClaimedDevice("gpu", "gpu.nvidia.com", pool, "gpu-0", written[1]),)),),
        namespaces={"acme": texts("acme") | {"team": written[2]}},
        faults=(Fault("names", "api_away", written[3], written[3]),),
    )  # fmt: skip
    names = Pseudonyms(b"salt", KEEPING)
    elsewhere = HostSample(faults=(Fault("host", "pods_elsewhere", written[4], written[4]),))
    assert "acme" not in str(names.inventory(whole)) + str(names.host(HostRead(frozenset(), elsewhere)))


@pytest.mark.parametrize("named", ["acme-main", "acme-mian"])
def test_a_container_is_not_named_either_before_it_starts(named: str) -> None:
    """The status of a new pod lists no containers. Its annotation may also name one that the pod does not have."""
    written = {"gpu-fraction": "0.5", "gpu-fraction-container-name": named, "nvidia.com/real-allocated": "acme-main[]"}
    whole = Inventory(
        pods={UID: Pod(UID, "team", "train", annotations=written)},
        declared={UID: DeclaredPod(UID, "team", "train", {}, written, (DeclaredContainer("acme-main"),))},
    )
    found = Pseudonyms(b"salt", KEEPING).inventory(whole)
    ((pod,), (declared,)) = found.pods.values(), found.declared.values()
    (container,) = declared.containers
    assert "acme" not in str(found) and pod.annotations == declared.annotations
    assert declared.annotations["nvidia.com/real-allocated"] == f"{container.name}[]"
    assert (declared.annotations["gpu-fraction-container-name"] == container.name) is (named == "acme-main")


def test_an_amount_that_is_also_a_name_stays() -> None:
    """Namespace, queue, workload and pod may be called like a number or a mode, and a container like a GPU."""
    allocated = f"0[0_{gpu(0).uuid}_50_2024]"
    written = {
        "gpu-memory": "2024",
        "gpu-fraction": "1",
        "hami.io/vgpu-devices-allocated": f"{gpu(0).uuid},mig,4000,8:;",
        "volcano.sh/gpu-index": "0",
        GRACE: "8",
    }
    texts = written | {"nvidia.com/real-allocated": allocated, "gpu-fraction-container-name": "0"}
    whole = Inventory(
        pods={UID: Pod(UID, "2024", "mig", workload="8", queue="4000", annotations=texts)},
        declared={UID: DeclaredPod(UID, "2024", "1", {}, texts, (DeclaredContainer("0"),))},
    )
    found = Pseudonyms(b"salt", KEEPING).inventory(whole)
    ((pod,), (declared,)) = found.pods.values(), found.declared.values()
    (container,) = declared.containers
    assert written.items() <= pod.annotations.items() & declared.annotations.items()
    assert container.name != "0" and declared.annotations["gpu-fraction-container-name"] == container.name
    assert declared.annotations["nvidia.com/real-allocated"] == container.name + allocated[1:], "a name, and no amount"


def test_a_key_of_a_format_is_no_name() -> None:
    """Koordinator's text has the key "gpu": a container of that name is renamed, and the text is read as before."""
    allocated = '{"gpu": [{"minor": 0, "resources": {"koordinator.sh/gpu-memory": "4Gi"}}]}'
    written = {"scheduling.koordinator.sh/device-allocated": allocated}
    pod = DeclaredPod(UID, "acme", "train", annotations=written, containers=(DeclaredContainer("gpu"),))
    (found,) = Pseudonyms(b"salt", KEEPING).inventory(Inventory(declared={UID: pod})).declared.values()
    assert found.annotations == written and found.containers[0].name != "gpu"


def test_a_queue_has_one_pseudonym() -> None:
    """The label by which a pod names its queue still names the queue that the pod is in."""
    labels = {"kai.scheduler/queue": "shared", "runai/queue": "shared"}
    whole = Inventory(pods={UID: Pod(UID, "shared", "train", queue="shared", labels=labels)})
    (pod,) = Pseudonyms(b"salt", KEEPING).inventory(whole).pods.values()
    assert set(pod.labels.values()) == {pod.queue} and pod.queue not in {"shared", pod.namespace}


def test_a_policy_decides_the_same() -> None:
    """Values that a policy compares with stay, its operator's included; so do seconds of grace."""
    keeping = Keeping.of(builtin(), ["team=infra", "acme.example/gpus=yes"])
    written = {
        "gpusteward.io/exempt": "true",
        "gpusteward.io/grace-seconds": "60",
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        "karpenter.sh/do-not-disrupt": "true",
    }
    kept = {"gpusteward.io/mode": "dry-run", "gpusteward.io/allow-pod-exemption": "true", "acme.example/gpus": "yes"}
    pod = Pod(UID, "acme", "train", labels={"team": "infra"}, annotations=written)
    found = Pseudonyms(b"salt", keeping).inventory(Inventory(pods={UID: pod}, namespaces={"acme": kept}))
    ((seen,), (labels,)) = found.pods.values(), found.namespaces.values()
    assert (seen.labels, seen.annotations, labels) == (pod.labels, written, kept)
    assert {CONSENT, ALLOW_EXEMPTION} <= kept.keys() and {EXEMPT, GRACE} <= written.keys()
    assert {mode.value for mode in Mode} <= keeping.values
