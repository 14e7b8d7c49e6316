"""
The rows of the table: one for each GPU, MIG instance, and holder of memory.

What comes in: a document, and the time. What goes out: cells of text.

The rule: nothing is added up and nothing is guessed. A cell is a figure of the document or a ratio of two. An unknown
figure is shown as unknown. All memory has a row: containers, host processes, ghost memory and unattributed memory. So
has each container that has a device allocated without using it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from exporter.api.schema import Allocation, Container, Device, DeviceId, Document, Gpu, Limit, OnDevice, Owned, Standing
from exporter.top.figures import UNKNOWN, clean, percent, share, size, span
from exporter.top.names import called, holder, short, twins

NEAR = 0.9
"""Share of the limit from which on usage is shown as near it."""
UNDESCRIBED = Device(uuid="")
"""Stands for a device without an entry in the document, which only a container's entry names."""
URGENT = ("unjudged", "exempt", "ok", "over", "grace", "held", "due", "acting")
"""States of the policy, the most urgent last; if a container has several states, the most urgent one is shown."""

_NOTHING_FOLLOWS = frozenset({"unjudged", "exempt", "ok"})
"""States in which no action can follow."""
_MODES = frozenset({"off", "observe", "warn", "dry-run"})
"""Modes that prevent an action. The document gives them in the place of a reason."""
STEP = 2
"""Columns by which the rows of a GPU or MIG instance are indented."""

Placed = TypeVar("Placed", bound=OnDevice)


class Tone(StrEnum):
    """The meaning of a text; `drawing` gives it a style."""

    PLAIN = "plain"
    SOFT = "soft"
    STRONG = "strong"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"


TONES = {"over": Tone.WARN, "grace": Tone.WARN, "held": Tone.WARN, "due": Tone.BAD, "acting": Tone.BAD}


@dataclass(frozen=True, slots=True)
class Row:
    """One line. `notes` are words, the most important first; `tone` is of the figures, `named` of the name."""

    name: str
    inset: int = 0
    used: str = ""
    limit: str = ""
    share: str = ""
    sm: str = ""
    notes: tuple[str, ...] = ()
    tone: Tone = Tone.PLAIN
    named: Tone = Tone.PLAIN


def rows(document: Document, now: float) -> Iterator[Row]:
    """Yield the rows of all GPUs. `now` is in Unix seconds."""
    node = _Node(document, now)
    gpus = {gpu.uuid: gpu for gpu in document.gpus}
    for named in (*document.devices, *document.containers, *document.allocations):
        gpus.setdefault(named.uuid, Gpu(named.uuid))  # a GPU without an entry may still be in use
    for gpu in sorted(gpus.values(), key=lambda gpu: (gpu.index is None, gpu.index, gpu.uuid)):
        yield from node.gpu(gpu)


def _by_device(placed: Iterable[Placed]) -> Mapping[DeviceId, list[Placed]]:
    grouped: dict[DeviceId, list[Placed]] = defaultdict(list)
    for entry in placed:
        grouped[entry.device].append(entry)
    return grouped


