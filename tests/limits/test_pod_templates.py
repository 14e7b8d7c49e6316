"""`explain -f` reads every object that makes pods, whatever its kind; and says of each other one why it does not."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from exporter.limits import Options
from exporter.limits.loading import builtin
from exporter.limits.offline import explain
from exporter.objects.manifest import ManifestError, read
from exporter.objects.pod_templates import pod_templates
from pace import quick

MIB, GIB = 2**20, 2**30
SPEC = {"containers": [{"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpumem": 1024}}}]}
TEMPLATE = {"metadata": {"creationTimestamp": None, "labels": {"app": "x"}}, "spec": SPEC}
MAKERS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "Deployment": ({"spec": {"template": TEMPLATE}}, ["spec.template"]),
    "StatefulSet": ({"spec": {"template": TEMPLATE}}, ["spec.template"]),
    "DaemonSet": ({"spec": {"template": TEMPLATE}}, ["spec.template"]),
    "ReplicaSet": ({"spec": {"template": TEMPLATE}}, ["spec.template"]),
    "Job": ({"spec": {"template": TEMPLATE}}, ["spec.template"]),
    "CronJob": ({"spec": {"jobTemplate": {"spec": {"template": TEMPLATE}}}}, ["spec.jobTemplate.spec.template"]),
    "PodTemplate": ({"template": TEMPLATE}, ["template"]),
    "PyTorchJob": (
        {"spec": {"pytorchReplicaSpecs": {"Master": {"template": TEMPLATE}, "Worker": {"template": {"spec": SPEC}}}}},
        ["spec.pytorchReplicaSpecs.Master.template", "spec.pytorchReplicaSpecs.Worker.template"],
    ),
    "TFJob": ({"spec": {"tfReplicaSpecs": {"PS": {"template": TEMPLATE}}}}, ["spec.tfReplicaSpecs.PS.template"]),
    "MPIJob": (
        {"spec": {"mpiReplicaSpecs": {"Launcher": {"template": TEMPLATE}}}},
        ["spec.mpiReplicaSpecs.Launcher.template"],
    ),
    "Notebook": ({"spec": {"template": {"spec": SPEC}}}, ["spec.template"]),
    "RayCluster": (
        {"spec": {"headGroupSpec": {"template": TEMPLATE}, "workerGroupSpecs": [{"template": TEMPLATE}] * 2}},
        ["spec.headGroupSpec.template", "spec.workerGroupSpecs[0].template", "spec.workerGroupSpecs[1].template"],
    ),
    "RayJob": (
        {"spec": {"rayClusterSpec": {"headGroupSpec": {"template": TEMPLATE}}, "submitterPodTemplate": TEMPLATE}},
        ["spec.rayClusterSpec.headGroupSpec.template", "spec.submitterPodTemplate"],
    ),
    "LeaderWorkerSet": (
        {"spec": {"leaderWorkerTemplate": {"leaderTemplate": TEMPLATE, "workerTemplate": TEMPLATE}}},
        ["spec.leaderWorkerTemplate.leaderTemplate", "spec.leaderWorkerTemplate.workerTemplate"],
    ),
    "JobSet": (
        {"spec": {"replicatedJobs": [{"name": "a", "template": {"spec": {"template": TEMPLATE}}}]}},
        ["spec.replicatedJobs[0].template.spec.template"],
    ),
    "VolcanoJob": ({"spec": {"tasks": [{"template": TEMPLATE}]}}, ["spec.tasks[0].template"]),
    "Revision": ({"spec": SPEC}, ["spec"]),
    "InferenceService": ({"spec": {"predictor": SPEC}}, ["spec.predictor"]),
    "AppWrapper": (
        {"spec": {"components": [{"template": {"kind": "Deployment", "spec": {"template": TEMPLATE}}}]}},
        ["spec.components[0].template.spec.template"],
    ),
    "ManifestWork": (
        {"spec": {"manifests": [{"kind": "Pod", "metadata": {"name": "own"}, "spec": SPEC}]}},
        ["spec.manifests[0]"],
    ),
}
WITHOUT = {
    "Workflow": (
        {"templates": [{"name": "a", "container": {"image": "x", "resources": {"limits": {"nvidia.com/gpu": 1}}}}]},
        "spec.templates[0].container asks for nvidia.com/gpu outside of a pod template",
    ),
    "VirtualMachine": (
        {"template": {"spec": {"domain": {"devices": {"gpus": [{"deviceName": "nvidia.com/A10", "name": "g"}]}}}}},
        "spec.template.spec.domain.devices.gpus[0] asks for nvidia.com/A10 outside of a pod template",
    ),
    "TrainJob": (
        {
            "trainer": {"image": "x", "resourcesPerNode": {"requests": {"nvidia.com/gpu": 1}}},
            "podTemplateOverrides": [{"spec": {"containers": [{"name": "main", "env": []}]}}],
        },
        "spec.trainer asks for nvidia.com/gpu outside of a pod template",
    ),
    "SparkApplication": (
        {"executor": {"gpu": {"name": "nvidia.com/gpu", "quantity": 1}}},
        "spec.executor.gpu asks for nvidia.com/gpu outside of a pod template",
    ),
    "Task": (
        {"steps": [{"name": "a", "image": "x", "computeResources": {"limits": {"nvidia.com/gpu": 1}}}]},
        "spec.steps[0] asks for nvidia.com/gpu outside of a pod template",
    ),
    "NodePool": ({"limits": {"nvidia.com/gpu": 8}}, "found NodePool"),
    "EC2NodeClass": ({"blockDeviceMappings": [{"deviceName": "/dev/xvda"}]}, "found EC2NodeClass"),
    "AllowList": ({"allowed": []}, "found AllowList"),
    "PersistentVolumeClaim": ({"resources": {"requests": {"storage": "1Gi"}}}, "found PersistentVolumeClaim"),
}


def made(kind: str, name: str = "own", **more: Any) -> dict[str, Any]:
    return {"apiVersion": "x/v1", "kind": kind, "metadata": {"name": name, "namespace": "team-a"}, **more}


def rows(*objects: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    text = "\n---\n".join(map(json.dumps, objects))
    listed: list[dict[str, Any]] = json.loads(explain(text, None, builtin(), as_json=True, **more).text)
    return listed


@pytest.mark.parametrize("kind", MAKERS)
def test_each_object_that_makes_pods_is_explained(kind: str) -> None:
    """A pod template is found by its shape: the row names object and path, and the text does, too."""
    body, paths = MAKERS[kind]
    entries = rows(made(kind, **body))
    assert [entry["object"] for entry in entries] == [
        {"api_version": "x/v1", "kind": kind, "namespace": "team-a", "name": "own", "path": path, "document": 1}
        for path in paths
    ]
    assert {(entry["pod"], entry["container"], entry["limit_bytes"]) for entry in entries} == {("own", "main", GIB)}
    text = explain(json.dumps(made(kind, **body)), None, builtin()).text
    assert [line for line in text.splitlines() if line.startswith("pod ")] == [
        f"pod {entry['namespace']}/own of {kind} own, {path}" for entry, path in zip(entries, paths, strict=True)
    ]


@pytest.mark.parametrize("kind", WITHOUT)
def test_what_makes_no_pods_by_a_template_is_said(kind: str) -> None:
    """An object that asks for devices outside of a pod template is named with the path, another one by its kind."""
    spec, told = WITHOUT[kind]
    with pytest.raises(ManifestError) as refused:
        explain(json.dumps(made(kind, spec=spec)), None, builtin())
    assert told in str(refused.value)


def test_a_pod_is_its_own_object() -> None:
    """A Pod's row names the Pod, without a path; all else is what it was."""
    (entry,) = rows(made("Pod", spec=SPEC))
    assert entry.pop("object") == {
        "api_version": "x/v1",
        "kind": "Pod",
        "namespace": "team-a",
        "name": "own",
        "path": None,
        "document": 1,
    }
    assert next(iter(entry)) == "namespace"
    assert explain(json.dumps(made("Pod", spec=SPEC)), None, builtin()).text.startswith("pod team-a/own\n")


