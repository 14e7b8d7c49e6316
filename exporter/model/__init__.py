"""
The facts of one round, frozen.

What comes in: nothing; this package imports no other one. What goes out: the types that all other modules share.

The rule: **unknown is not zero.** A field that was not measured is `None`, and stays `None` on its way to the metrics.
Units: memory in bytes, ratios from 0 to 1, time in seconds (Unix time unless the name says otherwise), clocks in hertz.
"""

from exporter.model.collectors import ALL_ON, COLLECTORS, Collector, Off
from exporter.model.declared import (
    Claim,
    ClaimConfig,
    ClaimedDevice,
    ClaimUse,
    DeclaredContainer,
    DeclaredPod,
    Held,
    NodeFacts,
)
from exporter.model.devices import (
    CgroupMemory,
    Gpu,
    GpuInstance,
    GpuProcess,
    GpuSample,
    Hardware,
    Health,
    Memory,
    ProcessKind,
    ProcessUtilization,
    Sharing,
    Utilization,
    XidCounts,
    XidErrors,
)
from exporter.model.identity import ContainerId, DeviceKey, Fault, GpuUuid, PodUid
from exporter.model.integrals import (
    HALVES,
    NANOSECONDS,
    ContainerIntegral,
    DeviceIntegral,
    Holder,
    MemoryPart,
)
from exporter.model.limits import Context, EnforcedBy, Limit, Mechanism, Scope
from exporter.model.names import Allocation, Container, ContainerKind, Inventory, Pod
from exporter.model.processes import HostProcess, HostSample, Owner, ProcessKey
from exporter.model.snapshot import (
    Attribution,
    ClaimUsage,
    Device,
    DeviceAccount,
    Snapshot,
    Subject,
    Usage,
    summands,
)
from exporter.model.tolerance import Tolerance, processes_of

__all__ = [
    "ALL_ON",
    "COLLECTORS",
    "HALVES",
    "NANOSECONDS",
    "Allocation",
    "Attribution",
    "CgroupMemory",
    "Claim",
    "ClaimConfig",
    "ClaimUsage",
    "ClaimUse",
    "ClaimedDevice",
    "Collector",
    "Container",
    "ContainerId",
    "ContainerIntegral",
    "ContainerKind",
    "Context",
    "DeclaredContainer",
    "DeclaredPod",
    "Device",
    "DeviceAccount",
    "DeviceIntegral",
    "DeviceKey",
    "EnforcedBy",
    "Fault",
    "Gpu",
    "GpuInstance",
    "GpuProcess",
    "GpuSample",
    "GpuUuid",
    "Hardware",
    "Health",
    "Held",
    "Holder",
    "HostProcess",
    "HostSample",
    "Inventory",
    "Limit",
    "Mechanism",
    "Memory",
    "MemoryPart",
    "NodeFacts",
    "Off",
    "Owner",
    "Pod",
    "PodUid",
    "ProcessKey",
    "ProcessKind",
    "ProcessUtilization",
    "Scope",
    "Sharing",
    "Snapshot",
    "Subject",
    "Tolerance",
    "Usage",
    "Utilization",
    "XidCounts",
    "XidErrors",
    "processes_of",
    "summands",
]
