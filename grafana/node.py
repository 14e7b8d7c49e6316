"""The node board: the memory of each GPU by pod, against its capacity and declared limits; the health of each GPU."""

from grafana import expressions as e
from grafana import shared
from grafana.documents import Board
from grafana.kinds import (
    ALARM,
    CAPACITY,
    FULL,
    LIMIT,
    PENDING,
    STALE,
    UNEXPLAINED,
    WHOLE,
    bars,
    lines,
    stat,
    table,
    timeline,
)
from grafana.panels import Row
from grafana.places import NODE, POD

YES = {0: ("no", "transparent"), 1: ("yes", "orange")}

BOARD = Board(
    NODE,
    "One node: memory of each GPU by pod, with capacity, limits and unattributed memory; MIG instances; power, "
    "temperature and clocks.",
    (
        stat("GPUs").about("Physical GPUs that the driver lists.").query(e.GPUS),
        stat("Memory", "bytes").about("Memory of the GPUs that answer.").query(e.TOTAL),
        stat("Used", "percentunit", FULL)
        .about("Share of the memory in use, for the devices whose usage is known.")
        .query(e.USED_SHARE),
        stat("Declared", "bytes").about("Sum of the limits of all pods placed on the devices.").query(e.DECLARED),
        shared.UNATTRIBUTED,
        stat("Data age", "s", STALE)
        .about("Time since the start of the round that is shown. Series end when it is older than three")
        .about("intervals.")
        .query(f"max({e.AGE})"),
        table("GPUs", "gpu, vendor, model, mig, driver_version, pci_bus_id, uuid, node", height=6)
        .about("Model, driver and properties of each GPU.")
        .column("Info", "max by (<gpu>, vendor, model, driver_version, mig, pci_bus_id) (gpusteward_gpu_info)"),
        table("Devices", "gpu, gpu_instance, profile, sharing, replicas, uuid, node")
        .about("GPUs without MIG and MIG instances, on which memory is counted, and how pods share each.")
        .column("Used", e.keyed("gpusteward_device_memory_used_bytes"), "bytes")
        .column("Memory", e.keyed("gpusteward_device_memory_total_bytes"), "bytes")
        .column("Declared", e.keyed("gpusteward_device_memory_declared_bytes"), "bytes")
        .column("Pods", e.keyed("gpusteward_device_pods"), "short")
        .column("Containers", e.keyed("gpusteward_device_containers"), "short"),
        Row("GPU ${uuid:text}", repeat="uuid"),
        lines("Memory by pod, GPU ${uuid:text}", "bytes", stacked=True, height=10)
        .about("Stacked: pods, ghost memory (of ended processes), host processes, and unattributed memory. The")
        .about("solid line is the usage that the device reports. A gap below it is memory of known owners whose")
        .about("share is unknown.")
        .query(e.by("namespace, pod", e.CONTAINERS_USED), "{{namespace}}/{{pod}}", to=POD)
        .query("sum(gpusteward_device_memory_ghost_bytes)", "ghosts", UNEXPLAINED)
        .query("sum(gpusteward_device_memory_host_bytes)", "host processes", UNEXPLAINED)
        .query(e.UNATTRIBUTED, "unattributed", UNEXPLAINED)
        .query(e.USED, "used, says the device", WHOLE)
        .query("sum(gpusteward_device_memory_total_bytes)", "capacity", CAPACITY)
        .query(e.DECLARED, "sum of limits", LIMIT),
        lines("SM by pod, GPU ${uuid:text}", "percentunit", stacked=True, height=10)
        .about("Share of the SMs that each pod used: a coarse sum of the driver's figures, absent where the")
        .about("driver reports none. Solid line: SM activity of the device (Hopper and later). Dashed line: share")
        .about("of time in which a kernel ran.")
        .query(e.by("namespace, pod", e.CONTAINERS_SM), "{{namespace}}/{{pod}}", to=POD)
        .query("max by (<device>) (gpusteward_device_sm_utilization_ratio)", "device {{gpu}} {{gpu_instance}}", WHOLE)
        .query("max by (<device>) (gpusteward_device_utilization_ratio)", "busy {{gpu}} {{gpu_instance}}", CAPACITY),
        Row("Health"),
        lines("Power", "watt")
        .about("Power drawn by each GPU. Dashed line: its power limit.")
        .query("max by (<gpu>) (gpusteward_gpu_power_watts)", "GPU {{gpu}}")
        .query("max by (<gpu>) (gpusteward_gpu_power_limit_watts)", "GPU {{gpu}} limit", LIMIT),
        lines("Temperature", "celsius")
        .about("Temperature of each GPU's die, and of its memory where the GPU reports it. Dashed line: the lowest")
        .about("temperature at which a GPU lowers its clocks.")
        .query("max by (<gpu>) (gpusteward_gpu_temperature_celsius)", "GPU {{gpu}}")
        .query("max by (<gpu>) (gpusteward_gpu_memory_temperature_celsius)", "GPU {{gpu}} memory")
        .query('min(gpusteward_gpu_temperature_threshold_celsius{threshold="slowdown"})', "slowdown", LIMIT),
        timeline("Throttled", YES)
        .about("Times at which each GPU lowered its clocks, by reason.")
        .query("max by (<gpu>, reason) (gpusteward_gpu_throttled)", "GPU {{gpu}}: {{reason}}"),
        lines("Clocks", "hertz")
        .about("Current frequencies.")
        .query("max by (<gpu>, clock) (gpusteward_gpu_clock_hertz)", "GPU {{gpu}} {{clock}}"),
        bars("Energy", "joule")
        .about("Energy used in each step.")
        .query(e.growth("<gpu>", "gpusteward_gpu_energy_joules_total"), "GPU {{gpu}}"),
        bars("ECC errors")
        .about("Memory errors in each step. An uncorrected error ends a process.")
        .query(e.growth("<gpu>, severity", "gpusteward_gpu_ecc_errors_total"), "GPU {{gpu}} {{severity}}"),
        bars("XID errors")
        .about("Errors that the driver reported in each step. The first error of a number appears only in the")
        .about("table.")
        .query(e.growth("<gpu>", "gpusteward_gpu_xid_errors_total"), "GPU {{gpu}}"),
        table("XID errors by number", "gpu, xid, uuid, node", width=12)
        .about("Errors within the chosen time, and the time since the last one. docs/runbooks/GPUXidError.md")
        .about("explains each number.")
        .column("Errors", e.XIDS_BY_NUMBER, "short")
        .column("Last one, ago", "time() - max by (<gpu>, xid) (gpusteward_gpu_xid_last_timestamp_seconds)", "s"),
        Row("Hardware health"),
        table("Condition of each GPU", "gpu, uuid, node", height=6)
        .about("A failed row remap is NVIDIA's criterion for a replacement. A pending one takes effect at the next")
        .about("reset. Banks without spare rows fail at their next uncorrectable error.")
        .column("Row remap failed", "max by (<gpu>) (gpusteward_gpu_row_remap_failure)", "short", ALARM)
        .column("Row remap pending", "max by (<gpu>) (gpusteward_gpu_row_remap_pending)", "short", PENDING)
        .column("Rows remapped", 'max by (<gpu>) (gpusteward_gpu_remapped_rows{cause="uncorrectable"})', "short")
        .column(
            "Banks without spare rows", 'max by (<gpu>) (gpusteward_gpu_row_remap_banks{availability="none"})', "short"
        )
        .column("Pages retired", "sum by (<gpu>) (gpusteward_gpu_retired_pages)", "short")
        .column("Retirement pending", "max by (<gpu>) (gpusteward_gpu_page_retirement_pending)", "short", PENDING),
        table("Recovery action", "gpu, action, uuid, node", height=8, width=6)
        .about("What the driver says that each GPU needs. docs/runbooks/GPURecoveryActionNeeded.md explains it.")
        .column("Info", "max by (<gpu>, action) (gpusteward_gpu_recovery_action)"),
        table("VBIOS", "gpu, vbios_version, uuid, node", height=8, width=6)
        .about("The version of each GPU's firmware.")
        .column("Info", "max by (<gpu>, vbios_version) (gpusteward_gpu_vbios_info)"),
        bars("Link errors", width=12)
        .about("NVLink errors of all links by kind, and packets sent again over PCIe, in each step.")
        .query(e.growth("<gpu>, error", "gpusteward_gpu_nvlink_errors_total"), "GPU {{gpu}} NVLink {{error}}")
        .query(e.growth("<gpu>", "gpusteward_gpu_pcie_replays_total"), "GPU {{gpu}} PCIe replays"),
    ),
)
