"""The API server alone: authorization, admission, list and watch, eviction, and many nodes."""

from __future__ import annotations

import asyncio

import pytest

from cluster import simulated_nodes
from cluster.bed import Bed
from cluster.client import Api, ApiError, Credentials, Object, until
from cluster.manifests import disruption_budget, pod, pod_spec
from patience import PATIENCE

pytestmark = [pytest.mark.cluster, pytest.mark.versions]

NODES = 300


async def refused(call: object) -> ApiError:
    """The refusal that awaiting this call ends in."""
    with pytest.raises(ApiError) as caught:
        await call  # type: ignore[misc]
    return caught.value


async def test_authorization_refuses_who_has_no_role(api_server: Bed, server_api: Api, server_namespace: str) -> None:
    """No client is allowed by default: a user or a ServiceAccount without a role and a stranger are refused."""
    path = f"/api/v1/namespaces/{server_namespace}/pods"
    account = await server_api.token(server_namespace, "default")
    stranger = Credentials(api_server.control_plane.server, api_server.control_plane.authority.certificate)
    for who in (api_server.control_plane.user("somebody", ["somegroup"]), account, stranger):
        async with Api(who) as api:
            assert (await refused(api.get(path))).status == 403
    async with Api(stranger.with_token("no.such.token")) as api:
        assert (await refused(api.get(path))).status == 401


async def test_a_service_account_may_do_what_its_role_says(server_api: Api, server_namespace: str) -> None:
    """RBAC is in force in both directions: with a Role that lists pods, a token lists pods, and does nothing else."""
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{server_namespace}"
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    await server_api.create(f"{roles}/roles", {"metadata": {"name": "reader"}, "rules": [rule]})
    await server_api.create(
        f"{roles}/rolebindings",
        {
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": server_namespace}],
        },
    )
    path = f"/api/v1/namespaces/{server_namespace}/pods"
    async with Api(await server_api.token(server_namespace, "default")) as api:

        async def listed() -> bool:  # the authorizer learns of the binding by a watch
            try:
                return "items" in await api.get(path)
            except ApiError as error:
                if error.status != 403:
                    raise
                return False

        await until(listed, "the role to take effect")
        assert (await refused(api.create(path, pod("x", pod_spec())))).status == 403


async def test_node_restriction_keeps_a_kubelet_to_its_own_node(api_server: Bed, server_api: Api) -> None:
    """A kubelet may change its own Node and not another's, nor give itself labels of node-restriction.kubernetes.io."""
    mine, other = await simulated_nodes.add(server_api, 2, prefix="restricted")
    try:
        kubelet = api_server.control_plane.user(f"system:node:{mine}", ["system:nodes"])
        note = {"metadata": {"annotations": {"note": "here"}}}
        async with Api(kubelet) as api:
            changed = await api.patch(f"/api/v1/nodes/{mine}", note)
            assert changed["metadata"]["annotations"]["note"] == "here"
            assert (await refused(api.patch(f"/api/v1/nodes/{other}", note))).status == 403
            label = {"metadata": {"labels": {"node-restriction.kubernetes.io/trusted": "yes"}}}
            refusal = await refused(api.patch(f"/api/v1/nodes/{mine}", label))
        assert (refusal.status, "is not allowed to modify labels" in refusal.message) == (403, True)
    finally:
        await simulated_nodes.remove(server_api, [mine, other])


async def test_the_node_authorizer_shows_a_kubelet_only_its_pods(
    api_server: Bed, server_api: Api, server_namespace: str
) -> None:
    """A Secret is readable by the kubelet whose pod mounts it, and by no other."""
    nodes = await simulated_nodes.add(server_api, 2, prefix="authorized")
    secret = f"/api/v1/namespaces/{server_namespace}/secrets"
    try:
        await server_api.create(secret, {"metadata": {"name": "key"}, "stringData": {"key": "1234"}})
        spec = pod_spec() | {
            "nodeName": nodes[0],
            "volumes": [{"name": "key", "secret": {"secretName": "key"}}],
        }
        await server_api.create(f"/api/v1/namespaces/{server_namespace}/pods", pod("holder", spec))
        users = [api_server.control_plane.user(f"system:node:{name}", ["system:nodes"]) for name in nodes]
        async with Api(users[0]) as owner, Api(users[1]) as other:

            async def readable() -> bool:
                try:
                    return "data" in await owner.get(f"{secret}/key")
                except ApiError as error:
                    if error.status != 403:
                        raise
                    return False

            await until(readable, "the authorizer to see the pod")
            assert (await refused(other.get(f"{secret}/key"))).status == 403
    finally:
        await simulated_nodes.remove(server_api, nodes)


