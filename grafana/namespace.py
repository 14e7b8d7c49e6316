"""The namespace board: usage against the declared limits, per container, claim and workload."""

from grafana import expressions as e
from grafana import shared
from grafana.documents import Board
from grafana.kinds import FULL, LIMIT, lines, stat, table
from grafana.panels import Row
from grafana.places import NAMESPACE, POD

BOARD = Board(
    NAMESPACE,
    "One namespace: GPU memory usage and limit of each container; shared claims; containers over their limit.",
    (
        stat("Used", "bytes")
        .about("GPU memory that the namespace's containers hold at least.")
        .query(e.CONTAINERS_USED),
        stat("Limit", "bytes").about("Sum of the limits of its containers and pods.").query(e.LIMIT),
        stat("Used % of limit", "percentunit", FULL)
        .about("For containers and pods with a limit and known usage.")
        .query(e.LIMITED_SHARE),
        shared.OVER,
        shared.PODS,
        shared.IDLE,
        lines("Memory by pod", "bytes", stacked=True)
        .about("Usage of each pod, and the sum of the limits.")
        .query(e.by("namespace, pod", e.CONTAINERS_USED), "{{pod}}", to=POD)
        .query(e.LIMIT, "sum of limits", LIMIT),
        lines("SM by pod", "percentunit")
        .about("Share of the SMs, summed over the pod's GPUs. Two GPUs in full use are 200 %.")
        .query(e.by("namespace, pod", e.CONTAINERS_SM), "{{pod}}", to=POD),
        table("GPU memory quota", "pod, container, namespace, node, gpu, gpu_instance, uuid", height=10)
        .about("Each container on each device, with its limit. Without a container, the row is the limit and")
        .about("usage of the whole pod. Click a pod to open it.")
        .column("Used", e.QUOTA_USED, "bytes")
        .column("Limit", e.by("<container>", e.LIMIT), "bytes")
        .column("Used % of limit", e.QUOTA_SHARE, "percentunit", FULL)
        .column("Peak", e.PEAK_BY_CONTAINER, "bytes")
        .column("SM", e.by("<container>", e.CONTAINERS_SM), "percentunit")
        .column("Declared SM", "max by (<container>) (gpusteward_container_compute_limit_ratio)", "percentunit")
        .column("Replicas", "sum by (<container>) (gpusteward_container_allocated_replicas)", "short"),
        Row("More"),
        table("Shared claims", "claim, namespace, node, gpu, gpu_instance, uuid", width=12)
        .about("ResourceClaims with a limit, and the usage of all pods that share them.")
        .column("Used", "sum by (<claim>) (gpusteward_claim_memory_used_bytes)", "bytes")
        .column("Limit", "sum by (<claim>) (gpusteward_claim_memory_limit_bytes)", "bytes")
        .column("Used % of limit", e.CLAIM_SHARE, "percentunit", FULL),
        table("Workloads", "pod, workload_kind, workload, queue, priority_class, namespace, node", width=12)
        .about("Top controller of each pod.")
        .column("Info", e.POD_INFO),
    ),
)
