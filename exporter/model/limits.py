"""
Declared limits: the one type that resolver, policy, messages and journal share.

Nothing comes in. Frozen facts go out. A limit is made once, in `exporter.rounds.limits`, and passed on by reference.
"""

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


class Context(StrEnum):
    """
    Whether a declared amount includes CUDA contexts.

    A context is memory that the driver holds for each process beside what the process allocates.
    """

    INCLUDED = "included"
    EXCLUDED = "excluded"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Limit:
    """
    What one limit holder (a container, a pod or a claim) may hold of one device, as declared.

    Attributes:
        container: empty for what the whole pod declared.
        claim: `namespace/name` of the claim whose limit this is; empty otherwise.
        memory: bytes; None where it is not declared, or not validly (`problems` say why).
        undeclared: nothing declares an amount of memory, validly or not.
        system, source: which system's declaration it is, and where that is written.
        scope: what shares the amount.
        compute: declared share of one device, 0 to 1; never enforced.
        report_only: why it must not be enforced; empty when it may be.
        context: whether the amount includes CUDA contexts.
        headroom: bytes that contexts may add to `memory` at most, because another declaration includes them and says
            so much more; None where no declaration bounds them.
        ceiling: bytes above which the holder counts as over its limit now: the limit, the tolerance, and what is
            allowed for the contexts of its processes; None without a limit.
        bypassed: whether it is plainly exceeded although `enforced_by` names an enforcer; None where there is none, and
            where the use is not known.
        mps: a declaration of this holder says that it is an MPS client, and more than the pod's author vouches for it.

    """

    pod_uid: PodUid
    container: str
    device: DeviceKey
    memory: int | None
    system: str
    source: Mechanism
    scope: Scope
    enforced_by: EnforcedBy
    claim: str = ""
    compute: float | None = None
    problems: tuple[str, ...] = ()
    report_only: tuple[str, ...] = ()
    bypassed: bool | None = None
    undeclared: bool = False
    mps: bool = False
    context: Context = Context.UNKNOWN
    headroom: int | None = None
    ceiling: int | None = None

    @property
    def declared(self) -> str:
        """The declaration in words: the system, and where it is written."""
        return f"{self.system} {self.source}"
