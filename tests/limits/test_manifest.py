"""What kubectl prints is read as it is: YAML or JSON, one object or many; and what it is not, is said."""

import json
from collections.abc import Callable

import pytest

from exporter.limits import resolve
from exporter.limits.explaining import as_data, as_text
from exporter.limits.loading import builtin
from exporter.limits.node_devices import devices_of
from exporter.limits.offline import explain
from exporter.objects.environment import LONGEST
from exporter.objects.manifest import Manifest, ManifestError, read

GIB = 2**30
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "team-a", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {
        "containers": [
            {
                "name": "main",
                "env": [
                    {"name": "CUDA_DISABLE_CONTROL", "value": "true"},
                    {"name": "NVIDIA_API_KEY", "value": "secret"},
                    {"name": "PASSWORD", "value": "secret"},
                    {"name": "GPU_NOTE", "value": "x" * (LONGEST + 1)},
                    {"name": "GPU_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                ],
                "resources": {"limits": {"nvidia.com/mps-core": 50, "nvidia.com/mps-memory": 8}},
            }
        ]
    },
}
PROMISED = [
    "namespace",
    "pod",
    "container",
    "device",
    "limit_bytes",
    "system",
    "source",
    "scope",
    "enforced_by",
    "context",
    "candidates",
    "problems",
    "mps",
]


def test_json_and_lists() -> None:
    """One pod as JSON, and the same in a List, is the same pod."""
    one = read(json.dumps(POD))
    many = read(json.dumps({"kind": "List", "items": [POD, {"kind": "ConfigMap"}]}))
    assert one == many
    assert len(one.pods) == 1


def test_items_of_a_typed_list_need_no_kind() -> None:
    """`kubectl get --raw` prints a PodList whose items do not repeat their kind."""
    bare = {key: value for key, value in POD.items() if key not in {"kind", "apiVersion"}}
    assert read(json.dumps({"kind": "PodList", "items": [bare]})).pods == read(json.dumps(POD)).pods


def test_secrets_stay_outside() -> None:
    """Of an environment only what limits are read from is kept, and nothing that is longer than any of it."""
    (pod,) = read(json.dumps(POD)).pods
    assert pod.containers[0].env == {"CUDA_DISABLE_CONTROL": "true"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[1, 2]", "expected an object"),
        ("{", "neither YAML nor JSON"),
        ("a: [", "neither YAML nor JSON"),
        ('{"kind": "Pod", "metadata": {"name": "p", "labels": {"a": 1}}}', "Pod p"),
        ('{"kind": "Pod", "spec": {"containers": [{}]}}', "$.spec.containers[0]"),
    ],
)
def test_what_is_no_manifest(text: str, told: str) -> None:
    """The message names the object and the path."""
    with pytest.raises(ManifestError) as caught:
        read(text)
    assert told in str(caught.value)


def test_the_json_is_as_promised() -> None:
    """`explain --json`: the keys in their order; bytes are numbers; it survives a round trip."""
    (pod,) = read(json.dumps(POD)).pods
    (entry,) = json.loads(json.dumps(as_data(resolve(pod, None, (), builtin()))))
    assert list(entry) == PROMISED
    assert (entry["namespace"], entry["pod"], entry["container"]) == (pod.namespace, pod.name, "main")
    assert (entry["device"], entry["limit_bytes"]) == (None, 8 * GIB)
    memory = next(found for found in entry["candidates"] if found["taken"] and found["bytes"])
    assert (memory["row"], memory["text"], memory["trust"], memory["why"]) == (
        "alauda-mps resource nvidia.com/mps-memory",
        "8",
        "resource",
        "taken",
    )


def test_the_text_names_every_candidate(manifest: Callable[[str], Manifest]) -> None:
    """For people: container, device and amount, and each candidate with the reason why it was not taken."""
    found = manifest("hami-nvidia")
    text = as_text(resolve(found.pods[0], found.nodes[0], devices_of(found.nodes[0]), builtin()))
    assert "container second on GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448: 4.883 GiB, 0.5 of the compute" in text
    assert "nvidia.com/gpumem-percentage = '10': 3.2 GiB (trust resource): nvidia.com/gpumem takes precedence" in text


