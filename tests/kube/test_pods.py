"""The reducer: lists and events in, names out."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.kube.errors import KubeError
from exporter.kube.pods import EARLIER, LINGERS, QUEUES, Pods, apply, container_id, parse_event, parse_list
from exporter.model import Container, ContainerId, ContainerKind, PodUid
from sources.kube_api import bookmark, event, listing, pod, status

Object = dict[str, Any]
UID = PodUid("uid-1")
A, B, C = (ContainerId(letter * 64) for letter in "abc")


def after(*said: bytes, before: Pods | None = None, now: float = 0.0) -> Pods:
    """The state after a list (the first, unless there is a state already) and events."""
    pods = before
    for one in said:
        pods = apply(parse_list(one) if pods is None else parse_event(one), pods or Pods(), node="n1", now=now)
    assert pods is not None
    return pods


def running(id_: str, *, last: str | None = None, name: str = "main") -> Object:
    found: Object = {"name": name, "containerID": f"containerd://{id_}", "state": {"running": {}}}
    if last:
        found["lastState"] = {"terminated": {"containerID": f"containerd://{last}", "exitCode": 137}}
    return found


def ids(pods: Pods, uid: PodUid = UID) -> list[ContainerId | None]:
    return [container.id for container in pods.known[uid].containers]


def test_a_listed_pod_has_its_names() -> None:
    """Names, priority class, creation and container come from the list; what is not needed is not kept."""
    thing = pod(spec={"priorityClassName": "high"}, status={"containerStatuses": [running(A)]})
    known = after(listing(thing)).known[UID]
    assert (known.pod.namespace, known.pod.name, known.pod.priority_class) == ("ns", "p", "high")
    assert known.pod.created_at == 1793527200.0
    assert not known.pod.terminating
    assert known.containers == (Container(UID, "main", A),)
    assert known.node == "n1"
    assert b"managedFields" not in msgspec.json.encode(known)


def test_init_and_ephemeral_containers_are_containers() -> None:
    """Sidecars are init containers, and a debugger is an ephemeral one: each of them may hold a GPU."""
    thing = pod(
        status={
            "initContainerStatuses": [running(A, name="sidecar")],
            "containerStatuses": [running(B)],
            "ephemeralContainerStatuses": [running(C, name="debugger")],
        }
    )
    found = after(listing(thing)).known[UID].containers
    assert [(c.name, c.id) for c in found] == [("sidecar", A), ("main", B), ("debugger", C)]


def test_a_pod_tells_what_a_policy_asks_for() -> None:
    """Phase, priority, grace, the kind of the controller; labels and annotations are those already held, no copies."""
    owners = [
        {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n"},
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True},
    ]
    metadata = {"labels": {"a": "b"}, "annotations": {"c": "d"}, "ownerReferences": owners}
    thing = pod(
        metadata=metadata, spec={"priority": -5, "terminationGracePeriodSeconds": 0}, status={"phase": "Pending"}
    )
    known = after(listing(thing)).known[UID]
    found = known.pod
    assert (found.phase, found.priority, found.controller_kind) == ("Pending", -5, "DaemonSet")
    assert found.grace_seconds == 0.0, "none is not the default"
    assert (found.labels, found.annotations) == ({"a": "b"}, {"c": "d"})
    assert known.declared is not None
    assert found.labels is known.declared.labels and found.annotations is known.declared.annotations
    bare = after(listing(pod(metadata={"ownerReferences": owners[:1]}))).known[UID].pod
    assert (bare.priority, bare.controller_kind, bare.grace_seconds) == (None, "", 30.0)
    assert (bare.labels, bare.annotations, bare.config_hash) == ({}, {}, None)


def test_containers_are_of_four_kinds() -> None:
    """Init, sidecar (an init container that stays), regular, ephemeral; also of a status that lists none any more."""
    spec = {
        "initContainers": [{"name": "setup"}, {"name": "proxy", "restartPolicy": "Always"}],
        "ephemeralContainers": [{"name": "debugger"}],
    }
    status = {
        "initContainerStatuses": [running(A, name="setup"), running(B, name="proxy")],
        "containerStatuses": [running(C)],
        "ephemeralContainerStatuses": [running("d" * 64, name="debugger")],
    }
    kinds = {
        "setup": ContainerKind.INIT,
        "proxy": ContainerKind.SIDECAR,
        "main": ContainerKind.REGULAR,
        "debugger": ContainerKind.EPHEMERAL,
    }
    pods = after(listing(pod(spec=spec, status=status)))
    assert {c.name: c.kind for c in pods.known[UID].containers} == kinds
    pods = after(event("MODIFIED", pod(version="11", spec=spec, status={"phase": "Failed"})), before=pods)
    assert {c.name: c.kind for c in pods.known[UID].containers} == kinds


def test_a_restart_keeps_the_earlier_generation() -> None:
    """After a restart both ids name the container, the present one last: a ghost carries the old id."""
    pods = after(listing(pod(status={"containerStatuses": [running(A)]})))
    pods = after(event("MODIFIED", pod(version="11", status={"containerStatuses": [running(B, last=A)]})), before=pods)
    assert ids(pods) == [A, B]
    pods = after(event("MODIFIED", pod(version="12", status={"containerStatuses": [running(C, last=B)]})), before=pods)
    assert ids(pods) == [A, B, C]


def test_a_daemon_that_starts_late_learns_the_last_generation() -> None:
    """The list alone shows the generation before: `lastState` has its id."""
    assert ids(after(listing(pod(status={"containerStatuses": [running(B, last=A)]})))) == [A, B]


def test_a_container_that_waits_is_there_without_an_id() -> None:
    """Before its first start a container has no id; between two starts it has the old one, which is kept."""
    waiting = {"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}
    pods = after(listing(pod(status={"containerStatuses": [waiting]})))
    assert ids(pods) == [None]
    pods = after(event("MODIFIED", pod(status={"containerStatuses": [running(A)]})), before=pods)
    pods = after(event("MODIFIED", pod(status={"containerStatuses": [waiting]})), before=pods)
    assert ids(pods) == [A, None]


def test_a_crash_loop_does_not_fill_the_memory() -> None:
    """Of any number of restarts the last few ids are kept."""
    pods = after(listing(pod()))
    every = [ContainerId(f"{number:064x}") for number in range(50)]
    for id_ in every:
        pods = after(event("MODIFIED", pod(status={"containerStatuses": [running(id_)]})), before=pods)
    assert ids(pods) == every[-EARLIER - 1 :]


@pytest.mark.parametrize(
    ("written", "found"),
    [
        (f"containerd://{A}", A),
        (f"cri-o://{A}", A),
        (f"docker://{A}", A),
        (A, A),
        ("", None),
        ("containerd://", None),
        (f"containerd://{A}/..", None),
        (f"containerd://{A.upper()}", None),
        (f"containerd://{A}0", None),
        (f"containerd://{A}\n", None),
    ],
)
def test_container_ids_are_64_hex_characters(written: str, found: ContainerId | None) -> None:
    """The runtime's name is cut off; what is no id is none."""
    assert container_id(written) == found


