"""
The reading of what the Eviction API answers, row by row; and the eviction against servers that real ones seldom are.

The messages are those of Kubernetes 1.34 (`eviction.go`, `errors.go`, the admission plugins) and KubeVirt 1.6; what a
real server answers is tried in tests/cluster/test_evict.py.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from enforcer.actions.evict.actuator import DEADLINE, RIGHTS, Evict
from enforcer.actions.evict.admission_probe import OWN_NODE, POLICY, Guard, OwnPod, Sighting, evictions, own_node
from enforcer.actions.evict.api import LONGEST_DETAIL, Reply, body, heard
from enforcer.actions.interface import Answer, Heard
from enforcer.actions.kube_writer import Writer
from enforcer.journal.records import Planned
from enforcer.policy.history import Action
from enforcer.policy.holder import CaseKey
from enforcer.policy.vocabulary import Rung
from exporter.base.clock import SystemClock
from exporter.kube.credentials import from_kubeconfig
from exporter.model import ContainerId, DeviceKey, GpuUuid, PodUid
from faults.marking import showing
from sources.kube_api import Answer as Serve
from sources.kube_api import Server, kubeconfig, pod, refusal, serving

RBAC = Path(__file__).parents[2] / "deploy" / "enforcer" / "rbac-evict.yaml"
DECISION = "6b1f8f6e-0f4c-4a57-9a0e-1f2d3c4b5a69"
BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."
DENIED = 'pods "train-0" is forbidden: '
VERDICT = "ValidatingAdmissionPolicy 'gpusteward-evictions' with binding 'all' denied request: an eviction needs a UID"
WEBHOOK = 'admission webhook "keep.example.com" denied the request: not on Fridays'
CONFLICT = (
    'Operation cannot be fulfilled on Pod "train-0": the UID in the precondition (a) does not match the UID in record '
    "(b). The object might have been deleted and then recreated"
)
EVACUATION = 'admission webhook "virt-launcher-eviction-interceptor.kubevirt.io" denied the request: '


def action(uid: str = "uid-1", *, namespace: str = "ns", name: str = "p", container: str = "main") -> Action:
    return Planned(
        Rung.EVICT,
        CaseKey(PodUid(uid), container, ContainerId("c" * 64), "", "GPU-1"),
        DeviceKey(GpuUuid("GPU-1")),
        PodUid(uid),
        namespace,
        name,
        container,
        ContainerId("c" * 64),
        (namespace, "Deployment", "train"),
        12 * 2**30,
        8 * 2**30,
        "hami resource",
        100.0,
        dry=False,
    ).restored()


def no(status: int, message: str, *causes: str, kind: str = "pods", after: float | None = None) -> Reply:
    return Reply(status, message=message, kind=kind, causes=causes, retry_after=after)


def masked(*particulars: str) -> Reply:
    return Reply(429, message=BUDGET, kind="", causes=("DisruptionBudget",), particulars=particulars, retry_after=10.0)


ROWS: dict[str, tuple[Reply, Heard]] = {
    "accepted": (Reply(201, kind="Status"), Heard.ACCEPTED),
    "accepted, 200": (Reply(200, kind="Status"), Heard.ACCEPTED),
    "accepted, 202, as the reference has it": (Reply(202, kind="Eviction"), Heard.ACCEPTED),
    "200 of somebody else": (Reply(200), Heard.AMBIGUOUS),
    "204": (Reply(204), Heard.AMBIGUOUS),
    "a redirect": (Reply(307), Heard.AMBIGUOUS),
    "budget": (no(429, BUDGET, "DisruptionBudget", kind=""), Heard.BLOCKED),
    "budget not yet observed": (
        masked("The disruption budget x is still being processed by the server."),
        Heard.BLOCKED,
    ),
    "budget with a name that misleads": (masked("The disruption budget precondition needs 1"), Heard.BLOCKED),
    "fairness": (Reply(429, message="Too many requests, please try again later.", retry_after=1.0), Heard.FAILED),
    "shutdown": (Reply(429, message="The apiserver is shutting down", retry_after=5.0), Heard.FAILED),
    "etcd is busy": (no(429, "storage is (re)initializing", kind="pods", after=1.0), Heard.FAILED),
    "another UID, masked": (no(429, CONFLICT), Heard.CHANGED),
    "another UID, in a cause": (
        masked("Precondition failed: UID in precondition: a, UID in object meta: b"),
        Heard.CHANGED,
    ),
    "KubeVirt": (no(429, EVACUATION + 'Eviction triggered evacuation of VMI "ns/vm"', kind=""), Heard.EVACUATING),
    "KubeVirt again": (
        no(429, EVACUATION + 'Evacuation in progress: Eviction triggered evacuation of VMI "ns/vm"', kind=""),
        Heard.EVACUATING,
    ),
    "a webhook wants it later": (no(429, WEBHOOK, kind=""), Heard.BLOCKED),
    "a webhook says no": (no(403, WEBHOOK, kind=""), Heard.BLOCKED),
    "a webhook says no without a code": (no(400, WEBHOOK, kind=""), Heard.BLOCKED),
    "conflict": (no(409, CONFLICT, kind="Pod"), Heard.CHANGED),
    "the budget conflicts": (no(409, "Operation cannot be fulfilled", kind="poddisruptionbudgets"), Heard.BLOCKED),
    "a proxy's 409": (no(409, "<html>", kind=""), Heard.REFUSED),
    "not found": (no(404, 'pods "train-0" not found'), Heard.GONE),
    "no such namespace": (no(404, 'namespaces "ns" not found', kind="namespaces"), Heard.GONE),
    "the budget is gone": (no(404, "not found", kind="poddisruptionbudgets"), Heard.BLOCKED),
    "a server without evictions": (no(404, "the server could not find the requested resource", kind=""), Heard.REFUSED),
    "no right": (no(403, DENIED + 'User "u" cannot create resource "pods/eviction"'), Heard.FORBIDDEN),
    "a policy, Forbidden": (no(403, DENIED + VERDICT), Heard.REFUSED),
    "a policy, Invalid": (no(422, DENIED + VERDICT), Heard.REFUSED),
    "namespace goes": (no(403, DENIED + "unable to create new content", "NamespaceTerminating"), Heard.GONE),
    "budget negative": (
        no(403, 'poddisruptionbudget.policy "x" is forbidden: negative', kind="poddisruptionbudget"),
        Heard.BLOCKED,
    ),
    "token": (no(401, "Unauthorized", kind=""), Heard.UNAUTHORIZED),
    "bad request": (no(400, "name in URL does not match name in Eviction object", kind=""), Heard.REFUSED),
    "invalid": (no(422, "Eviction is invalid", kind="Eviction"), Heard.REFUSED),
    "method": (no(405, "the server does not allow this method", kind=""), Heard.REFUSED),
    "two budgets": (
        no(500, "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."),
        Heard.BLOCKED,
    ),
    "a webhook that does not answer": (no(500, 'failed calling webhook "x"', kind=""), Heard.AMBIGUOUS),
    "500": (no(500, "etcdserver: leader changed", kind=""), Heard.AMBIGUOUS),
    "502": (no(502, "Bad Gateway", kind=""), Heard.AMBIGUOUS),
    "503": (no(503, "no endpoints", kind="", after=1.0), Heard.AMBIGUOUS),
    "504": (no(504, "couldn't update PodDisruptionBudget due to conflicts", kind=""), Heard.AMBIGUOUS),
    "a proxy gave up waiting for our request": (no(408, "", kind=""), Heard.AMBIGUOUS),
    "sent, and silence": (Reply(0, message="did not answer in time"), Heard.AMBIGUOUS),
    "not sent": (Reply(0, sent=False, message="connection refused"), Heard.FAILED),
}


SHOWN = {
    "fairness": (6,),
    "budget not yet observed": (7,),
    "another UID, masked": (7,),
    "conflict": (8,),
    "not found": (9,),
    "no right": (10,),
    "a policy, Forbidden": (11,),
    "a policy, Invalid": (11,),
    "namespace goes": (12,),
    "budget negative": (13,),
    "two budgets": (14,),
    "504": (15,),
    "KubeVirt": (16,),
    "a webhook wants it later": (16,),
    "a webhook says no": (16,),
    "a webhook says no without a code": (16,),
    "budget": (4,),
    "sent, and silence": (3,),
    "not sent": (2,),
}
"""Faults of docs/faults.md that a row shows."""


@pytest.mark.parametrize("row", showing(ROWS, SHOWN))
def test_each_answer_has_its_meaning(row: str) -> None:
    """Row by row; status, Retry-After and the server's words are handed on."""
    reply, meaning = ROWS[row]
    answer = heard(reply)
    assert (answer.heard, answer.status, answer.retry_after) == (meaning, reply.status or None, reply.retry_after)
    assert reply.message.removesuffix(".") in answer.detail