def test_a_pod_that_declares_nothing() -> None:
    """It is said so, and the list is empty."""
    (pod,) = read('{"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "main"}]}}').pods
    found = resolve(pod, None, (), builtin())
    assert as_data(found) == []
    assert "declares nothing" in as_text(found)


def test_a_nodes_own_words(manifest: Callable[[str], Manifest]) -> None:
    """Devices offline: HAMi registers UUIDs, labels have count and size; hostile numbers give no device."""
    hami = devices_of(manifest("hami-nvidia").nodes[0])
    assert [(device.key is not None, device.memory) for device in hami] == [(True, 32 * GIB), (True, 32 * GIB)]
    labelled = devices_of(manifest("nvidia-gpu").nodes[0])
    assert [(device.key, device.memory) for device in labelled] == [(None, 81559 * 2**20)] * 2
    (hostile,) = read(
        '{"kind": "Node", "metadata": {"labels": {"nvidia.com/gpu.count": "999999999", "nvidia.com/gpu.memory": "1"}}}'
    ).nodes
    assert devices_of(hostile) == ()


def test_explain_a_file_with_and_without_its_node() -> None:
    """`explain -f`: the node decides what the manifest leaves open; a file without a pod is refused."""
    pod = json.dumps(
        {"kind": "Pod", "spec": {"containers": [{"name": "m", "resources": {"limits": {"aliyun.com/gpu-mem": 300}}}]}}
    )
    node = "{kind: Node, status: {capacity: {aliyun.com/gpu-mem: 15109, aliyun.com/gpu-count: 1}}}"
    (alone,) = json.loads(explain(pod, None, builtin(), as_json=True).text)
    (checked,) = json.loads(explain(pod, node, builtin(), as_json=True).text)
    assert (alone["limit_bytes"], checked["limit_bytes"]) == (300 * GIB, 300 * 2**20)
    assert (alone["container"], alone["scope"]) == (None, "pod")
    assert "300 MiB" in explain(pod, node, builtin()).text
    for text, other in (("{kind: Node}", None), (pod, pod)):
        with pytest.raises(ManifestError):
            explain(text, other, builtin())


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("metadata", "creationTimestamp", "yesterday"),
        ("metadata", "resourceVersion", None),
        ("metadata", "ownerReferences", [{}]),
        ("spec", "priority", "high"),
        ("spec", "nodeName", 5),
        ("spec", "terminationGracePeriodSeconds", "30"),
        ("status", "phase", None),
        ("status", "containerStatuses", [{"name": "main", "containerID": None}]),
    ],
)
def test_a_mistake_where_no_limit_is_read_is_none_of_ours(part: str, key: str, value: object) -> None:
    """People write manifests by hand: what the daemon alone needs of a pod is not looked at in a file."""
    pod = {**POD, part: {**POD.get(part, {}), key: value}}  # type: ignore[dict-item]
    assert read(json.dumps(pod)) == read(json.dumps(POD))


def test_the_plain_uuid_of_a_slice_counts_before_one_with_a_domain() -> None:
    """A driver may publish both; and empty attributes leave those of the older version in force."""
    claim = {
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "status": {"allocation": {"devices": {"results": [{"driver": "d", "pool": "p", "device": "gpu-0"}]}}},
    }
    both = {"uuid": {"string": "GPU-1"}, "example.com/uuid": {"string": "GPU-2"}}
    for device in ({"attributes": both}, {"attributes": {}, "basic": {"attributes": both}}):
        spec = {"driver": "d", "pool": {"name": "p"}, "devices": [{"name": "gpu-0", **device}]}
        (read_claim,) = read(
            json.dumps({"kind": "List", "items": [claim, {"kind": "ResourceSlice", "spec": spec}]})
        ).claims
        assert [each.uuid for each in read_claim.devices] == ["GPU-1"]
