"""What the containers that share a claim hold together: promises of exporter/limits/claimed.py."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from builders import GIB, gpu, gpu_uuid, leaf, memory, pod, subject, usage
from exporter.limits import leaf_devices
from exporter.limits.claimed import claim_usages
from exporter.model import (
    Claim,
    ClaimedDevice,
    ClaimUsage,
    ClaimUse,
    DeclaredContainer,
    DeclaredPod,
    GpuInstance,
    Pod,
    PodUid,
    Usage,
)

ONE, TWO = pod("rank-0"), pod("rank-1")
DEVICES = leaf_devices(
    (
        gpu(0, memory=memory(80 * GIB)),
        gpu(1, instances=(GpuInstance(3, "1g.10gb", ("MIG-a",), memory(10 * GIB)),)),
    )
)


def claim(name: str = "shared", **uuids: str) -> Claim:
    """A claim whose requests were given the devices with these UUIDs."""
    given = uuids or {"gpu": gpu_uuid(0)}
    devices = tuple(
        ClaimedDevice(request, "gpu.nvidia.com", "n1", f"d-{uuid}", uuid=uuid) for request, uuid in given.items()
    )
    return Claim("team-a", name, devices)


def user(who: Pod, *containers: str, claims: tuple[str, ...] = ("shared",), request: str = "") -> DeclaredPod:
    """A pod whose containers (`main` without any) use all of these claims."""
    uses = tuple(ClaimUse(name, request) for name in claims)
    found = tuple(DeclaredContainer(name, claims=uses) for name in containers or ("main",))
    return DeclaredPod(who.uid, who.namespace, who.name, containers=found, claims={name: name for name in claims})


def held(claims: Iterable[Claim], pods: Iterable[DeclaredPod], *usages: Usage) -> dict[str, int | None]:
    found = claim_usages({PodUid(one.uid): one for one in pods}, claims, usages, DEVICES)
    assert len({(one.claim, one.device) for one in found}) == len(found)
    return {one.claim: one.memory_used for one in found}


def test_all_who_share_a_claim_count_once() -> None:
    """Two pods, one of them with two containers and a restart behind it: each usage is counted once, and named."""
    pods = {one.uid: user(one, "main", "side") for one in (ONE, TWO)}
    usages = [
        usage(ONE, leaf(0), GIB),
        usage(subject(ONE, "main", generation=1), leaf(0), 2 * GIB),
        usage(subject(ONE, "side"), leaf(0), 4 * GIB),
        usage(TWO, leaf(0), 8 * GIB),
        usage(pod("stranger"), leaf(0), 16 * GIB),
    ]
    (found,) = claim_usages(pods, [claim()], usages, DEVICES)
    counted = frozenset(one.subject for one in usages[:4])
    assert found == ClaimUsage("team-a", "shared", leaf(0), 15 * GIB, counted)


def test_unknown_of_one_is_unknown_of_the_claim() -> None:
    """A process of unknown memory makes the sum unknown, and so does a claim of which no usage was seen yet."""
    pods = [user(ONE), user(TWO)]
    assert held([claim()], pods, usage(ONE, leaf(0), GIB), usage(TWO, leaf(0), None)) == {"shared": None}
    assert held([claim()], pods) == {"shared": None}
    assert held([claim()], pods, usage(ONE, leaf(0), 0)) == {"shared": 0}, "handed out, and known to hold nothing"


def test_a_container_with_two_claims_of_one_device_tells_neither() -> None:
    """Whose bytes they are is not guessed; a third claim of that device, held by another container, is clear."""
    claims = [claim("a"), claim("b"), claim("c")]
    pods = [user(ONE, claims=("a", "b")), user(TWO, claims=("c",))]
    found = held(claims, pods, usage(ONE, leaf(0), GIB), usage(TWO, leaf(0), 2 * GIB))
    assert found == {"a": None, "b": None, "c": 2 * GIB}


def test_whose_memory_may_be_held_by_another_claim_is_named() -> None:
    """Of three containers that use a claim one holds another claim of that device, too: it alone is in doubt."""
    pods = {ONE.uid: user(ONE, claims=("a", "b")), TWO.uid: user(TWO, claims=("a",))}
    usages = [usage(ONE, leaf(0), GIB), usage(TWO, leaf(0), 2 * GIB)]
    doubtful = {one.claim: one.doubtful for one in claim_usages(pods, [claim("a"), claim("b")], usages, DEVICES)}
    assert doubtful == {"a": frozenset({subject(ONE)}), "b": frozenset({subject(ONE)})}


def test_a_sandboxed_pod_with_two_claims_of_one_device_tells_neither() -> None:
    """Each of its containers holds one of them; what is seen is what they hold together."""
    uses = [DeclaredContainer(name, claims=(ClaimUse(name, ""),)) for name in ("a", "b")]
    both = DeclaredPod(ONE.uid, ONE.namespace, ONE.name, containers=tuple(uses), claims={"a": "a", "b": "b"})
    assert held([claim("a"), claim("b")], [both], usage(subject(ONE, ""), leaf(0), GIB)) == {"a": None, "b": None}
    apart = [usage(subject(ONE, "a"), leaf(0), GIB), usage(subject(ONE, "b"), leaf(0), 2 * GIB)]
    assert held([claim("a"), claim("b")], [both], *apart) == {"a": GIB, "b": 2 * GIB}


def test_only_the_containers_and_requests_that_use_it() -> None:
    """A container that does not name the claim is not in it, nor one that names another of its requests."""
    other = DeclaredContainer("other")
    both = user(ONE)
    pods = [DeclaredPod(both.uid, both.namespace, both.name, containers=(*both.containers, other), claims=both.claims)]
    found = held([claim()], pods, usage(ONE, leaf(0), GIB), usage(subject(ONE, "other"), leaf(0), 2 * GIB))
    assert found == {"shared": GIB}
    two = claim(big=gpu_uuid(0), small="MIG-a")
    usages = claim_usages({ONE.uid: user(ONE, request="small")}, [two], [usage(ONE, leaf(1, 3), GIB)], DEVICES)
    assert {one.device: one.memory_used for one in usages} == {leaf(0): None, leaf(1, 3): GIB}


@pytest.mark.fault(35)
def test_a_sandboxed_pod_counts_as_a_whole() -> None:
    """Where only the pod is known, what it holds is the claim's."""
    whole = usage(subject(ONE, ""), leaf(0), GIB)
    assert held([claim()], [user(ONE)], whole) == {"shared": GIB}
    handed = replace(usage(ONE, leaf(0), None), with_pod=True)
    assert held([claim()], [user(ONE)], whole, handed) == {"shared": GIB}, "the kubelet handed it to a container"


def test_a_device_that_is_not_here_has_no_figure() -> None:
    """A device that was unplugged or set up anew has no figure. A claim of another namespace is another claim."""
    assert held([claim(gpu="GPU-gone")], [user(ONE)], usage(ONE, leaf(0), GIB)) == {}
    elsewhere = Claim("team-b", "shared", claim().devices)
    assert held([elsewhere], [user(ONE)], usage(ONE, leaf(0), GIB)) == {}
