"""
The scenario book: how a sharing system's pods look on a node, and what gpusteward makes of them.

What comes in: `tests/systems/NAME.yaml`. What goes out: `System` with its scenes, in the file's own words.

The rule: a file holds what the system's own components write, and nothing that only the player needs. A key that is not
listed here is refused. README.md beside this file says how to write one.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from enforcer.policy.vocabulary import Kind
from exporter.base.quantities import parse_bytes, parse_duration
from exporter.base.text_files import MalformedError, plain
from exporter.model import EnforcedBy, Mechanism, ProcessKind, Scope

FOLDER = Path(__file__).parent
BEING_BUILT: frozenset[str] = frozenset()
"""What an expectation may wait for: a strict xfail. The mark goes in the commit that fulfils it."""

_GPU = re.compile(r"\$\{gpu(\d+)\}")
_MIG = re.compile(r"\$\{mig(\d+)\.(\d+)\}")
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


_bytes = cache(parse_bytes)
"""A process is asked for its memory in each round, three times."""


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of a file: frozen, and closed for unknown keys."""


class Role(StrEnum):
    """What a pod is there for."""

    ABOVE = "above"
    BELOW = "below"
    FRAMEWORK = "framework"
    OTHER = "other"


class Node(Part, frozen=True, kw_only=True):
    """The Node object: what the system's components write on it."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    capacity: dict[str, str] = {}
    allocatable: dict[str, str] | None = None


class Instance(Part, frozen=True, kw_only=True):
    """A MIG instance, or a partition of an AMD GPU."""

    id: int
    profile: str
    memory: str
    uuids: list[str] = []


class GpuRow(Part, frozen=True, kw_only=True):
    """A GPU as its driver describes it."""

    model: str = "NVIDIA A100-SXM4-80GB"
    vendor: str = "nvidia"
    memory: str = "80Gi"
    uuid: str = ""
    minor: int | None = None
    pci: str = ""
    names: list[str] = []
    mig: list[Instance] = []
    listed: bool = True
    """Whether the driver lists its processes; Ascend's does not say on which vNPU of an NPU a process is."""


class AllocationRow(Part, frozen=True, kw_only=True):
    """What the kubelet's pod-resources API lists for a container: devices of a resource, or a device of a claim."""

    pod: str
    container: str = ""
    resource: str = ""
    ids: list[str] = []
    claim: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""


class ProcessRow(Part, frozen=True, kw_only=True):
    """A process in the driver's list. Without `pod` it is a process of the host; `hidden`: without its memory."""

    memory: str | dict[str, str]
    hidden: bool = False
    pod: str = ""
    container: str = ""
    gpu: int = 0
    mig: int | None = None
    kind: ProcessKind = ProcessKind.COMPUTE

    def held(self, seconds: float) -> int:
        """Return the bytes that it holds so many seconds after the start; 0 before it began."""
        if isinstance(self.memory, str):
            return _bytes(self.memory) if seconds >= 0 else 0
        begun = [(parse_duration(at), size) for at, size in self.memory.items() if parse_duration(at) <= seconds]
        return _bytes(max(begun)[1]) if begun else 0

    @property
    def last_change(self) -> float:
        """Seconds after which it holds the same."""
        return 0.0 if isinstance(self.memory, str) else max(map(parse_duration, self.memory))


class Expected(Part, frozen=True, kw_only=True):
    """One thing to be found. `needs` names what it still waits for, of `BEING_BUILT`."""

    needs: str = ""


class SharingRow(Expected, frozen=True, kw_only=True):
    """How a device is shared."""

    sharing: str
    gpu: int = 0
    mig: int | None = None
    replicas: int = 1
    pods: int | None = None


