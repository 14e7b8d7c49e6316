"""The node board: the memory of each GPU by pod, against its capacity and declared limits; the health of each GPU."""

from grafana import expressions as e
from grafana import shared
from grafana.documents import Board
from grafana.kinds import CAPACITY, FULL, LIMIT, STALE, UNEXPLAINED, WHOLE, bars, lines, stat, table, timeline
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
        .about("Power drawn by each GPU.")
        .query("max by (<gpu>) (gpusteward_gpu_power_watts)", "GPU {{gpu}}"),
        lines("Temperature", "celsius")
        .about("Temperature of each GPU's die.")
        .query("max by (<gpu>) (gpusteward_gpu_temperature_celsius)", "GPU {{gpu}}"),
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
    ),
)
