"""Preflight: the verdict on each answer, what it says to do, and that no answer is waited for without end."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from builders import gpu, gpu_uuid, memory
from exporter.base.problem import Problem
from exporter.check import cluster, node, probe, probe_kube, settings
from exporter.check.cluster import ApiServer, NodeObject
from exporter.check.lines import Failed, Line, Verdict, exit_code, render
from exporter.check.node import CgroupView, PidDomain
from exporter.check.settings import Address
from exporter.config import Arguments, Config, load
from exporter.devices import DevicesSample
from exporter.kube.allocations import AllocationsView, Holding
from exporter.kube.pod_resources import socket_of
from exporter.kube.proto import pod_resources_pb2 as api
from exporter.kube.rights import RIGHTS
from exporter.model import Container, ContainerId, Fault, GpuInstance, GpuSample, GpuUuid, Inventory, Owner, PodUid
from exporter.model.vendors import TRUSTED, VENDORS
from kubelet.fake import FakeKubelet
from sources.kube_api import Answer, kubeconfig, refusal, serving

RBAC = Path(__file__).parents[2] / "deploy" / "exporter" / "rbac.yaml"
OK, WARN, FAIL = Verdict
POD, ID = PodUid("0c6f7a3e-0000-4000-8000-000000000001"), ContainerId("a" * 64)
LOST = Fault("devices", "gpu_lost", "GPU 1 does not answer: GPU is lost", gpu_uuid(1))
FOREIGN = Fault("devices", "no_permission", "GPU 1 is skipped: no permission", "index 1", incomplete=False)
HUNG = Fault("devices", "driver_hung", "the NVIDIA driver hangs: nvmlInit has not returned within 5 s")
NESTED = Problem("/proc/self/ns/pid is pid:[1], not pid:[2]", fix="set hostPID: true")


def said(line: Line) -> str:
    """All that a line says."""
    return f"{line.message}; fix: {line.fix}"


def sampled(*faults: Fault, present: int = 2, answered: int = 2, mig: bool = False) -> DevicesSample:
    instances = tuple(GpuInstance(i, "1g.10gb", (f"MIG-{i}",)) for i in (1, 2)) if mig else ()
    found = [gpu(i, memory=memory(), instances=instances if i == 0 else ()) for i in range(answered)]
    samples = tuple(GpuSample(one, 0.0, ()) for one in found)
    return DevicesSample({gpu_uuid(i): i for i in range(present)}, samples, faults)


@pytest.mark.parametrize(
    ("found", "verdict", "words"),
    [
        pytest.param(sampled(), OK, ["580.95.05", "2 GPUs (2 x NVIDIA H100"], id="good"),
        pytest.param(sampled(mig=True), OK, ["MIG on 1 with 2 instances"], id="MIG"),
        pytest.param(sampled(HUNG, present=0, answered=0), FAIL, ["driver hangs", "nvmlInit", "dmesg"], id="hangs"),
        pytest.param(sampled(LOST, answered=1), FAIL, ["GPU 1", "dmesg", "580.95.05"], id="one GPU lost"),
        pytest.param(sampled(FOREIGN, present=1, answered=1), WARN, ["skipped", "1 GPU"], id="one GPU is another's"),
        pytest.param(sampled(present=0, answered=0), WARN, ["shows no GPU", "NVIDIA_VISIBLE_DEVICES"], id="no GPU"),
        pytest.param(Failed("cannot be used; install the driver"), FAIL, ["install the driver"], id="no driver"),
        pytest.param(None, OK, ["simulated"], id="simulated"),
    ],
)
def test_driver(found: DevicesSample | Failed | None, verdict: Verdict, words: list[str]) -> None:
    """What leaves rounds incomplete fails; what only shows less is a warning. Version, GPUs and MIG are reported."""
    line = node.driver(found)
    assert line.verdict is verdict and all(word in said(line) for word in words), line


def test_vendors_that_nobody_compared_with_hardware() -> None:
    """Each has a line with what can never be known of it. NVIDIA has none, and neither has a driver that fails."""
    one = replace(
        gpu(0, memory=memory()), uuid=GpuUuid("0000:0a:00.0"), vendor="amd", model="MI300X", driver_version="6.8"
    )
    divided = replace(one, mig=True, instances=(GpuInstance(0, "cpx", ()), GpuInstance(1, "cpx", ())))
    nvidia = sampled()
    found = replace(
        nvidia,
        present={**nvidia.present, divided.uuid: 0},
        samples=(*nvidia.samples, GpuSample(divided, 0.0, ())),
    )
    (line,) = node.vendors(found)
    assert (line.check, line.verdict) == ("AMD", OK)
    assert "policy.trusted_vendors" in said(line) and "ROCm" in said(line) and "VA-API" not in said(line)
    (partly,) = node.vendors(replace(found, samples=(GpuSample(divided, 0.0, (), partial=True),)))
    assert "by kfd alone" in said(partly) and "VA-API" in said(partly)
    told = node.driver(found).message
    assert "2 GPUs (2 x NVIDIA H100" in told
    assert "AMD 6.8, 1 GPU (1 x MI300X), 1 divided into 2 partitions" in told
    assert node.vendors(nvidia) == node.vendors(Failed("no driver")) == node.vendors(None) == ()


def test_every_vendor_is_told_with_what_is_not_known_of_it() -> None:
    """Each vendor has a title. Each one whose figures were never compared has a text on what is never known of it."""
    assert all(vendor.title and vendor.sources for vendor in VENDORS)
    assert all(vendor.unknown for vendor in VENDORS if not vendor.trusted)
    assert {"nvidia"} == TRUSTED
    assert [vendor.name for vendor in VENDORS if not vendor.memory_by_process] == ["mthreads"]


def test_pid_domain() -> None:
    """Unproven fails; an operator who trusts it by config makes it a warning, and a proof makes it ok."""
    assert node.pid_domain(PidDomain("/host/proc", None, None)).verdict is OK
    assert node.pid_domain(PidDomain("/proc", NESTED, NESTED)) == Line("pid domain", FAIL, NESTED.what, NESTED.fix)
    believed = node.pid_domain(PidDomain("/proc", NESTED, None))
    assert believed.verdict is WARN and "node.trust_pid_namespace" in said(believed)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0::/init.scope\n", "cgroup v2"),
        ("12:memory:/x\n1:name=systemd:/x\n", "cgroup v1"),
        ("12:memory:/x\n0::/x\n", "cgroup v1 and v2"),
        ("", "cgroups unknown"),
    ],
)
def test_cgroup_view(text: str, version: str) -> None:
    """The version, whose view it is, and the number of pods and containers that are found; none is a warning."""
    owners = [Owner(((POD, ID),)), Owner(((POD, None),)), Owner()]
    line = node.cgroups(CgroupView(text, True, owners))
    assert line.verdict is OK
    pods = "pods are in /kubepods, /kubepods.slice and kind's folders below /kubelet and /kubelet.slice"
    origin = "(the default: this process is in no pod)"
    assert line.message == f"{version}, a private cgroup namespace: owners in 1 pod, 1 container; {pods} {origin}"
    nobody = node.cgroups(CgroupView(text, False, [Owner()]))
    assert nobody.verdict is WARN and "hostPID" in said(nobody) and "the host's view" in said(nobody)
    hidden = Fault("host", "processes_unreadable", "cannot read /proc/7: Permission denied", incomplete=False)
    assert node.cgroups(CgroupView(text, None, owners, (hidden,))).verdict is WARN


def test_kubelet() -> None:
    """Its version and what it handed out; an old one's gaps are warnings, one that is away fails."""
    view = AllocationsView(
        pods=frozenset({("a", "p"), ("a", "q")}),
        holdings=(Holding("a", "p", "main", "nvidia.com/gpu", ("x::0", "x::1")),),
        allocatable={},
        known=True,
    )
    assert cluster.kubelet(view) == Line("kubelet", OK, "pod-resources v1 answers: 2 pods, 2 devices allocated")
    assert cluster.kubelet(AllocationsView(allocatable=None)).verdict is WARN
    old = cluster.kubelet(AllocationsView(api="v1alpha1"))
    assert old.verdict is WARN and "1.20" in said(old)
    assert cluster.kubelet(Failed("away")).verdict is FAIL