def test_a_budget_is_named_in_the_detail() -> None:
    """The detail of a refusal names the disruption budget, and says what it requires."""
    told = "The disruption budget two needs 2 healthy pods and has 2 currently"
    assert heard(masked(told, "disruption budget")).detail == f"{BUDGET} {told}", "and nothing is said twice"
    assert len(heard(no(500, "x" * 100_000)).detail) == LONGEST_DETAIL


replies = st.builds(
    Reply,
    status=st.integers(-1, 700),
    sent=st.booleans(),
    message=st.one_of(st.text(), st.sampled_from([reply.message for reply, _ in ROWS.values()])),
    kind=st.sampled_from(["", "pods", "Status", "Eviction", "namespaces", "poddisruptionbudgets"]),
    causes=st.lists(st.sampled_from(["DisruptionBudget", "NamespaceTerminating", ""])).map(tuple),
    particulars=st.lists(st.text()).map(tuple),
    retry_after=st.one_of(st.none(), st.floats(0, 1e6)),
)


@given(replies)
def test_whatever_comes_is_read_and_nothing_is_claimed_lightly(reply: Reply) -> None:
    """
    No answer raises.

    Only a 2xx of the API server counts as accepted. A request counts as without effect only if it was never sent, or if
    a 4xx (or the 500 of several budgets) says so.
    """
    answer = heard(reply)
    if answer.heard is Heard.ACCEPTED:
        assert reply.sent and reply.status in (200, 201, 202) and reply.kind
    elif answer.heard is Heard.FAILED:
        assert not reply.sent or reply.status == 429
    elif answer.heard is not Heard.AMBIGUOUS:
        assert 400 <= reply.status < 500 or (reply.status == 500 and "PodDisruptionBudget" in reply.message)


