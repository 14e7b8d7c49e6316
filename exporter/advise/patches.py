"""
A limit in the form of a sharing system: the catalogue of declarations, read backwards.

What comes in: bytes, the system and the place of the present declaration. What goes out: a key and a text that declare
at least these bytes, as a patch of the workload.

The rule: a row of the catalogue is used only if a user writes it, and its text is a plain number or quantity. The text
is rounded up to the row's unit. A system that no row can write gets words, or our own annotation.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any

from exporter.limits.rows import Catalogue, Per, Row, Star, System, What
from exporter.model import EnforcedBy, Mechanism, Scope

OWN = "gpusteward"
"""The system with our annotation, for devices whose sharing declares nothing."""
MIB = 2**20
PLAIN = {"quantity", "below-whole", "kai-memory"}
"""Decoders of a plain number or quantity."""
PARTITIONS = {"nvidia": "MIG profile", "amd": "memory partition", "huawei": "vNPU template"}
"""A hardware partition in the vendor's words."""
WORKLOADS = {"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"}
"""Kinds of Kubernetes itself with the pod's template at `spec.template`, which may be changed."""

Patch = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Declared:
    """
    A text that declares a limit.

    Attributes:
        row: of the catalogue.
        key: with the container's name, where the row has a place for it.
        text: of the amount.
        bytes: what the text declares on each device.
        note: what the user has to check; empty if nothing.
    """

    row: Row
    key: str
    text: str
    bytes: int
    note: str = ""


def declared(
    catalogue: Catalogue,
    system: str,
    source: str,
    container: str,
    limit: int,
    *,
    device: float | None,
    devices: int,
    scope: str = "",
    present: float | None = None,
) -> Declared | str:
    """
    Write a limit for a container, or say in words why it cannot be written.

    Args:
        catalogue: of sharing systems.
        system, source, scope: of the present declaration; empty without one.
        container: its name.
        limit: bytes on each device.
        device: memory of the device in bytes; None if unknown.
        devices: how many devices a pod has.
        present: the present limit in bytes; None without one.

    """
    systems = {one.name: one for one in catalogue}
    chosen = systems.get(system)
    row = None if chosen is None else _writable(chosen, source, scope)
    whole = None if present is None or device is None else present >= device
    if chosen is not None and (words := _fixed(chosen, row, scope, limit, whole=whole)):
        return words
    if row is None:
        row = _writable(systems[OWN], "annotation", "")
        assert row is not None  # noqa: S101  (the catalogue's own system has it; a test says so)
    if row.what is What.MEMORY_RATIO and device is None:
        return "the share of a device of unknown size cannot be computed"
    return _written(row, container, limit, device or 0.0, devices)


def _fixed(system: System, row: Row | None, scope: str, limit: int, *, whole: bool | None) -> str:
    """
    Say in words what to do where an amount cannot be written.

    `row` is the one that could be; `whole`: whether it has a whole device, None if unknown.
    """
    amounts = [one for one in system.rows if one.what in (What.MEMORY, What.MEMORY_RATIO)]
    mechanisms, scopes = {one.mechanism for one in amounts}, {one.scope for one in amounts}
    if mechanisms and mechanisms <= {Mechanism.CLAIM, Mechanism.CLAIM_CONFIG}:
        return f"ask for {_quantity(limit)} of memory in the capacity of the ResourceClaim"
    if scope == Scope.INSTANCE or (not scope and scopes == {Scope.INSTANCE}):
        return f"choose the smallest {PARTITIONS.get(system.vendor, 'partition')} with at least {_quantity(limit)}"
    if Scope.PROCESS in scopes:
        return f"MPS limits each process: all CUDA_MPS_PINNED_DEVICE_MEM_LIMIT together may be {_quantity(limit)}"
    hard = {EnforcedBy.HARDWARE} if row is not None else {EnforcedBy.HARDWARE, EnforcedBy.DRIVER}
    if system.enforced_by not in hard or (row is not None and not whole):
        return ""
    if row is None and (form := next((one for one in amounts if _amount(one)), None)) is not None:
        return f"set {form.key} to {ceil(Fraction(limit) / form.units[0])}; the name of the model stands for the *"
    if whole is False:
        return f"choose the smallest share that the system offers with at least {_quantity(limit)}"
    return f"it has a whole device, and needs {_quantity(limit)}: a share of one would do"


