"""Evictions by a real API server, with exactly the rights of deploy/enforcer/rbac-evict.yaml.

The node is simulated: where its kubelet would end a pod, the test does. In each test another pod of the same labels
lives beside the victim, and is untouched when all is over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest
import yaml

from cluster import requirements, simulated_nodes
from cluster.bed import Bed
from cluster.client import Api, ApiError, Object, until
from cluster.fixtures import fresh_namespace, require
from cluster.manifests import disruption_budget, pod, pod_spec
from cluster.processes import free_port
from cluster.proxy import Fault, Proxy, proxied
from containers.cgroupfs import new_token
from enforcer.actions.evict.actuator import DEADLINE, Evict, reply_of
from enforcer.actions.evict.admission_probe import POLICY, Guard, OwnPod, evictions
from enforcer.actions.evict.api import heard
from enforcer.actions.interface import Answer, Heard
from enforcer.actions.kube_writer import Writer
from enforcer.journal.records import Planned
from enforcer.policy.history import Action
from enforcer.policy.holder import CaseKey
from enforcer.policy.vocabulary import Rung
from exporter.base.clock import SystemClock
from exporter.kube.credentials import in_cluster
from exporter.kube.errors import KubeError
from exporter.model import ContainerId, DeviceKey, GpuUuid, PodUid
from faults.marking import showing

pytestmark = [pytest.mark.cluster, pytest.mark.versions]

DEPLOY = Path(__file__).parents[2] / "deploy" / "enforcer"
NAMESPACE, ACCOUNT, ROLE = "gpusteward", "gpusteward", "gpusteward-evict"
USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
LABELS = {"app": "train"}
VICTIM, BYSTANDER = "train-0", "train-1"


class Scene:
    """The ServiceAccount, a namespace that consents with two running pods in it, and ways to look at them."""

    def __init__(self, bed: Bed, api: Api, folder: Path, namespace: str, node: str) -> None:
        self.bed, self.api, self.folder, self.namespace, self.node = bed, api, folder, namespace, node
        self.uids: dict[str, PodUid] = {}

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    @property
    def budgets(self) -> str:
        return f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets"

    async def make(self) -> None:
        """Apply what deploy/ ships, bind the role here, write a token as the kubelet does, run two pods."""
        paths = {
            "ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
            "ClusterRole": f"{RBAC}/clusterroles",
        }
        await self._once("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        for file in ("rbac.yaml", "rbac-evict.yaml"):
            for thing in yaml.safe_load_all((DEPLOY / file).read_text()):
                if thing["kind"] in paths:
                    await self._once(paths[thing["kind"]], thing)
        (self.folder / "ca.crt").write_bytes(self.bed.control_plane.authority.certificate.read_bytes())
        await self.write_token()
        await self.bind()
        for name in (VICTIM, BYSTANDER):
            self.uids[name] = await self.run_pod(name)

    async def _once(self, path: str, thing: Object) -> None:
        if await self.api.missing(f"{path}/{thing['metadata']['name']}"):
            await self.api.create(path, thing)

    async def write_token(self) -> None:
        token = (await self.api.token(NAMESPACE, ACCOUNT)).token
        assert token is not None
        (self.folder / "token").write_text(token)

    async def bind(self) -> None:
        """Consent, as the comment in deploy/ says, and wait until the authorizer knows."""
        binding = {
            "metadata": {"name": ROLE},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
        }
        await self.api.create(f"{RBAC}/namespaces/{self.namespace}/rolebindings", binding)
        asked = {"resource": "pods", "subresource": "eviction", "verb": "create", "namespace": self.namespace}

        async def allowed() -> bool:
            review = {"spec": {"user": USER, "resourceAttributes": asked}}
            return bool((await self.api.create(REVIEWS, review))["status"]["allowed"])

        await until(allowed, "the right to evict")

    async def run_pod(self, name: str, *, ready: bool = True) -> PodUid:
        """A pod on the simulated node, of which we say in the kubelet's place that it runs."""
        thing = pod(name, pod_spec() | {"nodeName": self.node}, labels=LABELS)
        uid = PodUid((await self.api.create(self.pods, thing))["metadata"]["uid"])
        container = {"name": "main", "image": "i", "imageID": "", "ready": ready, "restartCount": 0}
        running = {"startedAt": "2026-11-01T10:00:00Z"}
        condition = {"type": "Ready", "status": str(ready)}
        status = {
            "phase": "Running",
            "conditions": [condition],
            "containerStatuses": [container | {"state": {"running": running}}],
        }
        await self.api.patch(f"{self.pods}/{name}/status", {"status": status})
        return uid

    async def terminate(self, name: str) -> None:
        """Say in the kubelet's place that its containers have ended."""
        container = {"name": "main", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
        state = {"terminated": {"exitCode": 137}}
        await self.api.patch(
            f"{self.pods}/{name}/status", {"status": {"containerStatuses": [container | {"state": state}]}}
        )

    async def remove(self, name: str) -> None:
        """Take it away, as the kubelet does at the end."""
        await self.api.delete(f"{self.pods}/{name}", gracePeriodSeconds=0)

    async def protect(self, *names: str, least: int) -> None:
        """PodDisruptionBudgets over both pods, once their controller has looked at them."""
        for name in names:
            await self.api.create(self.budgets, disruption_budget(name, LABELS, min_available=least))
            await self.observed(name, allowed=max(2 - least, 0))

    async def observed(self, name: str, *, allowed: int) -> None:
        async def looked_at() -> bool:
            found = await self.api.get(f"{self.budgets}/{name}")
            status = found.get("status", {})
            seen = status.get("observedGeneration") == found["metadata"]["generation"]
            return seen and (status.get("currentHealthy"), status.get("disruptionsAllowed")) == (2, allowed)

        await until(looked_at, f"the budget {name} to allow {allowed}")

    def action(self, name: str = VICTIM, *, uid: str = "", namespace: str = "") -> Action:
        pod_uid = PodUid(uid) if uid else self.uids[name]
        container = ContainerId("c" * 64)
        return Planned(
            Rung.EVICT,
            CaseKey(pod_uid, "main", container, "", "GPU-1"),
            DeviceKey(GpuUuid("GPU-1")),
            pod_uid,
            namespace or self.namespace,
            name,
            "main",
            container,
            (self.namespace, "Pod", name),
            12 * 2**30,
            8 * 2**30,
            "hami resource",
            100.0,
            dry=False,
        ).restored()

    @asynccontextmanager
    async def evicting(
        self, port: int | None = None, *, deadline: float = DEADLINE
    ) -> AsyncIterator[tuple[Evict, Writer]]:
        """The action `evict` with the ServiceAccount's token; `port`: of a proxy."""
        environment = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(port or self.bed.control_plane.port),
        }
        writer = Writer(in_cluster(self.folder, environment), clock=SystemClock(), deadline=deadline)
        try:
            yield Evict(writer), writer
        finally:
            await writer.close()

    async def act(self, action: Action | None = None, decision: str = "") -> Answer:
        """Evict once, by an `Evict` of its own."""
        async with self.evicting() as (evict, _):
            return await evict.act(action or self.action(), decision or str(uuid4()))

    async def going(self, name: str = VICTIM) -> bool:
        """Whether the server has deleted it, so that only the kubelet is waited for."""
        return "deletionTimestamp" in (await self.api.get(f"{self.pods}/{name}"))["metadata"]

    async def lives(self, name: str, uid: str | None = None) -> bool:
        metadata = (await self.api.get(f"{self.pods}/{name}"))["metadata"]
        return metadata["uid"] == (uid or self.uids[name]) and "deletionTimestamp" not in metadata

    async def audited(self, decision: str, count: int = 1) -> list[tuple[str, int]]:
        """Path and answer of each request with the decision's id, once the audit log has so many."""

        async def logged() -> list[tuple[str, int]] | None:
            found = [
                (event["requestURI"], int(event["responseStatus"]["code"]))
                for event in self.bed.control_plane.audit()
                if event["auditID"] == decision and event["verb"] == "create"
            ]
            return found if len(found) >= count else None

        return await until(logged, f"{count} requests with the id {decision} in the audit log")