def test_api_server_refusals_say_what_to_do() -> None:
    """A token that is not accepted is told apart from a server that is away. What depends on it was not asked."""
    refused = cluster.api_server(Failed("401 Unauthorized: Unauthorized", 401))
    assert refused.verdict is FAIL and "ServiceAccount" in said(refused)
    assert cluster.api_server(Failed("Unreachable: x")).verdict is FAIL
    assert cluster.api_server(ApiServer("https://x", "v1.34.1")).verdict is OK
    assert [cluster.rights(None).verdict, cluster.node_name("n", None).verdict] == [WARN, WARN]


@pytest.mark.parametrize("right", RIGHTS, ids=str)
def test_a_missing_right_is_named_with_what_is_lost(right: object) -> None:
    """Without the right to list pods none has a name, so that fails. For each other right the loss is named."""
    line = cluster.rights({one: one is not right for one in RIGHTS})
    lost = next(one for one in RIGHTS if one is right)
    assert line.verdict is (FAIL if lost.resource == "pods" else WARN)
    assert f"{lost} ({lost.without})" in said(line) and "rbac.yaml" in said(line)
    all_granted = dict.fromkeys(RIGHTS, True)
    assert cluster.rights(all_granted).verdict is OK
    many = len(all_granted)
    assert cluster.rights(all_granted).message == f"all {many} permissions that this config uses are granted"
    assert (
        cluster.rights(all_granted, "enforce").message == f"all {many} permissions that mode enforce uses are granted"
    )


