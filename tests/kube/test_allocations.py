"""What was handed to which container, and how devices are shared, from the kubelet's answers."""

from dataclasses import replace

import pytest

from builders import gpu, gpu_uuid, leaf
from exporter.kube.allocations import (
    AllocationsView,
    ClaimedDevice,
    HeldClaim,
    Holding,
    allocations,
    sharing,
    succeed,
    without_gone,
)
from exporter.model import Allocation, GpuInstance, Sharing

GPU = "nvidia.com/gpu"
SHARED = "nvidia.com/gpu.shared"
MIG_A, MIG_B, MIG_C = (f"MIG-{letter * 8}-1111-2222-3333-444444444444" for letter in "abc")
INSTANCES = (GpuInstance(3, "3g.40gb", (MIG_A,)), GpuInstance(9, "1g.10gb", (MIG_B, MIG_C)))
GPUS = (gpu(0), replace(gpu(1), minor=1), gpu(2, instances=INSTANCES))
MPS = {"nvidia.com/gpu.sharing-strategy": "mps"}


def replicas(index: int, *numbers: int) -> tuple[str, ...]:
    """Ids of replicas of a GPU."""
    return tuple(f"{gpu_uuid(index)}::{number}" for number in numbers)


def holding(pod: str, *ids: str, resource: str = GPU, container: str = "main") -> Holding:
    """Devices in a container of a pod in namespace ml."""
    return Holding("ml", pod, container, resource, ids)


def claim(pod: str, *devices: str, container: str = "main") -> HeldClaim:
    """A claim on NVIDIA's DRA devices of these names."""
    claimed = tuple(ClaimedDevice("gpu.nvidia.com", "node", device) for device in devices)
    return HeldClaim("ml", pod, container, claimed)


def view(
    *held: Holding | HeldClaim, others: tuple[str, ...] = (), offers: dict[str, tuple[str, ...]] | None = None
) -> AllocationsView:
    """A live answer that lists the pods of `held`, and `others` without devices."""
    return AllocationsView(
        pods=frozenset({("ml", pod) for pod in (*others, *(entry.pod for entry in held))}),
        holdings=tuple(entry for entry in held if isinstance(entry, Holding)),
        claims=tuple(entry for entry in held if isinstance(entry, HeldClaim)),
        allocatable={} if offers is None else offers,
        known=True,
        live=True,
    )


# --- allocations ------------------------------------------------------------------------------------------------------


def test_replicas_of_one_device_are_counted_together() -> None:
    """Two replicas of one GPU and one of another are two allocations, of 2 and 1; an id listed twice counts once."""
    ids = (*replicas(0, 0, 3, 3), *replicas(1, 0))
    assert allocations(view(holding("train", *ids, resource=SHARED)), GPUS) == (
        Allocation("ml", "train", "main", SHARED, leaf(0), 2),
        Allocation("ml", "train", "main", SHARED, leaf(1), 1),
    )


def test_containers_and_resources_are_kept_apart() -> None:
    """What two containers of a pod hold, and what one holds of two resources, are allocations of their own."""
    heard = view(
        holding("train", gpu_uuid(0)),
        holding("train", *replicas(1, 0), resource=SHARED),
        holding("train", MIG_A, container="side"),
    )
    assert allocations(heard, GPUS) == (
        Allocation("ml", "train", "main", GPU, leaf(0)),
        Allocation("ml", "train", "main", SHARED, leaf(1)),
        Allocation("ml", "train", "side", GPU, leaf(2, 3)),
    )


def test_ids_that_mean_no_present_device_are_left_out() -> None:
    """A network card, a made-up id and a GPU that is gone bring no allocation, and keep none of the others away."""
    heard = view(
        holding("train", "mlx5_0", resource="rdma/hca"),
        holding("train", f"{gpu_uuid(0)}-0", gpu_uuid(7), gpu_uuid(1)),
    )
    assert allocations(heard, GPUS) == (Allocation("ml", "train", "main", GPU, leaf(1)),)


def test_a_claimed_device_is_an_allocation_of_its_driver() -> None:
    """DRA: the resource is the driver's name; the slice's UUID names a MIG device, the minor number a whole GPU."""
    heard = view(claim("train", "gpu-1", "gpu-2-mig-1g10gb-19-0"))
    uuids = {("gpu.nvidia.com", "node", "gpu-2-mig-1g10gb-19-0"): MIG_B}
    assert allocations(heard, GPUS, uuids=uuids) == (
        Allocation("ml", "train", "main", "gpu.nvidia.com", leaf(1)),
        Allocation("ml", "train", "main", "gpu.nvidia.com", leaf(2, 9)),
    )
    assert allocations(heard, GPUS) == (Allocation("ml", "train", "main", "gpu.nvidia.com", leaf(1)),)