def test_a_static_pod_is_found_by_its_hash() -> None:
    """The cgroup of a static pod carries the kubelet's hash; the mirror pod's UID is another."""
    hash_ = "0123456789abcdef0123456789abcdef"
    marks = {
        "kubernetes.io/config.hash": hash_,
        "kubernetes.io/config.mirror": hash_,
        "kubernetes.io/config.source": "file",
    }
    found = after(listing(pod(metadata={"annotations": marks}))).known[UID].pod
    assert found.config_hash == hash_


def test_a_hash_alone_makes_no_static_pod() -> None:
    """A pod with another pod's hash in its annotation does not get that pod's memory counted as its own."""
    found = after(listing(pod(metadata={"annotations": {"kubernetes.io/config.hash": "0" * 32}}))).known[UID].pod
    assert found.config_hash is None


@pytest.mark.parametrize("key", QUEUES)
def test_queues_of_the_known_schedulers_are_read(key: str) -> None:
    """The queue is a label or an annotation, whatever the scheduler prefers; a label wins."""
    for marks in ({"labels": {key: "gold"}}, {"annotations": {key: "gold"}}):
        assert after(listing(pod(metadata=marks))).known[UID].pod.queue == "gold"
    both = {"labels": {key: "gold"}, "annotations": {key: "iron"}}
    assert after(listing(pod(metadata=both))).known[UID].pod.queue == "gold"


def test_pods_of_other_nodes_are_not_seen() -> None:
    """A pod of another node is passed over in lists and events, even if the server ignores the selector."""
    pods = after(
        listing(pod(), pod("q", "uid-2", node="n2")), event("ADDED", pod("r", "uid-3", node="n2", version="12"))
    )
    assert (set(pods.known), pods.version) == ({UID}, "12")