@pytest.mark.parametrize(
    ("metadata", "own", "expected"),
    [
        ({"name": "web"}, {}, ("default", "web")),
        ({"name": "web", "namespace": "a"}, {"name": "mine", "namespace": "b"}, ("b", "mine")),
        ({"generateName": "run-"}, {}, ("default", "run")),
        (None, None, ("default", "")),
    ],
)
def test_a_pod_of_a_template_has_its_owners_name(metadata: object, own: object, expected: tuple[str, str]) -> None:
    """A template seldom has a name: the object's name is shown instead, and the object's namespace counts."""
    spec = {"template": {"metadata": own, "spec": SPEC}}
    (pod,) = read(json.dumps({"kind": "Deployment", "metadata": metadata, "spec": spec})).pods
    assert (pod.namespace, pod.name) == expected


def test_annotations_and_labels_are_the_templates() -> None:
    """What stands on the object itself is not on its pods."""
    key = "nvidia.com/container.main.gpu-memory.limit"
    template = {"metadata": {"annotations": {key: "2Gi"}}, "spec": {"containers": [{"name": "main"}]}}
    owner = made("Deployment", spec={"template": template})
    owner["metadata"]["annotations"] = {key: "1Gi"}
    (entry,) = rows(owner)
    assert entry["limit_bytes"] == 2 * GIB


