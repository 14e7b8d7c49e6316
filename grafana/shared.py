"""Panels that several boards show, word for word: what is meant by "over limit" does not depend on where one looks."""

from grafana import expressions as e
from grafana.panels import ALARM, Column, Query, stat, table
from grafana.places import NAMESPACE, NODE, POD

OVER = stat(
    "Over limit now",
    "Containers, pods and shared claims that hold more than their declared limit, tolerance not counted. "
    "Nothing is shown where nobody declared one.",
    "short",
    Query(e.OVER),
    steps=ALARM,
)
WHO_IS_OVER = table(
    "Over limit now",
    "Who holds more than declared, and how much more. Without a container it is the pod's limit, "
    "without a pod a shared claim's.",
    ("node", "namespace", "pod", "container", "claim", "gpu", "gpu_instance", "uuid"),
    Column("Excess", e.EXCESS, "bytes"),
    links={"pod": POD, "namespace": NAMESPACE, "node": NODE},
    width=12,
)
IDLE = stat(
    "Idle allocations",
    "Containers that the kubelet handed a GPU, and that have no process on it. Of GPUs that do not answer nothing "
    "is said.",
    "short",
    Query(e.IDLE_COUNT),
    steps=ALARM,
)
PODS = stat("Pods on GPUs", "Pods that hold GPU memory, or were handed a GPU.", "short", Query(e.PODS))
UNATTRIBUTED = stat(
    "Unattributed",
    "Used memory that nobody explains: neither a container, nor a dead process, nor one of the host.",
    "bytes",
    Query(e.UNATTRIBUTED),
)
