"""
Each PromQL expression of the boards, once.

In: nothing. Out: PromQL with `<daemon>`, `<device>`, `<namespace>` or `<workload>` where a selector belongs: a board
puts in what is chosen on it. Law: what nobody knows stays absent; a missing series is never made a 0, and a sum over
what is partly known is called "at least" by its panel.
"""

# The number of a GPU is its vendor's driver's: on a node with GPUs of two vendors two of them are GPU 0. The uuid is
# one GPU's alone, so it stands in each list that tells GPUs apart; the number is what people read.
GPU = "node, gpu, uuid"
LEAF = f"{GPU}, gpu_instance"
SUBJECT = f"{LEAF}, namespace, pod, container"
MAY_BE_EMPTY = frozenset({"container", "gpu", "gpu_instance", "profile", "sharing", "replicas"})


def spelled(expression: str, row: tuple[str, ...]) -> str:
    """
    Write "-" where a label of the row is empty, for tables of several columns.

    Prometheus drops empty labels, and Grafana merges columns by the labels that all of them have: where each limit of a
    namespace is a pod's, no limit has a container, and each container of the pod would be shown with the pod's limit.
    """
    for label in row:
        if label in MAY_BE_EMPTY:
            expression = f'label_replace({expression}, "{label}", "-", "{label}", "")'
    return expression


# At the end of what is shown, so that no line has two names. And it is one sample a GPU: of 8,000 GPUs a query of 1,000
# steps takes 0.2 s, and more than 5 s where each step is looked at. A node that is gone by then has numbers alone.
_INFO = "gpusteward_gpu_info{<daemon>} @ end()"
_SAME_NUMBER = f"count by (node, gpu) (group by (node, gpu, vendor) ({_INFO})) > 1"
_VENDOR = f"group by (node, uuid, vendor) ({_INFO} and on (node, gpu) {_SAME_NUMBER})"


def told_apart(expression: str) -> str:
    """
    Write the vendor behind the number of a GPU, "0 amd", where GPUs of two vendors have that number on one node.

    For names that people read. The expression's series have `node` and `uuid`, and all of them are there afterwards:
    also those of GPUs that do not answer, whose vendor nobody tells.
    """
    named = f'label_join(({expression}) * on (node, uuid) group_left (vendor) {_VENDOR}, "gpu", " ", "gpu", "vendor")'
    return f"{named} or on (node, uuid) ({expression})"


# GPUs and leaf devices

GPUS = "count(gpusteward_gpu_up{<device>})"
GPUS_BY_NODE = "count by (node) (gpusteward_gpu_up{<device>})"
GPUS_SILENT = "sum(gpusteward_gpu_up{<device>} == bool 0)"
GPUS_TO_CHOOSE = told_apart(f"group by ({GPU}) (last_over_time(gpusteward_gpu_up{{<daemon>}}[$__range]))")
GPU_INFO = f"max by ({GPU}, vendor, model, driver_version, mig, pci_bus_id) (gpusteward_gpu_info{{<device>}})"

TOTAL = "sum(gpusteward_gpu_memory_total_bytes{<device>})"
TOTAL_BY_NODE = "sum by (node) (gpusteward_gpu_memory_total_bytes{<device>})"
LEAF_TOTAL = "sum(gpusteward_device_memory_total_bytes{<device>})"
USED = "sum(gpusteward_device_memory_used_bytes{<device>})"
USED_BY_NODE = "sum by (node) (gpusteward_device_memory_used_bytes{<device>})"
# Of GPUs without a reading of their use nothing is put below the line, either.
USED_SHARE = (
    "sum(gpusteward_device_memory_used_bytes{<device>})"
    " / sum(gpusteward_device_memory_total_bytes{<device>} and gpusteward_device_memory_used_bytes{<device>})"
)
USED_SHARE_BY_NODE = (
    "sum by (node) (gpusteward_device_memory_used_bytes{<device>})"
    " / sum by (node) (gpusteward_device_memory_total_bytes{<device>} and "
    "gpusteward_device_memory_used_bytes{<device>})"
)
DECLARED = "sum(gpusteward_device_memory_declared_bytes{<device>})"
DECLARED_BY_NODE = "sum by (node) (gpusteward_device_memory_declared_bytes{<device>})"
OVERCOMMITTED = (
    "sum(gpusteward_device_memory_declared_bytes{<device>} > bool gpusteward_device_memory_total_bytes{<device>})"
)
GHOST = "sum(gpusteward_device_memory_ghost_bytes{<device>})"
HOST = "sum(gpusteward_device_memory_host_bytes{<device>})"
UNATTRIBUTED = "sum(gpusteward_device_memory_unattributed_bytes{<device>})"
UNATTRIBUTED_BY_NODE = "sum by (node) (gpusteward_device_memory_unattributed_bytes{<device>})"