def test_no_object_is_lost_for_another() -> None:
    """Each object of a mixed file has its result or its problem, with the document's number and the path in it."""
    bad = made("Deployment", "bad", spec={"template": {"spec": {"containers": [{"image": "x"}]}}})
    items = [made("Pod", "two", spec=SPEC), made("Pod", "wrong", spec={"containers": 5}), 7]
    documents = [
        json.dumps(made("Deployment", "one", spec={"template": TEMPLATE})),
        json.dumps(bad),
        "",
        "just text",
        "kind: Pod\nmetadata: {name: torn}\nspec: [",
        json.dumps({"kind": "List", "items": items}),
        json.dumps(made("Service", "quiet")),
        json.dumps(made("Workflow", "flow", spec=WITHOUT["Workflow"][0])),
    ]
    text = "# a comment\n---\n" + "\n---\n".join(documents)
    explained = explain(text, None, builtin(), as_json=True, source="f")
    objects = [entry["object"] for entry in json.loads(explained.text)]
    assert [(each["name"], each["document"]) for each in objects] == [("one", 1), ("two", 6)]
    assert [problem.split(" asks")[0] for problem in explained.problems] == [
        "f: document 2: Deployment bad: Object missing required field `name` - at `$.spec.template.spec.containers[0]`",
        "f: document 4: expected an object with a kind, found just text",
        "f:14:1: document 5: neither YAML nor JSON as kubectl prints it: did not find expected node content",
        "f: document 6, items[2]: expected an object with a kind, found 7",
        "f: document 6, items[1]: Pod wrong: Expected `array | null`, got `int` - at `$.spec.containers`",
        "f: document 8: Workflow flow: spec.templates[0].container",
    ]
    assert "no pod template was found in: Service" in explain(text, None, builtin()).text