async def test_a_validating_admission_policy_is_enforced(server_api: Api, server_namespace: str) -> None:
    """What a ValidatingAdmissionPolicy forbids is refused with its message, and only where its binding selects."""
    base = "/apis/admissionregistration.k8s.io/v1"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    policy = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "object.metadata.name.startsWith('good')", "message": "the name is not good"}],
    }
    selector = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": server_namespace}}}
    binding = {"policyName": "good-names", "validationActions": ["Deny"], "matchResources": selector}
    await server_api.create(f"{base}/validatingadmissionpolicies", {"metadata": {"name": "good-names"}, "spec": policy})
    await server_api.create(
        f"{base}/validatingadmissionpolicybindings", {"metadata": {"name": "good-names"}, "spec": binding}
    )
    path = f"/api/v1/namespaces/{server_namespace}/configmaps"
    dry = f"{path}?dryRun=All"

    async def denied() -> ApiError | None:  # the server learns of policies by a watch
        try:
            await server_api.create(dry, {"metadata": {"name": "bad"}})
        except ApiError as error:
            return error
        return None

    refusal = await until(denied, "the policy to take effect")
    assert (refusal.status, "the name is not good" in refusal.message) == (422, True)
    assert (await server_api.create(path, {"metadata": {"name": "good-one"}}))["metadata"]["name"] == "good-one"
    await server_api.create("/api/v1/namespaces/default/configmaps?dryRun=All", {"metadata": {"name": "bad"}})


async def test_a_watch_goes_on_where_the_list_ended(server_api: Api, server_namespace: str) -> None:
    """From a list's resourceVersion on, a watch gives every later change of a pod, in order."""
    path = f"/api/v1/namespaces/{server_namespace}/pods"
    await server_api.create(path, pod("before", pod_spec()))
    version = (await server_api.get(path))["metadata"]["resourceVersion"]
    await server_api.create(path, pod("after", pod_spec()))
    await server_api.patch(f"{path}/after", {"metadata": {"labels": {"changed": "yes"}}})
    await server_api.delete(f"{path}/after", gracePeriodSeconds=0)

    async def until_deleted() -> list[tuple[str, Object]]:
        seen = []
        async with server_api.watch(path, resourceVersion=version) as events:
            async for kind, found in events:
                seen.append((kind, found["metadata"]))
                if kind == "DELETED":
                    break
        return seen

    seen = await asyncio.wait_for(until_deleted(), timeout=PATIENCE)
    # The label, then the mark of deletion, then the end.
    assert [kind for kind, _ in seen] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    assert {metadata["name"] for _, metadata in seen} == {"after"}
    assert ["labels" in metadata for _, metadata in seen] == [False, True, True, True]
    assert ["deletionTimestamp" in metadata for _, metadata in seen] == [False, False, True, True]