@pytest.mark.parametrize("container", ["main", ""])
def test_an_eviction_names_the_uid_and_leaves_the_grace_alone(container: str) -> None:
    """UID and nothing else is required of the pod; no grace period of ours; decision and reason for the audit log."""
    made = body(action(container=container), DECISION)
    assert made["deleteOptions"] == {"preconditions": {"uid": "uid-1"}}
    metadata: Any = made["metadata"]
    assert (made["apiVersion"], made["kind"], metadata["name"], metadata["namespace"]) == (
        "policy/v1",
        "Eviction",
        "p",
        "ns",
    )
    assert metadata["annotations"]["gpusteward.io/decision"] == DECISION
    reason = metadata["annotations"]["gpusteward.io/reason"]
    assert reason.startswith("container main uses" if container else "the pod uses")
    assert all(fact in reason for fact in (str(12 * 2**30), "GPU-1", str(8 * 2**30), "hami resource"))


@asynccontextmanager
async def evicting(folder: Path, server: Server, *, deadline: float = 5.0) -> AsyncIterator[tuple[Evict, Writer]]:
    writer = Writer(from_kubeconfig(kubeconfig(folder / "config", server.url)), clock=SystemClock(), deadline=deadline)
    try:
        yield Evict(writer), writer
    finally:
        await writer.close()


async def acted(folder: Path, serve: Serve) -> tuple[Answer, Server]:
    async with serving(serve) as server, evicting(folder, server) as (evict, _):
        return await evict.act(action(), DECISION), server