def test_events_change_the_state_and_its_version() -> None:
    """Added, modified and deleted pods, and bookmarks, each move the version forward."""
    pods = after(listing(version="10"), event("ADDED", pod(version="11")))
    assert (set(pods.known), pods.version) == ({UID}, "11")
    doomed = {"deletionTimestamp": "2026-11-01T10:05:00Z"}
    pods = after(event("MODIFIED", pod(version="12", metadata=doomed)), before=pods)
    assert (pods.known[UID].pod.terminating, pods.version) == (True, "12")
    pods = after(bookmark("20"), before=pods)
    assert (set(pods.known), pods.version) == ({UID}, "20")
    pods = after(event("DELETED", pod(version="21")), before=pods)
    assert (set(pods.known), pods.version) == (set(), "21")


def test_a_deleted_pod_keeps_its_names_for_a_while() -> None:
    """A forced deletion waits for no process: memory that outlives the pod still has its name, marked terminating."""
    pods = after(
        listing(pod(status={"containerStatuses": [running(A)]})), event("DELETED", pod(version="11")), now=100.0
    )
    gone = pods.departed[UID].known
    assert gone.pod.deleted
    assert (gone.pod.name, gone.pod.terminating, gone.finished) == ("p", True, True)
    assert gone.containers == (Container(UID, "main", A),), "though the last event had no container status"
    assert UID in after(bookmark("12"), before=pods, now=100.0 + LINGERS - 1).departed
    assert UID not in after(bookmark("12"), before=pods, now=100.0 + LINGERS + 1).departed


def test_a_pod_recreated_under_the_same_name_is_another() -> None:
    """Force-deleted and made anew: two UIDs, one name, the old one terminating."""
    pods = after(listing(pod(uid="old")), event("DELETED", pod(uid="old")), event("ADDED", pod(uid="new")))
    assert [known.pod.terminating for known in pods.known.values()] == [False]
    assert set(pods.known) == {"new"}
    assert set(pods.departed) == {"old"}


@pytest.mark.fault(19)
def test_a_new_list_is_the_whole_truth() -> None:
    """A pod that a new list lacks is gone. One that it has keeps its earlier ids. One that returns is not departed."""
    first = after(listing(pod(status={"containerStatuses": [running(A)]}), pod("q", "uid-2")))
    second = listing(pod(status={"containerStatuses": [running(C)]}), version="50")
    pods = apply(parse_list(second), first, node="n1", now=0.0)
    assert (set(pods.known), set(pods.departed), pods.version) == ({UID}, {"uid-2"}, "50")
    assert ids(pods) == [A, C]
    third = apply(parse_list(listing(pod(), pod("q", "uid-2"))), pods, node="n1", now=1.0)
    assert (set(third.known), set(third.departed)) == ({UID, "uid-2"}, set())


def test_a_broken_pod_costs_itself_only() -> None:
    """A pod that cannot be decoded is reported by name. The others are there, and it comes back once it is fixed."""
    broken = pod("bad", "uid-2", spec={"containers": "none"})
    pods = after(listing(pod(), broken))
    assert set(pods.known) == {UID}
    assert list(pods.broken) == ["ns/bad"]
    pods = after(event("MODIFIED", pod("bad", "uid-2", version="12")), before=pods)
    assert (set(pods.known), pods.broken) == ({UID, "uid-2"}, {})


def test_a_change_that_cannot_be_decoded_leaves_the_pod_as_it_was() -> None:
    """The last good state of a pod stays, the version goes on, and the fault is reported."""
    pods = after(listing(pod()), event("MODIFIED", pod(version="11", status={"containerStatuses": 7})))
    assert (set(pods.known), list(pods.broken), pods.version) == ({UID}, ["ns/p"], "11")


def test_a_pod_that_goes_with_words_that_cannot_be_decoded_is_gone() -> None:
    """Nothing stays of a pod that was never decoded. One that was known keeps its names for a while, as usual."""
    broken = {"containers": "none"}
    came = event("ADDED", pod("bad", "uid-2", spec=broken, version="11"))
    went = event("DELETED", pod("bad", "uid-2", spec=broken, version="12"))
    pods = after(listing(pod()), came, went)
    assert (set(pods.known), set(pods.departed), pods.broken, pods.version) == ({UID}, set(), {}, "12")
    pods = after(event("DELETED", pod(spec=broken, version="13")), before=pods)
    assert (set(pods.known), set(pods.departed), pods.broken, pods.version) == (set(), {UID}, {}, "13")
    assert pods.departed[UID].known.pod.terminating


