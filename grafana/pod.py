"""The pod board: usage of each container against its limit, and what the policy decided about it."""

from grafana import expressions as e
from grafana import shared
from grafana.documents import Board, annotation
from grafana.kinds import ALARM, FULL, LIMIT, PEAK, lines, stat, table, timeline
from grafana.panels import Row
from grafana.places import POD

COLORS = ("green", "yellow", "orange", "red", "dark-red", "purple", "blue", "#6e6e6e")
WORDS = {number: (state, color) for number, (state, color) in enumerate(zip(e.STATES, COLORS, strict=True))}
WHERE = "{{container}} GPU {{gpu}} {{gpu_instance}}"

BOARD = Board(
    POD,
    "One pod: memory usage (solid), limit (dashed) and peak, SM, processes. "
    "The graphs mark the decisions of the policy.",
    (
        stat("Used", "bytes").about("GPU memory that the pod's containers hold at least.").query(e.CONTAINERS_USED),
        stat("Limit", "bytes").about("Sum of the pod's limits.").query(e.LIMIT),
        stat("Used % of limit", "percentunit", FULL)
        .about("For containers with a limit and known usage.")
        .query(e.LIMITED_SHARE),
        stat("Time over limit", "s", ALARM, width=12, named=True)
        .about("Within the chosen time, by container and device. Needs `gpusteward run`.")
        .query(e.growth("<container>", "gpusteward_container_over_limit_seconds_total", "$__range"), WHERE),
        lines("Memory", "bytes", width=24, height=10)
        .about("Usage of each container on each device (solid), its limit or the pod's limit (dashed), and its")
        .about("peak (dotted).")
        .query(e.by("<container>", e.CONTAINERS_USED), f"{WHERE} used")
        .query("sum by (<container>) (gpusteward_container_memory_limit_bytes)", f"{WHERE} limit", LIMIT)
        .query(
            "sum by (<device>, namespace, pod) (gpusteward_pod_memory_limit_bytes)",
            "the pod's limit, GPU {{gpu}} {{gpu_instance}}",
            LIMIT,
        )
        .query(e.PEAK_BY_CONTAINER, f"{WHERE} peak", PEAK),
        lines("SM", "percentunit", top=1)
        .about("Share of each device's SMs that the container used, and the declared share (dashed), which is")
        .about("never enforced.")
        .query(e.by("<container>", e.CONTAINERS_SM), WHERE)
        .query("max by (<container>) (gpusteward_container_compute_limit_ratio)", f"{WHERE} declared", LIMIT),
        timeline("State", WORDS)
        .about("State of each container in the policy. Without a container, the row is the limit of the whole pod")
        .about("or of a claim.")
        .query(e.STATE, WHERE),
        lines("Processes")
        .about("Running processes in the driver's lists.")
        .query("sum by (<container>) (gpusteward_container_processes)", WHERE),
        lines("Encoder and decoder", "percentunit", top=1)
        .about("Share of the video engines that the container used.")
        .query("sum by (<container>) (gpusteward_container_encoder_utilization_ratio)", f"{WHERE} encoder")
        .query("sum by (<container>) (gpusteward_container_decoder_utilization_ratio)", f"{WHERE} decoder"),
        Row("Details"),
        table(
            "Limits",
            "container, system, source, scope, enforced_by, gpu, gpu_instance, uuid, namespace, pod, node",
            height=6,
        )
        .about("The declaration that counts, its sharing system, and what enforces it. With scope process (MPS)")
        .about("there is no limit in bytes.")
        .column("Info", "max by (<container>, system, source, scope, enforced_by) (gpusteward_container_limit_info)"),
        table("Pod", "workload_kind, workload, queue, priority_class, namespace, pod, node", height=6)
        .about("Workload, queue and priority class, as far as known from Kubernetes.")
        .column("Info", e.POD_INFO),
    ),
    (
        shared.ACTIONS,
        annotation("Decisions", 'gpusteward_container_state{state=~"grace|due|acting|held"}', "orange", "state"),
    ),
)