def fixed(response: web.Response) -> Serve:
    async def serve(_: web.Request) -> web.StreamResponse:
        return web.Response(status=response.status, body=response.body, content_type=response.content_type)

    return serve


@pytest.mark.fault(3)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_is_followed(tmp_path: Path, status: int) -> None:
    """Neither is the eviction sent to another place, nor is a page that is found there taken for a yes."""

    async def serve(request: web.Request) -> web.StreamResponse:
        if request.path == "/elsewhere":
            return web.json_response({"kind": "Status", "status": "Success"})
        return web.Response(status=status, headers={"Location": "/elsewhere"})

    answer, server = await acted(tmp_path, serve)
    assert answer.heard is Heard.AMBIGUOUS
    assert f"{status} to another place" in answer.detail
    assert [seen.path for seen in server.seen] == ["/api/v1/namespaces/ns/pods/p/eviction"]


async def test_the_yes_of_somebody_else_is_none(tmp_path: Path) -> None:
    """The page of a login proxy, with status 200, accepts nothing."""
    answer, _ = await acted(tmp_path, fixed(web.Response(text="<html>Sign in</html>", content_type="text/html")))
    assert (answer.heard, answer.status) == (Heard.AMBIGUOUS, 200)


async def test_a_failure_that_comes_as_a_201_is_no_yes(tmp_path: Path) -> None:
    """What HTTP calls created and the Status inside a failure has to be looked at."""
    inside = {
        "kind": "Status",
        "status": "Failure",
        "code": 500,
        "message": "This pod has more than one PodDisruptionBudget",
    }
    answer, _ = await acted(tmp_path, fixed(web.json_response(inside, status=201)))
    assert (answer.heard, answer.status) == (Heard.AMBIGUOUS, 201)


async def test_nothing_is_asked_without_credentials(tmp_path: Path) -> None:
    """A kubeconfig that cannot be read is no doubt about the pod: nothing was sent."""
    writer = Writer(from_kubeconfig(str(tmp_path / "missing")), clock=SystemClock())
    answer = await Evict(writer).act(action(), DECISION)
    assert (answer.heard, answer.status) == (Heard.FAILED, None)


