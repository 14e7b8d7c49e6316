"""Parts of an inventory, put together."""

from dataclasses import replace

from exporter.kube.allocations import AllocationsView, HeldClaim, Holding
from exporter.kube.allocations import ClaimedDevice as Claimed
from exporter.kube.combining import combine, fill_in, finished_names
from exporter.kube.pods import KnownPod
from exporter.model import (
    Allocation,
    Claim,
    ClaimedDevice,
    Container,
    ContainerId,
    DeviceKey,
    Fault,
    Gpu,
    GpuUuid,
    Inventory,
    Pod,
    PodUid,
    Sharing,
)

GPU = Gpu(GpuUuid("GPU-00000000-0000-4000-8000-000000000001"), 0, "H100")
A, B, C, D = (ContainerId(letter * 64) for letter in "abcd")
UID = PodUid("uid-1")
POD = Pod(UID, "ns", "p")


def known(uid: str, name: str = "p", *, finished: bool = False) -> KnownPod:
    return KnownPod("", Pod(PodUid(uid), "ns", name), (), None, finished)


def test_names_and_allocations_keep_their_own_faults() -> None:
    """Both halves stand side by side: a kubelet that is away takes no names, and says so."""
    names = Inventory(pods={UID: POD}, known=True, live=True, faults=(Fault("api", "a", "."),))
    view = AllocationsView(
        holdings=(Holding("ns", "p", "main", "nvidia.com/gpu", (f"{GPU.uuid}::0", f"{GPU.uuid}::1")),),
        known=True,
        faults=(Fault("kubelet", "k", "."),),
    )
    found = combine(names, view, [GPU], {})
    assert found.allocations == (Allocation("ns", "p", "main", "nvidia.com/gpu", DeviceKey(GPU.uuid), 2),)
    assert found.sharing[DeviceKey(GPU.uuid)] == (Sharing.TIME_SLICING, 2)
    assert [fault.reason for fault in found.faults] == ["a", "k"]
    assert (found.pods, found.known, found.live) == (names.pods, True, True)
    assert combine(names, view, [GPU], {}, finished={("ns", "p")}).allocations == ()


def test_a_device_that_a_claim_only_monitors_is_handed_to_no_container_by_it() -> None:
    """The kubelet lists a monitoring agent's claim as any other; the GPU stays that of the pod that computes on it."""
    device = ("gpu.nvidia.com", "node", "gpu-0")
    view = AllocationsView(
        claims=(
            HeldClaim("ns", "train", "main", (Claimed(*device),), claim="train"),
            HeldClaim("ns", "agent", "main", (Claimed(*device), Claimed(*device[:2], "gpu-1")), claim="all"),
        ),
        known=True,
    )
    claims = (
        Claim("ns", "train", devices=(ClaimedDevice("gpu", *device),)),
        Claim("ns", "all", watched=(ClaimedDevice("all", *device),)),
        Claim("other", "train", watched=(ClaimedDevice("all", *device),)),
        Claim("ns", "train", watched=(ClaimedDevice("all", *device),), devices=(ClaimedDevice("gpu", *device),)),
    )
    first, second = replace(GPU, minor=0), Gpu(GpuUuid("GPU-00000001-0000-4000-8000-000000000001"), 1, "H100", minor=1)
    found = combine(Inventory(claims=claims, known=True), view, [first, second], {})
    assert [(one.pod, one.device.uuid) for one in found.allocations] == [("train", first.uuid), ("agent", second.uuid)]
    only = Inventory(claims=claims[1:2], known=True)
    monitored = combine(only, replace(view, claims=view.claims[1:]), [first, second], {})
    assert [*monitored.sharing] == [DeviceKey(second.uuid)]


def test_a_name_is_finished_when_nobody_of_that_name_runs() -> None:
    """The kubelet names no UIDs: as long as one pod of a name runs, the name holds what it was handed."""
    pods = [known("1", finished=True), known("2", "q", finished=True), known("3", "q"), known("4", "r")]
    assert finished_names(pods) == {("ns", "p")}


def test_what_the_node_remembers_fills_gaps_only() -> None:
    """A pod and a restart that came while the API server was away are added; what it said is not touched."""
    names = Inventory(pods={UID: POD}, containers=(Container(UID, "main", B),), known=True)
    new = PodUid("uid-2")
    remembered = Inventory(
        pods={UID: Pod(UID, "ns", "other-name"), new: Pod(new, "ns", "q")},
        containers=(
            Container(UID, "main", A),
            Container(UID, "main", B),
            Container(UID, "main", C),
            Container(UID, "main", None),
            Container(new, "main", D),
        ),
        known=True,
    )
    found = fill_in(names, remembered)
    assert found.pods == {UID: POD, new: Pod(new, "ns", "q")}
    assert [c.id for c in found.containers if c.pod_uid == UID] == [A, B, C], (
        "generations in order, the present one last"
    )
    assert Container(new, "main", D) in found.containers
    assert not found.live


def test_a_static_pod_is_one_pod() -> None:
    """The log links know a static pod by the hash, the API by the UID of its mirror: its restart is that one's."""
    hash_ = PodUid("7260904bbd08e72e4dff95d9fccd2ee8")
    names = Inventory(pods={UID: Pod(UID, "kube-system", "etcd-n1", config_hash=hash_)}, known=True)
    remembered = Inventory(
        pods={hash_: Pod(hash_, "kube-system", "etcd-n1")}, containers=(Container(hash_, "etcd", A),), known=True
    )
    found = fill_in(names, remembered)
    assert set(found.pods) == {UID}
    assert found.containers == (Container(UID, "etcd", A),)


def test_nothing_known_and_nothing_remembered_is_unknown() -> None:
    """No answer and no links: an inventory that says that it knows nothing."""
    assert not fill_in(Inventory(), Inventory()).known
