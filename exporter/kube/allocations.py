"""
What the kubelet handed to whom, in its own words, and in ours.

What comes in: the kubelet's lists, with device ids and claims as it writes them. What goes out: allocations of leaf
devices, and how each of them is shared.

The law: **a pod keeps its devices for life.** A kubelet that starts anew lists no pods until the API server has
answered it (a second, or as long as the API server is away: seen with 1.34), and offers no devices until their plugins
have registered again. Nobody lost anything by that. So what a pod was handed before the kubelet went away stays true
until the kubelet names the pod again, hands the device to somebody else, or the pod is known to be gone.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from exporter.kube.device_ids import DeviceId, Leaves, parse_of, resolve, resolve_claimed
from exporter.kube.kernel_ids import INTEL
from exporter.kube.vendor_ids import VENDORS, parse_ascend
from exporter.model import Allocation, DeviceKey, Fault, Gpu, Sharing

STRATEGY_LABELS = ("nvidia.com/gpu.sharing-strategy", "cloud.google.com/gke-gpu-sharing-strategy")
MPS_LABEL = "nvidia.com/mps.capable"
NVIDIA = "nvidia"

PodName = tuple[str, str]
"""Namespace and name: all that the kubelet says of a pod here."""
ClaimedUuids = Mapping[tuple[str, str, str], str]
"""(driver, pool, device) to the UUID that the ResourceSlice tells."""


@dataclass(frozen=True, slots=True)
class Holding:
    """Devices of one resource in one container. The kubelet writes one entry per NUMA node; they are put together."""

    namespace: str
    pod: str
    container: str
    resource: str
    device_ids: tuple[str, ...]
    remembered: bool = False
    """The kubelet started anew since, and has not named this pod yet."""


@dataclass(frozen=True, slots=True)
class ClaimedDevice:
    """One device of a claim. Driver, pool and device name it together; `share_id` where several claims share it."""

    driver: str
    pool: str
    device: str
    share_id: str | None = None


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """A ResourceClaim that a container uses, with its devices. Several containers and pods may use one claim."""

    namespace: str
    pod: str
    container: str
    claim_namespace: str
    claim: str
    devices: tuple[ClaimedDevice, ...]
    remembered: bool = False


@dataclass(frozen=True, slots=True)
class AllocationsView:
    """
    The kubelet's word as last heard.

    Attributes:
        pods: names of all pods that the kubelet listed, with devices or without.
        listed_twice: names under which the kubelet listed two pods: two generations, which nothing here tells apart.
        api: the version of the pod-resources API that answered.
        allocatable: resource to the ids of its healthy devices; None from kubelets that cannot tell (before 1.23).
        offered_before: the same of resources that were offered once and are not now: their plugin starts anew, too.
        known: False until the kubelet answered once.
        live: the last question was answered; otherwise `faults` says why not, and all else is what was last heard.

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
    Complete a fresh list by what is still true of the last view.

    `restarted` says that the kubelet is, or may be, another process than the one that answered before.
    """
    handed_out = {device_id for holding in fresh.holdings for device_id in holding.device_ids}
    offers, offered = fresh.allocatable or {}, {**before.offered_before, **(before.allocatable or {})}
    return replace(
        fresh,
        offered_before={resource: ids for resource, ids in offered.items() if resource not in offers},
        holdings=fresh.holdings
        + tuple(
            replace(holding, remembered=True)
            for holding in before.holdings
            if (restarted or holding.remembered)
            and (holding.namespace, holding.pod) not in fresh.pods
            and handed_out.isdisjoint(holding.device_ids)
        ),
        claims=fresh.claims
        + tuple(
            replace(claim, remembered=True)
            for claim in before.claims
            if (restarted or claim.remembered) and (claim.namespace, claim.pod) not in fresh.pods
        ),
    )


def without_gone(view: AllocationsView, living: Collection[PodName]) -> AllocationsView:
    """Forget what is remembered of pods that are not among `living`, the pods that the API server knows here now."""
    return replace(
        view,
        holdings=tuple(h for h in view.holdings if not h.remembered or (h.namespace, h.pod) in living),
        claims=tuple(c for c in view.claims if not c.remembered or (c.namespace, c.pod) in living),
    )


def allocations(
    view: AllocationsView,
    gpus: Sequence[Gpu],
    *,
    uuids: ClaimedUuids | None = None,
    finished: Collection[PodName] = (),
    ascend_real: Mapping[PodName, str] | None = None,
) -> tuple[Allocation, ...]:
    """
    Say which container was handed how many replicas of which leaf device.

    Args:
        view: the kubelet's word.
        gpus: the GPUs of the latest sample; ids that mean none of them are left out.
        uuids: what the ResourceSlices of this node tell of claimed devices.
        finished: pods that have ended. Kubelets before 1.34 list them on, when their devices may be somebody else's.
        ascend_real: text of the annotation `huawei.com/AscendReal` by pod.

    Returns:
        One entry per container, resource and leaf device, in the order of the list; for claims the resource is the
        name of the driver. Names that two listed pods share are left out: whose entry is whose cannot be said.

    """
    leaves = Leaves.of(gpus)
    replicas: defaultdict[tuple[str, str, str, str, DeviceKey], int] = defaultdict(int)
    unclear = {*finished, *view.listed_twice}
    for holding in view.holdings:
        if (holding.namespace, holding.pod) in unclear:
            continue
        for device_id in dict.fromkeys(holding.device_ids):
            if device := resolve(parse_of(holding.resource, device_id), leaves):
                replicas[holding.namespace, holding.pod, holding.container, holding.resource, device] += 1
    for name, text in (ascend_real or {}).items():
        if name not in unclear:
            for holding, device in _ascend(view, name, text, leaves):
                replicas[holding.namespace, holding.pod, holding.container, holding.resource, device] += 1
    for claim in view.claims:
        if (claim.namespace, claim.pod) in unclear:
            continue
        for claimed in claim.devices:
            if device := _resolve_claimed(claimed, leaves, uuids):
                replicas[claim.namespace, claim.pod, claim.container, claimed.driver, device] += 1
    return tuple(Allocation(*key, replicas=count) for key, count in replicas.items())


def _ascend(view: AllocationsView, name: PodName, text: str, leaves: Leaves) -> list[tuple[Holding, DeviceKey]]:
    """
    Say which NPUs a pod really got: its one container that holds any, as many as the kubelet counts.

    Under Volcano the kubelet's ids are stand-ins, and the plugin writes what it really gave into an annotation of the
    pod. One that a user wrote himself must at least be about as many devices; and it gives him nobody's memory, which
    is attributed by process.
    """
    held = [
        holding
        for holding in view.holdings
        if (holding.namespace, holding.pod) == name and VENDORS.get(holding.resource.partition("/")[0]) == "huawei"
    ]
    devices = [parse_ascend(device) for device in text.split(",")]
    if len(held) != 1 or len(devices) != len(set(held[0].device_ids)):
        return []
    found = []
    for device in devices:
        if device is None:
            continue
        meant = DeviceId(minor=device.physical, gpu_instance=device.vdev, vendor="huawei")
        if key := resolve(meant, leaves):
            found.append((held[0], key))
    return found


def sharing(
    view: AllocationsView,
    gpus: Sequence[Gpu],
    labels: Mapping[str, str],
    *,
    uuids: ClaimedUuids | None = None,
) -> Mapping[DeviceKey, tuple[Sharing, int]]:
    """
    Say how each leaf device is shared, and into how many replicas, as far as Kubernetes tells.

    A device offered whole is exclusive. Replicas are those of time-slicing, unless the node's `labels` say MPS: the ids
    are the same. These labels are of NVIDIA's plugins and speak of NVIDIA's GPUs; no other vendor has MPS. A GPU
    instance is MIG with or without replicas (the count tells), a claimed device is DRA's. Ids that are held count like
    those that are offered, because an unhealthy device is offered no longer; where nothing else is known (a kubelet
    that cannot tell what it offers) their number is a lower bound.
    """
    leaves = Leaves.of(gpus)
    offered = _ids((view.allocatable or {}).items(), leaves)
    before = _ids(view.offered_before.items(), leaves)
    held = _ids(((holding.resource, holding.device_ids) for holding in view.holdings), leaves)
    for device in (before.keys() | held.keys()) - offered.keys():
        offered[device] = before[device]
    for device, ids in held.items():
        offered[device] |= ids
    by_mps = {gpu.uuid for gpu in gpus if gpu.vendor == NVIDIA} if _mps(labels) else set()
    found: dict[DeviceKey, tuple[Sharing, int]] = {}
    for device, parsed_ids in offered.items():
        # Whole and in replicas: the plugin was set up anew in between. What is whole is an old pod's.
        replicas = [parsed for parsed in parsed_ids if parsed.replica is not None]
        if device.gpu_instance is not None:
            found[device] = (Sharing.MIG, len(replicas) or len(parsed_ids))
        elif replicas == [parsed for parsed in parsed_ids if parsed.vendor == INTEL] and len(replicas) == 1:
            found[device] = (Sharing.EXCLUSIVE, 1)  # Intel's plugin numbers the shares of each GPU, be it one
        elif replicas:
            found[device] = (Sharing.MPS if device.uuid in by_mps else Sharing.TIME_SLICING, len(replicas))
        else:
            found[device] = (Sharing.EXCLUSIVE, 1)
    for claim in view.claims:
        for claimed in claim.devices:
            if key := _resolve_claimed(claimed, leaves, uuids):
                found[key] = (Sharing.DRA, 1)
    for (driver, _, name), uuid in (uuids or {}).items():
        if key := resolve_claimed(driver, name, uuid, leaves):
            found[key] = (Sharing.DRA, 1)
    return found


def _ids(offers: Iterable[tuple[str, tuple[str, ...]]], leaves: Leaves) -> defaultdict[DeviceKey, set[DeviceId]]:
    found: defaultdict[DeviceKey, set[DeviceId]] = defaultdict(set)
    for resource, ids in offers:
        for device_id in ids:
            parsed = parse_of(resource, device_id)
            if parsed is not None and (device := resolve(parsed, leaves)):
                found[device].add(parsed)
    return found


def _resolve_claimed(claimed: ClaimedDevice, leaves: Leaves, uuids: ClaimedUuids | None) -> DeviceKey | None:
    uuid = (uuids or {}).get((claimed.driver, claimed.pool, claimed.device))
    return resolve_claimed(claimed.driver, claimed.device, uuid, leaves)


def _mps(labels: Mapping[str, str]) -> bool:
    told = {labels[name] for name in STRATEGY_LABELS if name in labels}
    return "mps" in told if told else labels.get(MPS_LABEL) == "true"
