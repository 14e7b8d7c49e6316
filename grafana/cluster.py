"""The cluster: how much there is, who has it, who exceeds, what lies idle."""

from grafana import expressions as e
from grafana import shared
from grafana.documents import Board
from grafana.panels import ALARM, FULL, Column, Look, Query, Row, lines, stat, table
from grafana.places import CLUSTER, NAMESPACE, NODE, POD

BOARD = Board(
    CLUSTER,
    "The GPUs of all chosen nodes: total, used, declared; who exceeds a declared limit, and which GPUs were "
    "handed out and lie idle.",
    (
        stat("GPUs", "Physical GPUs that a driver counts.", "short", Query(e.GPUS)),
        stat(
            "GPUs that do not answer",
            "Counted by the driver, and without an answer in the last round.",
            "short",
            Query(e.GPUS_SILENT),
            steps=ALARM,
        ),
        stat("Memory", "Memory of all GPUs that answer.", "bytes", Query(e.TOTAL)),
        stat("Used", "Memory in use, by whomever.", "bytes", Query(e.USED)),
        stat("Declared", "Sum of all declared limits, each declaration once.", "bytes", Query(e.DECLARED)),
        stat(
            "Over-committed devices",
            "Devices on which more is declared than there is.",
            "short",
            Query(e.OVERCOMMITTED),
            steps=ALARM,
        ),
        shared.OVER,
        shared.IDLE,
        shared.UNATTRIBUTED,
        stat(
            "Limits that do not hold",
            "Limits that somebody else is said to enforce, and that are exceeded all the same.",
            "short",
            Query(e.BYPASSED),
            steps=ALARM,
        ),
        stat(
            "Utilization", "Average share of time in which some kernel ran on a device.", "percentunit", Query(e.BUSY)
        ),
        shared.PODS,
        lines(
            "Memory",
            "What is used, what was declared and what there is, over all chosen nodes.",
            "bytes",
            Query(e.USED, "used"),
            Query(e.DECLARED, "declared", Look.LIMIT),
            Query(e.TOTAL, "total", Look.CAPACITY),
        ),
        lines(
            "Utilization by node",
            "Average share of time in which some kernel ran on the node's devices.",
            "percentunit",
            Query(e.BUSY_BY_NODE, "{{node}}", to=NODE),
            top=1,
        ),
        table(
            "Nodes",
            "Each node: its GPUs, and their memory. Used in parts of those devices whose use is known. A click "
            "leads to the node.",
            ("node",),
            Column("Used", e.USED_BY_NODE, "bytes"),
            Column("Memory", e.TOTAL_BY_NODE, "bytes"),
            Column("Used %", e.USED_SHARE_BY_NODE, "percentunit", FULL),
            Column("Declared", e.DECLARED_BY_NODE, "bytes"),
            Column("Unattributed", e.UNATTRIBUTED_BY_NODE, "bytes"),
            Column("GPUs", e.GPUS_BY_NODE, "short"),
            links={"node": NODE},
        ),
        Row("Namespaces"),
        table(
            "Namespaces",
            "Who uses how much; the share is of those containers and pods only that declared a limit. A click "
            "leads to the namespace.",
            ("namespace",),
            Column("Used", e.USED_BY_NAMESPACE, "bytes"),
            Column("Limit", e.LIMIT_BY_NAMESPACE, "bytes"),
            Column("Used % of limit", e.LIMITED_SHARE_BY_NAMESPACE, "percentunit", FULL),
            Column("Over limit", e.OVER_BY_NAMESPACE, "short", ALARM),
            Column("Pods", e.PODS_BY_NAMESPACE, "short"),
            links={"namespace": NAMESPACE},
            width=12,
        ),
        lines(
            "Memory by namespace",
            "At least so much is held by the namespace's containers; what is not known is not in it.",
            "bytes",
            Query(e.USED_BY_NAMESPACE, "{{namespace}}", to=NAMESPACE),
            stacked=True,
        ),
        Row("To look at"),
        shared.WHO_IS_OVER,
        table(
            "Idle allocations",
            "Who was handed a GPU and has no process on it.",
            ("node", "namespace", "pod", "container", "gpu", "gpu_instance", "resource", "uuid"),
            Column("Replicas", e.IDLE, "short"),
            links={"pod": POD, "namespace": NAMESPACE, "node": NODE},
            width=12,
        ),
    ),
)