LEAF_INFO = f"max by ({LEAF}, profile, sharing, replicas) (gpusteward_device_info{{<device>}})"
_LEAF_KEYS = f"on (node, uuid, gpu_instance) group_left (profile, sharing, replicas) {LEAF_INFO}"
LEAF_MEMORY_USED = f"max by ({LEAF}) (gpusteward_device_memory_used_bytes{{<device>}}) * {_LEAF_KEYS}"
LEAF_MEMORY_TOTAL = f"max by ({LEAF}) (gpusteward_device_memory_total_bytes{{<device>}}) * {_LEAF_KEYS}"
LEAF_MEMORY_DECLARED = f"max by ({LEAF}) (gpusteward_device_memory_declared_bytes{{<device>}}) * {_LEAF_KEYS}"
LEAF_CONTAINERS = f"max by ({LEAF}) (gpusteward_device_containers{{<device>}}) * {_LEAF_KEYS}"

BUSY = "avg(gpusteward_device_utilization_ratio{<device>})"
BUSY_BY_NODE = "avg by (node) (gpusteward_device_utilization_ratio{<device>})"
DEVICE_SM = f"max by ({LEAF}) (gpusteward_device_sm_utilization_ratio{{<device>}})"
DEVICE_BUSY = f"max by ({LEAF}) (gpusteward_device_utilization_ratio{{<device>}})"
POWER = f"max by ({GPU}) (gpusteward_gpu_power_watts{{<device>}})"
TEMPERATURE = f"max by ({GPU}) (gpusteward_gpu_temperature_celsius{{<device>}})"
CLOCKS = f"max by ({GPU}, clock) (gpusteward_gpu_clock_hertz{{<device>}})"
THROTTLED = f"max by ({GPU}, reason) (gpusteward_gpu_throttled{{<device>}})"
ENERGY = f"sum by ({GPU}) (increase(gpusteward_gpu_energy_joules_total{{<device>}}[$__rate_interval]))"
ECC_ERRORS = f"sum by ({GPU}, severity) (increase(gpusteward_gpu_ecc_errors_total{{<device>}}[$__rate_interval]))"
XID_ERRORS = f"sum by ({GPU}) (increase(gpusteward_gpu_xid_errors_total{{<device>}}[$__rate_interval]))"
# Of those that came at all: the common numbers have a 0 before.
XIDS_BY_NUMBER = (
    f"max by ({GPU}, xid) (increase(gpusteward_gpu_xid_errors_total{{<device>}}[$__range])"
    " and gpusteward_gpu_xid_last_timestamp_seconds{<device>})"
)
XIDS_AGO = f"time() - max by ({GPU}, xid) (gpusteward_gpu_xid_last_timestamp_seconds{{<device>}})"

# Who holds it

USED_BY_NAMESPACE = "sum by (namespace) (gpusteward_container_memory_used_bytes{<workload>})"
USED_BY_POD = "sum by (namespace, pod) (gpusteward_container_memory_used_bytes{<workload>})"
WORKLOAD_USED = "sum(gpusteward_container_memory_used_bytes{<workload>})"
USED_BY_CONTAINER = f"sum by ({SUBJECT}) (gpusteward_container_memory_used_bytes{{<workload>}})"
PEAK_BY_CONTAINER = f"sum by ({SUBJECT}) (gpusteward_container_memory_peak_bytes{{<workload>}})"
SM_BY_CONTAINER = f"sum by ({SUBJECT}) (gpusteward_container_sm_utilization_ratio{{<workload>}})"
SM_BY_POD = "sum by (namespace, pod) (gpusteward_container_sm_utilization_ratio{<workload>})"
ENCODER_BY_CONTAINER = f"sum by ({SUBJECT}) (gpusteward_container_encoder_utilization_ratio{{<workload>}})"
DECODER_BY_CONTAINER = f"sum by ({SUBJECT}) (gpusteward_container_decoder_utilization_ratio{{<workload>}})"
PROCESSES = f"sum by ({SUBJECT}) (gpusteward_container_processes{{<workload>}})"
REPLICAS = f"sum by ({SUBJECT}) (gpusteward_container_allocated_replicas{{<workload>}})"
PODS = "count(gpusteward_pod_info{<workload>})"
PODS_BY_NAMESPACE = "count by (namespace) (gpusteward_pod_info{<workload>})"
POD_INFO = (
    "max by (node, namespace, pod, workload_kind, workload, queue, priority_class) (gpusteward_pod_info{<workload>})"
)

