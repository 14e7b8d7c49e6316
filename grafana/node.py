"""A node: each of its GPUs, who holds its memory, and how it is."""

from grafana import expressions as e
from grafana import shared
from grafana.documents import Board
from grafana.panels import FULL, STALE, Column, Look, Query, Row, lines, stat, table, timeline
from grafana.places import NODE, POD

YES = {0: ("no", "transparent"), 1: ("yes", "orange")}

BOARD = Board(
    NODE,
    "One node: the memory of each GPU by pod, against what there is and what was declared, with what nobody "
    "explains; its MIG "
    "instances; power, temperature and clocks.",
    (
        stat("GPUs", "Physical GPUs that the driver counts.", "short", Query(e.GPUS)),
        stat("Memory", "Memory of the GPUs that answer.", "bytes", Query(e.TOTAL)),
        stat(
            "Used",
            "Share of the memory in use, of the devices whose use is known.",
            "percentunit",
            Query(e.USED_SHARE),
            steps=FULL,
        ),
        stat("Declared", "Sum of the limits of whoever is placed on the devices.", "bytes", Query(e.DECLARED)),
        shared.UNATTRIBUTED,
        stat(
            "Age of what you see",
            "Since the round began whose readings are shown. Series are withdrawn when it is three intervals old.",
            "s",
            Query(e.AGE_WORST),
            steps=STALE,
        ),
        table(
            "GPUs",
            "What the driver says that they are.",
            ("gpu", "vendor", "model", "mig", "driver_version", "pci_bus_id", "uuid", "node"),
            Column("Info", e.GPU_INFO),
            height=6,
        ),
        table(
            "Leaf devices",
            "Where memory is counted: GPUs with MIG off, and the instances of those with MIG on; how pods share each.",
            ("gpu", "gpu_instance", "profile", "sharing", "replicas", "uuid", "node"),
            Column("Used", e.LEAF_MEMORY_USED, "bytes"),
            Column("Memory", e.LEAF_MEMORY_TOTAL, "bytes"),
            Column("Declared", e.LEAF_MEMORY_DECLARED, "bytes"),
            Column("Containers", e.LEAF_CONTAINERS, "short"),
        ),
        Row("GPU ${uuid:text}", repeat="uuid"),
        lines(
            "Memory by pod, GPU ${uuid:text}",
            "Stacked: pods, then memory of dead processes (ghosts), of the host's processes, and what nobody "
            "explains. The solid "
            "line is what the device itself says is used: a gap below it is memory whose owner's part is not known.",
            "bytes",
            Query(e.USED_BY_POD, "{{namespace}}/{{pod}}", to=POD),
            Query(e.GHOST, "ghosts", Look.UNEXPLAINED),
            Query(e.HOST, "host processes", Look.UNEXPLAINED),
            Query(e.UNATTRIBUTED, "unattributed", Look.UNEXPLAINED),
            Query(e.USED, "used, says the device", Look.WHOLE),
            Query(e.LEAF_TOTAL, "capacity", Look.CAPACITY),
            Query(e.DECLARED, "sum of limits", Look.LIMIT),
            stacked=True,
            height=10,
        ),
        lines(
            "SM by pod, GPU ${uuid:text}",
            "Share of the SMs that each pod used: a coarse sum of the driver's figures, absent where the "
            "driver tells none. The "
            "solid line is the device's own (Hopper and later), the dashed one the share of time in which some "
            "kernel ran.",
            "percentunit",
            Query(e.SM_BY_POD, "{{namespace}}/{{pod}}", to=POD),
            Query(e.DEVICE_SM, "device {{gpu}} {{gpu_instance}}", Look.WHOLE),
            Query(e.DEVICE_BUSY, "busy {{gpu}} {{gpu_instance}}", Look.CAPACITY),
            stacked=True,
            height=10,
        ),
        Row("Health"),
        lines("Power", "Power drawn by each GPU.", "watt", Query(e.POWER, "GPU {{gpu}}")),
        lines("Temperature", "Of each GPU's die.", "celsius", Query(e.TEMPERATURE, "GPU {{gpu}}")),
        timeline(
            "Throttled",
            "When each GPU lowered its clocks, and why.",
            Query(e.THROTTLED, "GPU {{gpu}}: {{reason}}"),
            YES,
        ),
        lines("Clocks", "Present frequencies.", "hertz", Query(e.CLOCKS, "GPU {{gpu}} {{clock}}")),
        lines("Energy", "Used in each step.", "joule", Query(e.ENERGY, "GPU {{gpu}}"), bars=True),
        lines(
            "ECC errors",
            "Memory errors in each step; uncorrected ones cost a process its life.",
            "short",
            Query(e.ECC_ERRORS, "GPU {{gpu}} {{severity}}"),
            bars=True,
        ),
        lines(
            "XID errors",
            "Errors that the driver told, in each step; the first one of a rare number is in the table alone.",
            "short",
            Query(e.XID_ERRORS, "GPU {{gpu}}"),
            bars=True,
        ),
        table(
            "XID errors by number",
            "In the chosen time, and how long ago since the daemon listens. docs/runbooks/GPUXidError.md says what "
            "each number means.",
            ("gpu", "xid", "uuid", "node"),
            Column("Errors", e.XIDS_BY_NUMBER, "short"),
            Column("Last one, ago", e.XIDS_AGO, "s"),
            width=12,
        ),
    ),
)