def test_cgroups_of_a_second_kubelet_are_harmless() -> None:
    """They may be forged, or those of a test cluster on the same machine: the fix says both."""
    elsewhere = Fault("host", "pods_elsewhere", "process 454 counts as a host process", incomplete=False)
    line = node.cgroups(CgroupView("0::/", True, [Owner(((POD, ID),))], (elsewhere,)))
    assert line.verdict is WARN
    assert "A second kubelet or a test cluster on this machine is harmless" in line.fix


def test_node_name() -> None:
    """A node that the cluster does not know fails; one that is another machine, or may not be read, is a warning."""
    assert cluster.node_name("n1", NodeObject("b1", "b1")).verdict is OK
    assert cluster.node_name("n1", NodeObject("", "b1")).verdict is OK
    unknown = cluster.node_name("n1", Failed("404 NotFound: no", 404))
    assert unknown.verdict is FAIL and "n1" in said(unknown) and "NODE_NAME" in said(unknown)
    assert cluster.node_name("n1", NodeObject("b1", "b2")).verdict is WARN
    assert cluster.node_name("n1", Failed("403 Forbidden: no", 403)).verdict is WARN
    assert cluster.node_name("n1", Failed("500 x: no", 500)).verdict is FAIL


def test_other_names() -> None:
    """No names by config is ok; no names by default is a warning; a broken file fails."""
    known = Inventory(containers=(Container(POD, "main", ID),), known=True, live=True)
    assert cluster.names("file", known) == Line("names", OK, "the file names 1 container")
    broken = Inventory(faults=(Fault("names", "names_invalid", "names.yaml: line 1"),))
    line = cluster.names("file", broken)
    assert (line.verdict, line.message) == (FAIL, "names.yaml: line 1") and "docs/configuration.md" in line.fix
    assert [cluster.names(source, None).verdict for source in ("none", "auto")] == [OK, WARN]
    assert [cluster.log_links("/x", found).verdict for found in (3, None)] == [OK, WARN]


