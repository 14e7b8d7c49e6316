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
    "One node: the memory of each GPU by pod, against what there is and what was declared, with what nobody "
    "explains; its MIG instances; power, temperature and clocks.",
    (
        stat("GPUs").about("Physical GPUs that the driver counts.").query(e.GPUS),
        stat("Memory", "bytes").about("Memory of the GPUs that answer.").query(e.TOTAL),
        stat("Used", "percentunit", FULL)
        .about("Share of the memory in use, of the devices whose use is known.")
        .query(e.USED_SHARE),
        stat("Declared", "bytes").about("Sum of the limits of whoever is placed on the devices.").query(e.DECLARED),
        shared.UNATTRIBUTED,
        stat("Age of what you see", "s", STALE)
        .about("Since the round began whose readings are shown.")
        .about("Series are withdrawn when it is three intervals old.")
        .query(f"max({e.AGE})"),
        table("GPUs", "gpu, vendor, model, mig, driver_version, pci_bus_id, uuid, node", height=6)
        .about("What the driver says that they are.")
        .column("Info", "max by (<gpu>, vendor, model, driver_version, mig, pci_bus_id) (gpusteward_gpu_info)"),
        table("Leaf devices", "gpu, gpu_instance, profile, sharing, replicas, uuid, node")
        .about("Where memory is counted: GPUs with MIG off, and the instances of those with MIG on;")
        .about("how pods share each.")
        .column("Used", e.keyed("gpusteward_device_memory_used_bytes"), "bytes")
        .column("Memory", e.keyed("gpusteward_device_memory_total_bytes"), "bytes")
        .column("Declared", e.keyed("gpusteward_device_memory_declared_bytes"), "bytes")
        .column("Pods", e.keyed("gpusteward_device_pods"), "short")
        .column("Containers", e.keyed("gpusteward_device_containers"), "short"),
        Row("GPU ${uuid:text}", repeat="uuid"),
        lines("Memory by pod, GPU ${uuid:text}", "bytes", stacked=True, height=10)
        .about("Stacked: pods, then memory of dead processes (ghosts), of the host's processes, and what nobody")
        .about("explains. The solid line is what the device itself says is used: a gap below it is memory whose")
        .about("owner's part is not known.")
        .query(e.by("namespace, pod", e.CONTAINERS_USED), "{{namespace}}/{{pod}}", to=POD)
        .query("sum(gpusteward_device_memory_ghost_bytes)", "ghosts", UNEXPLAINED)
        .query("sum(gpusteward_device_memory_host_bytes)", "host processes", UNEXPLAINED)
        .query(e.UNATTRIBUTED, "unattributed", UNEXPLAINED)
        .query(e.USED, "used, says the device", WHOLE)
        .query("sum(gpusteward_device_memory_total_bytes)", "capacity", CAPACITY)
        .query(e.DECLARED, "sum of limits", LIMIT),
        lines("SM by pod, GPU ${uuid:text}", "percentunit", stacked=True, height=10)
        .about("Share of the SMs that each pod used: a coarse sum of the driver's figures, absent where the")
        .about("driver tells none. The solid line is the device's own (Hopper and later), the dashed one the share")
        .about("of time in which some kernel ran.")
        .query(e.by("namespace, pod", e.CONTAINERS_SM), "{{namespace}}/{{pod}}", to=POD)
        .query("max by (<device>) (gpusteward_device_sm_utilization_ratio)", "device {{gpu}} {{gpu_instance}}", WHOLE)
        .query("max by (<device>) (gpusteward_device_utilization_ratio)", "busy {{gpu}} {{gpu_instance}}", CAPACITY),
        Row("Health"),
        lines("Power", "watt")
        .about("Power drawn by each GPU.")
        .query("max by (<gpu>) (gpusteward_gpu_power_watts)", "GPU {{gpu}}"),
        lines("Temperature", "celsius")
        .about("Of each GPU's die.")
        .query("max by (<gpu>) (gpusteward_gpu_temperature_celsius)", "GPU {{gpu}}"),
        timeline("Throttled", YES)
        .about("When each GPU lowered its clocks, and why.")
        .query("max by (<gpu>, reason) (gpusteward_gpu_throttled)", "GPU {{gpu}}: {{reason}}"),
        lines("Clocks", "hertz")
        .about("Present frequencies.")
        .query("max by (<gpu>, clock) (gpusteward_gpu_clock_hertz)", "GPU {{gpu}} {{clock}}"),
        bars("Energy", "joule")
        .about("Used in each step.")
        .query(e.growth("<gpu>", "gpusteward_gpu_energy_joules_total"), "GPU {{gpu}}"),
        bars("ECC errors")
        .about("Memory errors in each step; uncorrected ones cost a process its life.")
        .query(e.growth("<gpu>, severity", "gpusteward_gpu_ecc_errors_total"), "GPU {{gpu}} {{severity}}"),
        bars("XID errors")
        .about("Errors that the driver told, in each step; the first one of a rare number is in the table alone.")
        .query(e.growth("<gpu>", "gpusteward_gpu_xid_errors_total"), "GPU {{gpu}}"),
        table("XID errors by number", "gpu, xid, uuid, node", width=12)
        .about("In the chosen time, and how long ago since the daemon listens.")
        .about("docs/runbooks/GPUXidError.md says what each number means.")
        .column("Errors", e.XIDS_BY_NUMBER, "short")
        .column("Last one, ago", "time() - max by (<gpu>, xid) (gpusteward_gpu_xid_last_timestamp_seconds)", "s"),
    ),
)