@pytest.fixture(scope="module")
def own_server() -> Iterator[Bed]:
    """An API server that only this module uses, so that its controllers may be stopped and policies laid over it."""
    require(requirements.missing(node=False))
    with Bed(node=False) as bed:
        yield bed


@pytest.fixture
async def scene(own_server: Bed, tmp_path: Path) -> AsyncIterator[Scene]:
    async with own_server.api() as api, fresh_namespace(api) as namespace:
        (node,) = await simulated_nodes.add(api, 1, prefix=f"evict-{new_token()}")
        made = Scene(own_server, api, tmp_path, namespace, node)
        await made.make()
        yield made
        assert await made.lives(BYSTANDER), "nobody but the victim is touched"


@pytest.fixture
async def proxy(scene: Scene) -> AsyncIterator[Proxy]:
    async with proxied(scene.bed.control_plane.admin, scene.bed.control_plane.authority) as made:
        yield made


async def test_evicted_terminated_and_gone(scene: Scene) -> None:
    """Accepted, with one POST that carries the decision's id; the end is seen when containers end, or the pod goes."""
    decision = str(uuid4())
    async with scene.evicting() as (evict, _):
        assert await evict.ended(scene.action()) is False
        answer = await evict.act(scene.action(), decision)
        assert (answer.heard, answer.status) == (Heard.ACCEPTED, 201)
        assert await evict.ended(scene.action()) is False, "its containers run still"
        condition = (await scene.api.get(f"{scene.pods}/{VICTIM}"))["status"]["conditions"][-1]
        assert (condition["type"], condition["reason"]) == ("DisruptionTarget", "EvictionByEvictionAPI")
        await scene.terminate(VICTIM)
        assert await evict.ended(scene.action()) is True
        await scene.remove(VICTIM)
        assert await evict.ended(scene.action()) is True
        assert await evict.ended(scene.action(BYSTANDER)) is False
    assert await scene.audited(decision) == [(f"{scene.pods}/{VICTIM}/eviction", 201)]


