"""What was declared, in bytes: the limits of one round, of whoever is on a leaf device."""

from dataclasses import dataclass
from enum import StrEnum

from exporter.model.identity import DeviceKey, PodUid


class Mechanism(StrEnum):
    """Where a declaration is written."""

    RESOURCE = "resource"
    ANNOTATION = "annotation"
    LABEL = "label"
    ENV = "env"
    CLAIM = "claim"
    CLAIM_CONFIG = "claim-config"
    POLICY = "policy"


class Scope(StrEnum):
    """What shares one amount."""

    PROCESS = "process"
    CONTAINER = "container"
    INSTANCE = "instance"
    POD = "pod"
    CLAIM = "claim"


class EnforcedBy(StrEnum):
    """What keeps a container within its limit, apart from gpusteward."""

    NONE = "none"
    HOOK = "hook"
    MPS = "mps"
    KERNEL = "kernel"
    DRIVER = "driver"
    HARDWARE = "hardware"


@dataclass(frozen=True, slots=True)
class DeclaredLimit:
    """
    What one subject may hold of one leaf device, as declared.

    Attributes:
        container: empty for what the whole pod declared.
        claim: `namespace/name` of the claim whose limit this is; empty otherwise.
        memory: bytes; None where it is not declared, or not validly (`problems` say why).
        compute: declared share of one device, 0 to 1; never enforced.
        scope: what shares the amount: process, container, instance, pod or claim.
        report_only: why it must not be enforced; empty when it may be.
        bypassed: whether it is plainly exceeded although somebody else is said to enforce it; None where nobody is, and
            where the use is not known.

    """

    pod_uid: PodUid
    container: str
    device: DeviceKey
    memory: int | None
    system: str
    source: str
    scope: str
    enforced_by: str
    claim: str = ""
    compute: float | None = None
    problems: tuple[str, ...] = ()
    report_only: tuple[str, ...] = ()
    bypassed: bool | None = None
