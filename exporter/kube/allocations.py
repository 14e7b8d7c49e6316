"""
The devices that the kubelet allocated to containers.

What comes in: the kubelet's lists, with device ids and claims as it writes them. What goes out: allocations of devices,
and how each device is shared.

The rule: **a pod keeps its devices for life.** A restarted kubelet lists no pods until the API server has answered it:
a second, or as long as the API server is away (seen with 1.34). It offers no devices until their plugins have
registered again. No pod loses a device by that. So an allocation from before the restart stays true until one of three
things happens. The kubelet names the pod again, it allocates the device to another pod, or the pod is known to be gone.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from exporter.kube.device_ids import DeviceIndex, ReadIds, read_ids, resolve, resolve_claimed
from exporter.model import Allocation, Claim, DeviceKey, Fault, Gpu, Sharing
from exporter.model.vendors import HUAWEI, INTEL, NVIDIA, DeviceId, vendor_of
from exporter.objects.claim import ClaimedUuids

STRATEGY_LABELS = (
    "nvidia.com/gpu.sharing-strategy",
    "cloud.google.com/gke-gpu-sharing-strategy",
    "nos.nebuly.com/gpu-partitioning",
)
MPS_LABEL = "nvidia.com/mps.capable"

PodName = tuple[str, str]
"""Namespace and name: the kubelet gives no other id of a pod here."""


@dataclass(frozen=True, slots=True)
class Holding:
    """Devices of one resource in one container. The kubelet writes one entry per NUMA node; they are joined here."""

    namespace: str
    pod: str
    container: str
    resource: str
    device_ids: tuple[str, ...]
    remembered: bool = False
    """The kubelet restarted since, and has not named this pod yet."""

    @property
    def pod_name(self) -> PodName:
        """The pod, as the kubelet names it."""
        return self.namespace, self.pod


class ClaimedDevice(NamedTuple):
    """One device of a claim, identified by driver, pool and device name together."""

    driver: str
    pool: str
    device: str


NO_UUIDS: ClaimedUuids = {}


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """
    The devices of a ResourceClaim that a container uses. Several containers and pods may use one claim.

    `claim` is its name in the pod's namespace.
    """

    namespace: str
    pod: str
    container: str
    devices: tuple[ClaimedDevice, ...]
    remembered: bool = False
    claim: str = ""

    @property
    def pod_name(self) -> PodName:
        """The pod, as the kubelet names it."""
        return self.namespace, self.pod


@dataclass(frozen=True, slots=True)
class AllocationsView:
    """
    The kubelet's last answer.

    Attributes:
        pods: names of all pods that the kubelet listed, with devices or without.
        listed_twice: names of two listed pods: two generations, whose entries cannot be separated here.
        api: the version of the pod-resources API that answered.
        allocatable: resource to the ids of its healthy devices; None from kubelets without this list (before 1.23).
        offered_before: the same of resources that were offered once and are not now: their plugin restarts, too.
        known: False until the kubelet answered once.
        live: the last request was answered; otherwise `faults` has the reason, and all else is the last answer.

    """

    pods: frozenset[PodName] = frozenset()
    listed_twice: frozenset[PodName] = frozenset()
    holdings: tuple[Holding, ...] = ()
    claims: tuple[HeldClaim, ...] = ()
    api: str = "v1"
    allocatable: Mapping[str, tuple[str, ...]] | None = None
    offered_before: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    known: bool = False
    live: bool = False
    faults: tuple[Fault, ...] = field(default=())


def succeed(before: AllocationsView, fresh: AllocationsView, *, restarted: bool) -> AllocationsView:
    """
    Complete a fresh list with the parts of the last view that are still true.

    `restarted` says that the kubelet is, or may be, another process than the one that answered before. What did not
    change stays the same object: labels, limits and sums keep the texts that they first saw, 1 kB per pod and copy.
    """
    handed_out = {text for holding in fresh.holdings for text in holding.device_ids}
    offers, offered = fresh.allocatable or {}, {**before.offered_before, **(before.allocatable or {})}

    def stays(entry: Holding | HeldClaim) -> bool:
        return (restarted or entry.remembered) and entry.pod_name not in fresh.pods

    same = {held: held for held in before.holdings}
    holdings = (held for held in before.holdings if stays(held) and handed_out.isdisjoint(held.device_ids))
    claims = (claim for claim in before.claims if stays(claim))
    return replace(
        fresh,
        pods=before.pods if before.pods == fresh.pods else fresh.pods,
        allocatable=before.allocatable if before.allocatable == fresh.allocatable else fresh.allocatable,
        offered_before={resource: ids for resource, ids in offered.items() if resource not in offers},
        holdings=(
            *(same.get(holding, holding) for holding in fresh.holdings),
            *(replace(holding, remembered=True) for holding in holdings),
        ),
        claims=(*fresh.claims, *(replace(claim, remembered=True) for claim in claims)),
    )


def without_gone(view: AllocationsView, living: Collection[PodName]) -> AllocationsView:
    """Forget remembered entries of pods that are not among `living`, the pods that the API server has on this node."""
    return replace(
        view,
        holdings=tuple(held for held in view.holdings if not held.remembered or held.pod_name in living),
        claims=tuple(claim for claim in view.claims if not claim.remembered or claim.pod_name in living),
    )


def without_watched(view: AllocationsView, claims: Iterable[Claim]) -> AllocationsView:
    """Leave out the devices that a claim only monitors: the kubelet lists them as any other."""
    watched: set[tuple[str, str, str, str, str]] = set()
    for claim in claims:
        theirs, seen = ({(at.driver, at.pool, at.device) for at in of} for of in (claim.devices, claim.watched))
        watched |= {(claim.namespace, claim.name, *at) for at in seen - theirs}
    if not watched:
        return view
    return replace(
        view,
        claims=tuple(
            replace(held, devices=tuple(at for at in held.devices if (held.namespace, held.claim, *at) not in watched))
            for held in view.claims
        ),
    )


def allocations(
    view: AllocationsView,
    gpus: Sequence[Gpu],
    *,
    uuids: ClaimedUuids = NO_UUIDS,
    finished: Collection[PodName] = (),
    ascend_real: Iterable[tuple[PodName, str]] = (),
    read: ReadIds = read_ids,
) -> tuple[Allocation, ...]:
    """
    List the number of replicas of each device that each container was allocated.

    Args:
        view: the kubelet's last answer.
        gpus: the GPUs of the latest sample; ids that mean none of them are left out.
        uuids: the UUIDs of claimed devices in the ResourceSlices of this node.
        finished: pods that have ended. Kubelets before 1.34 still list them when their devices may be another pod's.
        ascend_real: pods with the text of their annotation `huawei.com/AscendReal`.
        read: reads lists of ids; `RememberedIds` reads each list once.

    Returns:
        One entry per container, resource and device, in the order of the list. The resource of a claim is the name of
        its driver. Names that two listed pods share are left out: their entries cannot be separated.

    """
    unclear = {*finished, *view.listed_twice}
    replicas: Counter[tuple[str, str, str, str, DeviceKey]] = Counter()
    index = DeviceIndex.of(gpus)
    for holder, resource, device, count in _handed_out(view, index, uuids, ascend_real, read):
        if device is not None and holder.pod_name not in unclear:
            replicas[holder.namespace, holder.pod, holder.container, resource, device] += count
    return tuple(Allocation(*key, replicas=count) for key, count in replicas.items())


def _handed_out(
    view: AllocationsView,
    index: DeviceIndex,
    uuids: ClaimedUuids,
    ascend_real: Iterable[tuple[PodName, str]],
    read: ReadIds,
) -> Iterator[tuple[Holding | HeldClaim, str, DeviceKey | None, int]]:
    for holding in view.holdings:
        for same in read(holding.resource, holding.device_ids):
            yield holding, holding.resource, resolve(same.meant, index), same.texts
    for pod, annotation in ascend_real:
        for holding, device in _ascend(view, pod, annotation, index):
            yield holding, holding.resource, device, 1
    for claim in view.claims:
        for claimed in claim.devices:
            device = resolve_claimed(claimed.driver, claimed.device, uuids.get(claimed), index)
            yield claim, claimed.driver, device, 1


def _ascend(
    view: AllocationsView, pod: PodName, annotation: str, index: DeviceIndex
) -> Iterator[tuple[Holding, DeviceKey | None]]:
    """
    List the NPUs that a pod really got: for its one container that holds any, as many as the kubelet counts.

    Of one NPU the kubelet may count many shares (`Ascend910-6-0`, one for each percent of a soft share), or AI cores.
    Under Volcano the kubelet's ids are placeholders, and the plugin writes the real devices into an annotation of the
    pod. An annotation that a user wrote must at least name the same number of devices. It gives the pod no other pod's
    memory, which is attributed by process.
    """
    held = [holding for holding in view.holdings if holding.pod_name == pod and vendor_of(holding.resource) is HUAWEI]
    texts = annotation.split(",")
    if len(held) == 1 and len(texts) == len({HUAWEI.annotated_id(each) for each in held[0].device_ids}):
        for text in texts:
            yield held[0], resolve(HUAWEI.annotated_id(text), index)


def sharing(
    view: AllocationsView,
    gpus: Sequence[Gpu],
    labels: Mapping[str, str],
    *,
    uuids: ClaimedUuids = NO_UUIDS,
    read: ReadIds = read_ids,
) -> Mapping[DeviceKey, tuple[Sharing, int]]:
    """
    List how each device is shared, and into how many replicas, as far as Kubernetes says.

    A device offered whole is exclusive. Replicas are those of time-slicing, unless the node's `labels` say MPS: the ids
    are the same. These labels are NVIDIA's plugins', and apply to NVIDIA's GPUs; no other vendor has MPS. A GPU
    instance is MIG with or without replicas (the count shows it), a claimed device is DRA's. Allocated ids count like
    offered ones, because an unhealthy device is no longer offered. If nothing else is known (a kubelet without the list
    of offered devices) their number is a lower bound.
    """
    index = DeviceIndex.of(gpus)
    offered = _ids((view.allocatable or {}).items(), index, read)
    before = _ids(view.offered_before.items(), index, read)
    held = _ids(((holding.resource, holding.device_ids) for holding in view.holdings), index, read)
    for device in (before.keys() | held.keys()) - offered.keys():
        offered[device] = before[device]
    for device, ids in held.items():
        offered[device] |= ids
    by_mps = {gpu.uuid for gpu in gpus if gpu.vendor == NVIDIA.name} if _mps(labels) else set()
    shared: dict[DeviceKey, tuple[Sharing, int]] = {}
    for device, parsed_ids in offered.items():
        # Whole and in replicas: the plugin was reconfigured in between. The whole device belongs to an old pod.
        replicas = [parsed for parsed in parsed_ids if parsed.replica is not None]
        if device.gpu_instance is not None:
            shared[device] = (Sharing.MIG, len(replicas) or len(parsed_ids))
        elif replicas == [parsed for parsed in parsed_ids if parsed.vendor == INTEL.name] and len(replicas) == 1:
            shared[device] = (Sharing.EXCLUSIVE, 1)  # Intel's plugin numbers the shares of each GPU, even a single one
        elif replicas:
            shared[device] = (Sharing.MPS if device.uuid in by_mps else Sharing.TIME_SLICING, len(replicas))
        else:
            shared[device] = (Sharing.EXCLUSIVE, 1)
    for driver, pool, name in {*uuids, *(claimed for claim in view.claims for claimed in claim.devices)}:
        if key := resolve_claimed(driver, name, uuids.get((driver, pool, name)), index):
            shared[key] = (Sharing.DRA, 1)
    return shared


def _ids(
    offers: Iterable[tuple[str, tuple[str, ...]]], index: DeviceIndex, read: ReadIds
) -> defaultdict[DeviceKey, set[DeviceId]]:
    by_device: defaultdict[DeviceKey, set[DeviceId]] = defaultdict(set)
    for resource, ids in offers:
        for same in read(resource, ids):
            if device := resolve(same.meant, index):
                by_device[device] |= same.ids
    return by_device


def _mps(labels: Mapping[str, str]) -> bool:
    strategies = {labels[name] for name in STRATEGY_LABELS if name in labels}
    return "mps" in strategies if strategies else labels.get(MPS_LABEL) == "true"