async def test_its_own_grace_is_left_to_the_pod(scene: Scene) -> None:
    """The pod ends within the grace that it asked for, not within ours."""
    await scene.act()
    metadata = (await scene.api.get(f"{scene.pods}/{VICTIM}"))["metadata"]
    assert metadata["deletionGracePeriodSeconds"] == pod_spec()["terminationGracePeriodSeconds"]


@pytest.mark.fault(8, 17)
async def test_a_pod_made_anew_under_the_name_lives(scene: Scene) -> None:
    """A StatefulSet's pod comes back under its name: the old UID is not evicted, the new one lives. Rows 8, 17."""
    await scene.remove(VICTIM)
    new = await scene.run_pod(VICTIM)
    answer = await scene.act()
    assert (answer.heard, answer.status) == (Heard.CHANGED, 409)
    assert "precondition" in answer.detail
    assert await scene.lives(VICTIM, new)
    async with scene.evicting() as (evict, _):
        assert await evict.ended(scene.action()) is True, "the old one is gone"
        assert await evict.ended(scene.action(uid=new)) is False


@pytest.mark.fault(7)
async def test_another_uid_behind_a_budget_is_masked_and_lives(scene: Scene) -> None:
    """Unready, with a budget, another UID: 1.34 says 429, as of a budget that lags; nothing is evicted. Row 7."""
    await scene.api.create(scene.budgets, disruption_budget("one", LABELS, min_available=1))
    await scene.observed("one", allowed=1)
    await scene.remove(VICTIM)
    new = await scene.run_pod(VICTIM, ready=False)

    async def counted() -> bool:
        return bool((await scene.api.get(f"{scene.budgets}/one"))["status"]["currentHealthy"] == 1)

    await until(counted, "the budget to count one healthy pod")
    answer = await scene.act()
    assert (answer.heard, answer.status, answer.retry_after) == (Heard.BLOCKED, 429, 10.0)
    assert await scene.lives(VICTIM, new)


@pytest.mark.fault(4)
async def test_a_budget_blocks_until_it_is_relaxed(scene: Scene) -> None:
    """A budget's no is named and no pod is evicted; with the budget relaxed, the same request is granted. Row 4."""
    await scene.protect("both", least=2)
    answer = await scene.act()
    assert (answer.heard, answer.status, answer.retry_after) == (Heard.BLOCKED, 429, None)
    assert "The disruption budget both needs 2 healthy pods and has 2 currently" in answer.detail
    assert await scene.lives(VICTIM)
    await scene.api.patch(f"{scene.budgets}/both", {"spec": {"minAvailable": 1}})
    await scene.observed("both", allowed=1)
    assert (await scene.act()).heard is Heard.ACCEPTED
    assert await scene.going()


@pytest.mark.fault(14)
async def test_two_budgets_block(scene: Scene) -> None:
    """A 500 that is the user's misconfiguration: blocked, and the pod lives, though both would let it go. Row 14."""
    await scene.protect("one", "other", least=0)
    decision = str(uuid4())
    answer = await scene.act(decision=decision)
    assert (answer.heard, answer.status) == (Heard.BLOCKED, 500)
    assert "more than one PodDisruptionBudget" in answer.detail
    assert await scene.lives(VICTIM)
    assert await scene.audited(decision) == [(f"{scene.pods}/{VICTIM}/eviction", 500)]


