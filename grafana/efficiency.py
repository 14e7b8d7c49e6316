"""The efficiency board: what GPUs were allocated for, used and not used, and which limits are larger than needed."""

from grafana import expressions as e
from grafana import shared
from grafana.documents import Board
from grafana.kinds import CAPACITY, FULL, STEP, lines, stat, table
from grafana.panels import Row
from grafana.places import EFFICIENCY, NAMESPACE

_WORKLOAD = "namespace, workload_kind, workload"
_IDLE = e.by(_WORKLOAD, e.IDLE_HOURS)


def _most_idle(expression: str) -> str:
    """Split an expression by workload, and keep the 50 that idle most."""
    return f"({e.by(_WORKLOAD, expression)}) and topk(50, {_IDLE})"


BOARD = Board(
    EFFICIENCY,
    "GPU-hours within the chosen time: allocated, used and idle, by namespace and model; the most idle "
    "containers; limits against peaks. The figures are those of `gpusteward report`.",
    (
        stat("Allocated GPU-hours")
        .about("An hour with one of four replicas is a quarter; a MIG instance counts by its share of the memory.")
        .query(e.ALLOCATED_HOURS),
        stat("Used GPU-hours")
        .about("Share of the SMs in use, at most what was allocated to each container.")
        .query(e.USED_HOURS),
        stat("Idle GPU-hours").about("Allocated and not used, where the use of the SMs is known.").query(e.IDLE_HOURS),
        stat("GPU-hours of unknown use")
        .about("Allocated, while the driver reports no use of the SMs.")
        .query(e.UNKNOWN_HOURS),
        stat("Declared memory not needed", "percentunit")
        .about("Share of the declared limits, over time, that their holders did not use, where their use is known.")
        .query(e.NOT_NEEDED),
        shared.IDLE,
        lines("GPUs allocated, used and idle", width=24)
        .about("Averages of five minutes.")
        .every(STEP)
        .query("sum(workload:gpusteward_gpu_allocated:rate5m)", "allocated", CAPACITY)
        .query("sum(workload:gpusteward_gpu_used:rate5m)", "used")
        .query("sum(workload:gpusteward_gpu_idle:rate5m)", "idle"),
        table("By namespace", "namespace", width=12, height=10)
        .about("GPU-hours of each namespace. Click one to open it.")
        .column("Idle", e.by("namespace", e.IDLE_HOURS), "short")
        .column("Allocated", e.by("namespace", e.ALLOCATED_HOURS), "short")
        .column("Used", e.by("namespace", e.USED_HOURS), "short")
        .column("Unknown", e.by("namespace", e.UNKNOWN_HOURS), "short")
        .column("Declared memory not needed", e.by("namespace", e.NOT_NEEDED), "percentunit"),
        table("By model", "model", width=12, height=10)
        .about("GPU-hours of each model of GPU.")
        .column("Idle", e.by("model", e.IDLE_HOURS), "short")
        .column("Allocated", e.by("model", e.ALLOCATED_HOURS), "short")
        .column("Used", e.by("model", e.USED_HOURS), "short")
        .column("Unknown", e.by("model", e.UNKNOWN_HOURS), "short"),
        lines("Idle GPUs by namespace", stacked=True, width=24)
        .about("Averages of five minutes.")
        .every(STEP)
        .query("sum by (namespace) (workload:gpusteward_gpu_idle:rate5m)", "{{namespace}}", to=NAMESPACE),
        Row("Waste"),
        table("By workload", "namespace, workload_kind, workload", height=10)
        .about("The 50 workloads with the most idle GPU-hours within the chosen time. Click a namespace to open it.")
        .column("Idle", f"topk(50, {_IDLE})", "short")
        .column("Allocated", _most_idle(e.ALLOCATED_HOURS), "short")
        .column("Used", _most_idle(e.USED_HOURS), "short")
        .column("Declared memory not needed", _most_idle(e.NOT_NEEDED), "percentunit"),
        table("Idle GPU-hours by container", "namespace, pod, container, model", height=10)
        .about("The 50 containers with the most idle GPU-hours within the chosen time. Click a pod to open it.")
        .column("Idle", f"topk(50, {e.CONTAINER_IDLE_HOURS})", "short"),
        shared.WHO_IS_IDLE,
        Row("Limits against peaks"),
        table("Limits above peaks", "namespace, pod, container, node, gpu, gpu_instance, uuid", height=10)
        .about("The 50 containers whose limits exceed their peaks most. A container that allocates a fixed part of the")
        .about("GPU in advance (vLLM, JAX, TensorFlow) has its setting as its peak.")
        .column("Not needed", e.LIMIT_NOT_NEEDED, "bytes")
        .column(
            "Limit",
            f"sum by (<container>) (gpusteward_container_memory_limit_bytes) and {e.LIMIT_NOT_NEEDED}",
            "bytes",
        )
        .column("Peak", f"{e.PEAK_BY_CONTAINER} and {e.LIMIT_NOT_NEEDED}", "bytes")
        .column("Peak % of limit", f"{e.PEAK_OF_LIMIT} and {e.LIMIT_NOT_NEEDED}", "percentunit", FULL),
    ),
    since="now-24h",
)