class _Node:
    """The document by device."""

    def __init__(self, document: Document, now: float) -> None:
        self.now = now
        self.twins = twins(document.gpus)
        self.certain = document.complete and document.pid_domain_proven
        self.described = {device.device: device for device in document.devices}
        self.containers = _by_device(document.containers)
        self.limits = _by_device(document.limits)
        self.standings = _by_device(document.policy.standings if document.policy else ())
        self.reservations = {pod.uid: pod.reservation for pod in document.pods if pod.reservation}
        users = {_placed(container) for container in document.containers}
        self.idle = _by_device(handed for handed in document.allocations if _placed(handed) not in users)
        self.devices: dict[str, list[DeviceId]] = defaultdict(list)
        for device in {**self.described, **self.containers, **self.idle}:
            self.devices[device[0]].append(device)

    def gpu(self, gpu: Gpu) -> Iterator[Row]:
        devices = self.devices[gpu.uuid]
        whole = self.described.get((gpu.uuid, None), UNDESCRIBED)
        parted = bool(gpu.mig) or any(instance is not None for _, instance in devices)
        yield Row(
            name=f"{called(gpu, self.twins)}  {clean(gpu.model or 'model unknown')}  {short(gpu.uuid)}",
            used="" if parted else size(whole.memory_used_bytes),
            limit=size(gpu.memory_total_bytes),
            share="" if parted else share(whole.memory_used_bytes, gpu.memory_total_bytes),
            sm="" if parted else percent(whole.sm_utilization_ratio),
            notes=tuple(_health(gpu, whole, self.now)),
            tone=Tone.BAD if not gpu.up else Tone.WARN if gpu.xid_errors or _lost(gpu) or _broken(gpu) else Tone.PLAIN,
            named=Tone.STRONG if gpu.up else Tone.BAD,
        )
        for device in sorted(devices, key=lambda device: (device[1] is not None, device[1] or 0)):
            described, instance = self.described.get(device, UNDESCRIBED), device[1]
            if instance is not None:
                yield _instance(instance, described)
            yield from self.holders(device, described, STEP if instance is None else 2 * STEP)

    def holders(self, key: DeviceId, device: Device, inset: int) -> Iterator[Row]:
        for container in sorted(self.containers.get(key, ()), key=_by_use):
            yield self.container(container, device, inset)
        for handed in sorted(self.idle.get(key, ()), key=holder):
            state = "no process" if self.certain else "allocated"
            yield Row(holder(handed), inset, UNKNOWN, notes=(state,), tone=Tone.SOFT)
        if device.memory_used_bytes is None:
            return
        for what, amount in (("host processes", device.memory_host_bytes), ("ghosts", device.memory_ghost_bytes)):
            if amount:
                yield Row(f"[{what}]", inset, size(amount), tone=Tone.SOFT, named=Tone.SOFT)
        if device.memory_unattributed_bytes != 0:
            rest = size(device.memory_unattributed_bytes)
            yield Row("[unattributed]", inset, rest, tone=Tone.SOFT, named=Tone.SOFT)

    def container(self, container: Container, device: Device, inset: int) -> Row:
        declared = [limit for limit in self.limits.get(container.device, ()) if _about(limit, container)]
        standing = max(
            (entry for entry in self.standings.get(container.device, ()) if _judges(entry, container, declared)),
            key=lambda entry: URGENT.index(entry.state) if entry.state in URGENT else len(URGENT),
            default=None,
        )
        used, limit = container.memory_used_bytes, container.memory_limit_bytes
        near = _near(used, limit, device.memory_total_bytes)
        tone = TONES.get(standing.state if standing else near, Tone.WARN if near else Tone.PLAIN)
        return Row(
            name=holder(container),
            inset=inset,
            used=size(used),
            limit="" if limit is None else size(limit),
            share="" if limit is None else share(used, limit),
            sm=_of_share(container),
            notes=(*self.reserves(container), *self.state(standing, near), *_declared(declared, container)),
            tone=tone,
        )

    def reserves(self, container: Container) -> Iterator[str]:
        if system := self.reservations.get(container.pod_uid or "", ""):
            yield f"reserves it for {clean(system)}"

    def state(self, standing: Standing | None, near: str) -> Iterator[str]:
        if standing is None:
            if near:
                yield near
            return
        counts_down = standing.prevented is None and standing.state not in ("held", "due", "acting")
        if standing.due_at is not None and counts_down:
            yield f"{clean(standing.state)} {span(standing.due_at - self.now)}"
        else:
            yield near if standing.state == "ok" and near else clean(standing.state)
        if standing.reason is not None:
            yield clean(standing.reason)
        yield from _grace(standing)
        if standing.next is not None and standing.state not in _NOTHING_FOLLOWS:
            victim = f" {clean(standing.pod)}" if standing.claim and standing.pod else ""
            yield f"then {clean(standing.next)}{victim}"


def _health(gpu: Gpu, device: Device, now: float) -> Iterator[str]:
    if not gpu.up:
        yield "did not answer"
        return
    if gpu.xid_errors:
        last = max(gpu.xid_errors, key=lambda xid: xid.last_at)
        yield f"XID {last.xid} {span(now - last.last_at)} ago"
    yield from _broken(gpu)
    yield from (f"{count} ECC {clean(kind)}" for kind, count in _lost(gpu))
    yield f"{UNKNOWN if gpu.temperature_celsius is None else format(gpu.temperature_celsius, '.0f')}C"
    yield f"{UNKNOWN if gpu.power_watts is None else format(gpu.power_watts, '.0f')}W"
    yield from (f"throttled {clean(reason)}" for reason, on in (gpu.throttled or {}).items() if on)
    if gpu.mig:
        yield "mig"
    else:
        yield f"busy {percent(device.utilization_ratio)}"
        yield from _shared(device)


