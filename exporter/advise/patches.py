"""
A limit in the form of a sharing system: the catalogue of declarations, read backwards.

What comes in: bytes, the system and the place of the present declaration. What goes out: a key and a text that declare
at least these bytes, as a patch of the workload.

The rule: a row of the catalogue is used only if a user writes it, and its text is a plain number or quantity. The text
is rounded up to the row's unit. A system that no row can write gets words, or our own annotation.
"""

from collections.abc import Mapping
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
WORKLOADS = {"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job"}
"""Kinds of Kubernetes itself with the pod's template at `spec.template`."""

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
    catalogue: Catalogue, system: str, source: str, container: str, limit: int, *, device: float | None, devices: int
) -> Declared | str:
    """
    Write a limit for a container, or say in words why it cannot be written.

    Args:
        catalogue: of sharing systems.
        system, source: of the present declaration; empty without one.
        container: its name.
        limit: bytes on each device.
        device: memory of the device in bytes; None if unknown.
        devices: how many devices a pod has.

    """
    systems = {one.name: one for one in catalogue}
    chosen = systems.get(system)
    if chosen is not None and (words := _fixed(chosen, limit)):
        return words
    row = None if chosen is None else _writable(chosen, source)
    if row is None:
        row = _writable(systems[OWN], "annotation")
        assert row is not None  # noqa: S101  (the catalogue's own system has it; a test says so)
    if row.what is What.MEMORY_RATIO and device is None:
        return "the share of a device of unknown size cannot be computed"
    return _written(row, container, limit, device or 0.0, devices)


def _fixed(system: System, limit: int) -> str:
    """Say in words what to do where an amount cannot be written."""
    mechanisms = {row.mechanism for row in system.rows if row.what in (What.MEMORY, What.MEMORY_RATIO)}
    if mechanisms and mechanisms <= {Mechanism.CLAIM, Mechanism.CLAIM_CONFIG}:
        return f"ask for {_quantity(limit)} of memory in the capacity of the ResourceClaim"
    if any(row.scope is Scope.INSTANCE for row in system.rows):
        return f"choose the smallest MIG profile with at least {_quantity(limit)}"
    if any(row.scope is Scope.PROCESS for row in system.rows):
        return f"MPS limits each process: all CUDA_MPS_PINNED_DEVICE_MEM_LIMIT together may be {_quantity(limit)}"
    if system.enforced_by is EnforcedBy.HARDWARE:
        return f"it has a whole device, and needs {_quantity(limit)}: a share of one would do"
    return ""


def _writable(system: System, source: str) -> Row | None:
    """Choose the row that a user writes: that of the present declaration, if it is one, else the first."""
    rows = [
        row
        for row in system.rows
        if row.what in (What.MEMORY, What.MEMORY_RATIO)
        and row.decoder in PLAIN
        and row.written_by is None
        and row.mechanism in (Mechanism.RESOURCE, Mechanism.ANNOTATION, Mechanism.LABEL, Mechanism.ENV)
        and ("*" not in row.key or row.star is Star.CONTAINER)
        and "request" not in row.key.lower()
    ]
    return next((row for row in rows if row.mechanism == source), rows[0] if rows else None)


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
        notes.append(f"one is {_quantity(int(unit))} here; another installation counts in another unit")
    if row.scaled:
        notes.append("divide it by the memory factor of the installation, if it has one")
    if row.scope is Scope.POD:
        notes.append("it is for all containers of the pod together")
    if times > 1:
        notes.append(f"it is for {devices} devices together")
    return Declared(row, row.key.replace("*", container), text, each, "; ".join(notes))


def patch(declaration: Declared, kind: str, namespace: str, name: str, container: str) -> Patch:
    """Make the patch of a workload; of a kind that we do not know, that of its pod template."""
    pod = _pod(declaration, container)
    if kind in WORKLOADS:
        spec: Patch = {"template": pod}
    elif kind == "CronJob":
        spec = {"jobTemplate": {"spec": {"template": pod}}}
    else:
        return pod
    api = "apps/v1" if kind not in ("Job", "CronJob") else "batch/v1"
    return {"apiVersion": api, "kind": kind, "metadata": {"namespace": namespace, "name": name}, "spec": spec}


def _pod(declaration: Declared, container: str) -> Patch:
    entry: Mapping[str, str] = {declaration.key: declaration.text}
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
