"""What users build on: the names, types and labels of the interfaces page, copied here by hand."""

from collections.abc import Iterable

from prometheus_client import Metric

from enforcer.runtime.metrics import FAMILIES
from exporter.metrics import CATALOGUE
from exporter.metrics.family import Family, Kind
from golden.everything import golden_page
from scraped import families as read_page

OPENMETRICS = "application/openmetrics-text; version=1.0.0"

GPU = {"gpu", "uuid"}
LEAF = {*GPU, "gpu_instance"}
CONTAINER = {"namespace", "pod", "container", *LEAF}

PROMISED: dict[str, tuple[str, set[str]]] = {
    "gpu_info": ("info", GPU | {"vendor", "model", "pci_bus_id", "driver_version", "mig"}),
    "gpu_vbios_info": ("info", GPU | {"vbios_version"}),
    "gpu_up": ("gauge", GPU),
    "gpu_memory_total_bytes": ("gauge", GPU),
    "gpu_power_watts": ("gauge", GPU),
    "gpu_energy_joules_total": ("counter", GPU),
    "gpu_temperature_celsius": ("gauge", GPU),
    "gpu_memory_temperature_celsius": ("gauge", GPU),
    "gpu_power_limit_watts": ("gauge", GPU),
    "gpu_power_default_limit_watts": ("gauge", GPU),
    "gpu_row_remap_pending": ("gauge", GPU),
    "gpu_row_remap_failure": ("gauge", GPU),
    "gpu_page_retirement_pending": ("gauge", GPU),
    "gpu_pcie_replays_total": ("counter", GPU),
    "gpu_temperature_threshold_celsius": ("gauge", GPU | {"threshold"}),
    "gpu_remapped_rows": ("gauge", GPU | {"cause"}),
    "gpu_row_remap_banks": ("gauge", GPU | {"availability"}),
    "gpu_retired_pages": ("gauge", GPU | {"cause"}),
    "gpu_recovery_action": ("gauge", GPU | {"action"}),
    "gpu_nvlink_errors_total": ("counter", GPU | {"error"}),
    "gpu_clock_hertz": ("gauge", GPU | {"clock"}),
    "gpu_throttled": ("gauge", GPU | {"reason"}),
    "gpu_ecc_errors_total": ("counter", GPU | {"severity"}),
    "gpu_xid_errors_total": ("counter", GPU | {"xid"}),
    "gpu_xid_last_timestamp_seconds": ("gauge", GPU | {"xid"}),
    "device_info": ("info", LEAF | {"profile", "sharing", "replicas", "mig_uuid"}),
    "device_memory_total_bytes": ("gauge", LEAF),
    "device_memory_used_bytes": ("gauge", LEAF),
    "device_memory_free_bytes": ("gauge", LEAF),
    "device_memory_reserved_bytes": ("gauge", LEAF),
    "device_memory_attributed_bytes": ("gauge", LEAF),
    "device_memory_ghost_bytes": ("gauge", LEAF),
    "device_memory_host_bytes": ("gauge", LEAF),
    "device_memory_unattributed_bytes": ("gauge", LEAF),
    "device_utilization_ratio": ("gauge", LEAF),
    "device_sm_utilization_ratio": ("gauge", LEAF),
    "device_memory_controller_utilization_ratio": ("gauge", LEAF),
    "device_encoder_utilization_ratio": ("gauge", LEAF),
    "device_decoder_utilization_ratio": ("gauge", LEAF),
    "device_containers": ("gauge", LEAF),
    "device_pods": ("gauge", LEAF),
    "container_memory_used_bytes": ("gauge", CONTAINER),
    "container_memory_peak_bytes": ("gauge", CONTAINER),
    "container_memory_kernel_limit_bytes": ("gauge", CONTAINER),
    "container_queue_evicted_seconds_total": ("counter", CONTAINER),
    "container_sm_utilization_ratio": ("gauge", CONTAINER),
    "container_encoder_utilization_ratio": ("gauge", CONTAINER),
    "container_decoder_utilization_ratio": ("gauge", CONTAINER),
    "container_processes": ("gauge", CONTAINER),
    "container_allocated_replicas": ("gauge", CONTAINER | {"resource"}),
    "container_memory_limit_bytes": ("gauge", CONTAINER),
    "pod_memory_limit_bytes": ("gauge", {"namespace", "pod", *LEAF}),
    "claim_memory_limit_bytes": ("gauge", {"namespace", "claim", *LEAF}),
    "container_memory_ceiling_bytes": ("gauge", CONTAINER),
    "pod_memory_ceiling_bytes": ("gauge", {"namespace", "pod", *LEAF}),
    "claim_memory_ceiling_bytes": ("gauge", {"namespace", "claim", *LEAF}),
    "claim_memory_used_bytes": ("gauge", {"namespace", "claim", *LEAF}),
    "container_limit_info": ("info", CONTAINER | {"system", "source", "scope", "enforced_by"}),
    "container_compute_limit_ratio": ("gauge", CONTAINER),
    "device_memory_declared_bytes": ("gauge", LEAF),
    "container_limit_bypassed": ("gauge", CONTAINER),
    "pod_info": (
        "info",
        {"namespace", "pod", "pod_uid", "workload_kind", "workload", "queue", "priority_class", "reservation"},
    ),
    "container_memory_byte_seconds_total": ("counter", CONTAINER),
    "container_sm_seconds_total": ("counter", CONTAINER),
    "container_allocated_seconds_total": ("counter", CONTAINER | {"resource"}),
    "device_memory_byte_seconds_total": ("counter", LEAF | {"part"}),
    "device_observed_seconds_total": ("counter", LEAF),
    "device_unknown_seconds_total": ("counter", LEAF),
    "build_info": ("info", {"version", "revision"}),
    "source_up": ("gauge", {"source"}),
    "round_duration_seconds": ("histogram", set()),
    "rounds_total": ("counter", set()),
    "rounds_incomplete_total": ("counter", {"reason"}),
    "round_failures_total": ("counter", set()),
    "snapshot_timestamp_seconds": ("gauge", set()),
    "gpu_processes": ("gauge", {"attribution"}),
    "pid_domain_proven": ("gauge", set()),
    "config_last_reload_successful": ("gauge", set()),
    "config_last_reload_success_timestamp_seconds": ("gauge", set()),
    "container_over_limit_seconds_total": ("counter", CONTAINER),
    "due_seconds_total": ("counter", CONTAINER | {"reason", "kind"}),
    "container_state": ("gauge", CONTAINER | {"state"}),
    "actions_total": ("counter", {"action", "namespace"}),
    "dry_run_actions_total": ("counter", {"action", "namespace"}),
    "action_failures_total": ("counter", {"action", "namespace", "reason"}),
    "warnings_undelivered_total": ("counter", {"namespace"}),
    "last_action_timestamp_seconds": ("gauge", {"namespace", "pod", "container", "action"}),
    "action_duration_seconds": ("histogram", {"action"}),
    "refusals_total": ("counter", {"reason", "kind", "namespace"}),
    "held_containers": ("gauge", {"reason", "kind", "namespace"}),
    "namespace_rights_missing": ("gauge", {"namespace"}),
    "enforcement_mode": ("gauge", {"mode"}),
    "configured_mode": ("gauge", {"mode"}),
    "breaker_open": ("gauge", {"breaker"}),
    "budget_remaining": ("gauge", {"scope"}),
}
"""All of them; a part that adds one adds its name here."""