def test_a_claim_of_two_pods_is_an_allocation_of_each() -> None:
    """Several pods may use one claim: each of them was handed the device."""
    found = allocations(view(claim("first", "gpu-1"), claim("second", "gpu-1")), GPUS)
    assert [(allocation.pod, allocation.device) for allocation in found] == [("first", leaf(1)), ("second", leaf(1))]


def test_a_finished_pod_holds_nothing() -> None:
    """Old kubelets list pods that have ended, with devices that another pod may hold by now."""
    heard = view(holding("done", gpu_uuid(0)), holding("train", gpu_uuid(0)), claim("done", "gpu-1"))
    found = allocations(heard, GPUS, finished={("ml", "done")})
    assert [(allocation.pod, allocation.device) for allocation in found] == [("train", leaf(0))]


def test_a_name_of_two_listed_pods_joins_nothing() -> None:
    """Two generations under one name: whose device is whose cannot be said, so neither gets one."""
    heard = replace(
        view(holding("train", gpu_uuid(0)), holding("other", gpu_uuid(1))), listed_twice=frozenset({("ml", "train")})
    )
    assert [allocation.pod for allocation in allocations(heard, GPUS)] == ["other"]


# --- what stays true --------------------------------------------------------------------------------------------------


@pytest.mark.fault(36)
def test_a_restarted_kubelets_empty_list_takes_nothing_away() -> None:
    """A kubelet that has just started lists no pods. What pods held before stays, marked as remembered."""
    before = view(holding("train", gpu_uuid(0)), claim("claims", "gpu-1"))
    first = succeed(before, view(), restarted=True)
    second = succeed(first, view(), restarted=False)
    for heard in (first, second):
        assert [(entry.pod, entry.remembered) for entry in heard.holdings] == [("train", True)]
        assert [(entry.pod, entry.remembered) for entry in heard.claims] == [("claims", True)]
        assert allocations(heard, GPUS) == allocations(before, GPUS)


def test_a_kubelet_that_was_not_restarted_is_taken_at_its_word() -> None:
    """A pod that the same kubelet lists no longer holds nothing any more."""
    before = view(holding("train", gpu_uuid(0)), claim("claims", "gpu-1"))
    heard = succeed(before, view(), restarted=False)
    assert (heard.holdings, heard.claims) == ((), ())


def test_the_kubelets_word_of_a_pod_replaces_what_was_remembered() -> None:
    """Once the kubelet names the pod, with other devices or with none, nothing else of it is remembered."""
    before = view(holding("train", gpu_uuid(0)), holding("plain", gpu_uuid(1)), claim("plain", "gpu-1"))
    away = succeed(before, view(), restarted=True)
    heard = succeed(away, view(holding("train", MIG_A), others=("plain",)), restarted=False)
    assert heard.holdings == (holding("train", MIG_A),)
    assert heard.claims == ()


def test_what_the_kubelet_repeats_stays_the_same_object() -> None:
    """Each answer has texts of its own. Labels and sums keep some of an earlier one: a further copy."""
    before = view(holding("train", gpu_uuid(0)), holding("ends", gpu_uuid(1)))
    heard = succeed(before, view(holding("new", gpu_uuid(1)), holding("train", gpu_uuid(0))), restarted=False)
    assert [entry.pod for entry in heard.holdings] == ["new", "train"]
    assert heard.holdings[1] is before.holdings[0]
    again = succeed(heard, view(holding("new", gpu_uuid(1)), holding("train", gpu_uuid(0))), restarted=False)
    assert again.pods is heard.pods and again.allocatable is heard.allocatable


def test_a_device_handed_to_somebody_else_is_not_remembered() -> None:
    """Another pod with the same device id proves that the former holder has given it back."""
    away = succeed(view(holding("old", *replicas(0, 0)), holding("kept", *replicas(0, 1))), view(), restarted=True)
    heard = succeed(away, view(holding("new", *replicas(0, 0))), restarted=False)
    assert [(entry.pod, entry.remembered) for entry in heard.holdings] == [("new", False), ("kept", True)]


def test_pods_that_are_gone_are_forgotten() -> None:
    """The API server's live list ends the memory of pods that it lacks; what the kubelet itself lists stays."""
    before = view(holding("gone", gpu_uuid(0)), holding("alive", gpu_uuid(1)), claim("gone", "gpu-1"))
    away = succeed(before, view(holding("new", MIG_A)), restarted=True)
    heard = without_gone(away, {("ml", "alive")})
    assert [entry.pod for entry in heard.holdings] == ["new", "alive"]
    assert heard.claims == ()


# --- sharing ----------------------------------------------------------------------------------------------------------


