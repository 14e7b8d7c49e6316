"""The cluster board: total, used and declared GPU memory, exceeded limits, idle allocations."""

from grafana import expressions as e
from grafana import shared
from grafana.documents import Board
from grafana.kinds import ALARM, CAPACITY, FULL, LIMIT, lines, stat, table
from grafana.panels import Row
from grafana.places import CLUSTER, NAMESPACE, NODE

BOARD = Board(
    CLUSTER,
    "The GPUs of all chosen nodes: memory, usage and limits; pods over their limit; allocated GPUs that are idle.",
    (
        stat("GPUs").about("Physical GPUs that the drivers list.").query(e.GPUS),
        stat("GPUs that do not answer", steps=ALARM)
        .about("GPUs that the driver lists, and that gave no answer in the last round.")
        .query("sum(gpusteward_gpu_up == bool 0)"),
        stat("Memory", "bytes").about("Memory of all GPUs that answer.").query(e.TOTAL),
        stat("Used", "bytes").about("Memory in use by any process.").query(e.USED),
        stat("Declared", "bytes").about("Sum of all declared limits. Each declaration counts once.").query(e.DECLARED),
        stat("Over-committed devices", steps=ALARM)
        .about("Devices whose limits add up to more than can be allocated. Memory that the driver reserves cannot")
        .about("be allocated.")
        .query(e.OVERCOMMITTED),
        shared.OVER,
        shared.IDLE,
        shared.UNATTRIBUTED,
        stat("Limits that do not hold", steps=ALARM)
        .about("Limits that the sharing system should enforce, and that are exceeded.")
        .query("sum(gpusteward_container_limit_bypassed)"),
        stat("Utilization", "percentunit")
        .about("Average share of time in which a kernel ran on a device.")
        .query("avg(gpusteward_device_utilization_ratio)"),
        shared.PODS,
        lines("Memory", "bytes")
        .about("Usage, declared limits and capacity of all chosen nodes.")
        .query(e.USED, "used")
        .query(e.DECLARED, "declared", LIMIT)
        .query(e.TOTAL, "total", CAPACITY),
        lines("Utilization by node", "percentunit", top=1)
        .about("Average share of time in which a kernel ran on the node's devices.")
        .query("avg by (node) (gpusteward_device_utilization_ratio)", "{{node}}", to=NODE),
        table("Nodes", "node")
        .about("GPUs and memory of each node. Used % covers the devices whose usage is known. Click a node to")
        .about("open it.")
        .column("Used", e.by("node", e.USED), "bytes")
        .column("Memory", e.by("node", e.TOTAL), "bytes")
        .column("Used %", e.by("node", e.USED_SHARE), "percentunit", FULL)
        .column("Declared", e.by("node", e.DECLARED), "bytes")
        .column("Unattributed", e.by("node", e.UNATTRIBUTED), "bytes")
        .column("GPUs", "count by (node) (gpusteward_gpu_up)", "short"),
        Row("Namespaces"),
        table("Namespaces", "namespace", width=12)
        .about("Usage of each namespace. The share covers only containers and pods with a limit. Click a")
        .about("namespace to open it.")
        .column("Used", e.by("namespace", e.CONTAINERS_USED), "bytes")
        .column("Limit", e.by("namespace", e.LIMIT), "bytes")
        .column("Used % of limit", e.by("namespace", e.LIMITED_SHARE), "percentunit", FULL)
        .column("Over limit", e.by("namespace", e.OVER), "short", ALARM)
        .column("Pods", "count by (namespace) (gpusteward_pod_info)", "short"),
        lines("Memory by namespace", "bytes", stacked=True)
        .about("Memory that the namespace's containers hold at least. Unknown usage is not included.")
        .query(e.by("namespace", e.CONTAINERS_USED), "{{namespace}}", to=NAMESPACE),
        Row("Needs attention"),
        shared.WHO_IS_OVER,
        table("Idle allocations", "node, namespace, pod, container, gpu, gpu_instance, resource, uuid", width=12)
        .about("Containers that have a GPU, and no process on it, or processes that do not use its SMs.")
        .column("Replicas", e.IDLE, "short"),
    ),
)