class LimitRow(Expected, frozen=True, kw_only=True):
    """One limit on one device. Without `container` it is the whole pod's, or its claim's; `absent`: it must not be."""

    pod: str
    bytes: str | None
    scope: Scope
    enforced_by: EnforcedBy
    container: str = ""
    gpu: int = 0
    mig: int | None = None
    system: str = ""
    source: Mechanism | None = None
    context: str = ""
    claim: str = ""
    report_only: bool = False
    problem: bool = False
    absent: bool = False


class Acts(Part, frozen=True, kw_only=True):
    """What is done, and how long after the pod went above its limit."""

    action: str
    after: str


class Held(Part, frozen=True, kw_only=True):
    """Why nothing is done."""

    reason: str
    kind: Kind


class VerdictRow(Expected, frozen=True, kw_only=True):
    """What the policy does about a pod: exactly one of `acts`, `held`, `within`, `no_limit`."""

    pod: str
    role: Role
    container: str = ""
    acts: Acts | None = None
    held: Held | None = None
    within: bool = False
    no_limit: bool = False

    def __post_init__(self) -> None:
        chosen = [self.acts is not None, self.held is not None, self.within, self.no_limit]
        if sum(chosen) != 1:
            raise ValueError(f"verdict of {self.pod}: exactly one of acts, held, within, no_limit")


class Expect(Part, frozen=True, kw_only=True):
    """What gpusteward makes of the scene."""

    sharing: list[SharingRow]
    limits: list[LimitRow]
    verdicts: list[VerdictRow]


class SceneRow(Part, frozen=True, kw_only=True):
    """One node at one time."""

    expect: Expect
    pods: list[dict[str, Any]]
    processes: list[ProcessRow]
    mode: str = ""
    note: str = ""
    without: dict[Role, str] = {}
    config: dict[str, Any] = {}
    node: Node = Node()
    gpus: list[GpuRow] = msgspec.field(default_factory=lambda: [GpuRow()])
    allocatable: dict[str, list[str]] = {}
    allocations: list[AllocationRow] = []
    claims: list[dict[str, Any]] = []
    slices: list[dict[str, Any]] = []
    namespaces: dict[str, dict[str, str]] = {}


class System(Part, frozen=True, kw_only=True):
    """A file of the book."""

    system: str
    sources: list[str]
    scenes: list[SceneRow]


@cache
def book() -> tuple[System, ...]:
    """Read all files, in the order of their names."""
    return tuple(read(file) for file in sorted(FOLDER.glob("*.yaml")))


def read(file: Path) -> System:
    """Read a file. An error names the file and the key."""
    text = _MIG.sub(lambda m: mig_uuid(int(m[1]), int(m[2])), _GPU.sub(lambda m: gpu_uuid(int(m[1])), file.read_text()))
    try:
        system: System = msgspec.convert(plain(text.encode()), System)
    except MalformedError as error:
        raise ValueError(error.at(file.name)) from error
    except Exception as error:
        raise ValueError(f"{file.name}: {error}") from error
    if system.system != file.stem:
        raise ValueError(f"{file.name}: `system` must be the file's name, {file.stem}")
    modes = [scene.mode for scene in system.scenes]
    if len(modes) != len(set(modes)):
        raise ValueError(f"{file.name}: two scenes have the same mode")
    return system


def gpu_uuid(index: int) -> str:
    """Return the UUID of the GPU with this index, `${gpu0}` in a file."""
    return f"GPU-{index:08x}-1111-2222-3333-444444444444"


def mig_uuid(index: int, instance: int) -> str:
    """Return the UUID of a MIG device, `${mig0.1}` in a file: instance 1 of GPU 0."""
    return f"MIG-{index:04x}{instance:04x}-1111-2222-3333-444444444444"


def expanded(ids: list[str]) -> Iterator[str]:
    """Expand `GPU-…::{0..3}` into four ids."""
    for text in ids:
        if (numbers := _RANGE.search(text)) is None:
            yield text
            continue
        for number in range(int(numbers[1]), int(numbers[2]) + 1):
            yield text[: numbers.start()] + str(number) + text[numbers.end() :]