def test_web() -> None:
    """A free address is ok, and so is one that a gpusteward has. One that another program has fails."""
    assert settings.web_address(Address(":1")).verdict is OK
    assert settings.web_address(Address(":1", "in use", "gpusteward")).verdict is OK
    taken = settings.web_address(Address(":1", "in use", "nginx"))
    assert (taken.verdict, taken.message) == (FAIL, "in use") and "web.listen_address" in taken.fix
    assert settings.web_address(Address(":1", "in use")).verdict is FAIL


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ([], 0),
        ([Line("driver", OK, ""), Line("names", WARN, "")], 0),
        ([Line("driver", FAIL, ""), Line("names", OK, "")], 1),
        ([settings.refused_config("x")], 2),
        ([Line("driver", FAIL, ""), settings.web_config("f", Failed("x"))], 2),
    ],
)
def test_exit_code(lines: list[Line], code: int) -> None:
    """Warnings are no failure; a wrong config is 2, as when the daemon itself meets it."""
    assert exit_code(lines) == code


def test_lines_are_aligned_and_one_each() -> None:
    """Whatever a server or a file wrote, a check is one line of printable text; colours only when asked for."""
    lines = [Line("driver", OK, "good"), Line("api server", FAIL, "a\nb\x1b[2J\udcff")]
    assert render(lines) == "ok    driver      good\nfail  api server  a b [2J\n"
    assert render(lines[:1], colour=True) == "\x1b[32mok  \x1b[0m  driver  good\n"


def test_the_shipped_role_is_what_is_used() -> None:
    """The ClusterRole in deploy/ grants exactly the rights that the exporter uses and `check` asks for."""
    (role,) = (thing for thing in yaml.safe_load_all(RBAC.read_text()) if thing["kind"] == "ClusterRole")
    granted = [
        (verb, group, resource)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]
    assert sorted(granted) == sorted((right.verb, right.group, right.resource) for right in RIGHTS)


# --- asking -----------------------------------------------------------------------------------------------------------


def config(folder: Path, url: str = "http://127.0.0.1:9") -> Config:
    """A node whose kubelet is in `folder`, and whose API server is at `url`."""
    keys = {
        "node.name": "n1",
        "node.kubelet_root": str(folder),
        "names.source": "kubernetes",
        "names.kubeconfig": kubeconfig(folder / "config", url, user={"token": "secret"}),
    }
    return load(Arguments(None, keys))


