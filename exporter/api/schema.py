"""
The JSON document of a node, field by field: the daemon writes it, and its clients read it.

What comes in: nothing. What goes out: frozen structs in the document's own words, which docs/api.md explains.

The rule: within version 1 fields are only added. A client ignores fields that it does not know. A field that an older
daemon does not write has a default here. Unknown is None. A number outside the range of `Whole` or `Real` makes the
document unreadable. Above 300 lines, because one document has one definition.
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import msgspec

VERSION = 1
STALE_AFTER = 3
"""Intervals after which a snapshot is too old to describe the node. The metrics are withdrawn then, too."""

Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Real = Annotated[float, msgspec.Meta(ge=-(2.0**63), le=2.0**63)]
"""JSON can write numbers that no float holds."""

DeviceId = tuple[str, int | None]
"""UUID of the GPU, and the id of the MIG instance or None: identifies a device in the document."""


class OnDevice:
    """The base of the rows about one device."""

    __slots__ = ()
    uuid: str
    gpu_instance: int | None

    @property
    def device(self) -> DeviceId:
        """The device's id: UUID and MIG instance."""
        return self.uuid, self.gpu_instance


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A failed reading of the round."""

    source: str
    reason: str = ""
    message: str
    subject: str = ""
    incomplete: bool = True


class Xid(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of error that the driver reported, and when it last did (Unix seconds)."""

    xid: Whole
    count: Whole = 0
    last_at: Real
    gpu_instance: Whole | None = None
    cause: str | None = None
    meaning: str | None = None
    remedy: str | None = None


class Gpu(msgspec.Struct, frozen=True):
    """A physical GPU."""

    uuid: str
    index: Whole | None = None
    up: bool = True
    vendor: str | None = None
    model: str | None = None
    pci_bus_id: str | None = None
    driver_version: str | None = None
    mig: bool | None = None
    unified: bool | None = None
    memory_total_bytes: Whole | None = None
    power_watts: Real | None = None
    energy_joules: Real | None = None
    temperature_celsius: Real | None = None
    clocks_hertz: dict[str, Real | None] | None = None
    throttled: dict[str, bool | None] | None = None
    ecc_errors: dict[str, Whole | None] | None = None
    memory_temperature_celsius: Real | None = None
    vbios_version: str | None = None
    power_limit_watts: Real | None = None
    power_default_limit_watts: Real | None = None
    temperature_thresholds_celsius: dict[str, Real | None] | None = None
    remapped_rows: dict[str, Whole | None] | None = None
    row_remap_pending: bool | None = None
    row_remap_failure: bool | None = None
    row_remap_banks: dict[str, Whole | None] | None = None
    retired_pages: dict[str, Whole | None] | None = None
    page_retirement_pending: bool | None = None
    recovery_action: str | None = None
    nvlink_errors: dict[str, Whole | None] | None = None
    pcie_replays: Whole | None = None
    xid_errors: list[Xid] | None = None


class SilentGpu(Gpu, frozen=True, kw_only=True, omit_defaults=True):
    """A GPU that did not answer: only its names and XID errors are written, the XID errors also where unknown."""

    xid_errors: list[Xid] | None


class Device(OnDevice, msgspec.Struct, frozen=True, kw_only=True):
    """A device: its memory, its accounts, its utilization."""

    uuid: str
    gpu_instance: Whole | None = None
    gpu: Whole | None = None
    profile: str = ""
    mig_uuids: list[str] = []
    sharing: str = "none"
    replicas: Whole = 1
    containers: Whole | None = None
    pods: Whole | None = None
    sampled_at: Real | None = None
    memory_total_bytes: Whole | None = None
    memory_used_bytes: Whole | None = None
    memory_free_bytes: Whole | None = None
    memory_reserved_bytes: Whole | None = None
    memory_attributed_bytes: Whole | None = None
    memory_ghost_bytes: Whole | None = None
    memory_host_bytes: Whole | None = None
    memory_unattributed_bytes: Whole | None = None
    memory_clamped_bytes: Whole | None = None
    accounts_close: bool | None = None
    utilization_ratio: Real | None = None
    sm_utilization_ratio: Real | None = None
    memory_controller_utilization_ratio: Real | None = None
    encoder_utilization_ratio: Real | None = None
    decoder_utilization_ratio: Real | None = None
    memory_declared_bytes: Whole | None = None


