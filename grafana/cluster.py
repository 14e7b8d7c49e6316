"""The cluster board: total, used and declared GPU memory, exceeded limits, idle allocations."""

from grafana import expressions as e
from grafana import shared
from grafana.documents import Board
from grafana.kinds import ALARM, CAPACITY, FULL, LIMIT, lines, stat, table
from grafana.panels import Row
from grafana.places import CLUSTER, NAMESPACE, NODE

BOARD = Board(
    CLUSTER,
    "The GPUs of all chosen nodes: total, used, declared; who exceeds a declared limit, and which GPUs were "
    "handed out and lie idle.",
    (
        stat("GPUs").about("Physical GPUs that a driver counts.").query(e.GPUS),
        stat("GPUs that do not answer", steps=ALARM)
        .about("Counted by the driver, and without an answer in the last round.")
        .query("sum(gpusteward_gpu_up == bool 0)"),
        stat("Memory", "bytes").about("Memory of all GPUs that answer.").query(e.TOTAL),
        stat("Used", "bytes").about("Memory in use, by whomever.").query(e.USED),
        stat("Declared", "bytes").about("Sum of all declared limits, each declaration once.").query(e.DECLARED),
        stat("Over-committed devices", steps=ALARM)
        .about(
            "Devices whose limits together exceed what can be allocated: the memory without what its driver reserves."
        )
        .query(e.OVERCOMMITTED),
        shared.OVER,
        shared.IDLE,
        shared.UNATTRIBUTED,
        stat("Limits that do not hold", steps=ALARM)
        .about("Limits that somebody else is said to enforce, and that are exceeded all the same.")
        .query("sum(gpusteward_container_limit_bypassed)"),
        stat("Utilization", "percentunit")
        .about("Average share of time in which some kernel ran on a device.")
        .query("avg(gpusteward_device_utilization_ratio)"),
        shared.PODS,
        lines("Memory", "bytes")
        .about("What is used, what was declared and what there is, over all chosen nodes.")
        .query(e.USED, "used")
        .query(e.DECLARED, "declared", LIMIT)
        .query(e.TOTAL, "total", CAPACITY),
        lines("Utilization by node", "percentunit", top=1)
        .about("Average share of time in which some kernel ran on the node's devices.")
        .query("avg by (node) (gpusteward_device_utilization_ratio)", "{{node}}", to=NODE),
        table("Nodes", "node")
        .about("Each node: its GPUs, and their memory. Used in parts of those devices whose use is known.")
        .about("A click leads to the node.")
        .column("Used", e.by("node", e.USED), "bytes")
        .column("Memory", e.by("node", e.TOTAL), "bytes")
        .column("Used %", e.by("node", e.USED_SHARE), "percentunit", FULL)
        .column("Declared", e.by("node", e.DECLARED), "bytes")
        .column("Unattributed", e.by("node", e.UNATTRIBUTED), "bytes")
        .column("GPUs", "count by (node) (gpusteward_gpu_up)", "short"),
        Row("Namespaces"),
        table("Namespaces", "namespace", width=12)
        .about("Who uses how much; the share is of those containers and pods only that declared a limit.")
        .about("A click leads to the namespace.")
        .column("Used", e.by("namespace", e.CONTAINERS_USED), "bytes")
        .column("Limit", e.by("namespace", e.LIMIT), "bytes")
        .column("Used % of limit", e.by("namespace", e.LIMITED_SHARE), "percentunit", FULL)
        .column("Over limit", e.by("namespace", e.OVER), "short", ALARM)
        .column("Pods", "count by (namespace) (gpusteward_pod_info)", "short"),
        lines("Memory by namespace", "bytes", stacked=True)
        .about("At least so much is held by the namespace's containers; what is not known is not in it.")
        .query(e.by("namespace", e.CONTAINERS_USED), "{{namespace}}", to=NAMESPACE),
        Row("To look at"),
        shared.WHO_IS_OVER,
        table("Idle allocations", "node, namespace, pod, container, gpu, gpu_instance, resource, uuid", width=12)
        .about("Who was handed a GPU and has no process on it.")
        .column("Replicas", e.IDLE, "short"),
    ),
)
