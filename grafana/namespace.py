"""A namespace: what its pods use of what they declared."""

from grafana import expressions as e
from grafana import shared
from grafana.documents import Board
from grafana.panels import FULL, Column, Look, Query, Row, lines, stat, table
from grafana.places import NAMESPACE, NODE, POD

BOARD = Board(
    NAMESPACE,
    "One namespace: GPU memory used, declared and in percent, for each container; shared claims; who exceeds.",
    (
        stat(
            "Used",
            "At least so much GPU memory is held by the namespace's containers.",
            "bytes",
            Query(e.WORKLOAD_USED),
        ),
        stat("Limit", "Sum of the limits that its containers and pods declared.", "bytes", Query(e.LIMIT)),
        stat(
            "Used % of limit",
            "Of those containers and pods that declared a limit and whose use is known.",
            "percentunit",
            Query(e.LIMITED_SHARE),
            steps=FULL,
        ),
        shared.OVER,
        shared.PODS,
        shared.IDLE,
        lines(
            "Memory by pod",
            "What each pod holds, and the sum of the limits.",
            "bytes",
            Query(e.USED_BY_POD, "{{pod}}", to=POD),
            Query(e.LIMIT, "sum of limits", Look.LIMIT),
            stacked=True,
        ),
        lines(
            "SM by pod",
            "Share of the SMs, summed over the pod's GPUs: two GPUs in full use are 200 %.",
            "percentunit",
            Query(e.SM_BY_POD, "{{pod}}", to=POD),
        ),
        table(
            "GPU memory quota",
            "Each container on each device, with the limit that counts. Without a container it is the limit of "
            "the whole pod, and what "
            "its containers hold together. A click leads to the pod.",
            ("pod", "container", "namespace", "node", "gpu", "gpu_instance", "uuid"),
            Column("Used", e.SUBJECT_USED, "bytes"),
            Column("Limit", e.SUBJECT_LIMIT, "bytes"),
            Column("Used % of limit", e.SUBJECT_SHARE, "percentunit", FULL),
            Column("Peak", e.PEAK_BY_CONTAINER, "bytes"),
            Column("SM", e.SM_BY_CONTAINER, "percentunit"),
            Column("Replicas", e.REPLICAS, "short"),
            links={"pod": POD, "node": NODE},
            height=10,
        ),
        Row("More"),
        table(
            "Shared claims",
            "ResourceClaims with a limit, and what all who share them hold together.",
            ("claim", "namespace", "node", "gpu", "gpu_instance", "uuid"),
            Column("Used", e.CLAIM_USED, "bytes"),
            Column("Limit", e.CLAIM_LIMIT, "bytes"),
            Column("Used % of limit", e.CLAIM_SHARE, "percentunit", FULL),
            links={"node": NODE},
            width=12,
        ),
        table(
            "Workloads",
            "Who the pods belong to.",
            ("pod", "workload_kind", "workload", "queue", "priority_class", "namespace", "node"),
            Column("Info", e.POD_INFO),
            links={"pod": POD, "node": NODE},
            width=12,
        ),
    ),
)