def _lost(gpu: Gpu) -> list[tuple[str, int]]:
    """Return the counts of ECC errors that lost data; corrected ones lose none."""
    return [(kind, count) for kind, count in (gpu.ecc_errors or {}).items() if count and kind != "corrected"]


def _broken(gpu: Gpu) -> list[str]:
    """Say what the hardware of a GPU needs, if it needs anything."""
    failed = ["row remap failed"] if gpu.row_remap_failure else []
    action = gpu.recovery_action or "none"
    return [*failed, *([] if action == "none" else [f"needs {clean(action)}"])]


def _instance(number: int, device: Device) -> Row:
    return Row(
        name=f"{clean(device.profile or 'instance')}  gi {number}",
        inset=STEP,
        used=size(device.memory_used_bytes),
        limit=size(device.memory_total_bytes),
        share=share(device.memory_used_bytes, device.memory_total_bytes),
        sm=percent(device.sm_utilization_ratio),
        notes=tuple(_shared(device)) if device.replicas > 1 else (),
        named=Tone.STRONG,
    )


def _grace(standing: Standing) -> Iterator[str]:
    """Yield the used part of the time before an action, and what prevents the action."""
    if standing.over_seconds and standing.capacity_seconds:
        used = f"{standing.over_seconds:.0f} of {standing.capacity_seconds:.0f}s"
        yield f"{used} ({percent(standing.over_seconds / standing.capacity_seconds)})"
    if standing.prevented not in (None, standing.reason) and standing.state not in ("ok", "unjudged"):
        mode = "mode " if standing.prevented in _MODES else ""
        yield f"no action: {mode}{clean(standing.prevented)}"


def _shared(device: Device) -> Iterator[str]:
    if device.sharing == "shared":
        yield f"shared by {device.pods} pods"
    elif device.sharing != "none":
        yield clean(device.sharing) + (f" x{device.replicas}" if device.replicas > 1 else "")


def _declared(limits: Sequence[Limit], container: Container) -> Iterator[str]:
    """Yield limits that are not the container's own, and problems of its limits."""
    if any(limit.bypassed for limit in limits):
        yield "limit bypassed"
    if any(limit.problems and limit.memory_bytes is None for limit in limits):
        yield "limit invalid"
    if container.memory_limit_bytes is None:
        known = ((limit.scope, limit.memory_bytes) for limit in limits if limit.memory_bytes is not None)
        for scope, amount in dict.fromkeys(known):
            yield f"{size(amount)} a {clean(scope)}"


def _of_share(container: Container) -> str:
    """Write the used share of the SMs, and the declared one. Above it is no warning: gpusteward does not enforce it."""
    used, declared = container.sm_utilization_ratio, container.compute_limit_ratio
    return percent(used) if declared is None else f"{percent(used)} of {percent(declared)}"


def _about(limit: Limit, container: Container) -> bool:
    return _same_pod(limit, container) and limit.container in ("", container.container)


def _judges(standing: Standing, container: Container, declared: Iterable[Limit]) -> bool:
    """Whether the state is that of the container, of its pod, or of a claim that its pod has a limit of."""
    if standing.claim and standing.pod_uid is None:
        return any(limit.claim == standing.claim for limit in declared)
    if standing.pod_uid != container.pod_uid:
        return False
    its_own = (standing.container, standing.container_id) == (container.container, container.container_id)
    return its_own or not standing.container


def _same_pod(owned: Owned, other: Owned) -> bool:
    if owned.pod_uid is not None and other.pod_uid is not None:
        return owned.pod_uid == other.pod_uid
    return owned.pod is not None and (owned.namespace, owned.pod) == (other.namespace, other.pod)


def _near(used: int | None, limit: int | None, total: int | None) -> str:
    """Compare usage with the limit. A container with a whole device may fill it: it is never shown as near."""
    if used is None or limit is None:
        return ""
    if used > limit:
        return "over"
    return "near" if used >= NEAR * limit and (total is None or limit < total) and used else ""


def _placed(container: Container | Allocation) -> tuple[DeviceId, str | None, str | None, str]:
    return container.device, container.namespace, container.pod, container.container


def _by_use(container: Container) -> tuple[bool, int, str]:
    used = container.memory_used_bytes
    return used is None, -(used or 0), holder(container)