# What was declared. A container has its own limit, its pod has one, or a claim that several share has it.

_LIMITS = "(gpusteward_container_memory_limit_bytes{<workload>} or gpusteward_pod_memory_limit_bytes{<workload>})"
# The use that each of those limits is about: with the same labels as the limit, so that they can be compared.
_POD_USED = (
    "(sum without (container) (gpusteward_container_memory_used_bytes{<workload>})"
    " and gpusteward_pod_memory_limit_bytes{<workload>})"
)
_SUBJECTS_USED = f"(gpusteward_container_memory_used_bytes{{<workload>}} or {_POD_USED})"
_LIMITED_USED = f"({_SUBJECTS_USED} and {_LIMITS})"
_CLAIM_EXCESS = "(gpusteward_claim_memory_used_bytes{<namespace>} - gpusteward_claim_memory_limit_bytes{<namespace>})"
_EXCESS = f"({_SUBJECTS_USED} - {_LIMITS} or {_CLAIM_EXCESS})"

SUBJECT_USED = f"sum by ({SUBJECT}) ({_SUBJECTS_USED})"
SUBJECT_LIMIT = f"sum by ({SUBJECT}) ({_LIMITS})"
SUBJECT_SHARE = f"sum by ({SUBJECT}) ({_LIMITED_USED} / {_LIMITS})"
CONTAINER_LIMIT = f"sum by ({SUBJECT}) (gpusteward_container_memory_limit_bytes{{<workload>}})"
POD_LIMIT = f"sum by ({LEAF}, namespace, pod) (gpusteward_pod_memory_limit_bytes{{<workload>}})"
LIMIT = f"sum({_LIMITS})"
LIMIT_BY_NAMESPACE = f"sum by (namespace) ({_LIMITS})"
LIMITED_SHARE = f"sum({_LIMITED_USED}) / sum({_LIMITS} and {_SUBJECTS_USED})"
LIMITED_SHARE_BY_NAMESPACE = (
    f"sum by (namespace) ({_LIMITED_USED}) / sum by (namespace) ({_LIMITS} and {_SUBJECTS_USED})"
)
CLAIM = f"{LEAF}, namespace, claim"
CLAIM_USED = f"sum by ({CLAIM}) (gpusteward_claim_memory_used_bytes{{<namespace>}})"
CLAIM_LIMIT = f"sum by ({CLAIM}) (gpusteward_claim_memory_limit_bytes{{<namespace>}})"
CLAIM_SHARE = (
    f"sum by ({CLAIM}) (gpusteward_claim_memory_used_bytes{{<namespace>}}"
    " / gpusteward_claim_memory_limit_bytes{<namespace>})"
)
OVER = f"sum({_EXCESS} > bool 0)"
OVER_BY_NAMESPACE = f"sum by (namespace) ({_EXCESS} > bool 0)"
EXCESS = f"sum by ({SUBJECT}, claim) ({_EXCESS} > 0)"
LIMIT_INFO = f"max by ({SUBJECT}, system, source, scope, enforced_by) (gpusteward_container_limit_info{{<workload>}})"
COMPUTE_LIMIT = f"max by ({SUBJECT}) (gpusteward_container_compute_limit_ratio{{<workload>}})"
BYPASSED = "sum(gpusteward_container_limit_bypassed{<workload>})"

# Handed a GPU by the kubelet, and not one process on it. Only where that can be known: the GPU answers, and the
# driver's process numbers are proven to be the host's.
_IDLE = (
    "gpusteward_container_allocated_replicas{<workload>}"
    " and on (cluster, node, uuid) gpusteward_gpu_up{<daemon>} == 1"
    " and on (cluster, node) gpusteward_pid_domain_proven{<daemon>} == 1"
    " unless on (cluster, node, namespace, pod, container, uuid, gpu_instance)"
    " gpusteward_container_processes{<workload>} > 0"
)
IDLE = f"sum by ({SUBJECT}, resource) ({_IDLE})"
IDLE_COUNT = f"count({_IDLE}) or 0 * count(gpusteward_container_allocated_replicas{{<workload>}})"

# The policy