def _amount(row: Row) -> bool:
    """Whether a user writes an amount of memory in it."""
    return (
        row.what in (What.MEMORY, What.MEMORY_RATIO)
        and row.decoder in PLAIN
        and row.written_by is None
        and row.mechanism in (Mechanism.RESOURCE, Mechanism.ANNOTATION, Mechanism.LABEL, Mechanism.ENV)
        and "request" not in row.key.lower()
    )


def _writable(system: System, source: str, scope: str) -> Row | None:
    """Choose the row that a user writes: that of the present declaration, if it is one, else the first."""
    rows = [row for row in system.rows if _amount(row) and ("*" not in row.key or row.star is Star.CONTAINER)]
    rows.sort(key=lambda row: (bool(scope) and row.scope != scope, row.mechanism != source))
    return rows[0] if rows else None


def _written(row: Row, container: str, limit: int, device: float, devices: int) -> Declared:
    unit: Fraction = row.units[0] * Fraction(device) if row.what is What.MEMORY_RATIO else row.units[0]
    times = devices if row.per is Per.TOTAL else 1
    if unit == 1 and not row.plain:
        count = ceil(Fraction(limit, MIB)) * times
        text, each = f"{count}Mi", count * MIB // times
    else:
        count = ceil(Fraction(limit) / unit) * times
        text, each = str(count), int(count * unit / times)
    notes = []
    if len(row.units) > 1:
        notes.append(f"one is {_quantity(int(unit))} here, and another installation may count in another unit")
    if row.scaled:
        notes.append("divide it by the memory factor of the installation, if it has one")
    if row.scope is Scope.POD:
        notes.append("it is for all containers of the pod together")
        if row.mechanism is Mechanism.RESOURCE:
            notes.append("amounts of its containers are added up: remove those of the others")
    if times > 1:
        notes.append(f"it is for {devices} devices together")
    return Declared(row, row.key.replace("*", container), text, each, "; ".join(notes))


def patch(declarations: Iterable[tuple[Declared, str]], kind: str, namespace: str, name: str) -> Patch:
    """
    Make one patch of a workload, from the declarations with the container of each.

    The result is that of the pod template alone where the workload cannot be patched, or its kind is not known.
    """
    pod: Patch = {}
    for declaration, container in declarations:
        _merge(pod, _pod(declaration, container))
    if kind in WORKLOADS:
        spec: Patch = {"template": pod}
    elif kind == "CronJob":
        spec = {"jobTemplate": {"spec": {"template": pod}}}
    else:
        return pod
    api = "batch/v1" if kind == "CronJob" else "apps/v1"
    return {"apiVersion": api, "kind": kind, "metadata": {"namespace": namespace, "name": name}, "spec": spec}


def place(kind: str, name: str) -> str:
    """Say where a patch belongs that is no patch of its workload, or when it counts; empty for an ordinary one."""
    match kind:
        case "Job":
            return (
                f"the template of a Job cannot change: write this into that of {name}, delete the Job, create it anew"
            )
        case "CronJob":
            return "it counts from the next run on"
        case "ReplicaSet":
            return "it counts for new pods: delete the present ones"
        case "Pod":
            return f"write this into the manifest of the pod {name}, delete the pod, create it anew"
        case "StaticPod":
            return f"write this into the manifest of the static pod {name} on its node"
        case _:
            return "" if kind in WORKLOADS else f"in the pod template of {kind} {name}"


def _merge(pod: Patch, other: Patch) -> None:
    """Merge a part of a pod template into another, as a strategic merge patch: containers and variables by name."""
    for key, part in other.items():
        if key not in pod:
            pod[key] = part
        elif isinstance(part, dict):
            _merge(pod[key], part)
        elif isinstance(part, list):
            named = {one["name"]: one for one in pod[key]}
            for one in part:
                if one["name"] in named:
                    _merge(named[one["name"]], one)
                else:
                    pod[key].append(one)


def _pod(declaration: Declared, container: str) -> Patch:
    entry: Patch = {declaration.key: declaration.text}
    match declaration.row.mechanism:
        case Mechanism.RESOURCE:
            return {"spec": {"containers": [{"name": container, "resources": {"limits": entry}}]}}
        case Mechanism.ENV:
            variable = {"name": declaration.key, "value": declaration.text}
            return {"spec": {"containers": [{"name": container, "env": [variable]}]}}
        case Mechanism.LABEL:
            return {"metadata": {"labels": entry}}
        case _:
            return {"metadata": {"annotations": entry}}


def _quantity(amount: int) -> str:
    return f"{amount / 2**30:.4g}Gi"