def test_numbers_of_documents_do_not_depend_on_a_mistake() -> None:
    """The same document has the same number whether another one can be read or not."""
    pod = json.dumps(made("Pod", spec=SPEC))
    for head in ("", "---\n", "# text\n---\n", "%YAML 1.1\n---\n"):
        for tail in ("", "---\n", "---\n[\n"):
            explained = explain(f"{head}{pod}\n---\n\n---\n{pod}\n{tail}", None, builtin(), as_json=True)
            assert [entry["object"]["document"] for entry in json.loads(explained.text)] == [1, 3]
            assert bool(explained.problems) == ("[" in tail)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"spec": {"template": {"spec": {"containers": 5}}}}, "$.spec.template.spec.containers"),
        ({"spec": {"template": {"metadata": {"labels": {"a": 1}}, "spec": SPEC}}}, "$.spec.template.metadata.labels"),
        ({"spec": {"predictor": {**SPEC, "initContainers": 5}}}, "$.spec.predictor.initContainers"),
        ({"metadata": {"name": 5}, "spec": {"template": TEMPLATE}}, "$.metadata.name"),
        ({"metadata": 5, "spec": {"template": TEMPLATE}}, "$.metadata"),
    ],
)
def test_a_mistake_is_told_with_its_path(body: dict[str, Any], path: str) -> None:
    """The path leads from the object, not from the template in it."""
    with pytest.raises(ManifestError) as caught:
        read(json.dumps({"kind": "Thing", **body}))
    assert f"`{path}" in str(caught.value)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"metadata": {"annotations": {"a": "x", "b": None}}, "spec": SPEC}, "got `null` - at `$.A.annotations[b]`"),
        ({"metadata": {"labels": {"n" * 200: 1}}, "spec": SPEC}, f"got `int` - at `$.A.labels[{'n' * 100}...]`"),
    ],
)
def test_a_mistake_in_a_mapping_is_told_with_its_key(part: dict[str, Any], expected: str) -> None:
    """Where forty annotations stand, the message says which of them is meant; in a Pod as in a template."""
    for kind, body, path in (
        ("Pod", part, "metadata"),
        ("Job", {"spec": {"template": part}}, "spec.template.metadata"),
    ):
        with pytest.raises(ManifestError) as caught:
            read(json.dumps({"kind": kind, **body}))
        assert expected.replace("A", path) in str(caught.value)


def test_a_resource_that_is_no_amount_is_told_with_its_key() -> None:
    """The path leads through lists, too."""
    spec = {"containers": [{"name": "a"}, {"name": "b", "resources": {"limits": {"cpu": 1, "nvidia.com/gpu": True}}}]}
    with pytest.raises(ManifestError, match=r"at `\$\.spec\.containers\[1\]\.resources\.limits\[nvidia\.com/gpu\]`"):
        read(json.dumps(made("Pod", spec=spec)))


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"metadata": {"name": "own"}, "spec": SPEC}, "own: expected an object with a kind, its kind is none"),
        ({"Kind": "Pod", "spec": SPEC}, "expected an object with a kind, its kind is none"),
        ({"kind": 5, "spec": SPEC}, "expected an object with a kind, its kind is 5"),
    ],
)
def test_an_object_without_a_kind_is_a_problem(document: dict[str, Any], told: str) -> None:
    """It may have been a pod: the exit code says that it is missing in the answer."""
    explained = explain(f"{json.dumps(made('Pod', spec=SPEC))}\n---\n{json.dumps(document)}", None, builtin())
    assert explained.problems == (f"manifest: document 2: {told}",)


def test_texts_are_those_that_kubectl_reads() -> None:
    """For Kubernetes' YAML reader dates, `1:30` and `=` are text, and a chart may write them without quotes."""
    annotations = "{built: 2025-01-01, at: 2025-01-01T00:00:00Z, odd: 2025-13-45, span: 1:30, half: 1:30.5, op: =}"
    (pod,) = read(f"kind: Pod\nmetadata: {{name: a, annotations: {annotations}}}\nspec: {{containers: []}}").pods
    assert pod.annotations == {
        "built": "2025-01-01",
        "at": "2025-01-01T00:00:00Z",
        "odd": "2025-13-45",
        "span": "1:30",
        "half": "1:30.5",
        "op": "=",
    }


def test_a_doubled_key_is_refused_in_json_too() -> None:
    """A doubled key is an error in JSON, as in YAML: the second value never counts. Other documents are explained."""
    doubled = '{"kind": "Pod", "metadata": {"name": "a", "name": "b"}}'
    with pytest.raises(ManifestError, match=r'manifest:1:43: .* the key "name" twice'):
        read(doubled)
    explained = explain(f"{doubled}\n---\n{json.dumps(made('Pod', spec=SPEC))}", None, builtin())
    assert explained.text.startswith("pod team-a/own")
    assert 'document 1: neither YAML nor JSON as kubectl prints it: the key "name" twice' in explained.problems[0]


def test_a_long_number_is_told_without_advice_for_programmers() -> None:
    """Python's own message names a function of Python."""
    with pytest.raises(ManifestError, match=r"a number of more than \d+ digits$"):
        read(f'{{"kind": {"9" * 5000}}}')


