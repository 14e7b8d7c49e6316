"""
A system of the catalogue and its rows: the place, key, unit and meaning of each declaration.

What comes in: the data of a YAML file, which msgspec converts (see `loading`). What goes out: frozen systems with rows.

The rule: a row is data. It names a mechanism, a key, a unit and a count to divide by. A format that needs more has a
decoder, a small function that the row names. No row holds an expression.
"""

from enum import IntEnum, StrEnum
from fractions import Fraction
from typing import Annotated, Literal, Self

import msgspec
from msgspec import Meta, field

from exporter.model import Context, EnforcedBy, Mechanism, Scope

Name = Annotated[str, Meta(pattern="^[a-z0-9][a-z0-9-]{0,62}$")]
Key = Annotated[str, Meta(min_length=1, max_length=317)]  # a prefix of 253, a slash, a name of 63


class What(StrEnum):
    """The meaning of a row's number. `count` rows are divisors, `device` rows only name devices."""

    MEMORY = "memory"
    MEMORY_RATIO = "memory-ratio"
    COMPUTE = "compute"
    COUNT = "count"
    DEVICE = "device"


class Per(StrEnum):
    """
    How an amount applies to devices.

    `device`: to each device. `total`: divided by the count. `spread`: an amount above one device fills whole devices,
    one after the other (100 = one GPU, 200 = two).
    """

    DEVICE = "device"
    TOTAL = "total"
    SPREAD = "spread"


class Trust(IntEnum):
    """How hard a declaration is to forge: the lower the number, the more it is trusted."""

    CLAIM = 1
    RESOURCE = 2
    SCHEDULER = 3
    USER = 4
    ENV = 5


class Confidence(StrEnum):
    """Where the row's meaning was read: the system's source, its documentation, or no certain place."""

    SOURCE = "source"
    DOCUMENTATION = "documentation"
    UNSURE = "unsure"


class Star(StrEnum):
    """The meaning of the first `*` in an annotation's key."""

    NOTHING = ""
    CONTAINER = "container"
    CONTAINER_INDEX = "container-index"


TRUST = {
    Mechanism.CLAIM: Trust.CLAIM,
    Mechanism.CLAIM_CONFIG: Trust.CLAIM,
    Mechanism.RESOURCE: Trust.RESOURCE,
    Mechanism.POLICY: Trust.RESOURCE,
    Mechanism.ANNOTATION: Trust.USER,
    Mechanism.LABEL: Trust.USER,
    Mechanism.ENV: Trust.ENV,
}
"""The trust of a mechanism, unless the row says otherwise."""


