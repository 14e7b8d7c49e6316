"""
The PromQL that several panels share, or that needs an explanation; every other expression is in its panel.

What comes in: nothing. What goes out: PromQL without selectors; a board adds its chosen values (places.filled).

The rule: an unknown value stays absent. A missing series never becomes a 0. The panel of a sum with unknown parts says
"at least".
"""

# The labels that identify each kind of object; a board puts them in for these marks. The number of a GPU comes from its
# vendor's driver: on a node with GPUs of two vendors, two of them are GPU 0. So each list has the uuid, too.
LABELS = {
    "<gpu>": "node, gpu, uuid",
    "<device>": "node, gpu, uuid, gpu_instance",
    "<container>": "node, gpu, uuid, gpu_instance, namespace, pod, container",
    "<claim>": "node, gpu, uuid, gpu_instance, namespace, claim",
}
MAY_BE_EMPTY = frozenset(
    {"container", "gpu", "gpu_instance", "model", "profile", "sharing", "replicas", "workload_kind", "workload"}
)


def spelled(expression: str, row: tuple[str, ...]) -> str:
    """
    Write "-" where a label of the row is empty, for tables of several columns.

    Prometheus drops empty labels, and Grafana merges columns by their common labels. If each limit of a namespace is a
    pod's, no limit has a container. Then each container of the pod would be shown with the pod's limit.
    """
    for label in row:
        if label in MAY_BE_EMPTY:
            expression = f'label_replace({expression}, "{label}", "-", "{label}", "")'
    return expression


# Read at the end of the time range, so that no line has two names and each GPU is one sample. With 8,000 GPUs a query
# of 1,000 steps takes 0.2 s; with a reading per step it takes more than 5 s. A node that is gone by then shows numbers.
_INFO = "gpusteward_gpu_info{<node>} @ end()"
_SAME_NUMBER = f"count by (node, gpu) (group by (node, gpu, vendor) ({_INFO})) > 1"
_VENDOR = f"group by (node, uuid, vendor) ({_INFO} and on (node, gpu) {_SAME_NUMBER})"


def with_vendor(expression: str) -> str:
    """
    Write the vendor after the number of a GPU, "0 amd", where GPUs of two vendors have that number on one node.

    This is for names that people read. The series of the expression have `node` and `uuid`. No series is lost, not even
    that of a GPU that does not answer and whose vendor is unknown.
    """
    named = f'label_join(({expression}) * on (node, uuid) group_left (vendor) {_VENDOR}, "gpu", " ", "gpu", "vendor")'
    return f"{named} or on (node, uuid) ({expression})"


def by(labels: str, expression: str) -> str:
    """Split each sum of an expression by these labels."""
    return expression.replace("sum(", f"sum by ({labels}) (")


def growth(labels: str, counter: str, over: str = "$__rate_interval") -> str:
    """Return by how much a counter grew, by these labels."""
    return f"sum by ({labels}) (increase({counter}[{over}]))"


def quantile(share: float, label: str, histogram: str) -> str:
    """Return the value below which that share of the observations is, by this label."""
    rate = f"rate({histogram}_bucket[$__rate_interval])"
    return f"histogram_quantile({share}, sum by ({label}, le) ({rate}))"


def keyed(family: str) -> str:
    """Give each device's value the labels that say how the device is shared, for a table of devices."""
    info = "max by (<device>, profile, sharing, replicas) (gpusteward_device_info)"
    keys = f"on (node, uuid, gpu_instance) group_left (profile, sharing, replicas) {info}"
    return f"max by (<device>) ({family}) * {keys}"


# GPUs and devices

GPUS = "count(gpusteward_gpu_up)"
GPUS_TO_CHOOSE = with_vendor("group by (<gpu>) (last_over_time(gpusteward_gpu_up[$__range]))")
TOTAL = "sum(gpusteward_gpu_memory_total_bytes)"
USED = "sum(gpusteward_device_memory_used_bytes)"
# The total leaves out GPUs whose usage is unknown, as the sum of the usage does.
USED_SHARE = f"{USED} / sum(gpusteward_device_memory_total_bytes and gpusteward_device_memory_used_bytes)"
DECLARED = "sum(gpusteward_device_memory_declared_bytes)"
# One limit alone may be the whole device, of which the driver keeps a part. Such a device is not shared.
OVERCOMMITTED = (
    "sum((gpusteward_device_memory_declared_bytes > bool gpusteward_device_memory_total_bytes"
    " - gpusteward_device_memory_reserved_bytes) * on (cluster, node, uuid, gpu_instance)"
    " (gpusteward_device_memory_declared_bytes > bool on (cluster, node, uuid, gpu_instance)"
    " max by (cluster, node, uuid, gpu_instance) (gpusteward_container_memory_limit_bytes"
    " or gpusteward_pod_memory_limit_bytes or gpusteward_claim_memory_limit_bytes)))"
)
UNATTRIBUTED = "sum(gpusteward_device_memory_unattributed_bytes)"
# Only errors that occurred: the common numbers start with a 0.
XIDS_BY_NUMBER = (
    "max by (<gpu>, xid) (increase(gpusteward_gpu_xid_errors_total[$__range])"
    " and gpusteward_gpu_xid_last_timestamp_seconds)"
)

# What containers use

CONTAINERS_USED = "sum(gpusteward_container_memory_used_bytes)"
PEAK_BY_CONTAINER = "sum by (<container>) (gpusteward_container_memory_peak_bytes)"
PEAK_OF_LIMIT = f"{PEAK_BY_CONTAINER} / sum by (<container>) (gpusteward_container_memory_limit_bytes)"
CONTAINERS_SM = "sum(gpusteward_container_sm_utilization_ratio)"
POD_INFO = "max by (node, namespace, pod, workload_kind, workload, queue, priority_class) (gpusteward_pod_info)"