def test_a_whole_gpu_is_exclusive() -> None:
    """A device offered once, whole, has one holder at a time."""
    assert sharing(view(offers={GPU: (gpu_uuid(0),)}), GPUS, {}) == {leaf(0): (Sharing.EXCLUSIVE, 1)}


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ({}, Sharing.TIME_SLICING),
        ({"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/mps.capable": "true"}, Sharing.TIME_SLICING),
        ({"nvidia.com/gpu.sharing-strategy": "none"}, Sharing.TIME_SLICING),
        (MPS, Sharing.MPS),
        ({"nvidia.com/mps.capable": "true"}, Sharing.MPS),
        ({"cloud.google.com/gke-gpu-sharing-strategy": "mps"}, Sharing.MPS),
        ({"cloud.google.com/gke-gpu-sharing-strategy": "time-sharing"}, Sharing.TIME_SLICING),
        ({"nos.nebuly.com/gpu-partitioning": "mps"}, Sharing.MPS),
    ],
)
def test_replicas_are_time_slices_unless_a_label_says_mps(labels: dict[str, str], told: Sharing) -> None:
    """The ids of both are the same, so the node's labels decide; the strategy's own label before the capability."""
    heard = view(offers={SHARED: replicas(0, 0, 1, 2, 3), GPU: ("nvidia1/vgpu0", "nvidia1/vgpu1")})
    assert sharing(heard, GPUS, labels) == {leaf(0): (told, 4), leaf(1): (told, 2)}


def test_instances_are_mig_with_their_replicas() -> None:
    """A GPU instance is MIG whatever the labels say; its number counts what is offered of it."""
    heard = view(offers={"nvidia.com/mig-3g.40gb.shared": (f"{MIG_A}::0", f"{MIG_A}::1"), GPU: (MIG_B, MIG_C)})
    assert sharing(heard, GPUS, MPS) == {leaf(2, 3): (Sharing.MIG, 2), leaf(2, 9): (Sharing.MIG, 2)}


def test_claimed_devices_are_dras() -> None:
    """What a claim holds, and what the node's slices offer, is shared by DRA's rules."""
    heard = view(claim("train", "gpu-1"))
    uuids = {("gpu.nvidia.com", "node", "gpu-2-mig-1g10gb-19-0"): MIG_B}
    assert sharing(heard, GPUS, {}, uuids=uuids) == {leaf(1): (Sharing.DRA, 1), leaf(2, 9): (Sharing.DRA, 1)}


def test_a_device_that_is_held_but_not_offered_is_known_by_its_ids() -> None:
    """A kubelet that does not report what it offers, or a device that fell ill: the held replicas are a lower bound."""
    silent = replace(view(holding("train", *replicas(0, 1, 3)), holding("whole", gpu_uuid(1))), allocatable=None)
    assert sharing(silent, GPUS, {}) == {leaf(0): (Sharing.TIME_SLICING, 2), leaf(1): (Sharing.EXCLUSIVE, 1)}


def test_a_plugin_that_starts_anew_changes_nothing() -> None:
    """While a resource is not offered, what was offered last stands, also over several answers."""
    before = view(holding("train", *replicas(0, 1)), offers={SHARED: replicas(0, 0, 1, 2, 3), GPU: (gpu_uuid(1),)})
    away = succeed(before, view(offers={GPU: (gpu_uuid(1),)}), restarted=True)
    again = succeed(away, view(offers={}), restarted=False)
    for heard in (away, again):
        assert sharing(heard, GPUS, {}) == sharing(before, GPUS, {})


def test_a_device_that_is_offered_otherwise_now_is_what_it_is_now() -> None:
    """From whole to replicas and back: the present offer counts, not the one of a resource that is offered no more."""
    whole = view(offers={GPU: (gpu_uuid(0),)})
    shared = succeed(whole, view(offers={SHARED: replicas(0, 0, 1)}), restarted=True)
    assert sharing(shared, GPUS, {}) == {leaf(0): (Sharing.TIME_SLICING, 2)}
    assert sharing(succeed(shared, whole, restarted=True), GPUS, {}) == {leaf(0): (Sharing.EXCLUSIVE, 1)}


def test_an_old_whole_holder_among_replicas_does_not_count() -> None:
    """A pod from before the change to replicas still holds the whole device: shared all the same, by the replicas."""
    held = view(holding("old", gpu_uuid(0)), holding("instance", MIG_A))
    heard = replace(held, allocatable={SHARED: replicas(0, 0, 1), GPU: (f"{MIG_A}::0", f"{MIG_A}::1")})
    assert sharing(heard, GPUS, {}) == {leaf(0): (Sharing.TIME_SLICING, 2), leaf(2, 3): (Sharing.MIG, 2)}


def test_nothing_known_says_nothing() -> None:
    """Before the first answer no device has a sharing, and no pod has an allocation."""
    assert sharing(AllocationsView(), GPUS, MPS) == {}
    assert allocations(AllocationsView(), GPUS) == ()