def api_answers(asked: list[dict[str, str]], *, refused: frozenset[str] = frozenset()) -> Answer:
    """An API server that grants all but what is asked for these resources, and writes down what it was asked."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization", "").lower() != "bearer secret":
            return refusal(401, "Unauthorized")
        if request.path == "/version":
            return web.json_response({"major": "1", "gitVersion": "v1.34.1"})
        if request.path == "/api/v1/nodes/n1":
            return web.json_response({"status": {"nodeInfo": {"bootID": "b1"}}})
        assert (request.method, request.content_type) == ("POST", "application/json")
        review = await request.json()
        assert (review["apiVersion"], review["kind"]) == ("authorization.k8s.io/v1", "SelfSubjectAccessReview")
        attributes = review["spec"]["resourceAttributes"]
        asked.append(attributes)
        allowed = attributes["resource"] not in refused
        return web.json_response({**review, "status": {"allowed": allowed}}, status=201)

    return answer


async def test_each_right_is_asked_for_as_it_is_used(tmp_path: Path) -> None:
    """One review for each right, with the token: the own node by its name, all else in all namespaces."""
    asked: list[dict[str, str]] = []
    async with serving(api_answers(asked, refused=frozenset({"jobs"}))) as server:
        found = await probe_kube.api(config(tmp_path, server.url), "b1")
    assert found.server == ApiServer(server.url, "v1.34.1")
    assert found.node == NodeObject("b1", "b1")
    assert isinstance(found.rights, dict)
    assert {str(right) for right, granted in found.rights.items() if not granted} == {"get jobs.batch"}
    expected = [
        {"verb": r.verb, "group": r.group, "resource": r.resource} | ({"name": "n1"} if r.own_node else {})
        for r in RIGHTS
    ]
    assert sorted(asked, key=json.dumps) == sorted(expected, key=json.dumps)


async def test_an_api_server_that_cannot_be_asked_is_a_finding(tmp_path: Path) -> None:
    """No server, one that hangs, one that refuses, one that answers something else: each is reported, none raises."""

    async def hang(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async def refuse(_: web.Request) -> web.StreamResponse:
        return refusal(401, "Unauthorized")

    async def babble(_: web.Request) -> web.StreamResponse:
        return web.Response(text="<html>")

    found = await probe_kube.api(config(tmp_path), "")
    assert isinstance(found.server, Failed) and "Unreachable" in found.server.message
    for answer, word, within in ((hang, "Timeout", 0.3), (refuse, "401", 30.0), (babble, "Invalid", 30.0)):
        async with serving(answer) as server:
            found = await probe_kube.api(config(tmp_path, server.url), "", deadline=within)
        assert isinstance(found.server, Failed) and word in found.server.message
        assert (found.rights, found.node) == (None, None)


async def test_a_server_that_reviews_nothing_is_a_warning(tmp_path: Path) -> None:
    """Where a SelfSubjectAccessReview is refused, the rights are unknown, and nothing is called missing."""
    answers = api_answers([])

    async def answer(request: web.Request) -> web.StreamResponse:
        return refusal(403, "Forbidden") if request.method == "POST" else await answers(request)

    async with serving(answer) as server:
        found = await probe_kube.api(config(tmp_path, server.url), "b1")
    line = cluster.rights(found.rights)
    assert line.verdict is WARN and "unknown: " in said(line) and "missing" not in said(line)


LISTED = api.ListResponse(pod_resources=[api.PodResources(name="p", namespace="a")])


@pytest.mark.parametrize(
    ("answers", "verdict", "words"),
    [
        (
            {"listed": LISTED, "allocatable": api.AllocatableResponse()},
            OK,
            "pod-resources v1 answers: 1 pod, 0 devices",
        ),
        ({"listed": LISTED, "allocatable": GRPCError(Status.UNIMPLEMENTED)}, WARN, "1.23"),
        ({"listed_v1alpha1": LISTED}, WARN, "v1alpha1"),
        ({"listed": None}, FAIL, "did not answer within"),
        (None, FAIL, "node.kubelet_root"),
    ],
    ids=["v1", "without allocatable", "v1alpha1", "hangs", "away"],
)
async def test_the_kubelet_is_asked(
    tmp_path: Path, answers: dict[str, api.ListResponse | None] | None, verdict: Verdict, words: str
) -> None:
    """Whether it answers, and in which version of its API; one that hangs is given up."""
    async with AsyncExitStack() as stack:
        if answers is not None:
            kubelet = FakeKubelet(socket_of(tmp_path))
            kubelet.answer(**answers)
            await stack.enter_async_context(kubelet)
        line = cluster.kubelet(await probe_kube.kubelet(config(tmp_path), 0.3 if words.startswith("did not") else 5.0))
    assert line.verdict is verdict and words in said(line), line


async def test_what_hangs_is_given_up() -> None:
    """A file system or resolver that never answers is a finding after the deadline; what it raises reaches us."""
    stuck = threading.Event()
    try:
        found: Failed | bool = await probe.in_thread(stuck.wait, "reading /stuck", 0.05)
    finally:
        stuck.set()
    assert isinstance(found, Failed) and found.message == "reading /stuck did not end within 0.05 s"

    def broken() -> int:
        raise ValueError("no")

    works: Callable[[], int] = lambda: 7  # noqa: E731
    assert await probe.in_thread(works, "x") == 7
    with pytest.raises(ValueError, match="no"):
        await probe.in_thread(broken, "x")


async def test_only_what_is_asked_for_is_asked() -> None:
    """Simulated devices have their own pods: no driver, kernel, kubelet or API server is looked at."""
    keys = {"devices": "simulated", "web.listen_address": "127.0.0.1:0", "names.source": "kubernetes"}
    lines = await probe.preflight(Arguments(None, keys), in_a_pod=True)
    assert [line.check for line in lines] == ["config", "driver", "web address"]
    assert exit_code(lines) == 0