def test_an_annotation_for_a_container_that_is_not_there_is_named() -> None:
    """A name that does not match declares nothing; the answer says so, for nothing else would."""
    keys = ["nvidia.com/container.mian.gpu-memory.limit", "nvidia.com/gpu-memory.container.mian.limit"]
    right = {"nvidia.com/container.main.gpu-memory.limit": "1Gi"}
    template = {**TEMPLATE, "metadata": {"annotations": {**right, **dict.fromkeys(keys, "2Gi")}}}
    text = explain(json.dumps(made("Job", spec={"template": template})), None, builtin()).text
    for key in keys:
        assert f"\n{key} declares nothing: pod team-a/own has no container mian\n" in text
    assert text.count("declares nothing") == 2


def test_claims_that_are_not_made_yet_are_named() -> None:
    """A template's claims are made with each pod: what they allocate is missing, and is said to be."""
    spec = {**SPEC, "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]}
    told = "claims from the ResourceClaimTemplate one-gpu are made with each pod"
    assert told in explain(json.dumps(made("Job", spec={"template": {"spec": spec}})), None, builtin()).text
    made_already = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "own-gpu"}]}
    text = explain(json.dumps(made("Pod", spec=spec, status=made_already)), None, builtin()).text
    assert told not in text
    assert "claim team-a/own-gpu was not given" in text


NODE = {
    "nvidia.com/gpu.count": "2",
    "nvidia.com/gpu.memory": "81920",
    "nvidia.com/gpu.replicas": "4",
    "nvidia.com/gpu.sharing-strategy": "time-slicing",
    "nvidia.com/mig-1g.10gb.memory": "9856",
    "nvidia.com/mig-1g.10gb.replicas": "2",
    "nvidia.com/mig-2g.20gb.memory": "19968",
    "nvidia.com/mig-2g.20gb.replicas": "1",
}


def on(labels: dict[str, str], resource: str, amount: int = 1, *, fair_share: bool = False) -> tuple[int | None, str]:
    """Explain a pod with one container that asks for a resource: its limit, and the text for people."""
    pod = json.dumps(made("Pod", spec={"containers": [{"name": "main", "resources": {"limits": {resource: amount}}}]}))
    node, options = json.dumps({"kind": "Node", "metadata": {"labels": labels}}), Options(fair_share=fair_share)
    (entry,) = json.loads(explain(pod, node, builtin(), options, as_json=True).text)
    return entry["limit_bytes"], explain(pod, node, builtin(), options).text


@pytest.mark.parametrize(
    ("resource", "fair_share", "expected"),
    [
        ("nvidia.com/mig-2g.20gb", False, 19968 * MIB),
        ("nvidia.com/mig-2g.20gb", True, 19968 * MIB),
        ("nvidia.com/mig-1g.10gb", False, None),
        ("nvidia.com/mig-1g.10gb", True, 4928 * MIB),
        ("nvidia.com/mig-1g.10gb.shared", False, None),
        ("nvidia.com/mig-1g.10gb.shared", True, 4928 * MIB),
        ("nvidia.com/gpu", False, None),
        ("nvidia.com/gpu", True, 20 * GIB),
        ("nvidia.com/gpu.shared", True, 20 * GIB),
    ],
)
def test_sizes_that_the_node_tells(resource: str, expected: int | None, *, fair_share: bool) -> None:
    """The labels of a MIG profile are about its instances; those of the GPUs are about GPUs alone."""
    limit, text = on(NODE, resource, fair_share=fair_share)
    assert limit == expected
    assert "the node " not in text


@pytest.mark.parametrize("resource", ["nvidia.com/gpumem-percentage", "volcano.sh/vgpu-memory-percentage"])
def test_a_percentage_is_an_amount_where_the_node_tells_sizes(resource: str) -> None:
    """Half of an 80 GiB GPU is 40 GiB; without a label it is a share, and the label is named."""
    assert on(NODE, resource, 50)[0] == 40 * GIB
    limit, text = on({**NODE, "nvidia.com/gpu.memory": ""}, resource, 50)
    assert limit is None
    assert "(label nvidia.com/gpu.memory, or what HAMi registers)" in text