# What was declared. A container has its own limit, its pod has one, or a claim that several share has it.

_LIMITS = "(gpusteward_container_memory_limit_bytes or gpusteward_pod_memory_limit_bytes)"
# The usage that each of these limits applies to, with the same labels as the limit, so that they can be compared.
_POD_USED = "(sum without (container) (gpusteward_container_memory_used_bytes) and gpusteward_pod_memory_limit_bytes)"
_USED = f"(gpusteward_container_memory_used_bytes or {_POD_USED})"
_CLAIM_EXCESS = "(gpusteward_claim_memory_used_bytes - gpusteward_claim_memory_limit_bytes)"
_EXCESS = f"({_USED} - {_LIMITS} or {_CLAIM_EXCESS})"

LIMIT = f"sum({_LIMITS})"
LIMITED_SHARE = (
    "sum(holder:gpusteward_memory_used:bytes)"
    " / sum(holder:gpusteward_memory_limit:bytes and holder:gpusteward_memory_used:bytes)"
)
QUOTA_USED = f"sum by (<container>) ({_USED})"
QUOTA_SHARE = "sum by (<container>) (holder:gpusteward_memory_used:bytes / holder:gpusteward_memory_limit:bytes)"
CLAIM_SHARE = "sum by (<claim>) (gpusteward_claim_memory_used_bytes / gpusteward_claim_memory_limit_bytes)"
OVER = f"sum({_EXCESS} > bool 0)"
EXCESS = f"sum by (<container>, claim) ({_EXCESS} > 0)"

# What GPUIdleAllocation calls idle, too (alerts/limits.yaml). Unknown activity has no sample.
_IDLE = "container:gpusteward_gpu_activity:ratio <= 0"
_SAME_CONTAINER = "on (cluster, node, uuid, gpu_instance, namespace, pod, container)"
IDLE = f"sum by (<container>, resource) (gpusteward_container_allocated_replicas and {_SAME_CONTAINER} {_IDLE})"
IDLE_COUNT = f"count({_IDLE}) or 0 * count(gpusteward_container_allocated_replicas)"

# Work and waste: averages of five minutes, in GPUs (alerts/usage.yaml), so that a twelfth of their sum is in GPU-hours.
# As in `gpusteward report`: used + idle + unknown = allocated, in each five minutes. Sums over time are by workload:
# of a thousand nodes these are an eighth as many series as those by container.

GPUS_ALLOCATED = "sum(container:gpusteward_gpu_allocated:rate5m)"
GPUS_IDLE = "sum(container:gpusteward_gpu_idle:rate5m)"
GPUS_USED = "sum(container:gpusteward_gpu_allocated:rate5m - container:gpusteward_gpu_idle:rate5m)"
ALLOCATED_HOURS = "sum(sum_over_time(workload:gpusteward_gpu_allocated:rate5m[$__range])) / 12"
USED_HOURS = "sum(sum_over_time(workload:gpusteward_gpu_used:rate5m[$__range])) / 12"
IDLE_HOURS = "sum(sum_over_time(workload:gpusteward_gpu_idle:rate5m[$__range])) / 12"
UNKNOWN_HOURS = "sum(sum_over_time(workload:gpusteward_gpu_unknown:rate5m[$__range])) / 12"
CONTAINER_IDLE_HOURS = (
    "sum by (namespace, pod, container, model) (sum_over_time(container:gpusteward_gpu_idle:rate5m[$__range])) / 12"
)
NOT_NEEDED = (
    "1 - sum(sum_over_time(workload:gpusteward_memory_declared_used:bytes[$__range]))"
    " / sum(sum_over_time(workload:gpusteward_memory_declared:bytes[$__range]))"
)
# The number of GPUs, and those that answer and are allocated to no container; a replica counts as its part.
MODEL_GPUS = "count by (model) (group by (cluster, node, uuid, model) (gpusteward_gpu_info))"
_TAKEN = f"(sum by (model) (container:gpusteward_gpu_allocated:rate5m) or 0 * {MODEL_GPUS})"
MODEL_FREE = f"clamp_min({MODEL_GPUS} - {_TAKEN}, 0)"
GPUS_FREE = f"clamp_min(sum(gpusteward_gpu_up) - ({GPUS_ALLOCATED} or 0 * {GPUS}), 0)"
# Of 1,000 nodes a line each is no picture. The series are the numbers of nodes in each tenth.
NODES_BY_TENTH = 'count_values("tenth", floor(clamp_max(node:gpusteward_device_utilization:ratio, 0.99) * 10))'
_MEAN = "avg_over_time(node:gpusteward_device_utilization:ratio[$__range] @ end())"
BUSIEST = f"max by (node) (node:gpusteward_device_utilization:ratio) and topk(10, max by (node) ({_MEAN}))"
_SPARE = "gpusteward_container_memory_limit_bytes - gpusteward_container_memory_peak_bytes > 0"
LIMIT_NOT_NEEDED = f"topk(50, sum by (<container>) ({_SPARE}))"

# The policy and the daemon

STATES = ("ok", "over", "grace", "due", "acting", "held", "exempt", "unjudged")
# By the number of each (alerts/policy.yaml).
STATE = "max by (<container>) (holder:gpusteward_state:number)"
# Both labels are empty while nothing prevents the action: then it follows with the next round.
DUE = 'gpusteward_due_seconds_total{reason!=""}'
AGE = "time() - gpusteward_snapshot_timestamp_seconds"
SLOWEST = "topk(10, max by (node) (node:gpusteward_round_duration_seconds:p99))"
