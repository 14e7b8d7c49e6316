"""
The snapshot as `/api/v1/snapshot` serves it, read: as much of it as the table draws.

What comes in: bytes. What goes out: frozen structs in the document's own words (docs/api.md), or `NotOursError`.

The law: within version 1 fields are only added, so what is not known here is passed over; what an older daemon does not
write is unknown. Unknown is None. Numbers are numbers that a node can have: what is beyond is no document.
"""

from typing import Annotated

import msgspec

VERSION = 1

Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Real = Annotated[float, msgspec.Meta(ge=-(2.0**63), le=2.0**63)]
"""JSON can write numbers that no float holds."""


class NotOursError(ValueError):
    """These bytes are no snapshot that can be read here; the message goes on from "answers"."""


class Gpu(msgspec.Struct, frozen=True):
    """A physical GPU; of one that did not answer only UUID and index are known."""

    uuid: str
    index: Whole | None = None
    up: bool = True
    vendor: str | None = None
    model: str | None = None
    mig: bool | None = None
    memory_total_bytes: Whole | None = None
    power_watts: Real | None = None
    temperature_celsius: Real | None = None
    throttled: dict[str, bool | None] | None = None
    ecc_errors: dict[str, Whole | None] | None = None
    xid_errors: "list[Xid] | None" = None


class Xid(msgspec.Struct, frozen=True):
    """One kind of error that the driver reported, and when it last did (Unix seconds)."""

    xid: Whole
    last_at: Real


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What names a leaf device."""

    uuid: str
    gpu_instance: Whole | None = None

    @property
    def leaf(self) -> tuple[str, int | None]:
        """The leaf device."""
        return self.uuid, self.gpu_instance


class Device(Held, frozen=True, kw_only=True):
    """A leaf device: its memory, who holds it in sum, its load."""

    profile: str = ""
    sharing: str = "none"
    replicas: Whole = 1
    memory_total_bytes: Whole | None = None
    memory_used_bytes: Whole | None = None
    memory_ghost_bytes: Whole | None = None
    memory_host_bytes: Whole | None = None
    memory_unattributed_bytes: Whole | None = None
    utilization_ratio: Real | None = None
    sm_utilization_ratio: Real | None = None


class Owned(Held, frozen=True, kw_only=True):
    """What somebody of Kubernetes has to do with a leaf device; `pod_uid` is None where the document has none."""

    namespace: str | None = None
    pod: str | None = None
    pod_uid: str | None = None
    container: str = ""


class Container(Owned, frozen=True, kw_only=True):
    """What a container holds."""

    container_id: str | None = None
    memory_used_bytes: Whole | None = None
    memory_limit_bytes: Whole | None = None
    sm_utilization_ratio: Real | None = None


class Limit(Owned, frozen=True, kw_only=True):
    """What was declared for a container, a pod (no container) or a claim."""

    scope: str = ""
    memory_bytes: Whole | None = None
    enforced_by: str = ""
    bypassed: bool | None = None
    problems: list[str] = []


class Allocation(Owned, frozen=True, kw_only=True):
    """What the kubelet handed out."""

    resource: str = ""


class Standing(Owned, frozen=True, kw_only=True):
    """Where the policy sees a container, a pod or a claim; `next` is the rung that follows, `due_at` Unix seconds."""

    container_id: str | None = None
    state: str
    reason: str | None = None
    next: str | None = None
    due_at: Real | None = None


class Breaker(msgspec.Struct, frozen=True):
    """What stops all actions of the node."""

    breaker: str
    detail: str = ""


class Policy(msgspec.Struct, frozen=True):
    """What the policy thinks of the node."""

    mode: str
    breakers: list[Breaker] = []
    standings: list[Standing] = []


class Fault(msgspec.Struct, frozen=True):
    """What could not be asked."""

    source: str
    message: str
    subject: str = ""
    incomplete: bool = True


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """One round of a node."""

    version: Whole
    node: str
    round: Whole
    taken_at: Real
    age_seconds: Real
    interval_seconds: Real
    complete: bool
    gpus: list[Gpu]
    devices: list[Device]
    containers: list[Container]
    program: str = ""
    pid_domain_proven: bool = True
    faults: list[Fault] = []
    limits: list[Limit] = []
    allocations: list[Allocation] = []
    policy: Policy | None = None


class _Any(msgspec.Struct, frozen=True):
    version: Whole
    node: str


def parse(body: bytes) -> Document:
    """Read a document. Raises NotOursError."""
    try:
        version = msgspec.json.decode(body, type=_Any).version
        if version == VERSION:
            return msgspec.json.decode(body, type=Document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotOursError("something else than a snapshot") from error
    raise NotOursError(f"version {version} of the document, and this program reads {VERSION}")