@pytest.mark.fault(12, 13)
async def test_a_budget_whose_controller_lags_blocks(scene: Scene) -> None:
    """With the controllers stopped: an unobserved budget, one with too many disruptions, a namespace that goes.

    Rows 12 and 13; the last one with a pod of its own.
    """
    control_plane = scene.bed.control_plane
    await scene.protect("both", least=1)
    async with fresh_namespace(scene.api) as going:
        other = Scene(scene.bed, scene.api, scene.folder, going, scene.node)
        await other.bind()
        other.uids[VICTIM] = await other.run_pod(VICTIM)
        control_plane._processes.kill("kube-controller-manager")
        try:
            await scene.api.patch(f"{scene.budgets}/both", {"spec": {"minAvailable": 0}})
            lagging = await scene.act()
            generation = (await scene.api.get(f"{scene.budgets}/both"))["metadata"]["generation"]
            many = {f"gone-{number}": "2026-11-01T10:00:00Z" for number in range(2001)}
            status = {"observedGeneration": generation, "disruptedPods": many}
            await scene.api.patch(f"{scene.budgets}/both/status", {"status": status})
            crowded = await scene.act()
            assert await scene.lives(VICTIM)
            await scene.api.delete(f"/api/v1/namespaces/{going}")
            ending = await other.act()
            assert await other.lives(VICTIM)
        finally:
            control_plane._processes.start_again("kube-controller-manager")
    assert (lagging.heard, lagging.status, lagging.retry_after) == (Heard.BLOCKED, 429, 10.0)
    assert "still being processed" in lagging.detail
    assert (crowded.heard, crowded.status) == (Heard.BLOCKED, 403)
    assert "DisruptedPods map too big" in crowded.detail
    assert (ending.heard, ending.status) == (Heard.GONE, 403)


@pytest.mark.fault(66)
async def test_a_finished_pod_has_ended_and_would_be_deleted(scene: Scene) -> None:
    """It has ended by itself. The server would delete it, budget or not, which the last look prevents. Row 66."""
    await scene.protect("both", least=2)
    await scene.api.patch(f"{scene.pods}/{VICTIM}/status", {"status": {"phase": "Succeeded"}})
    async with scene.evicting() as (evict, _):
        assert await evict.ended(scene.action()) is True
        assert (await evict.act(scene.action(), str(uuid4()))).heard is Heard.ACCEPTED
        assert await scene.api.missing(f"{scene.pods}/{VICTIM}")


@pytest.mark.fault(65)
async def test_a_terminating_pod_is_not_hurried(scene: Scene) -> None:
    """A user deleted it, with another grace period: a late eviction changes neither that nor its end. Row 65."""
    await scene.api.delete(f"{scene.pods}/{VICTIM}", gracePeriodSeconds=300)
    before = (await scene.api.get(f"{scene.pods}/{VICTIM}"))["metadata"]
    answer = await scene.act()
    after = (await scene.api.get(f"{scene.pods}/{VICTIM}"))["metadata"]
    assert answer.heard is Heard.ACCEPTED
    assert after["deletionTimestamp"] == before["deletionTimestamp"]
    assert after["deletionGracePeriodSeconds"] == before["deletionGracePeriodSeconds"]


@pytest.mark.fault(9)
async def test_what_is_not_there_is_gone(scene: Scene) -> None:
    """A pod that was removed meanwhile: gone, and no other pod is tried. Row 9."""
    await scene.remove(VICTIM)
    answer = await scene.act()
    assert (answer.heard, answer.status) == (Heard.GONE, 404)


@pytest.mark.fault(10)
async def test_a_namespace_that_did_not_consent_refuses(scene: Scene) -> None:
    """The RoleBinding of one namespace gives no right in another: forbidden there, granted here. Row 10."""
    async with fresh_namespace(scene.api) as closed:
        other = Scene(scene.bed, scene.api, scene.folder, closed, scene.node)
        other.uids[VICTIM] = await other.run_pod(VICTIM)
        answer = await other.act()
        assert (answer.heard, answer.status) == (Heard.FORBIDDEN, 403)
        assert f'in the namespace "{closed}"' in answer.detail
        assert await other.lives(VICTIM)
        async with other.evicting() as (evict, writer):
            assert await evict.ended(other.action()) is None, "what may not be looked at is not known"
            assert (await evictions(writer, OwnPod(closed, VICTIM))).guard is Guard.UNKNOWN
    assert (await scene.act()).heard is Heard.ACCEPTED


