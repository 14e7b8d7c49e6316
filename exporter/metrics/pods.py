"""
Pods: workload, queue and priority class, to be joined with the series of their containers.

What comes in: the snapshot. What goes out: one series per namespace and pod name, of the newest UID. Only pods that
use a device or have one allocated get a series.
"""

from prometheus_client.core import Metric

from exporter.metrics.family import Families, Kept, Lasting, Row, info, with_rests
from exporter.metrics.labels import NodeLabels
from exporter.model import Pod, Snapshot

INFO = info(
    "pod_info",
    ("namespace", "pod", "pod_uid", "workload_kind", "workload", "queue", "priority_class", "reservation"),
    "The pod and its top controller, queue and priority class; empty if Kubernetes does not report them. reservation "
    "is the sharing system for which the pod only reserves devices, mostly empty. Among pods of one name, the newest. "
    "Always 1, to be joined on node, namespace and pod.",
)

FAMILIES = (INFO,)

_INFO: Kept[Metric] = Kept()


def collect(snapshot: Snapshot) -> Families:
    """Yield `gpusteward_pod_info`."""
    newest = _newest(snapshot)
    basis = (snapshot.node, newest)
    if (described := _INFO.of(basis)) is None:
        labels, rows = NodeLabels(snapshot), list[Row]()
        yield from with_rests(((labels.of(**_description(pod)), 1) for pod in newest), rows)
        described = _INFO.keep(basis, INFO.of(rows, Lasting))
    yield described


def _description(pod: Pod) -> dict[str, str]:
    return {
        "namespace": pod.namespace,
        "pod": pod.name,
        "pod_uid": pod.uid,
        "workload_kind": pod.workload_kind,
        "workload": pod.workload,
        "queue": pod.queue,
        "priority_class": pod.priority_class,
        "reservation": pod.reservation,
    }


def _newest(snapshot: Snapshot) -> list[Pod]:
    concerned = {(held.namespace, held.pod) for held in snapshot.allocations}
    for usage in snapshot.usages:
        if (pod := snapshot.pods.get(usage.subject.pod_uid)) is not None:
            concerned.add((pod.namespace, pod.name))
    newest: dict[tuple[str, str], Pod] = {}
    for pod in sorted(snapshot.pods.values(), key=lambda pod: (pod.created_at, not pod.terminating, pod.uid)):
        if (pod.namespace, pod.name) in concerned:
            newest[pod.namespace, pod.name] = pod
    return list(newest.values())
