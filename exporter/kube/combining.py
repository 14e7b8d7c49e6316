"""
Joins the parts of an inventory.

What comes in: pods and containers of the API server, the node's log links, the kubelet's allocations. What goes out:
one inventory.

The rule: a missing part does not affect the others. A live part is believed; the others fill the gaps.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from exporter.kube.allocations import NO_UUIDS, AllocationsView, PodName, allocations, sharing, without_watched
from exporter.kube.device_ids import ReadIds, read_ids
from exporter.kube.pods import KnownPod
from exporter.model import Container, Gpu, Inventory, PodUid
from exporter.model.vendors import HUAWEI
from exporter.objects.claim import ClaimedUuids


def combine(
    names: Inventory,
    view: AllocationsView,
    gpus: Sequence[Gpu],
    labels: Mapping[str, str],
    *,
    finished: Collection[PodName] = (),
    uuids: ClaimedUuids = NO_UUIDS,
    read: ReadIds = read_ids,
) -> Inventory:
    """
    Add to the names the kubelet's allocations of these GPUs; the faults of both stay.

    `labels` are the node's, `finished` the names of pods whose devices are free again (`finished_names`). `known` and
    `live` of the inventory describe the names only: an allocation that is not live has its own fault.
    """
    view = without_watched(view, names.claims)
    return replace(
        names,
        allocations=allocations(
            view,
            gpus,
            uuids=uuids,
            finished=finished,
            ascend_real=_annotations(names, HUAWEI.annotation).items(),
            read=read,
        ),
        sharing=sharing(view, gpus, labels, uuids=uuids, read=read),
        faults=(*names.faults, *view.faults),
    )


def _annotations(names: Inventory, key: str) -> dict[PodName, str]:
    """Return the annotation of each pod that has it. Where two generations of a name disagree, neither counts."""
    by_name: dict[PodName, set[str]] = {}
    for pod in names.pods.values():
        if not pod.terminating and key in pod.annotations:
            by_name.setdefault((pod.namespace, pod.name), set()).add(pod.annotations[key])
    return {name: next(iter(texts)) for name, texts in by_name.items() if len(texts) == 1}


def finished_names(pods: Iterable[KnownPod]) -> frozenset[PodName]:
    """Name the pods that have ended, unless another pod of that name goes on."""
    running: set[PodName] = set()
    over: set[PodName] = set()
    for known in pods:
        (over if known.finished else running).add((known.pod.namespace, known.pod.name))
    return frozenset(over - running)


def fill_in(names: Inventory, remembered: Inventory) -> Inventory:
    """
    Add the node's own memory to names that are not live: pods and containers that came since.

    A static pod is remembered by the hash in its cgroup, while the API has another UID for it. The present generation
    of each container stays the last one.
    """
    uids = {pod.config_hash: uid for uid, pod in names.pods.items() if pod.config_hash}
    kinds = {(container.pod_uid, container.name): container.kind for container in names.containers}
    known = {container.id for container in names.containers}
    generations: dict[tuple[PodUid, str], list[Container]] = {}
    for container in remembered.containers:
        if container.id is not None:
            uid = uids.get(container.pod_uid, container.pod_uid)
            kind = kinds.get((uid, container.name), container.kind)  # the links do not say
            generations.setdefault((uid, container.name), []).append(replace(container, pod_uid=uid, kind=kind))
    older: list[Container] = []
    newer: list[Container] = []
    for ordered in generations.values():
        last = max((place for place, container in enumerate(ordered) if container.id in known), default=-1)
        older += (container for container in ordered[: last + 1] if container.id not in known)
        newer += ordered[last + 1 :]
    pods = {uid: pod for uid, pod in remembered.pods.items() if uid not in uids}
    return replace(
        names,
        pods={**pods, **names.pods},
        containers=(*older, *names.containers, *newer),
        known=names.known or remembered.known,
    )