async def run_pod_on(api: Api, namespace: str, name: str, node: str, labels: dict[str, str]) -> None:
    """A pod of a simulated node. The test marks it Running and Ready, because no kubelet does."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    await api.create(
        path, pod(name, pod_spec() | {"nodeName": node, "terminationGracePeriodSeconds": 30}, labels=labels)
    )
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await api.patch(f"{path}/{name}/status", {"status": status}, kind="strategic")


async def test_a_budget_stops_an_eviction_and_its_absence_grants_it(server_api: Api, server_namespace: str) -> None:
    """The Eviction API answers 429 while a PodDisruptionBudget needs the pod; without it, the pod is evicted."""
    nodes = await simulated_nodes.add(server_api, 1, prefix="evicting")
    path = f"/api/v1/namespaces/{server_namespace}/pods/only"
    budgets = f"/apis/policy/v1/namespaces/{server_namespace}/poddisruptionbudgets"
    try:
        await run_pod_on(server_api, server_namespace, "only", nodes[0], {"app": "only"})
        await server_api.create(budgets, disruption_budget("keep", {"app": "only"}, min_available=1))

        async def counted() -> bool:
            return bool((await server_api.get(f"{budgets}/keep")).get("status", {}).get("currentHealthy") == 1)

        await until(counted, "the disruption controller to count the pod")
        refusal = await refused(server_api.evict(server_namespace, "only"))
        assert (refusal.status, refusal.reason) == (429, "TooManyRequests")
        assert refusal.body["details"]["causes"][0]["reason"] == "DisruptionBudget"
        assert "deletionTimestamp" not in (await server_api.get(path))["metadata"]

        await server_api.delete(f"{budgets}/keep")
        await server_api.evict(server_namespace, "only", gracePeriodSeconds=5)
        gone = await server_api.get(path)
        assert gone["metadata"]["deletionGracePeriodSeconds"] == 5
        assert [c["reason"] for c in gone["status"]["conditions"] if c["type"] == "DisruptionTarget"] == [
            "EvictionByEvictionAPI"
        ]
    finally:
        await simulated_nodes.remove(server_api, nodes)


async def test_an_eviction_with_a_stale_uid_is_refused(server_api: Api, server_namespace: str) -> None:
    """With preconditions.uid, a pod of the same name that came since is not evicted: 409.

    At once for a running pod; for one that is Pending the server tries again for 10 s before it says so.
    """
    nodes = await simulated_nodes.add(server_api, 1, prefix="twins")
    try:
        await run_pod_on(server_api, server_namespace, "twin", nodes[0], {})
        uid = "00000000-0000-4000-8000-000000000000"
        refusal = await refused(server_api.evict(server_namespace, "twin", preconditions={"uid": uid}))
        assert (refusal.status, refusal.reason) == (409, "Conflict")
    finally:
        await simulated_nodes.remove(server_api, nodes)


async def test_hundreds_of_nodes_are_listed_in_pages_and_watched(server_api: Api) -> None:
    """300 simulated nodes with leases: a paged list sees each once, and a field selector each one's own."""
    names = await simulated_nodes.add(server_api, NODES)
    try:
        found: list[str] = []
        query: dict[str, str | int] = {"limit": 100}
        while True:
            page = await server_api.get("/api/v1/nodes", **query)
            assert len(page["items"]) <= 100
            found += [node["metadata"]["name"] for node in page["items"]]
            if not (token := page["metadata"].get("continue")):
                break
            query["continue"] = token
        assert sorted(name for name in found if name in set(names)) == names
        leases = await server_api.get(simulated_nodes.lease_path("x").rpartition("/")[0])
        assert set(names) <= {lease["spec"]["holderIdentity"] for lease in leases["items"]}
        one = await server_api.get("/api/v1/nodes", fieldSelector=f"metadata.name={names[7]}")
        assert [node["status"]["allocatable"]["nvidia.com/gpu"] for node in one["items"]] == ["8"]
    finally:
        await simulated_nodes.remove(server_api, names)


async def test_a_pod_field_selector_gives_one_nodes_pods(server_api: Api, server_namespace: str) -> None:
    """Pods of one of many nodes are selected by spec.nodeName, which is what a per-node daemon lists."""
    nodes = await simulated_nodes.add(server_api, 3, prefix="selected")
    path = f"/api/v1/namespaces/{server_namespace}/pods"
    try:
        for number, node in enumerate(nodes):
            await server_api.create(path, pod(f"p{number}", pod_spec() | {"nodeName": node}))
        found = await server_api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={nodes[1]}")
        assert [item["metadata"]["name"] for item in found["items"]] == ["p1"]
    finally:
        await simulated_nodes.remove(server_api, nodes)


async def test_the_audit_log_names_who_did_what(api_server: Bed, server_api: Api, server_namespace: str) -> None:
    """Each request is in the audit log: user, verb, object and answer, refusals included."""
    somebody = api_server.control_plane.user("auditee")
    async with Api(somebody) as api:
        await refused(api.evict(server_namespace, "nobody"))
    await refused(server_api.evict(server_namespace, "nobody"))

    async def written() -> list[Object]:
        events = [
            event
            for event in api_server.control_plane.audit()
            if event.get("objectRef", {}).get("subresource") == "eviction"
            and event["objectRef"]["namespace"] == server_namespace
        ]
        return events if len(events) == 2 else []

    events = await until(written, "two audit events")
    found = {(event["user"]["username"], event["verb"], event["responseStatus"]["code"]) for event in events}
    assert found == {("auditee", "create", 403), ("bed-admin", "create", 404)}


async def test_each_bed_begins_empty(server_api: Api) -> None:
    """etcd's data is fresh: no pod of another run, and the namespaces are Kubernetes' own and this run's."""
    names = {item["metadata"]["name"] for item in (await server_api.get("/api/v1/namespaces"))["items"]}
    own = {name for name in names if not name.startswith("test-")}
    assert own == {"default", "kube-node-lease", "kube-public", "kube-system"}