# No garbage collection: the rows form no cycles, and a document of 10,000 is written 10 % faster.
class Owned(OnDevice, msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The base of the rows of a container, a pod (no container) or a claim on a device."""

    namespace: str | None = None
    pod: str | None = None
    pod_uid: str | None = None
    container: str = ""


class Container(Owned, frozen=True, kw_only=True):
    """A container's usage of a device."""

    container_id: str | None = None
    uuid: str
    gpu_instance: Whole | None = None
    memory_used_bytes: Whole | None = None
    memory_sure_bytes: Whole | None = None
    memory_peak_bytes: Whole | None = None
    memory_kernel_limit_bytes: Whole | None = None
    queue_evicted_seconds: Real | None = None
    sm_utilization_ratio: Real | None = None
    encoder_utilization_ratio: Real | None = None
    decoder_utilization_ratio: Real | None = None
    processes: Whole | None = None
    pids: list[Whole] = []
    memory_limit_bytes: Whole | None = None
    compute_limit_ratio: Real | None = None
    mps: bool = False


class Limit(Owned, frozen=True, kw_only=True):
    """The declared limit of a container, a pod (no container) or a claim."""

    claim: str = ""
    uuid: str
    gpu_instance: Whole | None = None
    scope: str = ""
    memory_bytes: Whole | None = None
    compute_ratio: Real | None = None
    system: str = ""
    declared_in: str = ""
    enforced_by: str = ""
    bypassed: bool | None = None
    mps: bool = False
    problems: list[str] = []
    report_only: list[str] = []
    context: str = "unknown"
    ceiling_bytes: Whole | None = None


class Allocation(OnDevice, msgspec.Struct, frozen=True, kw_only=True):
    """A device that the kubelet allocated to a container; the kubelet does not give the UID of the pod."""

    namespace: str | None = None
    pod: str | None = None
    pod_uid: ClassVar[None] = None
    container: str = ""
    resource: str = ""
    uuid: str
    gpu_instance: Whole | None = None
    replicas: Whole = 1


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that uses a device, or has one allocated."""

    uid: str
    namespace: str
    name: str
    workload_kind: str = ""
    workload: str = ""
    queue: str = ""
    priority_class: str = ""
    created_at: Real | None = None
    terminating: bool = False
    reservation: str = ""


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """Counters since the daemon started."""

    rounds: Whole = 0
    failures: Whole = 0
    incomplete: dict[str, Whole] = {}
    clamped: Whole = 0
    dropped_utilization: Whole = 0
    capped_utilization: Whole = 0


class Standing(Owned, frozen=True, kw_only=True):
    """
    The policy's state of a limit holder, as far as clients read it.

    `pod_uid` is null of a claim that several pods share; `pod` is then the pod that is acted on. `next` is the action
    that follows at `due_at`. `over_seconds` is the counted time, at most `capacity_seconds`.
    `prevented` says why no action follows.
    """

    container_id: str | None = None
    claim: str = ""
    uuid: str
    gpu_instance: Whole | None = None
    state: str
    reason: str | None = None
    next: str | None = None
    due_at: Real | None = None
    over_seconds: Real | None = None
    capacity_seconds: Real | None = None
    prevented: str | None = None


class Breaker(msgspec.Struct, frozen=True):
    """A breaker that stops all actions of the node."""

    breaker: str
    detail: str = ""


class Policy(msgspec.Struct, frozen=True):
    """The policy's state, as far as clients read it; `enforcer.messages.document` writes it."""

    mode: str
    breakers: list[Breaker] = []
    standings: list[Standing] = []


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The first fields of each document: node, round, and the daemon that wrote it."""

    version: Whole
    program: str = ""
    node: str
    round: Whole
    taken_at: Real
    age_seconds: Real
    interval_seconds: Real
    stale: bool = False
    names_live: bool | None = None


class Document(Head, frozen=True, kw_only=True):
    """One round of a node."""

    duration_seconds: Real | None = None
    complete: bool
    pid_domain_proven: bool = True
    sources_up: dict[str, bool] = {}
    faults: list[Fault] = []
    gpus: list[Gpu]
    devices: list[Device]
    containers: list[Container]
    limits: list[Limit] = []
    allocations: list[Allocation] = []
    pods: list[Pod] = []
    processes: dict[str, Whole] = {}
    tally: Tally | None = None
    policy: Policy | None = None


class Explanation(Head, frozen=True, kw_only=True):
    """
    One pod; `limits` is None where its declarations are unknown, `policy` where no policy is applied.

    `actions` are those of this daemon on pods of this name, the newest first.
    """

    namespace: str
    pod: str
    pod_uid: str
    notes: list[str]
    limits: list[dict[str, Any]] | None
    containers: list[Container]
    policy: Sequence[dict[str, Any]] | None
    actions: Sequence[dict[str, Any]] = ()
    text: str