@pytest.mark.parametrize(("rule", "right"), [(0, "pods/eviction"), (1, "pods")])
async def test_each_rule_of_the_role_is_needed(scene: Scene, rule: int, right: str) -> None:
    """Without `pods/eviction` nothing is evicted, without `get pods` the end is never seen."""
    role = f"{RBAC}/clusterroles/{ROLE}"
    rules = (await scene.api.get(role))["rules"]
    assert rules[rule]["resources"] == [right]
    try:
        await scene.api.patch(role, {"rules": [rules[1 - rule]]})
        async with scene.evicting() as (evict, _):

            async def missed() -> bool:
                if rule == 1:
                    return await evict.ended(scene.action()) is None
                return (await evict.act(scene.action(), str(uuid4()))).heard is Heard.FORBIDDEN

            await until(missed, f"the right to {right} to be missed")
            wanted = Heard.ACCEPTED if rule else Heard.FORBIDDEN
            assert (await evict.act(scene.action(), str(uuid4()))).heard is wanted
    finally:
        await scene.api.patch(role, {"rules": rules})
    assert await scene.lives(VICTIM) is (rule == 0)


async def test_what_is_no_eviction_of_the_pod_is_our_fault(scene: Scene) -> None:
    """Name in the path and name in the body differ: refused, as a bug of ours is."""
    async with scene.evicting() as (_, writer):
        body: Object = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "other"}}
        with pytest.raises(KubeError, match="does not match") as caught:
            await writer.create(f"{scene.pods}/{VICTIM}/eviction", body)
    answer = heard(reply_of(caught.value))
    assert (answer.heard, answer.status) == (Heard.REFUSED, 400)
    assert await scene.lives(VICTIM)


@pytest.mark.fault(21)
async def test_an_old_token_is_replaced_and_a_wrong_one_refused(scene: Scene) -> None:
    """A 401 was not executed: with another token the same request is sent once more, else refused. Row 21."""
    (scene.folder / "token").write_text("wrong")
    assert (await scene.act()).heard is Heard.UNAUTHORIZED
    decision = str(uuid4())
    async with scene.evicting() as (evict, _):
        assert await evict.ended(scene.action()) is None
        await scene.write_token()
        answer = await evict.act(scene.action(), decision)
        assert (answer.heard, answer.status) == (Heard.ACCEPTED, 201)
    assert [code for _, code in await scene.audited(decision, 2)] == [401, 201]


VALIDATION = {
    "expression": "has(object.deleteOptions) && has(object.deleteOptions.preconditions)"
    ' && has(object.deleteOptions.preconditions.uid) && object.deleteOptions.preconditions.uid != ""',
    "message": "an eviction needs a UID precondition",
}


@asynccontextmanager
async def policy(scene: Scene, *validations: Object) -> AsyncIterator[None]:
    """An admission policy over the ServiceAccount's evictions; without it again in the end."""
    matching = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}
    ours = {"name": "only-our-service-account", "expression": f'request.userInfo.username == "{USER}"'}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [matching]},
        "matchConditions": [ours],
        "validations": list(validations),
    }
    binding = {"policyName": POLICY, "validationActions": ["Deny", "Audit"]}
    policies, bindings = (f"{ADMISSION}/validatingadmissionpolic{end}" for end in ("ies", "ybindings"))
    await scene.api.create(policies, {"metadata": {"name": POLICY}, "spec": spec})
    await scene.api.create(bindings, {"metadata": {"name": POLICY}, "spec": binding})
    try:
        yield
    finally:
        await scene.api.delete(f"{bindings}/{POLICY}")
        await scene.api.delete(f"{policies}/{POLICY}")
        await sees(scene, Guard.ABSENT)


async def sees(scene: Scene, guard: Guard) -> str:
    """Wait until the canary sees it: the server learns of policies by a watch. Its words."""
    async with scene.evicting() as (_, writer):

        async def seen() -> str | None:
            sighting = await evictions(writer, OwnPod(scene.namespace, VICTIM))
            return sighting.detail if sighting.guard is guard else None

        return await until(seen, f"the policy to be {guard}")


