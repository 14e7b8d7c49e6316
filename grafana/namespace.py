"""The namespace board: usage against the declared limits, per container, claim and workload."""

from grafana import expressions as e
from grafana import shared
from grafana.documents import Board
from grafana.kinds import FULL, LIMIT, lines, stat, table
from grafana.panels import Row
from grafana.places import NAMESPACE, POD

BOARD = Board(
    NAMESPACE,
    "One namespace: GPU memory used, declared and in percent, for each container; shared claims; who exceeds.",
    (
        stat("Used", "bytes")
        .about("At least so much GPU memory is held by the namespace's containers.")
        .query(e.CONTAINERS_USED),
        stat("Limit", "bytes").about("Sum of the limits that its containers and pods declared.").query(e.LIMIT),
        stat("Used % of limit", "percentunit", FULL)
        .about("Of those containers and pods that declared a limit and whose use is known.")
        .query(e.LIMITED_SHARE),
        shared.OVER,
        shared.PODS,
        shared.IDLE,
        lines("Memory by pod", "bytes", stacked=True)
        .about("What each pod holds, and the sum of the limits.")
        .query(e.by("namespace, pod", e.CONTAINERS_USED), "{{pod}}", to=POD)
        .query(e.LIMIT, "sum of limits", LIMIT),
        lines("SM by pod", "percentunit")
        .about("Share of the SMs, summed over the pod's GPUs: two GPUs in full use are 200 %.")
        .query(e.by("namespace, pod", e.CONTAINERS_SM), "{{pod}}", to=POD),
        table("GPU memory quota", "pod, container, namespace, node, gpu, gpu_instance, uuid", height=10)
        .about("Each container on each device, with the limit that counts.")
        .about("Without a container it is the limit of the whole pod, and what its containers hold together.")
        .about("A click leads to the pod.")
        .column("Used", e.QUOTA_USED, "bytes")
        .column("Limit", e.by("<container>", e.LIMIT), "bytes")
        .column("Used % of limit", e.QUOTA_SHARE, "percentunit", FULL)
        .column("Peak", e.PEAK_BY_CONTAINER, "bytes")
        .column("SM", e.by("<container>", e.CONTAINERS_SM), "percentunit")
        .column("Replicas", "sum by (<container>) (gpusteward_container_allocated_replicas)", "short"),
        Row("More"),
        table("Shared claims", "claim, namespace, node, gpu, gpu_instance, uuid", width=12)
        .about("ResourceClaims with a limit, and what all who share them hold together.")
        .column("Used", "sum by (<claim>) (gpusteward_claim_memory_used_bytes)", "bytes")
        .column("Limit", "sum by (<claim>) (gpusteward_claim_memory_limit_bytes)", "bytes")
        .column("Used % of limit", e.CLAIM_SHARE, "percentunit", FULL),
        table("Workloads", "pod, workload_kind, workload, queue, priority_class, namespace, node", width=12)
        .about("Who the pods belong to.")
        .column("Info", e.POD_INFO),
    ),
)