@pytest.mark.parametrize(
    ("missing", "resource", "amount", "told"),
    [
        ("nvidia.com/mig-2g.20gb.memory", "nvidia.com/mig-2g.20gb", 1, "no label nvidia.com/mig-2g.20gb.memory: "),
        ("nvidia.com/mig-1g.10gb.replicas", "nvidia.com/mig-1g.10gb", 1, "no label nvidia.com/mig-1g.10gb.replicas: "),
        ("nvidia.com/gpu.replicas", "nvidia.com/gpu", 1, "no label nvidia.com/gpu.replicas: "),
        ("nvidia.com/gpu.count", "nvidia.com/gpu", 1, "(label nvidia.com/gpu.count, or what HAMi registers)"),
        ("", "nvidia.com/gpu", 2, "only the kubelet knows of which devices a container's several replicas are"),
    ],
)
def test_a_size_that_is_missing_is_named(missing: str, resource: str, amount: int, told: str) -> None:
    """Where a limit would follow from a label that the node lacks, the answer names the label."""
    _, text = on({key: value for key, value in NODE.items() if key != missing}, resource, amount, fair_share=True)
    assert told in text


def nested(depth: int, core: str) -> str:
    spec = '{"a":' * depth + core + "}" * depth
    return f'{{"kind": "Thing", "metadata": {{"name": "t"}}, "spec": {spec}}}'


MANY = 10_000 if quick() else 50_000
BROKEN = [{"template": {"spec": {"containers": 5}}}]
HOSTILE: dict[str, Callable[[], str]] = {
    "values": lambda: f'{{"kind": "Thing", "spec": [{",".join(["{}"] * (20 * MANY))}]}}',
    "deep lists": lambda: f'{{"kind": "Thing", "spec": {"[" * 900}{"]" * 900}}}',
    "a deep kind": lambda: f'{{"kind": {"[" * 900}{"]" * 900}}}',
    "lists of lists": lambda: '{"kind": "List", "items": [' * 490 + "]}" * 490,
    "broken templates": lambda: json.dumps({"kind": "T", "spec": BROKEN * MANY}),
    "a long name": lambda: json.dumps({"kind": "T", "metadata": {"name": "n" * 2**20}, "spec": BROKEN * MANY}),
    "a long path": lambda: json.dumps(
        {"kind": "T", "spec": {"k" * 2**20: [{"resources": {"limits": {"a/b": 1}}}] * MANY}}
    ),
    "broken documents": lambda: "---\n[\n" * 5000,
    "too many documents": lambda: "---\n{}\n" * 10_001 + "---\n[",
}
"""Made when its test begins: each worker imports this file, and all of them take 0.2 s."""


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
def test_hostile_files_are_bounded(make: Callable[[], str]) -> None:
    """Depth, width, paths and documents cost bounded time and space, whatever stands in the file."""
    text = make()
    started = time.process_time()
    try:
        manifest = read(text)
    except ManifestError as error:
        assert all(len(problem) < 1000 for problem in error.problems)  # noqa: PT017  (some are empty)
    else:
        assert manifest.pods == ()
    assert time.process_time() - started < 30


def test_a_template_is_found_at_any_depth() -> None:
    """Four hundred levels down there may be a template; its path is cut at its beginning."""
    (template,) = pod_templates(json.loads(nested(400, json.dumps({"template": TEMPLATE})))).templates
    assert template.path.startswith("...")
    assert template.path.endswith("a.a.template")
    assert len(template.path) == 303


def test_an_alias_costs_its_own_document_alone() -> None:
    """Anchors are refused as ever, and the other documents are explained."""
    pod = json.dumps(made("Pod", spec=SPEC))
    explained = explain(f"{pod}\n---\na: &a [x]\nb: [*a, *a]\n---\n{pod}", None, builtin(), as_json=True)
    assert len(json.loads(explained.text)) == 2
    (problem,) = explained.problems
    assert problem.startswith("manifest:3:4: document 2: ")
    assert "an anchor (&) or alias (*)" in problem