@pytest.mark.fault(74)
@pytest.mark.parametrize("reason", [{}, {"reason": "Forbidden"}], ids=["as-422", "as-403"])
async def test_the_canary_tells_whether_the_policy_is_in_force(scene: Scene, reason: Object) -> None:
    """Absent, in force, absent again; and in force it lets an eviction with its UID through. Row 74."""
    assert "not found" in await sees(scene, Guard.ABSENT)
    async with policy(scene, VALIDATION | reason):
        assert VALIDATION["message"] in await sees(scene, Guard.IN_FORCE)
        assert await scene.lives(VICTIM)
        assert (await scene.act()).heard is Heard.ACCEPTED
    await sees(scene, Guard.ABSENT)


@pytest.mark.fault(11)
async def test_a_policy_that_refuses_is_no_budget(scene: Scene) -> None:
    """Refused by a policy: the pod alone waits, and lives. Row 11."""
    refusing: Object = {"expression": "false", "message": "no evictions today"}
    async with policy(scene, refusing):
        await sees(scene, Guard.IN_FORCE)
        answer = await scene.act()
        assert (answer.heard, answer.status) == (Heard.REFUSED, 422)
        assert "no evictions today" in answer.detail
        assert await scene.lives(VICTIM)


FAULTS: dict[str, tuple[Fault, Heard, int | None]] = {
    "cut after it was done": (Fault(forward=True), Heard.AMBIGUOUS, None),
    "cut before it was done": (Fault(forward=False), Heard.AMBIGUOUS, None),
    "504, and it is done": (Fault(True, 504, "upstream timed out"), Heard.AMBIGUOUS, 504),
    "502, and it is done": (Fault(True, 502, "Bad Gateway"), Heard.AMBIGUOUS, 502),
    "503": (Fault(False, 503, "no healthy upstream"), Heard.AMBIGUOUS, 503),
    "500": (Fault(False, 500, "internal"), Heard.AMBIGUOUS, 500),
    "fairness": (
        Fault(False, 429, "Too many requests, please try again later.\n", {"Retry-After": "1"}),
        Heard.FAILED,
        429,
    ),
}


SHOWN = {
    "cut after it was done": (3,),
    "cut before it was done": (3,),
    "504, and it is done": (15,),
    "fairness": (6,),
}
"""Faults of docs/faults.md."""


@pytest.mark.parametrize("fault", showing(FAULTS, SHOWN))
async def test_what_may_have_been_done_is_not_done_again(scene: Scene, proxy: Proxy, fault: str) -> None:
    """Whatever goes wrong on the way, on a connection that worked before: one POST; the truth is seen by looking."""
    told, meaning, status = FAULTS[fault]
    decision = str(uuid4())
    async with scene.evicting(proxy.port) as (evict, _):
        assert await evict.ended(scene.action()) is False
        proxy.faults.append(told)
        answer = await evict.act(scene.action(), decision)
        assert (answer.heard, answer.status) == (meaning, status)
        assert answer.retry_after == (1.0 if status == 429 else None)
        assert proxy.posts == [(f"{scene.pods}/{VICTIM}/eviction", decision)]
        assert await scene.going() is told.forward
        assert await evict.ended(scene.action()) is False
    if told.forward:
        assert await scene.audited(decision) == [(f"{scene.pods}/{VICTIM}/eviction", 201)]
    assert proxy.forwarded == int(told.forward)


async def test_through_the_proxy_all_is_as_without(scene: Scene, proxy: Proxy) -> None:
    """The proxy without faults changes nothing: what fails above fails of its fault."""
    async with scene.evicting(proxy.port) as (evict, _):
        answer = await evict.act(scene.action(), decision := str(uuid4()))
        assert (answer.heard, answer.status) == (Heard.ACCEPTED, 201)
    assert await scene.audited(decision) == [(f"{scene.pods}/{VICTIM}/eviction", 201)]


@pytest.mark.fault(1, 2)
async def test_a_refused_connection_means_that_nothing_was_sent(scene: Scene) -> None:
    """A refused connection, also by a server that answered before: certainly not done. Rows 1 and 2."""
    async with scene.evicting(free_port()) as (evict, _):
        assert (await evict.act(scene.action(), str(uuid4()))).heard is Heard.FAILED
    async with scene.evicting() as (evict, _):
        scene.bed.control_plane.kill_api_server()
        try:
            answer = await evict.act(scene.action(), str(uuid4()))
            assert (answer.heard, answer.status) == (Heard.FAILED, None)
            assert await evict.ended(scene.action()) is None
        finally:
            scene.bed.control_plane.start_api_server()

        async def back() -> bool:
            """A server that was just started refuses until it has read its roles."""
            try:
                return await evict.ended(scene.action()) is False and await scene.lives(VICTIM)
            except ApiError:
                return False

        await until(back, "the server to know its roles")
