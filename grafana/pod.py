"""A pod: what each of its containers holds against its limit, and what the policy thought and did about it."""

from grafana import expressions as e
from grafana.documents import Annotation, Board
from grafana.panels import ALARM, FULL, Column, Look, Query, Row, lines, stat, table, timeline
from grafana.places import NODE, POD

COLORS = ("green", "yellow", "orange", "red", "dark-red", "purple", "blue", "#6e6e6e")
WORDS = {number: (state, color) for number, (state, color) in enumerate(zip(e.STATES, COLORS, strict=True))}
WHERE = "{{container}} GPU {{gpu}} {{gpu_instance}}"

BOARD = Board(
    POD,
    "One pod: memory used (solid) and its limit (dashed), peak, SM, processes; what the policy decided is "
    "marked in the graphs.",
    (
        stat("Used", "At least so much GPU memory is held by the pod's containers.", "bytes", Query(e.WORKLOAD_USED)),
        stat("Limit", "Sum of its limits.", "bytes", Query(e.LIMIT)),
        stat(
            "Used % of limit",
            "Of what was declared and is known.",
            "percentunit",
            Query(e.LIMITED_SHARE),
            steps=FULL,
        ),
        stat(
            "Time over limit",
            "In the chosen time, by container and device; told with `gpusteward run` only.",
            "s",
            Query(e.OVER_SECONDS, WHERE),
            steps=ALARM,
            width=12,
        ),
        lines(
            "Memory",
            "What each container holds of each device (solid), its limit or the pod's (dashed), and the most "
            "that was seen (dotted).",
            "bytes",
            Query(e.USED_BY_CONTAINER, f"{WHERE} used"),
            Query(e.CONTAINER_LIMIT, f"{WHERE} limit", Look.LIMIT),
            Query(e.POD_LIMIT, "the pod's limit, GPU {{gpu}} {{gpu_instance}}", Look.LIMIT),
            Query(e.PEAK_BY_CONTAINER, f"{WHERE} peak", Look.PEAK),
            width=24,
            height=10,
        ),
        lines(
            "SM",
            "Share of each device's SMs that the container used, and the declared share (dashed), which is "
            "told and never enforced.",
            "percentunit",
            Query(e.SM_BY_CONTAINER, WHERE),
            Query(e.COMPUTE_LIMIT, f"{WHERE} declared", Look.LIMIT),
            top=1,
        ),
        timeline(
            "State",
            "Where the policy stands with each container; without a container it is the whole pod's limit, or "
            "a claim's.",
            Query(e.STATE, WHERE),
            WORDS,
        ),
        lines("Processes", "Living processes in the driver's lists.", "short", Query(e.PROCESSES, WHERE)),
        lines(
            "Encoder and decoder",
            "Share of the video engines that the container used.",
            "percentunit",
            Query(e.ENCODER_BY_CONTAINER, f"{WHERE} encoder"),
            Query(e.DECODER_BY_CONTAINER, f"{WHERE} decoder"),
            top=1,
        ),
        Row("What is known of it"),
        table(
            "Limits",
            "Which declaration won, of which system, and who is said to enforce it. With scope process (MPS) "
            "there is no limit in bytes.",
            (
                "container",
                "system",
                "source",
                "scope",
                "enforced_by",
                "gpu",
                "gpu_instance",
                "uuid",
                "namespace",
                "pod",
                "node",
            ),
            Column("Info", e.LIMIT_INFO),
            links={"node": NODE},
            height=6,
        ),
        table(
            "Pod",
            "Its workload, queue and priority class, as far as Kubernetes tells.",
            ("workload_kind", "workload", "queue", "priority_class", "namespace", "pod", "node"),
            Column("Info", e.POD_INFO),
            links={"node": NODE},
            height=6,
        ),
    ),
    (
        Annotation("Actions", e.LAST_ACTION, "red", "action", at_value=True),
        Annotation("Decisions", e.NOT_AT_EASE, "orange", "state"),
    ),
)
