"""
Declared limits: the one type that resolver, policy, messages and journal share.

What comes in: nothing. What goes out: frozen facts.

The rule: a limit is made once, in `exporter.rounds.limits`, and passed on by reference.
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
    """What shares the amount of a limit."""

    PROCESS = "process"
    CONTAINER = "container"
    INSTANCE = "instance"
    POD = "pod"
    CLAIM = "claim"


class EnforcedBy(StrEnum):
    """The component, other than gpusteward, that enforces a limit."""

    NONE = "none"
    HOOK = "hook"
    MPS = "mps"
    KERNEL = "kernel"
    DRIVER = "driver"
    HARDWARE = "hardware"


class Context(StrEnum):
    """
    Whether a declared amount includes CUDA contexts.

    A context is memory that the driver holds for each process, in addition to the memory that the process allocates.
    """

    INCLUDED = "included"
    EXCLUDED = "excluded"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Limit:
    """
    The declared limit of one limit holder (a container, a pod or a claim) on one device.

    Attributes:
        container: empty for a limit of the whole pod.
        claim: `namespace/name` of the claim that holds the limit; empty otherwise.
        memory: bytes; None if not declared, or only invalidly (`problems` give the reason).
        undeclared: there is no declaration of an amount of memory, valid or not.
        system, source: the system of the declaration, and where it is written.
        scope: what shares the amount.
        compute: declared share of one device, 0 to 1; never enforced.
        report_only: why it must not be enforced; empty if it may be.
        context: whether the amount includes CUDA contexts.
        headroom: the most bytes that contexts may add to `memory`: the excess of another declaration that includes
            them; None if no declaration bounds them.
        ceiling: bytes above which the holder is over its limit now: limit + tolerance + context allowance; None
            without a limit.
        bypassed: whether usage exceeds the ceiling although `enforced_by` names an enforcer; None without an enforcer,
            and if usage is unknown.
        mps: a declaration says that the holder is an MPS client, and more than the text of the pod's author proves it.

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
        """The declaration in two words: the system, and where it is written."""
        return f"{self.system} {self.source}"