class Units(tuple[Fraction, ...]):
    """Bytes per unit (memory) or devices per unit (ratios); in YAML a quantity, or a list of quantities."""

    __slots__ = ()


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the file; unknown keys are refused."""


class Row(Part, frozen=True, kw_only=True):
    """
    One declaration.

    Attributes:
        key: the exact name, with `*` for any text. For a claim-config, the dotted path in the parameters.
        units: several if installations differ, the usual one first. Then only calibration may choose.
        scaled: an installation may multiply the unit by a whole factor that the pod does not show (`factors`).
        factor: node annotation, a JSON object, with that factor as `memoryFactor`.
        divide_by: keys of count rows of the same system; the first that the pod has is the divisor.
        loses_to: keys of the same system; if the pod has one of them, this row does not count.
        without: keys with `*`; if the container asks for one of them, or the pod has it as an annotation, the row is
            not read. A whole card is not whole beside an amount of its memory.
        above_one: the remark if a container asks for more than 1, and the kubelet has not handed out more than 1.
        calibrate: key of the node's capacity that must fit the devices; empty if nothing can be checked.
        register: node annotation in which the system lists its devices' memory; if present, it must fit the devices.
        plain: only plain numbers: the system itself refuses quantity suffixes.
        kubelet: the kubelet's device ids of this resource name real devices.
        written_by: `trust` in the file: `scheduler` marks annotations that schedulers write. The trust of other rows
            follows from their mechanism.
        context: whether the amount includes CUDA contexts, if that differs from the system's other rows.

    """

    mechanism: Mechanism
    key: Key
    what: What
    units: Units = field(name="unit", default=Units([Fraction(1)]))
    scope: Scope = Scope.CONTAINER
    per: Per = Per.DEVICE
    divide_by: tuple[Key, ...] = ()
    loses_to: tuple[Key, ...] = ()
    without: tuple[Key, ...] = ()
    above_one: str = ""
    decoder: str = "quantity"
    calibrate: str = ""
    register: str = ""
    scaled: bool = False
    factor: str = ""
    plain: bool = False
    kubelet: bool = False
    star: Star = Star.NOTHING
    driver: str = ""
    written_by: str | None = field(name="trust", default=None)
    enforced_by: EnforcedBy | None = None
    context: Context | None = None
    confidence: Confidence = Confidence.SOURCE
    note: str = ""

    @property
    def trust(self) -> Trust:
        """How hard the declaration is to forge."""
        return TRUST[self.mechanism] if self.written_by is None else Trust[self.written_by.upper()]

    def at(self, key: str) -> Self:
        """Return the same row with another key."""
        return msgspec.structs.replace(self, key=key)


class When(Part, frozen=True, kw_only=True):
    """
    A condition under which another component enforces: a label or annotation with this value (any, if empty).

    `node-register` is the node annotation in which the system's plugin lists its devices. Its value is the mode of the
    limit's device.
    """

    at: Literal["node-label", "node-register", "pod-label", "pod-annotation"]
    key: Key
    value: str = ""
    enforced_by: EnforcedBy


class Detect(Part, frozen=True, kw_only=True):
    """The signs that a node runs a system, or that a pod uses it: keys with `*`; for labels also `key=value`."""

    resources: tuple[Key, ...] = ()
    node_labels: tuple[Key, ...] = ()
    node_annotations: tuple[Key, ...] = ()
    pod_labels: tuple[Key, ...] = ()
    pod_annotations: tuple[Key, ...] = ()
    env: tuple[Key, ...] = ()
    schedulers: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    sharing: tuple[str, ...] = ()
    always: bool = False


class Reservation(Part, frozen=True, kw_only=True):
    """
    How a system's reservation pods are recognised: they take a whole device from the kubelet for the system's pods.

    The namespace is the system's own, where tenants create no pods. A label in any other namespace proves nothing.

    Attributes:
        namespaces: exact names; an operator who renamed them adds the new names in `limits.rows`.
        labels: keys, or `key=value`; a reservation pod has one of them.
        group: label by which the pods that share a reserved device carry the value of its reservation pod.

    """

    namespaces: Annotated[tuple[Key, ...], Meta(min_length=1)]
    labels: Annotated[tuple[Key, ...], Meta(min_length=1)]
    group: str = ""


class System(Part, frozen=True, kw_only=True):
    """
    A way to share devices.

    Attributes:
        context: whether its amounts include CUDA contexts; `context_source` names the source, or the search for one.
        reservation: how its reservation pods are recognised; None if it has none.
        bypass_env: variables by which a pod's user switches the enforcement off.
        yields_to: systems whose presence gives this system's rows another meaning.
        sources: where these facts were read, for people.

    """

    name: Name = field(name="system")
    title: str = ""
    vendor: Name = "nvidia"
    enforced_by: EnforcedBy = EnforcedBy.NONE
    enforced_when: tuple[When, ...] = ()
    context: Context = Context.UNKNOWN
    context_source: str = ""
    bypass_env: tuple[str, ...] = ()
    detect: Detect = Detect()
    yields_to: tuple[Name, ...] = ()
    reservation: Reservation | None = None
    sources: tuple[str, ...] = ()
    note: str = ""
    rows: tuple[Row, ...] = ()


Catalogue = tuple[System, ...]
