"""
A row of the catalogue, and a system: what is read, where, in which unit, and what it counts for.

What comes in: data (see `loading`). What goes out: frozen rows, and keys that match what somebody wrote.

The law: a row is data. It names a mechanism, a key, a unit and a count to divide by; what needs more than that is a
decoder, a small function that the row names. No row holds an expression.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from fractions import Fraction

from exporter.model.limits import EnforcedBy, Mechanism, Scope


class What(StrEnum):
    """What a row's number is. `count` rows are divisors, `device` rows only name devices."""

    MEMORY = "memory"
    MEMORY_RATIO = "memory-ratio"
    COMPUTE = "compute"
    COUNT = "count"
    DEVICE = "device"


class Per(StrEnum):
    """
    How an amount falls on devices.

    `device`: on each; `total`: divided by the count; `spread`: up to one device's worth on one, above that one whole
    device after the other (100 = one GPU, 200 = two).
    """

    DEVICE = "device"
    TOTAL = "total"
    SPREAD = "spread"


class Trust(IntEnum):
    """How hard a declaration is to forge: the lower the number, the more it is believed."""

    CLAIM = 1
    RESOURCE = 2
    SCHEDULER = 3
    USER = 4
    ENV = 5


class Confidence(StrEnum):
    """Where the row's meaning was read: the system's source, its documentation, or nowhere for sure."""

    SOURCE = "source"
    DOCUMENTATION = "documentation"
    UNSURE = "unsure"


class Star(StrEnum):
    """What the first `*` of an annotation's key stands for."""

    NOTHING = ""
    CONTAINER = "container"
    CONTAINER_INDEX = "container-index"


@dataclass(frozen=True, slots=True)
class Row:
    """
    One declaration.

    Attributes:
        key: the exact name, with `*` for any text. Of a claim-config the dotted path in the parameters.
        units: bytes of one unit (memory) or devices of one unit (ratios); several where installations differ, the
            usual one first: then only calibration may choose.
        scaled: an installation may multiply the unit by a whole factor that the pod does not show.
        divide_by: keys of count rows of the same system; the first that the subject has is the divisor.
        loses_to: keys of the same system; where the subject has one of them, this row does not count.
        calibrate: key of the node's capacity that must fit the devices; empty where nothing can be checked.
        register: node annotation in which the system lists its devices' memory; where it is there, it must fit them.
        plain: only plain numbers, no quantity suffixes: the system itself refuses those.
        kubelet: the kubelet's device ids of this resource are true.

    """

    system: str
    mechanism: Mechanism
    key: str
    what: What
    units: tuple[Fraction, ...] = (Fraction(1),)
    scope: Scope = Scope.CONTAINER
    per: Per = Per.DEVICE
    trust: Trust = Trust.RESOURCE
    divide_by: tuple[str, ...] = ()
    loses_to: tuple[str, ...] = ()
    decoder: str = "quantity"
    calibrate: str = ""
    register: str = ""
    scaled: bool = False
    plain: bool = False
    kubelet: bool = False
    star: Star = Star.NOTHING
    driver: str = ""
    enforced_by: EnforcedBy | None = None
    confidence: Confidence = Confidence.SOURCE
    note: str = ""

    @property
    def name(self) -> str:
        """The row in one line, for people: the system, the mechanism, the key."""
        return f"{self.system} {self.mechanism} {self.key}"


@dataclass(frozen=True, slots=True)
class When:
    """A condition under which somebody enforces: a label or annotation with this value (any, when empty)."""

    at: str
    key: str
    value: str
    enforced_by: EnforcedBy


@dataclass(frozen=True, slots=True)
class Detect:
    """What tells that a node runs a system, or that a pod uses it: keys with `*`; labels may say `key=value`."""

    resources: tuple[str, ...] = ()
    node_labels: tuple[str, ...] = ()
    node_annotations: tuple[str, ...] = ()
    pod_labels: tuple[str, ...] = ()
    pod_annotations: tuple[str, ...] = ()
    schedulers: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    sharing: tuple[str, ...] = ()
    always: bool = False


@dataclass(frozen=True, slots=True)
class System:
    """
    A way to share devices.

    Attributes:
        bypass_env: variables of a pod with which its user switches the enforcement off.
        yields_to: systems whose presence tells that this one's rows mean something else here.
        sources: where this was read, for people.

    """

    name: str
    title: str
    vendor: str = "nvidia"
    enforced_by: EnforcedBy = EnforcedBy.NONE
    enforced_when: tuple[When, ...] = ()
    bypass_env: tuple[str, ...] = ()
    detect: Detect = Detect()
    yields_to: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    note: str = ""
    rows: tuple[Row, ...] = field(default=())


Catalogue = tuple[System, ...]


def match(pattern: str, text: str) -> tuple[str, ...] | None:
    """
    Match a key with any number of `*`, each for at least one character; return what the stars stand for.

    None when it does not match. Earlier stars stand for as little as possible, the last one for all the rest: time
    grows with the length of the text only, whatever somebody wrote.
    """
    first, *rest = pattern.split("*")
    if not text.startswith(first):
        return None
    if not rest:
        return () if text == pattern else None
    stars, at = [], len(first)
    for piece in rest[:-1]:
        found = text.find(piece, at + 1)
        if found < 0:
            return None
        stars.append(text[at:found])
        at = found + len(piece)
    end = len(text) - len(rest[-1])
    if not text.endswith(rest[-1]) or end <= at:
        return None
    return (*stars, text[at:end])


def matching(pattern: str, texts: Collection[str]) -> list[tuple[str, tuple[str, ...]]]:
    """List, in order, the keys that match and what their stars stand for; an exact key is looked up, not searched."""
    if "*" not in pattern:
        return [(pattern, ())] if pattern in texts else []
    first = pattern.partition("*")[0]
    found = ((key, match(pattern, key)) for key in sorted(key for key in texts if key.startswith(first)))
    return [(key, stars) for key, stars in found if stars is not None]


def fill(pattern: str, stars: tuple[str, ...]) -> str:
    """Put what the stars stand for back into another key: `baidu.com/*_cgpu_memory` finds its `baidu.com/*_cgpu`."""
    for star in stars:
        pattern = pattern.replace("*", star, 1)
    return pattern