STATES = ("ok", "over", "grace", "due", "acting", "held", "exempt", "unjudged")
STATE = " or ".join(
    f'max by ({SUBJECT}) (gpusteward_container_state{{<workload>, state="{state}"}}) * {number}'
    for number, state in enumerate(STATES)
)
"""One number a state, so that a subject is one line; a subject is in one state at a time."""
SUBJECTS_BY_STATE = 'count by (state) (gpusteward_container_state{<workload>, state!="ok"})'
NOT_AT_EASE = 'gpusteward_container_state{<workload>, state=~"grace|due|acting|held"}'
OVER_SECONDS = f"sum by ({SUBJECT}) (increase(gpusteward_container_over_limit_seconds_total{{<workload>}}[$__range]))"
OVER_SECONDS_BY_NAMESPACE = (
    "sum by (namespace) (increase(gpusteward_container_over_limit_seconds_total{<workload>}[$__rate_interval]))"
)
LAST_ACTION = "gpusteward_last_action_timestamp_seconds{<workload>} * 1000"
"""In milliseconds, as Grafana wants a value that is to be a time."""
ACTIONS = "sum by (action) (increase(gpusteward_actions_total{<namespace>}[$__rate_interval]))"
ACTIONS_IN_RANGE = "sum by (namespace, action) (increase(gpusteward_actions_total{<namespace>}[$__range]))"
FAILURES_IN_RANGE = "sum by (namespace, action) (increase(gpusteward_action_failures_total{<namespace>}[$__range]))"
REHEARSED_IN_RANGE = "sum by (namespace, action) (increase(gpusteward_dry_run_actions_total{<namespace>}[$__range]))"
FAILURES = "sum by (action) (increase(gpusteward_action_failures_total{<namespace>}[$__rate_interval]))"
REHEARSED = "sum by (action) (increase(gpusteward_dry_run_actions_total{<namespace>}[$__rate_interval]))"
REFUSALS = "sum by (reason) (increase(gpusteward_refusals_total{<namespace>}[$__rate_interval]))"
HELD = "sum by (reason) (gpusteward_held{<namespace>})"
HELD_BY_NAMESPACE = "sum by (namespace, reason) (gpusteward_held{<namespace>})"
MODES = "count by (mode) (gpusteward_enforcement_mode{<daemon>})"
MODES_ASKED = "count by (mode) (gpusteward_configured_mode{<daemon>})"
BREAKERS_OPEN = "sum(gpusteward_breaker_open{<daemon>})"
BREAKERS = "max by (node, breaker) (gpusteward_breaker_open{<daemon>}) == 1"
BUDGETS = "min by (node, scope) (gpusteward_budget_remaining{<daemon>})"
ACTION_DURATION = (
    "histogram_quantile(0.9, sum by (action, le)"
    " (rate(gpusteward_action_duration_seconds_bucket{<daemon>}[$__rate_interval])))"
)

# The daemon itself

DAEMONS = "count(gpusteward_build_info{<daemon>})"
BUILDS = "count by (version) (gpusteward_build_info{<daemon>})"
AGE = "time() - gpusteward_snapshot_timestamp_seconds{<daemon>}"
AGE_WORST = f"max({AGE})"
AGE_BY_NODE = f"max by (node) ({AGE})"
SOURCES_DOWN = "sum(gpusteward_source_up{<daemon>} == bool 0)"
SOURCES = "min by (node, source) (gpusteward_source_up{<daemon>})"
CONFIGS_REFUSED = "sum(gpusteward_config_last_reload_successful{<daemon>} == bool 0)"
CONFIG_AGE = "time() - max by (node) (gpusteward_config_last_reload_success_timestamp_seconds{<daemon>})"
UNPROVEN = "sum(gpusteward_pid_domain_proven{<daemon>} == bool 0)"
INCOMPLETE = "sum by (reason) (increase(gpusteward_rounds_incomplete_total{<daemon>}[$__rate_interval]))"
ROUND_FAILURES = "sum by (node) (increase(gpusteward_round_failures_total{<daemon>}[$__rate_interval]))"
ROUNDS = "sum by (node) (rate(gpusteward_rounds_total{<daemon>}[$__rate_interval]))"
ROUND_DURATION = (
    "histogram_quantile(0.99, sum by (node, le)"
    " (rate(gpusteward_round_duration_seconds_bucket{<daemon>}[$__rate_interval])))"
)
ENTRIES = "sum by (attribution) (gpusteward_processes{<daemon>})"