@pytest.mark.parametrize("body", [b"", b"nonsense", b"[]", b'{"items": 7}', b'{"items": [', b"\xff\xfe"])
def test_what_is_no_list_is_an_error(body: bytes) -> None:
    """An answer that is no list raises, so that it can never look like an empty node."""
    with pytest.raises(KubeError):
        parse_list(body)


def test_the_server_forgets_with_410() -> None:
    """An ERROR event is the server's error: 410 Expired."""
    with pytest.raises(KubeError) as caught:
        parse_event(event("ERROR", status(410, "Expired")))
    assert (caught.value.status, caught.value.reason) == (410, "Expired")


@pytest.mark.parametrize("line", [b"", b"{}", b"null", b'{"type":"ADDED"}', b'{"type":"ERROR","object":7}', b"\x00"])
def test_what_is_no_event_is_an_error(line: bytes) -> None:
    """A line that is no event raises, and the watch begins again where it was."""
    with pytest.raises(KubeError):
        parse_event(line)


def test_events_of_unknown_types_are_passed_over() -> None:
    """A later server may say more."""
    pods = after(listing(pod(), version="10"), event("ANNOUNCED", {"metadata": {"resourceVersion": "11"}}))
    assert (set(pods.known), pods.version) == ({UID}, "11")


def test_what_limits_are_read_from_is_kept_and_secrets_are_not() -> None:
    """Labels, annotations, resources and variables about devices stay; other variables and last-applied do not."""
    env = [
        {"name": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "value": "0=2G"},
        {"name": "NVIDIA_API_KEY", "value": "hush"},
        {"name": "PASSWORD", "value": "hush"},
        {"name": "GPU_FROM_FIELD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    container = {"name": "main", "env": env, "resources": {"limits": {"nvidia.com/gpu": "1", "aliyun.com/gpu-mem": 3}}}
    marks = {"a": "1", "kubectl.kubernetes.io/last-applied-configuration": '{"env":"hush"}'}
    known = after(listing(pod(metadata={"annotations": marks, "labels": {"b": "2"}}, spec={"containers": [container]})))
    thing = known.known[UID].declared
    assert thing is not None
    assert (thing.annotations, thing.labels) == ({"a": "1"}, {"b": "2"})
    (main,) = thing.containers
    assert main.limits == {"nvidia.com/gpu": "1", "aliyun.com/gpu-mem": "3"}
    assert main.env == {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=2G"}
    assert b"hush" not in msgspec.json.encode(known.known[UID])


def test_null_is_like_absent() -> None:
    """Go writes null for empty lists and maps now and then."""
    nulls: Object = {"containerStatuses": None, "initContainerStatuses": None}
    thing = pod(metadata={"labels": None, "annotations": None, "ownerReferences": None}, status=nulls)
    assert after(listing(thing)).known[UID].containers == ()
    assert after(json.dumps({"metadata": {"resourceVersion": "1"}, "items": None}).encode()).known == {}


@pytest.mark.parametrize(
    ("phase", "finished"), [("Pending", False), ("Running", False), ("Succeeded", True), ("Failed", True)]
)
def test_a_pod_that_came_to_its_end_is_finished(phase: str, *, finished: bool) -> None:
    """Its names stay (a ghost may be its), but what it was handed is free."""
    assert after(listing(pod(status={"phase": phase}))).known[UID].finished is finished


EVENTS = st.lists(
    st.tuples(st.sampled_from(["ADDED", "MODIFIED", "DELETED"]), st.sampled_from(["u1", "u2", "u3"]), st.booleans()),
    max_size=20,
)


@given(EVENTS)
def test_a_list_and_its_events_agree_with_a_later_list(changes: list[tuple[str, str, bool]]) -> None:
    """Whatever happened in whatever order: the watch ends where a fresh list begins."""
    pods, truth = after(listing()), {}
    for number, (kind, uid, ended) in enumerate(changes):
        thing = pod("p", uid, version=str(11 + number), status={"phase": "Failed" if ended else "Running"})
        pods = after(event(kind, thing), before=pods)
        truth[uid] = thing
        if kind == "DELETED":
            del truth[uid]
    fresh = after(listing(*truth.values(), version=pods.version))
    assert replace(pods, departed={}) == fresh
    assert set(pods.departed).isdisjoint(pods.known)