async def test_a_proxy_that_leads_nowhere_sent_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The 502 of a proxy to CONNECT: it never saw our request, so that there is no doubt."""

    async def connect(request: web.Request) -> web.StreamResponse:
        assert request.method == "CONNECT"
        return web.Response(status=502)

    async with serving(connect) as proxy:
        for name in ("HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, proxy.url)
        async with evicting(tmp_path, Server("https://kubernetes.invalid")) as (evict, _):
            answer = await evict.act(action(), DECISION)
    assert (answer.heard, answer.status, len(proxy.seen)) == (Heard.FAILED, None, 1)


@pytest.mark.fault(2, 3)
async def test_a_connection_that_cannot_be_had_is_told_from_an_answer_that_does_not_come(tmp_path: Path) -> None:
    """A server that never ends the TLS handshake got no request: failed. One that got it and is silent: ambiguous."""
    release = asyncio.Event()

    async def silent(_: web.Request) -> web.StreamResponse:
        await release.wait()
        return web.json_response({})

    async def listening(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.close()

    mute = await asyncio.start_server(listening, "127.0.0.1", 0)
    url = f"https://127.0.0.1:{mute.sockets[0].getsockname()[1]}"
    async with serving(silent) as server:
        for there, meaning in ((Server(url), Heard.FAILED), (server, Heard.AMBIGUOUS)):
            async with evicting(tmp_path, there, deadline=1.0) as (evict, _):
                answer = await evict.act(action(), DECISION)
            assert (answer.heard, answer.status) == (meaning, None)
        release.set()
    mute.close()
    await mute.wait_closed()


def ended_status(*, terminated: bool) -> dict[str, Any]:
    state = {"terminated": {"exitCode": 137}} if terminated else {"running": {}}
    return {"containerStatuses": [{"name": "main", "state": state}]}


GOING = {"deletionTimestamp": "2026-11-01T10:00:00Z"}
SIDECAR = {"initContainerStatuses": [{"name": "side", "state": {"running": {}}}]}
LOOKS: dict[str, tuple[web.Response, bool | None, bool | None]] = {
    "there": (web.json_response(pod("p", status=ended_status(terminated=False))), False, False),
    "another": (web.json_response(pod("p", "uid-2")), True, True),
    "gone": (web.json_response({"kind": "Status", "details": {"kind": "pods"}}, status=404), True, True),
    "a proxy's 404": (web.Response(text="nothing here", status=404), None, None),
    "away": (refusal(503, "ServiceUnavailable"), None, None),
    "forbidden": (refusal(403, "Forbidden"), None, None),
    "something else": (web.json_response({}), None, None),
    "no pod": (web.json_response({"metadata": {"name": "p"}}), None, None),
    "between two restarts": (web.json_response(pod("p", status=ended_status(terminated=True))), False, False),
    "ended by itself": (web.json_response(pod("p", status={"phase": "Succeeded"})), True, False),
    "failed": (web.json_response(pod("p", status={"phase": "Failed"})), True, False),
    "terminating": (web.json_response(pod("p", metadata=GOING, status=ended_status(terminated=False))), False, True),
    "terminated": (web.json_response(pod("p", metadata=GOING, status=ended_status(terminated=True))), True, True),
    "terminated but a sidecar": (
        web.json_response(pod("p", metadata=GOING, status=ended_status(terminated=True) | SIDECAR)),
        False,
        True,
    ),
    "terminating and without statuses": (web.json_response(pod("p", metadata=GOING)), False, True),
}
"""What the server says of the pod; whether it has ended, and whether its deletion is confirmed."""


@pytest.mark.parametrize("look", LOOKS)
async def test_the_end_is_seen_and_not_assumed(tmp_path: Path, look: str) -> None:
    """Gone, another by now, ended, terminated to the last container: yes. There: no. Anything else: unknown."""
    response, expected, _ = LOOKS[look]
    async with serving(fixed(response)) as server, evicting(tmp_path, server) as (evict, _):
        assert await evict.ended(action()) is expected
        assert await evict.insist(action(), DECISION) is None
    assert [(seen.path, seen.query) for seen in server.seen] == [("/api/v1/namespaces/ns/pods/p", {})], "a quorum read"


@pytest.mark.parametrize("look", LOOKS)
async def test_the_deletion_is_confirmed_and_not_assumed(tmp_path: Path, look: str) -> None:
    """Gone, another by now, or with a deletionTimestamp: yes. There without one: no. Anything else: unknown."""
    response, _, expected = LOOKS[look]
    async with serving(fixed(response)) as server, evicting(tmp_path, server) as (evict, _):
        assert await evict.confirmed(action()) is expected
    assert [(seen.path, seen.query) for seen in server.seen] == [("/api/v1/namespaces/ns/pods/p", {})], "a quorum read"


OWN = OwnPod("ns", "daemon")
SIGHTS: dict[str, tuple[web.Response, Guard]] = {
    "invalid": (
        web.json_response({"message": DENIED + VERDICT, "details": {"kind": "pods"}}, status=422),
        Guard.IN_FORCE,
    ),
    "forbidden": (web.json_response({"message": DENIED + VERDICT}, status=403), Guard.IN_FORCE),
    "another policy": (
        web.json_response({"message": DENIED + VERDICT.replace("gpusteward-", "all-")}, status=403),
        Guard.UNKNOWN,
    ),
    "a token without a node": (
        web.json_response(
            {"message": f"{DENIED}{VERDICT.rpartition(':')[0]}: the token carries no node claim"}, status=403
        ),
        Guard.NO_NODE,
    ),
    "no right": (refusal(403, "Forbidden"), Guard.UNKNOWN),
    "absent": (web.json_response({"message": "not found", "details": {"kind": "pods"}}, status=404), Guard.ABSENT),
    "no such namespace": (web.json_response({"details": {"kind": "namespaces"}}, status=404), Guard.UNKNOWN),
    "a proxy's 404": (web.Response(text="nothing here", status=404), Guard.UNKNOWN),
    "a success": (web.json_response({"kind": "Status", "status": "Success"}, status=201), Guard.UNKNOWN),
    "away": (web.Response(status=503), Guard.UNKNOWN),
}


@pytest.mark.parametrize("sight", SIGHTS)
async def test_only_our_policys_no_says_that_it_is_in_force(tmp_path: Path, sight: str) -> None:
    """And only the missing pod says that it is absent; the request has no UID, and is a dry run twice over."""
    response, expected = SIGHTS[sight]
    sent: list[Any] = []

    async def serve(request: web.Request) -> web.StreamResponse:
        sent.append(json.loads(await request.text()))
        return response

    async with serving(serve) as server, evicting(tmp_path, server) as (_, writer):
        assert (await evictions(writer, OWN)).guard is expected
    assert sent[0]["deleteOptions"] == {"dryRun": ["All"]}
    (seen,) = server.seen
    assert seen.query == {"dryRun": "All"}
    assert seen.path == f"/api/v1/namespaces/ns/pods/{sent[0]['metadata']['name']}/eviction"


UNNAMED = VERDICT.rpartition(":")[0] + ": the token carries no node claim"
OWN_SIGHTS = {
    "in force": (403, DENIED + VERDICT.replace(POLICY, OWN_NODE), Guard.IN_FORCE),
    "the first policy": (403, DENIED + VERDICT, Guard.UNKNOWN),
    "a token without a node": (403, DENIED + UNNAMED, Guard.NO_NODE),
    "no right": (403, "cannot create resource", Guard.UNKNOWN),
    "absent": (409, "conflict", Guard.ABSENT),
    "no such pod": (404, "not found", Guard.UNKNOWN),
    "a success": (201, "", Guard.UNKNOWN),
    "away": (503, "", Guard.UNKNOWN),
}
"""Status and message of the answer about the own pod, and what it says of the second policy."""


@pytest.mark.parametrize("sight", OWN_SIGHTS)
async def test_the_second_policy_is_asked_for_with_the_own_pod(tmp_path: Path, sight: str) -> None:
    """By a dry run with a UID that no pod has: only the policy's no, or the wrong UID, is an answer to the question."""
    code, message, expected = OWN_SIGHTS[sight]
    sent: list[Any] = []

    async def serve(request: web.Request) -> web.StreamResponse:
        sent.append(json.loads(await request.text()))
        return web.json_response({"message": message, "details": {"kind": "pods"}}, status=code)

    async with serving(serve) as server, evicting(tmp_path, server) as (_, writer):
        assert (await own_node(writer, OWN)).guard is expected
    (seen,) = server.seen
    assert (seen.path, seen.query) == ("/api/v1/namespaces/ns/pods/daemon/eviction", {"dryRun": "All"})
    assert sent[0]["deleteOptions"].keys() == {"dryRun", "preconditions"}
    assert sent[0]["deleteOptions"]["preconditions"]["uid"] not in ("", "uid-1")


def test_what_is_not_in_force_names_its_policy() -> None:
    """The reason that the log and the page show: which policy, and what the server said; or why none can help."""
    assert str(Sighting(OWN_NODE, Guard.ABSENT, "conflict").problem) == "gpusteward-own-node is absent: conflict"
    lasting = Sighting(POLICY, Guard.NO_NODE, "x").problem
    assert lasting.reason == "the token carries no node claim, so each eviction is refused"
    assert lasting.fix == "run the daemon as a pod, on Kubernetes 1.30 or later"


def test_the_server_may_take_its_time() -> None:
    """The server repeats for 10 s each what a budget and a pod conflict with; we do not give up before it."""
    assert DEADLINE >= 35


def test_the_rights_are_those_that_deploy_grants() -> None:
    """deploy/enforcer grants for `evict` what is said to be asked for, and binds it in its own namespace alone."""
    role, canary = yaml.safe_load_all(RBAC.read_text())
    assert (role["kind"], canary["kind"]) == ("ClusterRole", "RoleBinding")
    assert canary["metadata"]["namespace"] == "gpusteward"
    granted = {
        (verb, group, resource)
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert granted == {(right.verb, right.group, right.resource) for right in RIGHTS}