def families() -> dict[str, Family]:
    return {family.name: family for subject in (*CATALOGUE.values(), FAMILIES) for family in subject}


def read(page: Iterable[Metric], stem: str) -> Metric:
    found = [metric for metric in page if metric.name == stem]
    assert len(found) == 1, f"{stem} appears {len(found)} times"
    return found[0]


def test_the_catalogue_is_what_was_promised() -> None:
    """Every promised name is in the catalogue with its type and labels, once, and no other name is."""
    listed = [family.name for subject in (*CATALOGUE.values(), FAMILIES) for family in subject]
    assert sorted(listed) == sorted(f"gpusteward_{name}" for name in PROMISED)
    for name, (kind, labels) in PROMISED.items():
        family = families()[f"gpusteward_{name}"]
        assert (family.kind, set(family.labels)) == (kind, labels), name


def test_the_page_is_the_catalogue() -> None:
    """A node that has everything shows every family, with exactly its labels and those of every sample."""
    page = read_page(golden_page(OPENMETRICS))
    assert len(page) == len(PROMISED)
    for name, family in families().items():
        metric = read(page, name.removesuffix("_total").removesuffix("_info"))
        assert metric.type == family.kind
        assert metric.documentation == family.help
        assert metric.samples
        for sample in metric.samples:
            expected = {"node", "namespace", "pod", "container", *family.labels}
            assert set(sample.labels) - {"le"} == expected, name
            if family.kind is Kind.INFO:
                assert sample.value == 1


def test_only_workloads_fill_the_labels_of_workloads() -> None:
    """`namespace`, `pod` and `container` are empty where a family is of no workload; `node` never is."""
    for metric in read_page(golden_page()):
        promised = PROMISED.get(metric.name.removeprefix("gpusteward_"), PROMISED.get(f"{metric.name[11:]}_total"))
        assert promised is not None, metric.name
        for sample in metric.samples:
            assert sample.labels["node"] == "gpu-node-1"
            for label in {"namespace", "pod", "container"} - promised[1]:
                assert sample.labels[label] == ""


def test_no_series_is_written_twice() -> None:
    """A page has each series once, also while two generations of one name coexist, and no `_created` series."""
    series = [
        (sample.name, frozenset(sample.labels.items()))
        for metric in read_page(golden_page())
        for sample in metric.samples
    ]
    assert len(series) == len(set(series))
    assert not [name for name, _ in series if name.endswith("_created")]


def test_both_formats_say_the_same() -> None:
    """Text and OpenMetrics carry the same samples, except for what the format calls the type."""

    def samples(page: Iterable[Metric]) -> set[tuple[object, ...]]:
        return {(s.name, s.value, *sorted(s.labels.items())) for metric in page for s in metric.samples}

    assert samples(read_page(golden_page())) == samples(read_page(golden_page(OPENMETRICS)))
