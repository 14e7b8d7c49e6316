"""The cluster board: GPUs allocated and free, their memory, exceeded limits, idle allocations."""

from grafana import expressions as e
from grafana import shared
from grafana.documents import Board
from grafana.kinds import ALARM, CAPACITY, FULL, LIMIT, POINTS, STEP, heat_map, lines, stat, table
from grafana.panels import Row
from grafana.places import CLUSTER, NAMESPACE, NODE

BOARD = Board(
    CLUSTER,
    "The GPUs of all chosen nodes: allocated and free; memory, usage and limits; pods over their limit; idle GPUs.",
    (
        stat("GPUs").about("Physical GPUs that the drivers list.").query(e.GPUS),
        stat("Allocated GPUs")
        .about("Average of five minutes. One of four replicas is a quarter; a MIG instance counts by its memory.")
        .query(e.GPUS_ALLOCATED),
        stat("Free GPUs")
        .about("GPUs that answer, and parts of them, that are allocated to no container.")
        .query(e.GPUS_FREE),
        shared.IDLE,
        shared.OVER,
        stat("GPUs that do not answer", steps=ALARM)
        .about("GPUs that the driver lists, and that gave no answer in the last round.")
        .query("sum(gpusteward_gpu_up == bool 0)"),
        table("GPUs by model", "model", width=12)
        .about("GPUs, and what of them is allocated or free: averages of five minutes.")
        .column("Free", e.MODEL_FREE, "short")
        .column("Allocated", e.by("model", e.GPUS_ALLOCATED), "short")
        .column("Used", e.by("model", e.GPUS_USED), "short")
        .column("GPUs", e.MODEL_GPUS, "short"),
        table("GPUs by namespace", "namespace", width=12)
        .about("GPUs allocated to each namespace, and what of them is used or idle. Click a namespace to open it.")
        .column("Allocated", e.by("namespace", e.GPUS_ALLOCATED), "short")
        .column("Used", e.by("namespace", e.GPUS_USED), "short")
        .column("Idle", e.by("namespace", e.GPUS_IDLE), "short"),
        stat("Memory", "bytes").about("Memory of all GPUs that answer.").query(e.TOTAL),
        stat("Used", "bytes").about("Memory in use by any process.").query(e.USED),
        stat("Declared", "bytes").about("Sum of all declared limits. Each declaration counts once.").query(e.DECLARED),
        stat("Over-committed devices", steps=ALARM)
        .about("Devices whose limits add up to more than can be allocated. Memory that the driver reserves cannot")
        .about("be allocated.")
        .query(e.OVERCOMMITTED),
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
        .at_most(POINTS)
        .query(e.USED, "used")
        .query(e.DECLARED, "declared", LIMIT)
        .query(e.TOTAL, "total", CAPACITY),
        heat_map("Nodes by utilization")
        .about("Number of nodes in each tenth of utilization: the average share of time in which a kernel ran on the")
        .about("node's devices.")
        .query(e.NODES_BY_TENTH, "{{tenth}}0 %"),
        lines("Busiest nodes", "percentunit", top=1, width=24)
        .about("The ten nodes with the highest utilization within the chosen time.")
        .every(STEP)
        .query(e.BUSIEST, "{{node}}", to=NODE),
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
        .at_most(POINTS)
        .query(e.by("namespace", e.CONTAINERS_USED), "{{namespace}}", to=NAMESPACE),
        Row("Needs attention"),
        shared.WHO_IS_OVER,
        shared.WHO_IS_IDLE,
    ),
    since="now-24h",
)
